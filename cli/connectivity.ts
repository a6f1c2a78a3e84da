import { hostname } from 'node:os'
import { accessOf } from '../agent/cluster/access.ts'
import { Api } from '../agent/cluster/api.ts'
import { examine, type Report } from '../agent/doctor/doctor.ts'
import { readFacts } from '../agent/doctor/facts/read.ts'
import type { Status } from '../agent/state/status.ts'
import { writeAtomic } from '../lib/os/files.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { type Ip, parseIp } from '../lib/text/ip.ts'
import { parse } from '../lib/text/values.ts'
import { answerOf } from './ask.ts'
import { leftOut } from './connectivity/cases.ts'
import { factsOf, type Result, testAll, testPolicy, titleOf } from './connectivity/connectivity.ts'
import { type End, openEnd } from './connectivity/end.ts'
import { askFarDoctor, askTrace, serveEnd, startFarEnd } from './connectivity/far-end.ts'
import { junitText } from './connectivity/junit.ts'
import { type CaseOptions, type Outside, type Route, TESTS, WAYS } from './connectivity/routes.ts'
import { makeTestObjects, type TestObjects, type TestService } from './connectivity/test-objects.ts'
import { CACHE, type PodNames } from './connectivity/test-pods.ts'
import { measureAll, type Throughput } from './connectivity/throughput.ts'
import { reportText } from './doctor.ts'
import {
  type Abouts,
  choicesOf,
  describeOptions,
  type Entry,
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
  'nodes',
  'from',
  'quick',
  'throughput',
  'kubeconfig-file',
  'cluster-domain',
  'junit',
  'conf-dir',
  'bin-dir',
  'socket',
  'subnet-file',
  'json',
  'help',
]
const ABOUTS: Abouts = {
  'kubeconfig-file': {
    value: 'FILE',
    about: 'an administrator of the cluster, for Services, DNS and NetworkPolicy (else the service account of the pod)',
  },
  'subnet-file': { value: 'FILE', about: 'where the agent writes the subnet of this node, for the doctor' },
}
/** What the doctor says of a node. Undefined when it cannot be asked. */
type Reports = ReadonlyMap<string, Report | undefined>
/** What became of the cases, and what was not tested: what and why. */
interface Outcome {
  readonly results: readonly Result[]
  readonly notMade: readonly (readonly [string, string])[]
  /** Only with --throughput. */
  readonly throughput?: readonly Throughput[]
}
const QUICK = '--quick leaves them out'
const NO_DNS = 'kube-system has no Service with the label k8s-app=kube-dns'
const [OBJECTS, DOMAIN] = ['Services, node ports, DNS, NetworkPolicy', 'cluster.local']
/** So long the same pairs of many nodes are tested, in milliseconds. */
const ROUND_MS = 3_600_000
/** So many commands for other nodes are started at once. */
const STARTS = 20
/** So many failed cases are traced. */
const MOST_TRACES = 2
/** A command that means the same without a shell. */
const PLAIN_WORDS = /^[\w@%+=:,./ -]+$/
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const SIGNAL_STATUS = 128

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 9,
  about: 'test whether pods and nodes reach each other, with test pods and real packets',
}

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
  const [word, namespace, ...pods] = words
  const isEnd = word === 'end' && (words.length === 1 || words.length === 4)
  if (words.length > 0 && !isEnd)
    throw new ValueError(`plumb connectivity takes no ${shown(words[0])}; see plumb connectivity --help`)
  const from = values.from ?? 'pods'
  if (from !== 'pods' && from !== 'nodes') throw new ValueError(`Cannot read --from ${shown(from)}: want pods or nodes`)
  if (from === 'nodes' && values.quick)
    throw new ValueError('--quick tests only from pod to pod: it excludes --from nodes')
  const fars = farsOf(values.far ?? [])
  const isPodless = from === 'nodes'
  const round = Math.floor(Date.now() / ROUND_MS)
  const isMeasured = values.throughput ?? false
  const wish = {
    isQuick: values.quick ?? false,
    isMeasured,
    isPodless,
    round,
    outside: (values.outside ?? []).map(outsideOf),
  }
  const given = { values, words }
  const open = async (names?: PodNames) => {
    const agent = await statusOfAgent(values)
    const node = agent?.node ?? hostname()
    const network = isPodless ? {} : { network: networkOf(given, '-') }
    const hasPolicy = agent?.policy !== undefined
    return openEnd({ ...network, plugins: hostOf(given).path, node, hasPolicy, ...(names && { names }) })
  }
  if (isEnd) {
    const [one, other] = pods
    await serve(() => open(namespace && one && other ? { namespace, pods: [one, other] } : undefined))
    return 0
  }
  const outcome = await tested(open, fars, wish, values)
  const { results } = outcome
  const reports = await reportsOf(results, fars, values)
  const details = (one: Result) => detailsOf(one, reports)
  if (values.junit !== undefined) save(values.junit, junitText(results, details))
  if (values.json) print(JSON.stringify(jsonOf(outcome, reports), null, 4))
  else printText(resultsText(outcome, reports))
  // A connection that gets no answer would keep this process for two minutes.
  process.exit(statusOf(outcome))
}

function statusOf({ results, throughput = [] }: Outcome): number {
  if (results.some(({ state }) => state === 'failed')) return 1
  if (throughput.some(({ mbits }) => mbits === undefined)) return 1
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
  open: (names?: PodNames) => Promise<End>,
  fars: ReadonlyMap<string, string>,
  wish: CaseOptions,
  values: Given['values'],
): Promise<Outcome> {
  const own = await nameOf(values, fars)
  const names = namesOf(values.nodes, [own, ...fars.keys()])
  const making = wish.isPodless ? Promise.resolve({ why: '' }) : objectsOf(values, names.length)
  const opening = (async () => {
    const made = await making
    const opened: (readonly [string, PromiseSettledResult<End>])[] = []
    const left = names.entries()
    const work = async () => {
      for (const [i, name] of left) {
        const [command, pods] = [fars.get(name), 'why' in made ? undefined : made.pods[i]]
        const start = command === undefined ? open(pods) : startFarEnd(name, command, wish.isPodless ? 'none' : pods)
        const [one] = await Promise.allSettled([start])
        opened[i] = [name, one]
      }
    }
    await Promise.all(Array.from({ length: STARTS }, work))
    return opened
  })()
  const closeAll = async () => {
    const ends = await opening.catch(() => [])
    await Promise.all(ends.map(([, one]) => one.status === 'fulfilled' && one.value.close()))
    const made = await making.catch(() => undefined)
    if (made && !('why' in made)) await made.close()
  }
  const end = (signal: NodeJS.Signals) => {
    const number = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 }[signal as (typeof SIGNALS)[number]]
    void closeAll().finally(() => process.exit(SIGNAL_STATUS + number))
  }
  for (const signal of SIGNALS) process.once(signal, end)
  try {
    const ends = new Map<string, End>()
    for (const [name, one] of await opening) {
      if (one.status === 'rejected') throw withoutObjects(one.reason as CniError, await making)
      ends.set(name, one.value)
    }
    const outcome = await testedBetween(ends, await making, wish, values['cluster-domain'] ?? DOMAIN)
    return { ...outcome, results: await tracedOf(outcome.results, ends, fars, values) }
  } finally {
    await closeAll()
    for (const signal of SIGNALS) process.off(signal, end)
  }
}

// The plugin policy attaches no pod without its name in the Kubernetes API.
function withoutObjects(cause: CniError, made: TestObjects | { readonly why: string }): CniError {
  if (!('why' in made) || !`${cause.message} ${cause.details ?? ''}`.includes('no K8S_POD_')) return cause
  const msg =
    'Cannot make test pods: the network enforces NetworkPolicy, so each pod needs an object in the Kubernetes API'
  return new CniError(cause.code, msg, `${made.why}; or leave pods out by --from nodes`, { cause })
}

// Of these nodes, those that are to be tested.
function namesOf(text: string | undefined, all: readonly string[]): readonly string[] {
  if (text === undefined) return all
  const wanted = new Set(text.split(',').map((name) => name.trim()))
  const unknown = [...wanted].find((name) => !all.includes(name))
  if (unknown !== undefined)
    throw new ValueError(`--nodes names ${shown(unknown)}: want some of ${all.join(', ')}; see --far`)
  return all.filter((name) => wanted.has(name))
}

// The objects in the Kubernetes API, or why there are none. A kubeconfig that was given must work.
async function objectsOf(values: Given['values'], count: number): Promise<TestObjects | { readonly why: string }> {
  const kubeconfig = values['kubeconfig-file']
  try {
    const api = new Api(accessOf(kubeconfig === undefined ? {} : { kubeconfig }), 'plumb-connectivity')
    return await makeTestObjects(api, count)
  } catch (cause) {
    const { message } = cause as Error
    if (kubeconfig === undefined) return { why: `${message}; see --kubeconfig-file` }
    throw new CniError(CODE.io, 'Cannot make objects for the test in the Kubernetes API', message, { cause })
  }
}

async function testedBetween(
  ends: ReadonlyMap<string, End>,
  objects: TestObjects | { readonly why: string },
  wish: CaseOptions,
  domain: string,
): Promise<Outcome> {
  const facts = factsOf(ends)
  const notMade = leftOut(facts, wish)
  // The cases come first, so that nothing else is on the way of a stream.
  const plain = async (): Promise<Omit<Outcome, 'notMade'>> => ({
    results: await testAll(ends, wish),
    ...(await measuredBetween(ends, wish)),
  })
  if (wish.isPodless) return { ...(await plain()), notMade }
  if ('why' in objects) return { ...(await plain()), notMade: [...notMade, [OBJECTS, objects.why]] }
  const all = [...facts.values()]
  await objects.tellAddresses(all)
  if (wish.isQuick) return { ...(await plain()), notMade: [...notMade, [OBJECTS, QUICK]] }
  const services = await objects.makeServices(all)
  const dns = await objects.findDns(domain)
  const named = new Map([...facts.keys()].map((name, i) => [name, services[i] as TestService]))
  const results = await testAll(ends, wish, { services: named, ...(dns && { dns }) })
  const measured = await measuredBetween(ends, wish)
  const without = [...facts].filter(([, { hasPolicy }]) => !hasPolicy).map(([name]) => name)
  // The policy comes last: it refuses packets of the other cases.
  if (without.length < all.length) {
    await objects.makePolicy()
    results.push(...(await testPolicy(ends, wish)))
  }
  const open: [string, string][] =
    without.length > 0 ? [['NetworkPolicy', `no agent enforces it on ${without.join(', ')}`]] : []
  const unnamed: [string, string][] = dns ? [] : [['DNS', NO_DNS]]
  return { results, ...measured, notMade: [...notMade, ...unnamed, ...open] }
}

async function measuredBetween(
  ends: ReadonlyMap<string, End>,
  wish: CaseOptions,
): Promise<Pick<Outcome, 'throughput'>> {
  return wish.isMeasured ? { throughput: await measureAll(ends, wish) } : {}
}

// Traces a packet of the first failed cases, while the test pods are there.
async function tracedOf(
  results: readonly Result[],
  ends: ReadonlyMap<string, End>,
  fars: ReadonlyMap<string, string>,
  values: Given['values'],
): Promise<readonly Result[]> {
  const isPlain = ({ test }: Result) => test === 'TCP' || test === 'UDP' || test === 'ICMP'
  const all = results.filter((one) => one.state === 'failed' && isPlain(one))
  // Cases of one way and test mostly have one cause.
  const first = new Map(all.toReversed().map((one) => [`${one.route.way} ${one.test}`, one] as const))
  const traced = all.filter((one) => [...first.values()].includes(one)).slice(0, MOST_TRACES)
  const found = new Map<Result, string>()
  // One after another: each follows its packet through the rules of the node.
  for (const one of traced) {
    const said = await traceOf(one, ends, fars, values)
    if (said !== undefined) found.set(one, said)
  }
  return results.map((one) => {
    const trace = found.get(one)
    return trace === undefined ? one : { ...one, trace }
  })
}

async function traceOf(
  { test, route: { from, to } }: Result,
  ends: ReadonlyMap<string, End>,
  fars: ReadonlyMap<string, string>,
  values: Given['values'],
): Promise<string | undefined> {
  const space = from.place === 'node' ? 'node' : ends.get(from.node)?.facts.spaces?.[from.place]
  if (space === undefined) return undefined
  const port = test === 'UDP' ? `${to.address.udp}/udp` : `${to.address.tcp}/tcp`
  const words = [space, to.address.ip, test === 'ICMP' ? 'icmp' : port, '--cache-dir', CACHE]
  const sender = fars.get(from.node)
  if (sender !== undefined) return askTrace(sender, words)
  const [socket, file, receiver] = [values.socket, values['subnet-file'], fars.get(to.node)]
  return askTrace(`'${process.execPath}'`, [
    ...words,
    ...(socket === undefined ? [] : ['--socket', socket]),
    ...(file === undefined ? [] : ['--subnet-file', file]),
    // plumb trace takes words for its other half, and starts no shell.
    ...(receiver !== undefined && PLAIN_WORDS.test(receiver) ? ['--far', receiver] : []),
  ])
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
  const name = (await statusOfAgent(values))?.node ?? hostname()
  return fars.has(name) ? 'this node' : name
}

async function statusOfAgent(values: Given['values']): Promise<Status | undefined> {
  return (await answerOf('/status', values).catch(() => undefined)) as Status | undefined
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

/** A side of a case. */
interface ToldSide {
  /** Empty for an address outside, and for the DNS of the cluster. */
  readonly node: string
  readonly place: Route['to']['place']
  readonly ip: Ip
  /** The port of the node or of the Service. Absent for places. */
  readonly port?: number
}
/** What `plumb connectivity` found, as `--json` prints it. */
export interface ConnectivityReport {
  readonly cases: readonly (Pick<Result, 'test' | 'state' | 'says' | 'seconds' | 'trace'> &
    Pick<Route, 'way' | 'family'> & { readonly from: ToldSide; readonly to: ToldSide })[]
  /** What was not tested. */
  readonly notMade: readonly { readonly what: string; readonly why: string }[]
  /**
   * What a TCP stream carries between nodes, in megabits a second, with --throughput. `nodesMbits` is that of the nodes
   * themselves, and only measured when that of their pods is small. Without `mbits` it could not be measured.
   */
  readonly throughput?: readonly (Pick<Throughput, 'family' | 'mbits' | 'nodesMbits' | 'says'> & {
    readonly from: ToldSide
    readonly to: ToldSide
  })[]
  /** What the doctor found on the nodes of failed cases. */
  readonly findings: readonly (Report['findings'][number] & { readonly node: string })[]
}

function jsonOf({ results, notMade, throughput }: Outcome, reports: Reports): ConnectivityReport {
  const sideOf = ({ node, place, address }: Route['to']) => ({ node, place, ip: address.ip })
  return {
    cases: results.map(({ test, route, state, says, seconds, trace }) => {
      const { way, family, from, to } = route
      const isPlace = to.place === 'node' || to.place === 'pod 1' || to.place === 'pod 2'
      const port = isPlace ? {} : { port: test === 'UDP' ? to.address.udp : to.address.tcp }
      const more = trace === undefined ? {} : { trace }
      return { way, test, family, from: sideOf(from), to: { ...sideOf(to), ...port }, state, says, seconds, ...more }
    }),
    notMade: notMade.map(([what, why]) => ({ what, why })),
    ...(throughput && {
      throughput: throughput.map((one) => ({ ...one, from: sideOf(one.from), to: sideOf(one.to) })),
    }),
    findings: [...reports].flatMap(([node, report]) => (report?.findings ?? []).map((one) => ({ node, ...one }))),
  }
}

// Short lines on a failed case: where a packet like it is lost, and what the doctor found on both nodes.
function detailsOf({ trace, route: { from, to } }: Result, reports: Reports): string[] {
  const nodes = [...new Set([from.node, to.node])]
  return [
    ...(trace === undefined ? [] : [`trace: ${trace}`]),
    ...nodes.flatMap((node) =>
      (reports.get(node)?.findings ?? []).map(
        ({ code, commands }) => `doctor on ${node}: ${[code, ...commands].join(': ')}`,
      ),
    ),
  ]
}

// Formats results for people: the failed cases, a count for each way, and what was not tested.
function resultsText({ results, notMade, throughput }: Outcome, reports: Reports): string {
  const failures = results
    .filter(({ state }) => state === 'failed')
    .map((one) => [`FAILED ${one.route.way}: ${titleOf(one)}: ${one.says}`, ...detailsOf(one, reports)].join('\n  '))
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
    ...(throughput ? [throughputText(throughput)] : []),
    lines.join('\n'),
    ...[...reports].map(([node, report]) => `plumb doctor on ${node}:\n${report ? reportText(report) : 'no answer'}`),
    conclusionOf(results),
  ].join('\n\n')
}

function throughputText(all: readonly Throughput[]): string {
  if (all.length === 0) return 'no throughput was measured: want two nodes with addresses of one family'
  const rows = all.map(({ from, to, says }) => [from.node, to.node, says])
  return table(['FROM', 'TO', 'ONE TCP STREAM'], rows)
}

function conclusionOf(results: readonly Result[]): string {
  const count = (state: Result['state']) => results.filter((one) => one.state === state).length
  const made = count('ok') + count('failed')
  if (made === 0) return 'No case could be made: no two places have addresses of one family'
  const rest = count('not made') > 0 ? `; ${count('not made')} were not made because of them` : ''
  return count('failed') > 0 ? `${count('failed')} of ${made} cases fail${rest}` : `All ${made} cases succeed`
}

function help(): string {
  return `usage: plumb connectivity [--far NAME=COMMAND]… [options]: test whether pods and nodes reach each other

${describeOptions(names, ABOUTS)}

It makes two test pods on this node, and two on each node that --far names. It sends TCP, UDP and echo
requests between all of them and their nodes, also by a host port of each node, and removes the pods. With a
way to the Kubernetes API, it makes Services and a NetworkPolicy in a namespace of its own, and removes it.
COMMAND runs plumb on another node:
  --far n2='ssh root@n2 plumb'
  --far n3='kubectl exec -i -n kube-system plumb-x7k2p -- plumb'

exit status: 0 all cases that were made succeed, 1 one fails, or a node cannot take part,
             2 the command line is wrong, 3 no case could be made`
}
