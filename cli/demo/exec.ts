import { inside } from '../../lib/os/netns.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import { type Netns, parse } from '../../lib/text/values.ts'
import { mountsOf } from './places.ts'

const PATH = '/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin'

/** The exit status of a program, and its whole output. The status is -1 when a signal ended the program. */
export interface Finished {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}
/**
 * Where and how a program runs. `ns` is `host` or the name of a namespace. With `node` the namespace is on that node of
 * the cluster. `stdin` is the input, `env` has variables besides PATH.
 */
export interface Way {
  readonly ns?: string | undefined
  readonly node?: string | undefined
  readonly stdin?: string
  readonly env?: Readonly<Record<string, string>>
}

/** Runs a program and waits for its end. An exit status other than 0 is no error. */
export async function exec(argv: readonly string[], way: Way = {}): Promise<Finished> {
  const child = start(argv, way)
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { status: child.exitCode ?? -1, stdout, stderr }
}

/** Runs a program and returns its stdout. Throws CniError with its output when the exit status is not 0. */
export async function must(argv: readonly string[], way: Way = {}): Promise<string> {
  const { status, stdout, stderr } = await exec(argv, way)
  if (status !== 0)
    throw new CniError(
      CODE.internal,
      `${argv.join(' ')} (in ${[way.node, way.ns ?? 'host'].filter(Boolean).join(', ')}) ended with ${status}`,
      `${way.stdin ?? ''}${stdout}${stderr}`,
    )
  return stdout
}

/** Runs commands of `ip` in a namespace, as one batch. Throws CniError. */
export async function lines(ns: string, commands: readonly string[]): Promise<void> {
  await must(['ip', '-batch', '-'], { ns, stdin: `${commands.join('\n')}\n` })
}

/** Starts a program. The program ends with the demo at the latest. */
export function start(
  argv: readonly string[],
  { ns = 'host', node, stdin = '', env = {} }: Way = {},
): Bun.Subprocess<Buffer, 'pipe', 'pipe'> {
  const place: Netns = ns === 'host' || node ? 'host' : parse.netns(`/run/netns/${ns}`)
  const [name = '', ...args] = node
    ? [...entry(node), ...(ns === 'host' ? [] : ['ip', 'netns', 'exec', ns]), ...argv]
    : argv
  return inside(place, () =>
    Bun.spawn([Bun.which(name, { PATH }) ?? name, ...args], {
      env: { PATH, LC_ALL: 'C', ...env },
      cwd: '/',
      stdin: Buffer.from(stdin),
      stdout: 'pipe',
      stderr: 'pipe',
    }),
  )
}

function entry(node: string): string[] {
  return ['nsenter', `--net=/run/netns/${node}`, `--mount=${mountsOf(node)}`, '--']
}
