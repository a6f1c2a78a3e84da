import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { locate } from '../../lib/os/exec.ts'
import { pipe } from '../../lib/os/libc.ts'
import { readText } from '../../lib/os/reading.ts'
import { tidy } from '../node/garbage.ts'
import { TOOL_ENV } from './run.ts'

/** A tool that reports changes as long as it runs: `ip monitor` or `bridge monitor`. */
export interface Watched {
  readonly argv: readonly string[]
  line(text: string): void
  /** Additional variables for its environment. */
  readonly env?: Readonly<Record<string, string>>
  /**
   * Called when changes may have been missed. The tool was started for the first time or again, or it lost messages.
   */
  lost(): void
  /** Called with the reason when the tool cannot run, and with undefined when it runs. */
  failing?(why: string | undefined): void
}

/** After this many lines the garbage is collected. They leave some megabytes behind. */
const BURST = 2000
const REST_MS = 5
const [FIRST_MS, LONGEST_MS] = [100, 10_000]
/** The longest pause before the next start. Meanwhile the node is not ready, although the tool may work again. */
const LONGEST_PAUSE_MS = 5000
/** A tool that has run for this long counts as working. */
const LASTING_MS = 500

/**
 * Follows a tool until the signal, and starts it again when it ends, with growing pauses. Each reason is logged once,
 * as long as it stays the same. Never throws.
 */
export async function follow(watched: Watched, signal: AbortSignal, log: (text: string) => void): Promise<void> {
  let logged = ''
  for (let pause = FIRST_MS; !signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const started = performance.now()
    const why = await one(watched, signal)
    if (signal.aborted) return
    // The first end is not reported as a failure. The tool is back before it matters.
    if (logged !== '') watched.failing?.(`${watched.argv.join(' ')} cannot run, so that changes go unnoticed: ${why}`)
    // A tool that ran for a while starts again with the shortest pause.
    if (performance.now() - started > LONGEST_MS) [pause, logged] = [FIRST_MS, '']
    // A signal to the whole process group ends the tool before the agent. The agent's own signal is then about to come.
    await sleep(pause, undefined, { signal }).catch(() => undefined)
    if (signal.aborted) return
    if (why !== logged) log(`agent: ${watched.argv.join(' ')} ended, starting it again until it goes on: ${why}`)
    logged = why
  }
}

async function one({ argv, line, lost, failing, env }: Watched, signal: AbortSignal): Promise<string> {
  const [name = '', ...args] = argv
  let [lastError, words]: [string, readonly string[]] = ['', []]
  try {
    words = locate(name)
  } catch (cause) {
    return (cause as Error).message
  }
  // Bun's own pipe holds only four hundred lines. When it is full, the tool blocks and the kernel drops messages.
  const { read, write } = pipe()
  try {
    const child = start([...words, ...args], env, write)
    const end = () => child.kill('SIGKILL')
    signal.addEventListener('abort', end)
    process.on('exit', end)
    void whenListening(child.pid, signal).then(lost)
    const lasting = setTimeout(() => failing?.(undefined), LASTING_MS)
    const errors = eachLine(child.stderr, (text) => {
      lastError = text
      // iproute2 goes on after it lost messages, and reports the loss here.
      if (/buffer space|netlink/i.test(text)) lost()
    })
    try {
      await Promise.all([eachLine(Bun.file(read).stream(), line), errors])
    } finally {
      clearTimeout(lasting)
      end()
      signal.removeEventListener('abort', end)
      process.off('exit', end)
    }
    await child.exited
    return lastError || (child.signalCode ? `signal ${child.signalCode}` : `status ${child.exitCode}`)
  } catch (cause) {
    return lastError || (cause as Error).message
  } finally {
    closeSync(read)
  }
}

function start(argv: string[], env: Watched['env'], stdout: number) {
  try {
    return Bun.spawn(argv, { env: { ...TOOL_ENV, ...env }, stdin: 'ignore', stdout, stderr: 'pipe' })
  } finally {
    closeSync(stdout)
  }
}

// Programming ten thousand peers gives fifty thousand lines. A stream of lines costs more than their handling, so this
// code splits chunks.
async function eachLine(from: ReadableStream<Uint8Array>, take: (text: string) => void): Promise<void> {
  const decoder = new TextDecoder()
  let [rest, taken] = ['', 0]
  for await (const chunk of from) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    for (const one of lines) take(one)
    taken += lines.length
    if (taken >= BURST) tidy(taken)
    if (taken >= BURST) taken = 0
    // After a pause, a burst is read in few large pieces. Each piece is a separate buffer.
    await Bun.sleep(REST_MS)
  }
}

// A tool never sees changes from before it joined its netlink groups (netlink(7)). The address of its first socket is
// its pid.
async function whenListening(pid: number, signal: AbortSignal): Promise<void> {
  const isOurs = new RegExp(`^\\S+ +\\d+ +${pid} +0*[1-9a-f]`)
  const joined = () => {
    try {
      return (readText('/proc/net/netlink') ?? '').split('\n').some((row) => isOurs.test(row))
    } catch {
      // It is read again. At the end of the wait all counts as changed.
      return false
    }
  }
  for (const until = performance.now() + LONGEST_MS; !signal.aborted && !joined() && performance.now() < until; )
    await sleep(20, undefined, { signal }).catch(() => undefined)
}
