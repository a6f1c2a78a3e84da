// The ends of other nodes. They run `plumb connectivity end` there, by ssh or kubectl, and speak lines of JSON.
import { CniError, CODE, shown } from '../../lib/text/errors.ts'
import type { Attempt, Outcome } from './attempt.ts'
import type { End, EndFacts, PlaceName } from './end.ts'

/** The command words that begin an end. */
const WORDS = 'connectivity end'
/** The limits in milliseconds: for two ADDs, for an attempt, and for two DELs. */
const [START_MS, ATTEMPT_MS, END_MS] = [60_000, 40_000, 30_000]
/** How much of the complaints of a command is kept, in letters. */
const MOST = 2000

interface Question {
  readonly id: number
  readonly from: PlaceName
  readonly tried: Attempt
}
/** The first line of an end has its facts, or says why there is none. Then follow outcomes. */
interface Answer {
  readonly facts?: EndFacts
  readonly error?: string
  readonly id?: number
  readonly outcome?: Outcome
}

/**
 * Starts the end of another node by a command for a shell, such as `ssh root@n2 plumb`. Rejects with CniError when the
 * command ends, or tells nothing for a minute.
 */
export async function startFarEnd(name: string, command: string): Promise<End> {
  const child = Bun.spawn(['sh', '-c', `${command} ${WORDS}`], { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' })
  const waiting = new Map<number, (answer: Answer | Error) => void>()
  let [complaint, count] = ['', 0]
  const next = (id: number, ms: number) =>
    new Promise<Answer>((resolve, reject) => {
      const timer = setTimeout(() => answered(failure(`it has not answered for ${ms / 1000} s`)), ms)
      function answered(answer: Answer | Error): void {
        clearTimeout(timer)
        waiting.delete(id)
        if (answer instanceof Error) reject(answer)
        else resolve(answer)
      }
      waiting.set(id, answered)
    })
  const failure = (why: string) =>
    new CniError(CODE.io, `Cannot test from ${name}: ${why}`, `${command} ${WORDS}\n${complaint.trim()}`.trim())
  const complaining = (async () => {
    for await (const text of linesOf(child.stderr)) complaint = `${complaint}${text}\n`.slice(-MOST)
  })()
  const hello = next(0, START_MS)
  void (async () => {
    for await (const line of linesOf(child.stdout)) {
      const answer = parsed(line)
      if (answer) waiting.get(answer.id ?? 0)?.(answer)
    }
    await Promise.all([complaining, child.exited])
    const cause = failure(`the command ended with status ${child.signalCode ?? child.exitCode}`)
    for (const answered of waiting.values()) answered(cause)
  })()
  const close = async () => {
    void child.stdin.end()
    const timer = setTimeout(() => child.kill('SIGKILL'), END_MS)
    await child.exited
    clearTimeout(timer)
  }
  try {
    const { facts, error } = await hello
    if (!facts) throw failure(error ?? 'it tells nothing of itself')
    return {
      facts,
      async attempt(from, tried) {
        const id = ++count
        const answer = next(id, ATTEMPT_MS)
        child.stdin.write(`${JSON.stringify({ id, from, tried } satisfies Question)}\n`)
        void child.stdin.flush()
        return (await answer).outcome as Outcome
      },
      close,
    }
  } catch (cause) {
    await close()
    throw cause
  }
}

/**
 * Answers the questions of `startFarEnd` on another node, until the input ends or a signal comes. `write` prints one
 * line. Removes everything then.
 */
export async function serveEnd(
  open: () => Promise<End>,
  input: ReadableStream<Uint8Array>,
  write: (line: string) => void,
): Promise<void> {
  const say = (answer: Answer) => write(JSON.stringify(answer))
  let end: End
  try {
    end = await open()
  } catch (cause) {
    const { message, details = '' } = cause as CniError
    return say({ error: [message, details].filter(Boolean).join(': ') })
  }
  try {
    say({ facts: end.facts })
    for await (const line of linesOf(input)) {
      const { id, from, tried } = JSON.parse(line) as Question
      void end.attempt(from, tried).then((outcome) => say({ id, outcome }))
    }
  } finally {
    await end.close()
  }
}

// ssh prints the greeting of a node, too.
function parsed(line: string): Answer | undefined {
  try {
    return line.startsWith('{') ? JSON.parse(line) : undefined
  } catch (cause) {
    throw new CniError(CODE.decode, `Cannot read the answer ${shown(line)}`, (cause as Error).message, { cause })
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const piece of stream) {
    const lines = `${rest}${decoder.decode(piece, { stream: true })}`.split('\n')
    rest = lines.pop() ?? ''
    yield* lines.filter((line) => line !== '')
  }
  if (rest !== '') yield rest
}
