import { both } from '../agent/lease/families.ts'
import type { Decision, PodSummary } from '../agent/policy/view.ts'
import type { ServiceView } from '../agent/services/view.ts'
import type { Status } from '../agent/state/status.ts'
import { inside } from '../lib/os/netns.ts'
import { askForRoute } from '../lib/os/route-question.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { type Ip, parseIp } from '../lib/text/ip.ts'
import { printable } from '../lib/text/printable.ts'
import type { NetnsPath } from '../lib/text/values.ts'
import { answerOf } from './ask.ts'
import { askPolicy } from './ask-policy.ts'
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
import { type AllDropped, type Dropped, type Filter, podLinks, watchDropped } from './trace/dropped.ts'
import { attachedPods, type End, endOf, namedPod, namespaceOf } from './trace/ends.ts'
import { readTraceFacts } from './trace/facts.ts'
import { type FarNode, followFar, startFar, WATCH } from './trace/far.ts'
import { readFastPath, takesFastPath } from './trace/fast-path.ts'
import type { Comparison, Hop } from './trace/hops.ts'
import { traceLive } from './trace/live.ts'
import { endpointOf, type TraceFacts } from './trace/oracle.ts'
import type { AwaitedPackets, Flow, Probe, Protocol } from './trace/packet.ts'
import { LIMIT_MS, trace, tunnelsOf } from './trace/trace.ts'
import type { TracedNamespace } from './trace/watch.ts'

const names: readonly OptionName[] = [
  'socket',
  'policy-socket',
  'subnet-file',
  'cache-dir',
  'far',
  'size',
  'live',
  'dropped',
  'for',
  'json',
  'help',
]
const ABOUTS: Abouts = {
  far: { value: 'COMMAND', about: "how plumb is started on the receiver's node: 'ssh n2 plumb'" },
}
/** The most endpoints of a Service whose namespaces are watched. */
const MOST_TARGETS = 8
/** The exit statuses: a packet is refused, is lost or does not do what it should, or none came. */
const [REFUSED, LOST, NONE] = [1, 3, 4]
/** The hops at which somebody refuses a packet on purpose. */
const REFUSING: readonly string[] = ['policy', 'far policy', 'service']
/** The sizes of packets, in bytes from the IP header on. */
const [SMALLEST, LARGEST] = [100, 65_000]
/** The hops behind this node, where a packet vanishes without a reason. */
const PATH_HOPS: readonly string[] = ['far link', 'receiver', 'answer']
/** Addresses of groups, of all, and of nobody (RFC 6890). */
const OF_MANY = /^(22[4-9]|23\d|255\.255\.255\.255)|^0\.|^ff|^::$/
/** The longest wait for packets, in seconds. */
const LONGEST_S = 600
const [LOWEST_PORT, PORTS] = [40_000, 20_000]

/** Its row in the list of commands. */
export const entry: Entry = { place: 8, about: 'follow one packet through this node, and say where and why it is lost' }

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names, ABOUTS), words: ['FROM', 'TO', '[PORT[/PROTOCOL]]'] }

/** What `plumb trace` found, as `--json` prints it. */
export interface TraceReport extends Comparison {
  readonly from: string
  readonly to: string
  readonly protocol: Protocol
  readonly source: Ip
  readonly destination: Ip
  /** 0 for ICMP. */
  readonly port: number
  /** What the trace found, in words. */
  readonly conclusion: string
  /** Later packets of the connection take the fast path of this node (docs/fast-path.md). */
  readonly fastPath?: true
}

/** What `plumb trace --dropped --json` prints. The names of pods are there where they are known. */
export interface DroppedReport extends Omit<AllDropped, 'dropped'> {
  readonly seconds: number
  readonly dropped: readonly (Dropped & { readonly from?: string; readonly to?: string })[]
}

/**
 * Runs `plumb trace ARGV` and returns the exit status. The status is 0 for a packet that arrives as it should, and 1
 * for one that policy or a closed port refuses. It is 3 when the packet is lost otherwise or does not do what it should,
 * and 4 when none came. With --dropped it is 1 when something is dropped. Throws ValueError for a wrong command line.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb trace')
  if (values.help) {
    print(help())
    return 0
  }
  if (process.getuid?.() !== 0)
    throw new CniError(CODE.env, 'Cannot trace packets: it needs root, for nft and namespaces', 'run it with sudo')
  if (words[0] === WATCH) {
    await followFar(Bun.stdin.stream(), print, await farNode(values))
    return 0
  }
  const [from, to, where, more] = words
  if (values.dropped) {
    if (more !== undefined || values.live || values.far || values.size)
      throw new ValueError('plumb trace --dropped takes [FROM [TO [PORT[/PROTOCOL]]]]; see plumb trace --help')
    const told = await droppedBetween(from, to, where, values)
    if (values.json) print(JSON.stringify(told, null, 4))
    else printText(droppedText(told))
    return told.dropped.length > 0 ? REFUSED : 0
  }
  if (from === undefined || to === undefined || more !== undefined)
    throw new ValueError('plumb trace takes FROM TO [PORT[/PROTOCOL]]; see plumb trace --help')
  const told = await traced(from, to, where, values)
  if (values.json) print(JSON.stringify(told, null, 4))
  else printText(traceText(told))
  if (told.hops.length === 0) return NONE
  if (told.differsAt !== undefined) return LOST
  if (told.lostAt === undefined) return 0
  return isRefused(told) ? REFUSED : LOST
}

// By policy, by a Service without an endpoint, or because nobody listens on the port.
function isRefused({ hops, lostAt }: TraceReport): boolean {
  const says = hops.find(({ hop }) => hop === lostAt)?.seen?.says ?? ''
  return REFUSING.includes(lostAt ?? '') || (lostAt === 'receiver' && /^it refuses /.test(says))
}

// This node as the node of the receiver, for a trace that another node sends.
async function farNode(values: Given['values']): Promise<FarNode> {
  const pods = attachedPods(values['cache-dir'] ?? '/var/lib/cni')
  const status = await quietly(async () => (await answerOf('/status', values)) as Status)
  const none = { status, services: undefined, decision: undefined }
  const { links, at, route } = await readTraceFacts(none, 'host', pods, subnetFileOf(values))
  const tunnel = links.find(({ vxlan }) => vxlan !== undefined)?.vxlan?.port
  return {
    ...(tunnel !== undefined && { tunnel }),
    tunnels: tunnelsOf({ links }),
    linksFrom(source) {
      const back = route('node', source, undefined)
      const uplink = status?.uplink === undefined ? [] : [status.uplink.name]
      return [...new Set([...('errno' in back ? [] : [back.dev]), ...uplink, ...tunnelsOf({ links })])]
    },
    places: (destinations) => [
      { name: 'node', ns: 'host' },
      ...spacesOf(destinations.filter((ip) => at(ip)?.isNode === false).map((ip) => namespaceOf(ip, pods))),
    ],
    async facts({ source, protocol }, { ip, port }) {
      const asked = { from: source, to: ip, port, protocol }
      const decision = decisionOf(asked, values)
      return readTraceFacts({ ...none, decision }, 'host', pods, subnetFileOf(values))
    },
  }
}

function spacesOf(spaces: readonly (NetnsPath | undefined)[]): TracedNamespace[] {
  return [...new Set(spaces)]
    .filter((ns) => ns !== undefined)
    .slice(0, MOST_TARGETS)
    .map((ns) => ({ name: 'target', ns }))
}

/** What a trace is to do that the command line cannot say. */
export interface TraceWish {
  /** The source address; else the kernel's choice. */
  readonly source?: Ip
}

/** Follows a packet between the ends that the words name. Throws ValueError for words that name nobody, and ExecError. */
export async function traced(
  from: string,
  to: string,
  where: string | undefined,
  values: Given['values'],
  { source: given }: TraceWish = {},
): Promise<TraceReport> {
  // A namespace that is named counts before others with the same address.
  const named = [from, to].flatMap((word) => (word.startsWith('/') ? namedPod(word) : []))
  const pods = [...named, ...attachedPods(values['cache-dir'] ?? '/var/lib/cni')]
  const waitMs = waitOf(values)
  const size = sizeOf(values)
  const command = commandOf(values.far)
  const [status, services] = await knownToAgent(values)
  const sender = endOf(from === status?.node ? 'node' : from, pods) ?? podOfAgent(from, pods, values)
  if (sender === undefined) throw unknownEnd(from, 'FROM')
  if (sender.netns === undefined && !sender.isNode)
    throw new ValueError(`${from} is not on this node: want a pod of this node, or node; run plumb trace on its node`)
  const asked = where === undefined ? undefined : portOf(where)
  const target = targetOf(to, asked, sender, pods, { status, services }, values)
  const { destination } = target
  const ns = sender.netns ?? 'host'
  const source = given ?? sourceOf(sender, destination)
  const decide = ({ protocol, port }: Pick<Probe, 'protocol' | 'port'>) =>
    decisionOf({ from: source, to: destination, port, protocol }, values)
  const decision = values.live ? undefined : decide(target)
  const known = { status, services, decision }
  const facts = await readTraceFacts(known, ns, pods, subnetFileOf(values))
  const tunnel = facts.links.find(({ vxlan }) => vxlan !== undefined)?.vxlan?.port
  const endpoints = endpointsOf(target, services ?? [], facts)
  const destinations = [destination, ...endpoints.map(({ ip }) => ip)]
  const targets = destinations.filter((ip) => facts.at(ip)?.isNode === false).map((ip) => namespaceOf(ip, pods))
  const places: TracedNamespace[] = [
    ...(sender.netns === undefined ? [] : [{ name: 'source', ns: sender.netns } as const]),
    { name: 'node', ns: 'host' },
    ...spacesOf(targets.filter((path) => path !== sender.netns)),
  ]
  const rest = { places, facts, ...(tunnel !== undefined && { tunnel }) }
  const told = { from, to, source, destination }
  if (values.live) {
    const isAnything = asked === undefined && target.port === 0
    const what = isAnything ? {} : { protocol: target.protocol, ...(target.port > 0 && { port: target.port }) }
    const wish: AwaitedPackets = { source, destination, endpoints, ...what }
    const far = command && (await startFar(command, { wish, destinations }))
    const ready = () => void process.stderr.write(`Waiting for a packet from ${from} to ${to}\n`)
    const awaited = { ...rest, wish, waitMs, decide, ready, ...(far && { far }) }
    const found = await traceLive(awaited).finally(() => far?.close())
    if (found) return { ...told, protocol: found.probe.protocol, port: found.probe.port, ...tellable(found) }
    const known =
      status?.fastPath?.state === 'on' ? '; those of connections in the fast path meet no rules and are not seen' : ''
    const conclusion = `No packet from ${from} to ${to} came within ${waitMs / 1000} s${known}`
    return { ...told, protocol: target.protocol, port: target.port, hops: [], conclusion }
  }
  const small = probeTo({ ...target, source })
  const probe = size === undefined ? small : { ...small, size }
  const far = command && (await startFar(command, { probe, destinations }))
  const found = await trace({ ...rest, probe, ...(far && { far }) }).finally(() => far?.close())
  const isVanished = size !== undefined && PATH_HOPS.includes(found.lostAt ?? '')
  // Does a small packet get there? It has a number of its own, so that nobody takes it for the large one.
  const other = isVanished ? await trace({ ...rest, probe: probeTo({ ...target, source }) }) : undefined
  const isBlackHole = other !== undefined && other.lostAt === undefined
  const result = isBlackHole ? withBlackHole(found, size ?? 0) : found
  const report = { ...told, protocol: target.protocol, port: target.port, ...tellable(result) }
  const isArrived = result.lostAt === undefined && target.protocol !== 'ICMP'
  const sets = isArrived ? await readFastPath() : undefined
  if (!sets || !takesFastPath(found.sights, sets)) return report
  return {
    ...report,
    fastPath: true as const,
    conclusion: `${report.conclusion}. Later packets of the connection take the fast path`,
  }
}

async function droppedBetween(
  from: string | undefined,
  to: string | undefined,
  where: string | undefined,
  values: Given['values'],
): Promise<DroppedReport> {
  const named = [from ?? '', to ?? ''].flatMap((word) => (word.startsWith('/') ? namedPod(word) : []))
  const pods = [...named, ...attachedPods(values['cache-dir'] ?? '/var/lib/cni')]
  const waitMs = waitOf(values)
  const [status, services] = await knownToAgent(values)
  const ipsOf = (word: string, what: 'FROM' | 'TO') => {
    const service = what === 'TO' && services?.find((one) => isNamed(one, word))
    const ends = service ? service.ports.flatMap((one) => one.addresses) : []
    const ips = service ? ends.flatMap((text) => addressIn(text)?.destination ?? []) : undefined
    const found = ips ?? (endOf(word, pods) ?? podOfAgent(word, pods, values))?.ips
    if (found === undefined) throw unknownEnd(word, what)
    return [...new Set(found)]
  }
  const asked = where === undefined ? undefined : portOf(where)
  const filter: Filter = {
    ...(from !== undefined && { sources: ipsOf(from, 'FROM') }),
    ...(to !== undefined && { destinations: ipsOf(to, 'TO') }),
    ...(asked && { protocol: asked.protocol, ...(asked.port > 0 && { port: asked.port }) }),
  }
  const known = { status, services, decision: undefined }
  const facts = await readTraceFacts(known, 'host', pods, subnetFileOf(values))
  const nameOf = (ip: Ip) => pods.find(({ name, ips }) => name !== undefined && ips.includes(ip))?.name
  const refusal = ({ source, destination, port, protocol }: Flow) => {
    if (protocol !== 'TCP' && protocol !== 'UDP' && protocol !== 'ICMP') return undefined
    const here = decisionOf({ from: source, to: destination, port, protocol }, values)?.here
    return here?.passes === false ? here.reason : undefined
  }
  const ready = () => void process.stderr.write(`Looking for dropped packets for ${waitMs / 1000} s\n`)
  const links = podLinks(facts.links, status?.uplink?.name)
  const { dropped, others } = await watchDropped({ filter, links, facts, waitMs, refusal, ready })
  const withNames = dropped.map((one) => {
    const [fromName, toName] = [nameOf(one.source), nameOf(one.destination)]
    return { ...one, ...(fromName !== undefined && { from: fromName }), ...(toName !== undefined && { to: toName }) }
  })
  return { seconds: waitMs / 1000, dropped: withNames, others }
}

async function knownToAgent(values: Given['values']) {
  const [status, services] = await Promise.all([
    quietly(async () => (await answerOf('/status', values)) as Status),
    quietly(async () => (await answerOf('/services', values)) as readonly ServiceView[] | null),
  ])
  return [status, services ?? undefined] as const
}

// A small packet arrives, and a large one does not, and nobody says so.
function withBlackHole(found: Comparison, size: number): Comparison {
  const hops = found.hops.map((hop): Hop => {
    if (hop.hop !== found.lostAt || !hop.seen) return hop
    const says = `${hop.seen.says}: the path loses packets of ${size} bytes and does not say so; small ones arrive`
    return { ...hop, seen: { ...hop.seen, says } }
  })
  return { ...found, hops }
}

// The size of the packet in bytes. Undefined for a small one.
function sizeOf({ size: text, live }: Given['values']): number | undefined {
  if (text === undefined) return undefined
  if (live) throw new ValueError('plumb trace takes --size or --live, not both; see plumb trace --help')
  const size = Number(text)
  if (/^\d+$/.test(text) && size >= SMALLEST && size <= LARGEST) return size
  throw new ValueError(`Cannot read --size: ${shown(text)} is wrong; want bytes from ${SMALLEST} to ${LARGEST}`)
}

function probeTo({ protocol, source, destination, port }: Pick<Probe, 'source'> & Target): Probe {
  return {
    ...{ protocol, source, destination, port },
    sourcePort: LOWEST_PORT + Math.floor(Math.random() * PORTS),
    // Odd, because the kernel gives a packet whose IP id is 0 another one.
    token: ((Math.random() * 2 ** 32) | 1) >>> 0,
  }
}

// Where a Service leads the packet.
function endpointsOf(
  { destination, port, protocol }: Target,
  services: readonly ServiceView[],
  facts: TraceFacts,
): { readonly ip: Ip; readonly port: number }[] {
  const asked = `${isSix(destination) ? `[${destination}]` : destination}:${port}/${protocol}`
  const isNode = facts.at(destination)?.isNode === true
  return services
    .flatMap(({ ports }) => ports)
    .filter(({ addresses, nodePort }) => addresses.includes(asked) || (isNode && nodePort === port))
    .flatMap(({ endpoints }) => endpoints.map(({ address }) => endpointOf(address)))
}

// How long to wait for a packet, in milliseconds.
function waitOf({ live, dropped, for: text }: Given['values']): number {
  if (text === undefined) return LIMIT_MS
  if (!live && !dropped)
    throw new ValueError('plumb trace takes --for only with --live or --dropped; see plumb trace --help')
  const seconds = Number(text)
  if (/^\d+$/.test(text) && seconds >= 1 && seconds <= LONGEST_S) return seconds * 1000
  throw new ValueError(`Cannot read --for: ${shown(text)} is wrong; want a number of seconds from 1 to ${LONGEST_S}`)
}

// Words between blanks: no shell reads them.
function commandOf([text, another]: readonly string[] = []): string[] | undefined {
  if (text === undefined) return undefined
  if (another !== undefined)
    throw new ValueError('plumb trace takes one --far: the command for the node of the receiver')
  const words = text.split(/\s+/).filter((word) => word !== '')
  if (words.length > 0) return words
  throw new ValueError(`Cannot read the command ${shown(text)} of --far: want words, such as 'ssh n2 plumb'`)
}

interface Asked {
  readonly port: number
  readonly protocol: Protocol
}
interface Target extends Asked {
  readonly destination: Ip
}

function portOf(text: string): Asked {
  if (text.toLowerCase() === 'icmp') return { port: 0, protocol: 'ICMP' }
  const [, number = '', word = 'tcp'] = /^(\d{1,5})(?:\/(tcp|udp))?$/i.exec(text) ?? []
  const port = Number(number)
  if (port >= 1 && port <= 65_535) return { port, protocol: word.toUpperCase() as Protocol }
  throw new ValueError(`Cannot read the port ${shown(text)}: want a number from 1 to 65535, and tcp or udp: 80/tcp`)
}

function targetOf(
  to: string,
  asked: Asked | undefined,
  sender: End,
  pods: Parameters<typeof namespaceOf>[1],
  { status, services }: { readonly status: Status | undefined; readonly services: readonly ServiceView[] | undefined },
  values: Given['values'],
): Target {
  const echo: Asked = { port: 0, protocol: 'ICMP' }
  const isThisNode = to === 'node' || to === status?.node
  const end = endOf(isThisNode ? 'node' : to, pods) ?? otherNode(to, status)
  const isOfSender = (ip: Ip) => sender.ips.some((own) => isSix(own) === isSix(ip))
  const service = end ? undefined : services?.find((one) => isNamed(one, to))
  if (service) {
    const all = service.ports.flatMap(({ addresses }) => addresses).flatMap((text) => addressIn(text) ?? [])
    const isAsked = ({ port, protocol }: Asked) =>
      asked === undefined || (port === asked.port && protocol === asked.protocol)
    const found = all.find((one) => isOfSender(one.destination) && isAsked(one))
    if (found) return found
    const listed = all.map(({ port, protocol }) => `${port}/${protocol.toLowerCase()}`).join(', ') || 'no address'
    throw new ValueError(`The Service ${to} has no such port: want one of ${listed}`)
  }
  const ips = (end ?? podOfAgent(to, pods, values, asked))?.ips
  if (ips === undefined) throw unknownEnd(to, 'TO')
  if (ips.some((ip) => OF_MANY.test(ip)))
    throw new ValueError(`${to} is no address of one machine: a trace follows one packet to one receiver`)
  const destination = isThisNode ? nodeAddress(sender, ips) : ips.find(isOfSender)
  if (destination === undefined)
    throw new ValueError(`${sender.name} and ${to} have no addresses of one family: want two of IPv4, or two of IPv6`)
  return { ...(asked ?? echo), destination }
}

// A Service as people write it, or as pods ask DNS for it.
function isNamed({ namespace, name }: ServiceView, word: string): boolean {
  return (
    word === `${namespace}/${name}` ||
    word === `${name}.${namespace}.svc` ||
    word.startsWith(`${name}.${namespace}.svc.`)
  )
}

// A node that has a lease, by its name.
function otherNode(word: string, status: Status | undefined): End | undefined {
  const peer = status?.peers.find(({ node }) => node === word)
  return peer && { name: word, ips: both(peer.ips) as Ip[] }
}

// The node's address for the sender: the one that the sender's gateway or the default route has.
function nodeAddress(sender: End, ips: readonly Ip[]): Ip | undefined {
  const own = sender.ips[0]
  if (own === undefined) return undefined
  return ips.find((ip) => isSix(ip) === isSix(own) && !/^(127\.|::1$)/.test(ip))
}

// `10.96.0.1:80/TCP`, or `[fd00::1]:53/UDP`.
function addressIn(text: string): Target | undefined {
  const [, ip = '', port, protocol = ''] = /^\[?(.*?)\]?:(\d+)\/(\w+)$/.exec(text) ?? []
  if (protocol !== 'TCP' && protocol !== 'UDP') return undefined
  return { destination: parseIp(ip), port: Number(port), protocol }
}

function sourceOf(sender: End, destination: Ip): Ip {
  const route = inside(sender.netns ?? 'host', () => askForRoute({ to: destination }))
  const chosen = 'errno' in route ? undefined : route.source
  const source = [chosen, ...sender.ips].find((ip) => ip !== undefined && isSix(ip) === isSix(destination))
  if (source !== undefined) return source
  throw new ValueError(`${sender.name} has no address of the family of ${destination}: want an address of that family`)
}

// A pod whose name only the agent knows.
function podOfAgent(
  name: string,
  pods: Parameters<typeof namespaceOf>[1],
  values: Given['values'],
  asked?: Asked,
): End | undefined {
  if (!/^[^/]+\/[^/]+$/.test(name)) return undefined
  const local = ofPolicy<{ readonly pods: readonly PodSummary[] }>({ command: 'list' }, values)?.pods
  const found = local?.find(({ pod }) => pod === name)
  if (found) {
    const netns = found.addresses.map((ip) => namespaceOf(ip, pods)).find((path) => path !== undefined)
    return { name, ips: found.addresses, ...(netns !== undefined && { netns }) }
  }
  const { port, protocol } =
    asked?.protocol === 'UDP' || asked?.protocol === 'TCP' ? asked : { port: 1, protocol: 'TCP' }
  const ips = (['0.0.0.0', '::'] as const).flatMap((from) => {
    const told = ofPolicy<Decision>({ command: 'decide', from, to: name, port, protocol }, values)
    return told ? [told.destination] : []
  })
  return ips.length === 0 ? undefined : { name, ips }
}

function decisionOf(
  asked: Asked & { readonly from: Ip; readonly to: Ip },
  values: Given['values'],
): Decision | undefined {
  return ofPolicy<Decision>({ command: 'decide', ...asked }, values)
}

// Undefined when no agent enforces policy, or knows the pods.
function ofPolicy<Reply extends object>(asked: object, values: Given['values']): Reply | undefined {
  try {
    return askPolicy<Reply>(asked, values)
  } catch (cause) {
    if (cause instanceof ValueError) return undefined
    throw cause
  }
}

function subnetFileOf({ 'subnet-file': file = '/run/flannel/subnet.env' }: Given['values']): string {
  return file
}

// Without an agent, the packet and the kernel's own answers still tell a lot.
async function quietly<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (cause) {
    if (cause instanceof ValueError) return undefined
    throw cause
  }
}

function unknownEnd(word: string, what: 'FROM' | 'TO'): ValueError {
  const service = what === 'TO' ? ' or a Service' : ''
  return new ValueError(
    `Cannot find ${shown(word)}: want node, a pod${service} as NAMESPACE/NAME, a container's id, an address, or the path of a namespace`,
  )
}

function tellable({ hops, lostAt, differsAt }: Comparison): Comparison & Pick<TraceReport, 'conclusion'> {
  const found = { hops, ...(lostAt && { lostAt }), ...(differsAt && { differsAt }) }
  return { ...found, conclusion: conclusionOf(found) }
}

function conclusionOf({ hops, lostAt, differsAt }: Comparison): string {
  const at = (name: string | undefined) => hops.find(({ hop }) => hop === name)
  const [differing, lost] = [at(differsAt), at(lostAt)]
  if (differing) {
    const { expected, seen } = differing
    return `The packet does not do what it should at ${differsAt}: expected ${outcomeText(expected)}, seen ${outcomeText(seen)}`
  }
  if (lost) return `The packet is lost at ${lostAt}: ${lost.expected?.says || lost.seen?.says}`
  const [, pieces] = /(, in pieces: .*)$/.exec(at('tunnel')?.seen?.says ?? '') ?? ['', '']
  const isAnswered = hops.at(-1)?.hop === 'answer'
  return isAnswered ? `The packet arrives${pieces}, and the answer comes back` : `The packet arrives${pieces}`
}

function outcomeText(outcome: Hop['expected']): string {
  if (!outcome) return '-'
  const verdict = outcome.passes ? 'passes' : 'lost'
  return outcome.says === '' ? verdict : outcome.passes ? outcome.says : `${verdict}: ${outcome.says}`
}

// Formats what a trace found: a line a hop, then the conclusion.
function traceText({ from, to, protocol, source, destination, port, hops, conclusion }: TraceReport): string {
  const where = port === 0 ? '' : ` port ${port}`
  if (hops.length === 0) return conclusion
  const rows = hops.map(({ hop, expected, seen, differs }) => {
    const mark = differs ? 'DIFFERS' : seen === undefined ? '-' : seen.passes ? 'ok' : 'LOST'
    return [mark, hop, outcomeText(expected), outcomeText(seen)]
  })
  // Names of links and comments of rules are those of other programs, and the far half is another machine.
  return [
    `${protocol} ${printable(from)} (${source}) → ${printable(to)} (${destination})${where}`,
    '',
    table(
      ['', 'HOP', 'EXPECTED', 'SEEN'],
      rows.map((row) => row.map(printable)),
    ),
    '',
    printable(conclusion),
  ].join('\n')
}

// Formats what was dropped: a line for each two ends, port and reason.
function droppedText({ seconds, dropped, others }: DroppedReport): string {
  if (dropped.length === 0) return `No packet was dropped in ${seconds} s`
  const end = (ip: Ip, name: string | undefined) => (name === undefined ? ip : `${name} (${ip})`)
  const rows = dropped.map(({ count, source, destination, protocol, port, hop, reason, from, to }) => [
    `${count}`,
    end(source, from),
    end(destination, to),
    port === 0 ? protocol : `${protocol} ${port}`,
    hop,
    reason,
  ])
  const rest = others === 0 ? '' : `\n\n${others} more packets are in no line`
  const texts = rows.map((row) => row.map(printable))
  return `${table(['COUNT', 'FROM', 'TO', 'PORT', 'HOP', 'REASON'], texts)}${rest}`
}

function help(): string {
  return `usage: plumb trace FROM TO [PORT[/PROTOCOL]] [options]: follow one packet, and say where and why it is lost
       plumb trace --dropped [FROM [TO [PORT[/PROTOCOL]]]] [options]: count the packets that this node drops

FROM is a pod of this node, or node. TO is a pod, a Service, an address, or node. A pod is
NAMESPACE/NAME, a container's id, an address, or the path of a network namespace. A Service is
NAMESPACE/NAME, or its name in DNS: NAME.NAMESPACE.svc. Another node is the name of its lease.
PROTOCOL is tcp or udp; without a PORT the packet is an echo request.

It sends one packet from FROM, and follows it through the rules and links of this node. Each line
shows what should happen and what does. It needs root, and takes at most 20 seconds.
With --far it also follows the packet on the node of the receiver: COMMAND starts plumb there.
With --size the packet is that large: links with a smaller MTU show.
With --live it sends nothing. It waits for a packet that a program sends, and follows that one. Then
a PORT is not needed.
With --dropped it counts packets that this node drops: those of all pods, or those from FROM to TO.

${describeOptions(names, ABOUTS)}

exit status: 0 the packet arrives, 1 policy or a closed port refuses it, 2 a wrong command line, 3 it is lost
otherwise or goes astray. With --live: 4 no packet came. With --dropped: 0 nothing is dropped,
1 something is`
}
