import { type ROTATE, SOCKET } from '../agent/http/server.ts'
import type { Status } from '../agent/state/status.ts'
import { ValueError } from '../lib/text/errors.ts'
import {
  type Abouts,
  choicesOf,
  describeOptions,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { onScreen, print, printText } from './output.ts'
import { statuses } from './watch.ts'

/** The limit for the agent's answer, in milliseconds. A busy agent answers late. */
const WAIT_MS = 5000
/** The longest `--wait`. */
const LONGEST_WAIT_S = 86_400
const names: readonly OptionName[] = ['wait', 'watch', 'socket', 'json', 'help']
const ABOUTS: Abouts = { wait: { value: 'SECONDS', about: 'wait until the node is ready, at most for so long' } }
/** How often a node that is not ready is asked again, in milliseconds. */
const AGAIN_MS = 500
// Moves to the first place of a terminal, and clears it.
const CLEAR = '\x1b[H\x1b[2J'

/** What may follow a command that asks. */
export const grammar: Grammar = { options: choicesOf(names, ABOUTS) }

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
const STRANGER = 'look which program has made the socket'
/** What every status has. */
const [TEXTS, LISTS, OBJECTS] = [
  ['node', 'version', 'state'],
  ['reasons', 'degraded', 'peers', 'repairs'],
  ['network', 'subnets', 'store', 'kinds', 'steps'],
] as const

/**
 * Asks the agent of this node, prints the answer and returns the exit status. The status is 0 when the node is ready, 1
 * when it is not ready, 3 when it is degraded. With `--watch` it goes on until it is ended. Throws ValueError for a wrong
 * command line, and when no agent answers.
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
  const waitMs = 1000 * secondsOf(values, name)
  if (values.watch) return watch(question, values)
  const status = await readyStatus(values, waitMs)
  if (values.json) print(JSON.stringify(json(status), null, 4))
  else printText(text(status, Date.now()))
  return STATUSES[status.state]
}

function secondsOf({ wait, watch }: Given['values'], name: string): number {
  if (wait === undefined) return 0
  if (watch) throw new ValueError(`plumb ${name} takes --wait or --watch, not both; see plumb ${name} --help`)
  const seconds = Number(wait)
  if (/^\d+(\.\d+)?$/.test(wait) && seconds <= LONGEST_WAIT_S) return seconds
  const want = `want a number of seconds from 0 to ${LONGEST_WAIT_S}`
  throw new ValueError(`Cannot read --wait: ${JSON.stringify(wait)} is wrong; ${want}`)
}

// The status as soon as the node is ready, or at the end of the time. An agent that does not answer yet may come.
async function readyStatus(values: Given['values'], waitMs: number): Promise<Status> {
  // Asked behind each answer: one that does not come takes time, too.
  const end = performance.now() + waitMs
  const isLast = () => performance.now() + AGAIN_MS >= end
  for (; ; await Bun.sleep(AGAIN_MS)) {
    try {
      const status = (await answerOf('/status', values)) as Status
      if (status.ready || isLast()) return status
    } catch (cause) {
      if (isLast() || !(cause instanceof ValueError)) throw cause
    }
  }
}

async function watch({ text, json }: Question, { socket = SOCKET, json: isJson }: Given['values']): Promise<never> {
  const isScreen = process.stdout.isTTY && !isJson
  for (let before = ''; ; await Bun.sleep(AGAIN_MS)) {
    try {
      for await (const status of statuses(socket)) {
        const now = Date.now()
        const head = new Date(now).toISOString()
        if (isJson) print(JSON.stringify(json(status)))
        else print(`${isScreen ? CLEAR : ''}${onScreen(`${head}  ${text(status, now)}`)}${isScreen ? '' : '\n'}`)
        before = ''
      }
    } catch (cause) {
      const { message } = unanswered(socket, cause as Error)
      if (message !== before) process.stderr.write(`${message}\n`)
      before = message
    }
  }
}

/**
 * Asks the agent of this node for a path of its socket. Throws ValueError when no agent answers, when it refuses, and
 * when the answer is no status or no list of Services: another program may answer there.
 */
export async function answerOf(
  path: '/status' | '/services' | typeof ROTATE,
  { socket = SOCKET }: Given['values'],
  method: 'GET' | 'POST' = 'GET',
): Promise<unknown> {
  let refusal: string
  try {
    const answer = await fetch(`http://agent${path}`, { method, unix: socket, signal: AbortSignal.timeout(WAIT_MS) })
    if (answer.ok) return checked(path, await answer.json())
    refusal = `${answer.status}: ${(await answer.text()).trim()}`
  } catch (cause) {
    throw unanswered(socket, cause as Error)
  }
  throw new ValueError(`The agent at ${socket} answers ${refusal}`)
}

// The answer of another program, or of another version, would otherwise fail somewhere in the midst of a text.
function checked(path: string, answer: unknown): unknown {
  if (path === '/services' && answer !== null && !Array.isArray(answer))
    throw new Error(`its answer is no list of Services; ${STRANGER}`)
  const wrong = path === '/status' ? faultOf(answer) : undefined
  if (wrong !== undefined)
    throw new Error(`its answer is no status of plumb: ${wrong} is missing or wrong; ${STRANGER}`)
  return answer
}

// The first key that is not as every status has it.
function faultOf(answer: unknown): string | undefined {
  const status = (answer ?? {}) as Readonly<Record<string, unknown>>
  const isObject = (one: unknown) => typeof one === 'object' && one !== null && !Array.isArray(one)
  return (
    TEXTS.find((key) => typeof status[key] !== 'string') ??
    LISTS.find((key) => !Array.isArray(status[key])) ??
    OBJECTS.find((key) => !isObject(status[key])) ??
    (Object.hasOwn(STATUSES, status['state'] as string) ? undefined : 'state')
  )
}

/** The error of an agent that does not answer on its socket, with what to do. */
export function unanswered(socket: string, cause: Error): ValueError {
  return new ValueError(`Cannot reach the agent at ${socket}: ${reason(cause)}`, { cause })
}

function reason({ code, name, message }: NodeJS.ErrnoException): string {
  const start = 'Is it running? systemctl start plumb-agent'
  const known: Readonly<Record<string, string>> = {
    ENOENT: `socket not found. ${start}`,
    ECONNREFUSED: `nobody listens at the socket. ${start}`,
    ECONNRESET: 'it ends the connection without an answer; look at its log',
    EACCES: 'the socket is for root alone; want root',
    SyntaxError: `its answer is no JSON; ${STRANGER}`,
    TimeoutError: `it has not answered for ${WAIT_MS / 1000} s; look at its log`,
  }
  return known[code ?? ''] ?? known[name] ?? message.replace(/\.$/, '')
}

function help({ name, about }: Question): string {
  return `usage: plumb ${name} [options]: ${about}

${describeOptions(names, ABOUTS)}

exit status: 0 the node is ready, 1 it is not, 2 the command line is wrong or no agent answers, 3 the node is degraded`
}
