// The ends of other nodes. They run `plumb connectivity end` there, by ssh or kubectl, and speak lines of JSON.

import type { Report } from '../../agent/doctor/doctor.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import { linesOf } from '../../lib/text/lines.ts'
import type { Attempt, Outcome } from './attempt.ts'
import type { End, EndFacts, PlaceName } from './end.ts'
import type { PodNames } from './test-pods.ts'

/** The command words that begin an end, those for one without pods, and those that ask the doctor. */
const [WORDS, PODLESS, DOCTOR] = ['connectivity end', '--from nodes', 'doctor --json']
/** The limit for the doctor of another node, and for a trace, in milliseconds. */
const ANSWER_MS = 30_000
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
 * Starts the end of another node by a command for a shell, such as `ssh root@n2 plumb`. `pods` are their names in the
 * Kubernetes API, or `none`. Rejects with CniError when the
 * command ends, or tells nothing for a minute.
 */
export async function startFarEnd(name: string, command: string, pods?: PodNames | 'none'): Promise<End> {
  const more = pods === 'none' ? [PODLESS] : pods ? [pods.namespace, ...pods.pods] : []
  const words = [WORDS, ...more].join(' ')
  const child = Bun.spawn(['sh', '-c', `${command} ${words}`], { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' })
  const waiting = new Map<number, (answer: Answer | Error) => void>()
  let [complaint, count] = ['', 0]
  let ended: CniError | undefined
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
    new CniError(CODE.io, `Cannot test from ${name}: ${why}`, `${command} ${words}\n${complaint.trim()}`.trim())
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
    ended = failure(`the command ended with status ${child.signalCode ?? child.exitCode}`)
    for (const answered of waiting.values()) answered(ended)
  })()
  const close = async () => {
    void Promise.resolve(child.stdin.end()).catch(() => undefined)
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
        if (ended) throw ended
        const id = ++count
        const answer = next(id, ATTEMPT_MS)
        child.stdin.write(`${JSON.stringify({ id, from, tried } satisfies Question)}\n`)
        // A command that ends is noticed by its output.
        void Promise.resolve(child.stdin.flush()).catch(() => undefined)
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

/** What the doctor says on another node. Undefined when it says nothing within half a minute. */
export async function askFarDoctor(command: string): Promise<Report | undefined> {
  const report = (await jsonOf(`${command} ${DOCTOR}`, [])) as Partial<Report> | undefined
  return Array.isArray(report?.findings) ? (report as Report) : undefined
}

/**
 * What `plumb trace` concludes, in one sentence. `command` runs plumb on the node of the sender, `words` follow `trace`.
 * Undefined when it says nothing within half a minute.
 */
export async function askTrace(command: string, words: readonly string[]): Promise<string | undefined> {
  const told = (await jsonOf(`${command} trace --json "$@"`, words)) as { readonly conclusion?: unknown } | undefined
  return typeof told?.conclusion === 'string' ? told.conclusion : undefined
}

// Runs a line of a shell, with these words as its arguments.
async function jsonOf(line: string, words: readonly string[]): Promise<unknown> {
  const child = Bun.spawn(['sh', '-c', line, '--', ...words], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'ignore',
    timeout: ANSWER_MS,
    killSignal: 'SIGKILL',
  })
  try {
    const text = await new Response(child.stdout).text()
    return JSON.parse(text.slice(text.indexOf('{')))
  } catch {
    return undefined
  }
}

// Other lines are no answers: ssh prints the greeting of a node, too.
function parsed(line: string): Answer | undefined {
  try {
    return line.startsWith('{') ? JSON.parse(line) : undefined
  } catch {
    return undefined
  }
}
