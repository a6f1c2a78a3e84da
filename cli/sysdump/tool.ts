import { locate } from '../../lib/os/exec.ts'
import { ExecError } from '../../lib/text/errors.ts'

const ENV = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin', LC_ALL: 'C' }

/** How much of a tool's output is taken. The tool is ended when it has printed more. */
export interface Limits {
  readonly bytes: number
  /** Lines from the beginning. */
  readonly lines?: number
  readonly signal: AbortSignal
}

/**
 * The output of a tool, up to a limit. What the tool said of a failure stands below. Throws ExecError for a tool that
 * fails and prints nothing, and CniError for one that is not installed.
 */
export async function outputOf(argv: readonly string[], { bytes, lines, signal }: Limits): Promise<string> {
  const [name = '', ...args] = argv
  const child = Bun.spawn([...locate(name), ...args], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: ENV,
    signal,
    killSignal: 'SIGKILL',
  })
  // Both pipes are read, or a tool that complains much would wait for ever.
  const complaining = taken(child.stderr, 4096, undefined, true)
  const text = await taken(child.stdout, bytes, lines)
  if (text.isCut) child.kill('SIGKILL')
  const [complaint, status] = await Promise.all([complaining, child.exited])
  if (text.isCut) return `${text.text}\n# more is left out\n`
  if (status === 0) return text.text
  const said = complaint.text.trim() || `it ended with ${child.signalCode ?? status}`
  if (text.text.trim() === '') throw new ExecError(argv, undefined, said)
  return `${text.text}\n# ${argv.join(' ')}: ${said}\n`
}

interface Taken {
  readonly text: string
  readonly isCut: boolean
}

// With `on`, the rest is read and forgotten.
async function taken(pipe: ReadableStream<Uint8Array>, bytes: number, lines?: number, on = false): Promise<Taken> {
  const decoder = new TextDecoder()
  let [text, isCut, count] = ['', false, 0]
  for await (const piece of pipe) {
    if (isCut) continue
    text += decoder.decode(piece, { stream: true })
    for (const byte of piece) if (byte === 10) count++
    isCut = text.length > bytes || (lines !== undefined && count > lines)
    if (isCut && !on) break
  }
  if (!isCut) return { text: text + decoder.decode(), isCut }
  const whole = lines === undefined ? text : text.split('\n').slice(0, lines).join('\n')
  return { text: whole.slice(0, bytes), isCut }
}
