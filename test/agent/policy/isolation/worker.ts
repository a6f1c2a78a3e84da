// Plays isolation histories in a process of its own.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { linesOf } from '../../../../lib/text/lines.ts'
import type { Played } from './isolation.ts'

// The journal and the names of namespaces are the node's: each worker has its own.
const SCRIPT =
  'mount -t tmpfs tmpfs /run; mkdir -p /var/lib/cni; mount -t tmpfs tmpfs /var/lib/cni; ip link set lo up; exec "$@"'
// Whatever ends the one that asks, the worker ends with it.
const SANDBOX = [
  ...'setpriv --pdeathsig=KILL unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec'.split(
    ' ',
  ),
  SCRIPT,
  'sandbox',
]

/** Which histories to play. */
export interface Wanted {
  readonly first: number
  readonly count: number
  readonly ms: number
  /** Those with flows in the fast path. */
  readonly kind?: 'offloaded'
  /** Their agent, when it is not that of dist/. */
  readonly program?: string
}

/**
 * Plays `count` histories from `first` on, for at most `ms` milliseconds. It ends after the first failure, and when
 * `isEnough` says so of the last one. `root` is the folder of the sources and of their dist/. Throws AssertionError when
 * the worker itself fails.
 */
export async function work(
  root: string,
  { first, count, ms, kind, program }: Wanted,
  isEnough: (played: Played) => boolean = () => false,
): Promise<Played[]> {
  const child = Bun.spawn(
    [
      ...SANDBOX,
      process.execPath,
      join(root, 'test/agent/policy/isolation/isolation.ts'),
      `${first}`,
      `${count}`,
      `${ms}`,
      ...[kind, program].filter((one) => one !== undefined),
    ],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit', cwd: root, env: { ...process.env, PLUMB_SANDBOX: '1' } },
  )
  const all: Played[] = []
  for await (const line of linesOf(child.stdout)) {
    const played = JSON.parse(line) as Played
    all.push(played)
    if (!isEnough(played)) continue
    child.kill('SIGKILL')
    await child.exited
    return all
  }
  const status = await child.exited
  assert.equal(status, 0, `the worker ended with ${status} after history ${all.at(-1)?.seed ?? 'none'}`)
  return all
}
