// Tests agent/policy and plugins/policy.ts: isolation of addresses through random histories of a node (isolation.ts).
import assert from 'node:assert/strict'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { linesOf } from '../support/lines.ts'
import type { Played } from './isolation.ts'
import { budgetOf, casesOf, tell } from './share.ts'

const COUNT = casesOf('isolation')
const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
const isAsked = process.env['PLUMB_FUZZ_CASES'] !== undefined
/** Each worker is a node with an agent. */
const WORKERS = isAsked ? 2 * availableParallelism() : 1
/** The longest time of a JavaScript timer. */
const LONGEST_MS = 2 ** 31 - 1
// The journal and the names of namespaces are the node's: each worker has its own.
const SCRIPT =
  'mount -t tmpfs tmpfs /run; mkdir -p /var/lib/cni; mount -t tmpfs tmpfs /var/lib/cni; ip link set lo up; exec "$@"'
const SANDBOX = [
  ...'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec'.split(' '),
  SCRIPT,
  'sandbox',
]

async function work(first: number, count: number, ms: number): Promise<Played[]> {
  const child = Bun.spawn(
    [...SANDBOX, process.execPath, join(import.meta.dir, 'isolation.ts'), `${first}`, `${count}`, `${ms}`],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' },
  )
  const played: Played[] = []
  for await (const line of linesOf(child.stdout)) played.push(JSON.parse(line))
  const status = await child.exited
  assert.equal(status, 0, `the worker ended with ${status} after history ${played.at(-1)?.seed ?? 'none'}`)
  return played
}

describe('isolation of addresses', () => {
  it(`${COUNT} histories of seed ${SEED}: every pair of pods and every flow is as the oracle says, through ADD, DEL, policies, restarts and kills`, async function () {
    this.timeout(0)
    const each = Math.ceil(COUNT / WORKERS)
    const ms = Math.min(LONGEST_MS, budgetOf(45_000))
    const all = (
      await Promise.all(Array.from({ length: WORKERS }, (_, i) => work(SEED * 1_000_000 + i * each, each, ms)))
    ).flat()
    const failures = all.flatMap(({ failure }) => failure ?? [])
    tell(
      'isolation',
      { ok: all.length - failures.length, refused: failures.length, slowest: Math.max(...all.map(({ ms }) => ms)) },
      failures.length,
    )
    assert.ok(all.length > 0, 'no history was played')
    assert.deepEqual(failures, [])
  })
})
