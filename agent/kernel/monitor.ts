import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { locate } from '../../lib/os/exec.ts'
import { pipe } from '../../lib/os/libc.ts'
import { readText } from '../../lib/os/reading.ts'
import { tidy } from '../node/garbage.ts'

/** A tool that tells of changes for as long as it runs: `ip monitor`, `bridge monitor`. */
export interface Watched {
  readonly argv: readonly string[]
  line(text: string): void
  /** What its environment has besides. */
  readonly env?: Readonly<Record<string, string>>
  /** What it would have told meanwhile is not known: it was started, for the first time or again, or it lost messages. */
  lost(): void
  /** It cannot run, and why; undefined when it runs. */
  failing?(why: string | undefined): void
}

const ENV = { PATH: '/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin', LC_ALL: 'C' }
/** So many lines leave some megabytes behind. */
const BURST = 2000
const REST_MS = 5
const [FIRST_MS, LONGEST_MS] = [100, 10_000]
/** So long at most until the next try: as long the node is not ready though the tool is back. */
const LONGEST_PAUSE_MS = 5000
/** One that has run for so long goes on. */
const LASTING_MS = 500

/** Follows a tool until the signal, and starts it again, later each time, when it ends; why is said once, as long as it is the same. Never throws. */
export async function follow(watched: Watched, signal: AbortSignal, log: (text: string) => void): Promise<void> {
  let said = ''
  for (let pause = FIRST_MS; !signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const started = performance.now()
    const why = await one(watched, signal)
    if (signal.aborted) return
    // One that ends once is there again before anybody minds.
    if (said !== '') watched.failing?.(`${watched.argv.join(' ')} cannot run, so that changes go unnoticed: ${why}`)
    // One that went on for a while begins anew.
    if (performance.now() - started > LONGEST_MS) [pause, said] = [FIRST_MS, '']
    // Whoever ends the agent may end its whole process group: then its own signal is about to come.
    await sleep(pause, undefined, { signal }).catch(() => undefined)
    if (signal.aborted) return
    if (why !== said) log(`agent: ${watched.argv.join(' ')} ended, starting it again until it goes on: ${why}`)
    said = why
  }
}

async function one({ argv, line, lost, failing, env }: Watched, signal: AbortSignal): Promise<string> {
  const [name = '', ...args] = argv
  let [said, file] = ['', '']
  try {
    file = locate(name)
  } catch (cause) {
    return (cause as Error).message
  }
  // Bun's own holds four hundred lines: then the tool waits for us, and the kernel drops what it has no room for.
  const { read, write } = pipe()
  try {
    const child = start([file, ...args], env, write)
    const end = () => child.kill('SIGKILL')
    signal.addEventListener('abort', end)
    process.on('exit', end)
    void whenListening(child.pid, signal).then(lost)
    const lasting = setTimeout(() => failing?.(undefined), LASTING_MS)
    const errors = eachLine(child.stderr, (text) => {
      said = text
      // iproute2 goes on after it lost messages, and says so here.
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
    return said || (child.signalCode ? `signal ${child.signalCode}` : `status ${child.exitCode}`)
  } catch (cause) {
    return said || (cause as Error).message
  } finally {
    closeSync(read)
  }
}

function start(argv: string[], env: Watched['env'], stdout: number) {
  try {
    return Bun.spawn(argv, { env: { ...ENV, ...env }, stdin: 'ignore', stdout, stderr: 'pipe' })
  } finally {
    closeSync(stdout)
  }
}

// Ten thousand peers that are programmed are fifty thousand lines: no stream of lines, which would cost more than what is done with them.
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
    // What comes in a burst is then read in large pieces: each is a buffer of its own.
    await Bun.sleep(REST_MS)
  }
}

// What changed before a tool had joined its groups (netlink(7)) it never hears of. Its first socket has its pid for an address.
async function whenListening(pid: number, signal: AbortSignal): Promise<void> {
  const joined = () => (readText('/proc/net/netlink') ?? '').split('\n').some((row) => new RegExp(`^\\S+ +\\d+ +${pid} +0*[1-9a-f]`).test(row))
  for (const until = performance.now() + LONGEST_MS; !signal.aborted && !joined() && performance.now() < until; ) await sleep(20, undefined, { signal }).catch(() => undefined)
}
