import { closeSync } from 'node:fs'
import { contentOf, locate } from '../../lib/os/exec.ts'
import { memory } from '../../lib/os/libc.ts'
import { isLink } from '../../lib/os/link-state.ts'
import { chainUses, isThere, ruleCounts, setNames } from '../../lib/os/nftables.ts'
import type { Output, Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { isTraced, traced } from '../scheduler/spans.ts'

/** The variables of the tools that the agent starts. */
export const TOOL_ENV = { PATH: '/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin', LC_ALL: 'C' }
/** No working tool needs this long. A hanging tool must not block its part for ever. */
const LIMIT_MS = 30_000

/** The number of processes that are remembered. The kernel's messages about them come within milliseconds. */
const REMEMBERED = 256
const own = new Set<number>()

function noteOwn(pid: number): void {
  // A number that comes again is the newest one.
  own.delete(pid)
  own.add(pid)
  const [oldest] = own
  if (own.size > REMEMBERED && oldest !== undefined) own.delete(oldest)
}

/** Whether a process is, or was a moment ago, a tool that `run` started. */
export function isOwn(pid: number): boolean {
  return own.has(pid)
}

/**
 * Runs a tool in the agent's own namespace without blocking other work. The tool writes its output to memory files.
 * iproute2 writes each row of a list separately, and ten thousand reads from a pipe cost more than everything else.
 * Throws CniError when the tool is not installed. Throws ExecError when it cannot be started or runs longer than 30 s.
 */
export const run: Run = Object.assign(
  (argv: readonly string[], stdin: string): Promise<Output> =>
    isTraced() ? tracedTool(argv, stdin) : tool(argv, stdin),
  {
    link: isLink,
    rules: () => ruleCounts('inet', 'plumb'),
    uses: () => chainUses('inet', 'plumb'),
    hasTable: () => isThere('inet', 'plumb'),
    sets: () => setNames('inet', 'plumb'),
  },
)

// The input of a tool may have a key. Its words have none.
function tracedTool(argv: readonly string[], stdin: string): Promise<Output> {
  const outcome = ({ status, stderr }: Output) => ({
    attributes: { 'process.exit.code': status },
    error: status === 0 ? undefined : (stderr.trim().split('\n')[0] ?? ''),
  })
  const about = { attributes: { 'process.command_args': argv }, outcome }
  return traced(argv[0] ?? '', about, () => tool(argv, stdin))
}

async function tool(argv: readonly string[], stdin: string): Promise<Output> {
  const [name = '', ...args] = argv
  const words = locate(name)
  const files: number[] = []
  const noted = (fd: number): number => files[files.push(fd) - 1] as number
  try {
    const [input, stdout, stderr] = [noted(memory(stdin)), noted(memory()), noted(memory())]
    const started = performance.now()
    const child = start([...words, ...args], [input, stdout, stderr], argv)
    noteOwn(child.pid)
    const status = await child.exited
    if (child.signalCode === 'SIGKILL' && performance.now() - started >= LIMIT_MS)
      throw new ExecError(argv, undefined, `was killed after ${LIMIT_MS / 1000} s`)
    return { status: child.signalCode === null ? status : -1, stdout: contentOf(stdout), stderr: contentOf(stderr) }
  } finally {
    for (const fd of files) closeSync(fd)
  }
}

// Uses file descriptors instead of a Blob. The file of a Blob stays open until its garbage is collected.
function start(cmd: string[], [stdin, stdout, stderr]: readonly [number, number, number], argv: readonly string[]) {
  try {
    return Bun.spawn(cmd, { stdin, stdout, stderr, env: TOOL_ENV, timeout: LIMIT_MS, killSignal: 'SIGKILL' })
  } catch (cause) {
    throw new ExecError(argv, undefined, `cannot be started: ${(cause as Error).message}`, { cause })
  }
}
