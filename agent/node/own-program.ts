import { join } from 'node:path'
import { readText } from '../../lib/os/reading.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'

// Long computations of the agent run in a process of their own: the same program, started again for one question. The
// loop of the agent only hands over the question and takes the answer.

/** What a computation may take. `advice` says what helps when that is not enough. */
export interface Limits {
  readonly ms: number
  readonly bytes: number
  readonly advice: string
}

/** CniError 11: there is no answer, because the process ended without one. */
export class NoAnswerError extends CniError {
  override name = 'NoAnswerError'
  constructor(why: string, advice: string, cause?: unknown) {
    super(CODE.tryLater, `Cannot compute the answer: ${why}`, advice, { cause })
  }
}

/** How often the memory of the process is looked at, in milliseconds. */
const LOOK_MS = 25
const MI = 1024 ** 2
const ENDS = 'the agent ends'

/**
 * Starts this program with the words, gives it the lines, and returns what it prints. The lines may come slowly: other
 * work goes on after each of them. The process ends with its answer, at a limit and at the signal. Throws NoAnswerError.
 */
export async function askOwnProgram(
  words: readonly string[],
  lines: Iterable<string>,
  limits: Limits,
  signal: AbortSignal,
): Promise<string> {
  if (signal.aborted) throw new NoAnswerError(ENDS, limits.advice)
  const child = started(words, limits)
  let why: string | undefined
  const end = (reason: string) => {
    why ??= reason
    child.kill('SIGKILL')
  }
  // A process whose memory nobody can read has no limit, so it ends.
  const tooLarge = () => {
    try {
      return memoryOf(child.pid) > limits.bytes ? `it needs more than ${limits.bytes / MI} MiB of memory` : undefined
    } catch (cause) {
      return `its memory cannot be read: ${(cause as Error).message}`
    }
  }
  const onAbort = () => end(ENDS)
  const began = performance.now()
  const looking = setInterval(() => {
    const reason = performance.now() - began > limits.ms ? `it takes longer than ${limits.ms / 1000} s` : tooLarge()
    if (reason !== undefined) end(reason)
  }, LOOK_MS)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    const [answer, status] = await Promise.all([new Response(child.stdout).text(), child.exited, fed(child, lines)])
    if (child.signalCode !== null)
      throw new NoAnswerError(why ?? `its process was killed by ${child.signalCode}`, adviceFor(why, limits))
    if (status !== 0) throw new NoAnswerError(`its process ended with status ${status}; see the log`, limits.advice)
    return answer
  } finally {
    clearInterval(looking)
    signal.removeEventListener('abort', onAbort)
    child.kill('SIGKILL')
    await child.exited
  }
}

// /proc/self/exe is this program also after an update has put another one in its place.
function started(words: readonly string[], { advice }: Limits): Bun.Subprocess<'pipe', 'pipe', 'inherit'> {
  const script = Bun.main.startsWith('/$bunfs/') ? [] : [join(import.meta.dir, '../../cli/plumb.ts')]
  try {
    return Bun.spawn(['/proc/self/exe', ...script, ...words], {
      argv0: 'plumb',
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
      env: {},
    })
  } catch (cause) {
    throw new NoAnswerError(`its process cannot be started: ${(cause as Error).message}`, advice, cause)
  }
}

async function fed({ stdin }: Bun.Subprocess<'pipe', 'pipe', 'inherit'>, lines: Iterable<string>): Promise<void> {
  try {
    for (const line of lines) {
      stdin.write(`${line}\n`)
      await stdin.flush()
      // `flush` may be over at once.
      await new Promise((resolve) => setImmediate(resolve))
    }
    await stdin.end()
  } catch (cause) {
    // A process that has ended reads no more. Its status says why.
    if ((cause as NodeJS.ErrnoException).code !== 'EPIPE') throw cause
  }
}

// The kernel chooses this process before the agent when memory runs out.
function adviceFor(why: string | undefined, { advice }: Limits): string {
  if (why !== undefined) return advice
  return `the node, or the control group of the agent, may be short of memory (resources.limits.memory); ${advice}`
}

// In bytes, without the pages of the program itself, which it shares with the agent. Zero for a process that has ended.
function memoryOf(pid: number): number {
  try {
    return Number(/^RssAnon:\s+(\d+) kB$/m.exec(readText(`/proc/${pid}/status`) ?? '')?.[1] ?? 0) * 1024
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return 0
    throw cause
  }
}
