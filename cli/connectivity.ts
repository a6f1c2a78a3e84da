import { hostname } from 'node:os'
import { leftOut, type Outside, type Route, TESTS, WAYS, type Wish } from '../agent/connectivity/cases.ts'
import { type Result, testAll, titleOf } from '../agent/connectivity/connectivity.ts'
import { type End, openEnd } from '../agent/connectivity/end.ts'
import { askFarDoctor, serveEnd, startFarEnd } from '../agent/connectivity/far-end.ts'
import { junitText } from '../agent/connectivity/junit.ts'
import { examine, type Report } from '../agent/doctor/doctor.ts'
import { readFacts } from '../agent/doctor/facts/read.ts'
import type { Status } from '../agent/health/status.ts'
import { writeAtomic } from '../lib/os/files.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { parseIp } from '../lib/text/ip.ts'
import { parse } from '../lib/text/values.ts'
import { answerOf } from './ask.ts'
import { reportText } from './doctor.ts'
import {
  type Abouts,
  choicesOf,
  describeOptions,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { print, printText, table } from './output.ts'
import { placesOf } from './places.ts'
import { hostOf, networkOf } from './target.ts'

const names: readonly OptionName[] = [
  'far',
  'outside',
  'quick',
  'junit',
  'conf-dir',
  'bin-dir',
  'socket',
  'subnet-file',
  'json',
  'help',
]
const ABOUTS: Abouts = {
  'subnet-file': { value: 'FILE', about: 'where the agent writes the subnet of this node, for the doctor' },
}
/** What the doctor says of a node. Undefined when it cannot be asked. */
type Reports = ReadonlyMap<string, Report | undefined>
/** What became of the cases, and what was not tested: what and why. */
interface Outcome {
  readonly results: readonly Result[]
  readonly notMade: readonly (readonly [string, string])[]
}
/** What the command does not test. */
const NOT_MADE = [
  ['Services, node ports, DNS', 'they need objects of the cluster; see plumb services and plumb trace'],
  ['NetworkPolicy', 'it needs objects of the cluster; see plumb policy test'],
  ['SCTP', 'plumb has no echo server for it'],
] as const
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const SIGNAL_STATUS = 128

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names, ABOUTS) }

/**
 * Runs `plumb connectivity ARGV` and ends this process, or returns the exit status. The status is 0 when every case that was made succeeds, 1
 * when one fails, 3 when none could be made. Throws ValueError for a wrong command line, and CniError when a node cannot
 * take part.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb connectivity')
  if (values.help) {
    print(help())
    return 0
  }
  const isEnd = words.length === 1 && words[0] === 'end'
  if (words.length > 0 && !isEnd)
    throw new ValueError(`plumb connectivity takes no ${shown(words[0])}; see plumb connectivity --help`)
  const fars = farsOf(values.far ?? [])
  const wish = { isQuick: values.quick ?? false, outside: (values.outside ?? []).map(outsideOf) }
  const given = { values, words }
  const open = () => openEnd(networkOf(given, '-'), hostOf(given).path)
  if (isEnd) {
    await serve(open)
    return 0
  }
  const outcome = await tested(open, fars, wish, values)
  const { results } = outcome
  const reports = await reportsOf(results, fars, values)
  if (values.junit !== undefined) save(values.junit, junitText(results))
  if (values.json) print(JSON.stringify(jsonOf(outcome, reports), null, 4))
  else printText(resultsText(outcome, reports))
  // A connection that gets no answer would keep this process for two minutes.
  process.exit(statusOf(results))
}

function statusOf(results: readonly Result[]): number {
  if (results.some(({ state }) => state === 'failed')) return 1
  return results.some(({ state }) => state === 'ok') ? 0 : 3
}

function farsOf(given: readonly string[]): ReadonlyMap<string, string> {
  const fars = new Map<string, string>()
  for (const text of given) {
    const [, name, command] = /^([\w.-]+)=(.*\S.*)$/s.exec(text) ?? []
    if (name === undefined || command === undefined)
      throw new ValueError(`Cannot read --far ${shown(text)}: want NAME=COMMAND, such as n2='ssh root@n2 plumb'`)
    if (fars.has(name)) throw new ValueError(`--far names the node ${name} twice: want another name for each node`)
    fars.set(name, command)
  }
  return fars
}

function outsideOf(text: string): Outside {
  const [, six, four, port] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d+))?$/.exec(text) ?? []
  try {
    const ip = parseIp(six ?? four ?? text)
    return port === undefined ? { ip } : { ip, port: parse.port(Number(port)) }
  } catch (cause) {
    const want = 'want ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, such as 192.0.2.1:443'
    throw new ValueError(`Cannot read --outside ${shown(text)}: ${want}`, { cause })
  }
}

async function serve(open: () => Promise<End>): Promise<void> {
  let stop: () => void = () => undefined
  const stopped = new Promise<void>((resolve) => {
    stop = resolve
  })
  for (const signal of SIGNALS) process.on(signal, stop)
  const reader = Bun.stdin.stream().getReader()
  const input = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const next = await Promise.race([reader.read(), stopped])
      if (!next || next.done) controller.close()
      else controller.enqueue(next.value)
    },
  })
  const output = Bun.stdout.writer()
  // A reader that is gone must not end this process before its pods are removed.
  await serveEnd(open, input, (line) => {
    output.write(`${line}\n`)
    void Promise.resolve(output.flush()).catch(() => undefined)
  })
  // The reading of stdin would keep the process alive after a signal.
  process.exit(0)
}

async function tested(
  open: () => Promise<End>,
  fars: ReadonlyMap<string, string>,
  wish: Wish,
  values: Given['values'],
): Promise<Outcome> {
  const opening = [
    ['', open] as const,
    ...[...fars].map(([name, command]) => [name, () => startFarEnd(name, command)] as const),
  ]
  const settled = Promise.allSettled(opening.map(([, start]) => start()))
  const closeAll = async () => {
    const ends = (await settled).flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    await Promise.all(ends.map((end) => end.close()))
  }
  const end = (signal: NodeJS.Signals) => {
    const number = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 }[signal as (typeof SIGNALS)[number]]
    void closeAll().finally(() => process.exit(SIGNAL_STATUS + number))
  }
  for (const signal of SIGNALS) process.once(signal, end)
  try {
    const own = await nameOf(values, fars)
    const ends = new Map<string, End>()
    for (const [i, one] of (await settled).entries()) {
      if (one.status === 'rejected') throw one.reason
      ends.set(opening[i]?.[0] || own, one.value)
    }
    const facts = new Map([...ends].map(([name, { facts }]) => [name, facts]))
    return { results: await testAll(ends, wish), notMade: [...leftOut(facts, wish), ...NOT_MADE] }
  } finally {
    await closeAll()
    for (const signal of SIGNALS) process.off(signal, end)
  }
}

// What the doctor says of the nodes on which a case failed.
async function reportsOf(
  results: readonly Result[],
  fars: ReadonlyMap<string, string>,
  values: Given['values'],
): Promise<Reports> {
  const failed = results.filter(({ state }) => state === 'failed')
  const nodes = [...new Set(failed.flatMap(({ route }) => [route.from.node, route.to.node]))].filter(Boolean)
  const reports = nodes.map(async (node) => {
    const command = fars.get(node)
    const report = command === undefined ? examine(await readFacts(placesOf(values))) : await askFarDoctor(command)
    return [node, report] as const
  })
  return new Map(await Promise.all(reports))
}

async function nameOf(values: Given['values'], fars: ReadonlyMap<string, string>): Promise<string> {
  const told = await answerOf('/status', values).catch(() => undefined)
  const name = (told as Status | undefined)?.node ?? hostname()
  return fars.has(name) ? 'this node' : name
}

function save(file: string, text: string): void {
  try {
    writeAtomic(file, text, { mode: 0o644 })
  } catch (cause) {
    const { message } = cause as Error
    throw new CniError(CODE.io, `Cannot write ${file}: ${message}`, 'want --junit FILE in a folder with room', {
      cause,
    })
  }
}

function jsonOf({ results, notMade }: Outcome, reports: Reports): unknown {
  return {
    cases: results.map(({ test, route, state, says, seconds }) => {
      const { way, family, from, to } = route
      const side = ({ node, place, address }: Route['to']) => ({ node, place, ip: address.ip })
      const port = to.place === 'host port' || to.place === 'outside' ? { port: to.address.tcp } : {}
      return { way, test, family, from: side(from), to: { ...side(to), ...port }, state, says, seconds }
    }),
    notMade: notMade.map(([what, why]) => ({ what, why })),
    findings: [...reports].flatMap(([node, report]) => (report?.findings ?? []).map((one) => ({ node, ...one }))),
  }
}

/** Formats results for people: the failed cases, a count for each way, and what was not tested. */
export function resultsText({ results, notMade }: Outcome, reports: Reports): string {
  const failures = results
    .filter(({ state }) => state === 'failed')
    .map((one) => `FAILED ${one.route.way}: ${titleOf(one)}: ${one.says}`)
  const rows = WAYS.flatMap((way) => {
    const ofWay = results.filter(({ route }) => route.way === way)
    if (ofWay.length === 0) return []
    const cells = TESTS.map((test) => {
      const ofTest = ofWay.filter((one) => one.test === test)
      if (ofTest.length === 0) return ''
      const made = ofTest.filter(({ state }) => state !== 'not made')
      return `${made.filter(({ state }) => state === 'ok').length}/${made.length}`
    })
    return [[way, ...cells]]
  })
  const lines = notMade.map(([what, why]) => `not tested: ${what}: ${why}`)
  return [
    ...(failures.length > 0 ? [failures.join('\n')] : []),
    table(['', ...TESTS], rows),
    lines.join('\n'),
    ...[...reports].map(([node, report]) => `plumb doctor on ${node}:\n${report ? reportText(report) : 'no answer'}`),
    conclusionOf(results),
  ].join('\n\n')
}

function conclusionOf(results: readonly Result[]): string {
  const count = (state: Result['state']) => results.filter((one) => one.state === state).length
  const made = count('ok') + count('failed')
  if (made === 0) return 'No case could be made: the test pods have no addresses'
  const rest = count('not made') > 0 ? `; ${count('not made')} were not made because of them` : ''
  return count('failed') > 0 ? `${count('failed')} of ${made} cases fail${rest}` : `All ${made} cases succeed`
}

function help(): string {
  return `usage: plumb connectivity [--far NAME=COMMAND]… [options]: test whether pods and nodes reach each other

${describeOptions(names, ABOUTS)}

It makes two test pods on this node, and two on each node that --far names. It sends TCP, UDP and echo
requests between all of them and their nodes, also by a host port of each node, and removes the pods. COMMAND runs plumb on another node:
  --far n2='ssh root@n2 plumb'
  --far n3='kubectl exec -i -n kube-system plumb-x7k2p -- plumb'

exit status: 0 all cases that were made succeed, 1 one fails, or a node cannot take part,
             2 the command line is wrong, 3 no case could be made`
}
