import { type ROTATE, SOCKET } from '../agent/health/health.ts'
import type { Status } from '../agent/health/status.ts'
import { ValueError } from '../lib/text/errors.ts'
import { choicesOf, describeOptions, type Given, type Grammar, type OptionName, readOptions } from './options.ts'
import { print } from './output.ts'

/** The limit for the agent's answer, in milliseconds. A busy agent answers late. */
const WAIT_MS = 5000
const names: readonly OptionName[] = ['socket', 'json', 'help']

/** What may follow a command that asks. */
export const grammar: Grammar = { options: choicesOf(names) }

/** A command that asks the agent for its status and prints it, or a part of it. */
export interface Question {
  readonly name: string
  readonly about: string
  /** The answer as text for people. */
  text(status: Status, now: number): string
  /** The answer for programs, printed as JSON. */
  json(status: Status): unknown
}

/** The exit status for each state of the node. */
const STATUSES = { ready: 0, 'not ready': 1, degraded: 3 } as const

/**
 * Asks the agent of this node, prints the answer and returns the exit status. The status is 0 when the node is ready, 1
 * when it is not ready, 3 when it is degraded. Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function ask(question: Question, argv: readonly string[]): Promise<number> {
  const { name, text, json } = question
  const { values, words } = readOptions(argv, names, `plumb ${name}`)
  if (words.length > 0)
    throw new ValueError(`plumb ${name} takes no ${JSON.stringify(words[0])}; see plumb ${name} --help`)
  if (values.help) {
    print(help(question))
    return 0
  }
  const status = await statusOf(values)
  print(values.json ? JSON.stringify(json(status), null, 4) : text(status, Date.now()))
  return STATUSES[status.state]
}

async function statusOf(values: Given['values']): Promise<Status> {
  return (await answerOf('/status', values)) as Status
}

/** Asks the agent of this node for a path of its socket. Throws ValueError when no agent answers, and when it refuses. */
export async function answerOf(
  path: '/status' | '/services' | typeof ROTATE,
  { socket = SOCKET }: Given['values'],
  method: 'GET' | 'POST' = 'GET',
): Promise<unknown> {
  let refusal: string
  try {
    const answer = await fetch(`http://agent${path}`, { method, unix: socket, signal: AbortSignal.timeout(WAIT_MS) })
    if (answer.ok) return await answer.json()
    refusal = `${answer.status}: ${(await answer.text()).trim()}`
  } catch (cause) {
    throw new ValueError(`No agent tells its status on ${socket}: ${reason(cause as NodeJS.ErrnoException)}`, { cause })
  }
  throw new ValueError(`The agent at ${socket} answers ${refusal}`)
}

function reason({ code, name, message }: NodeJS.ErrnoException): string {
  const start = 'start it with plumb agent, or systemctl start plumb-agent'
  const known: Readonly<Record<string, string>> = {
    ENOENT: `there is no such socket; ${start}`,
    ECONNREFUSED: `the agent that made it has ended; ${start}`,
    EACCES: 'it is for root alone',
    TimeoutError: `it has not answered for ${WAIT_MS / 1000} s; look at its log`,
  }
  return known[code ?? ''] ?? known[name] ?? message.replace(/\.$/, '')
}

function help({ name, about }: Question): string {
  return `usage: plumb ${name} [options]: ${about}

${describeOptions(names)}

exit status: 0 the node is ready, 1 it is not, 2 the command line is wrong or no agent answers, 3 the node is degraded`
}
