import type { Status } from '../agent/health/status.ts'
import type { Decision, PodSummary } from '../agent/policy/view.ts'
import type { ServiceView } from '../agent/services/view.ts'
import { attachedPods, type End, endOf, namedPod, namespaceOf } from '../agent/trace/ends.ts'
import { readTraceFacts } from '../agent/trace/facts.ts'
import { type FarNode, followFar, startFar, WATCH } from '../agent/trace/far.ts'
import type { Comparison, Hop } from '../agent/trace/hops.ts'
import type { TraceFacts } from '../agent/trace/oracle.ts'
import type { Probe, Protocol } from '../agent/trace/packet.ts'
import { trace, tunnelsOf } from '../agent/trace/trace.ts'
import type { Place } from '../agent/trace/watch.ts'
import { SOCKET } from '../lib/nft/admission.ts'
import { question } from '../lib/os/ask.ts'
import { inside } from '../lib/os/netns.ts'
import { askForRoute } from '../lib/os/route-question.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, shown, ValueError } from '../lib/text/errors.ts'
import { type Ip, parseIp } from '../lib/text/ip.ts'
import type { NetnsPath } from '../lib/text/values.ts'
import { answerOf } from './ask.ts'
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

const names: readonly OptionName[] = ['socket', 'policy-socket', 'subnet-file', 'cache-dir', 'far', 'json', 'help']
const ABOUTS: Abouts = {
  far: { value: 'COMMAND', about: "how plumb is started on the receiver's node: 'ssh n2 plumb'" },
}
/** The limit for the agent's silence about policy, in milliseconds. */
const QUIET_MS = 5000
/** The most endpoints of a Service whose namespaces are watched. */
const MOST_TARGETS = 8
/** The exit statuses for a packet that is lost, and for a packet that does not do what it should. */
const [LOST, DIFFER] = [1, 3]
const [LOWEST_PORT, PORTS] = [40_000, 20_000]

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names, ABOUTS), words: ['FROM', 'TO', '[PORT[/PROTOCOL]]'] }

/** What `plumb trace` found, as `--json` prints it. */
export interface Told extends Comparison {
  readonly from: string
  readonly to: string
  readonly protocol: Protocol
  readonly source: Ip
  readonly destination: Ip
  /** 0 for ICMP. */
  readonly port: number
  /** One sentence. */
  readonly conclusion: string
}

/**
 * Runs `plumb trace ARGV` and returns the exit status. The status is 0 for a packet that arrives as it should, 1 for one
 * that is lost, 3 when it does not do what it should. Throws ValueError for a wrong command line.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb trace')
  if (values.help) {
    print(help())
    return 0
  }
  if (words[0] === WATCH) {
    await followFar(Bun.stdin.stream(), print, await farNode(values))
    return 0
  }
  const [from, to, where, more] = words
  if (from === undefined || to === undefined || more !== undefined)
    throw new ValueError('plumb trace takes FROM TO [PORT[/PROTOCOL]]; see plumb trace --help')
  const told = await traced(from, to, where, values)
  if (values.json) print(JSON.stringify(told, null, 4))
  else printText(traceText(told))
  if (told.differsAt !== undefined) return DIFFER
  return told.lostAt === undefined ? 0 : LOST
}

// This node as the node of the receiver, for a trace that another node sends.
async function farNode(values: Given['values']): Promise<FarNode> {
  const pods = attachedPods(values['cache-dir'] ?? '/var/lib/cni')
  const status = await quietly(async () => (await answerOf('/status', values)) as Status)
  const none = { status, services: undefined, decision: undefined }
  const { links, at } = await readTraceFacts(none, 'host', pods, subnetFileOf(values))
  const tunnel = links.find(({ vxlan }) => vxlan !== undefined)?.vxlan?.port
  return {
    ...(tunnel !== undefined && { tunnel }),
    tunnels: tunnelsOf({ links }),
    places: (destinations) => [
      { name: 'node', ns: 'host' },
      ...spacesOf(destinations.filter((ip) => at(ip)?.isNode === false).map((ip) => namespaceOf(ip, pods))),
    ],
    async facts({ source, protocol }, { ip, port }) {
      const asked = { from: source, to: ip, port, protocol }
      const decision = protocol === 'ICMP' ? undefined : decisionOf(asked, values)
      return readTraceFacts({ ...none, decision }, 'host', pods, subnetFileOf(values))
    },
  }
}

function spacesOf(spaces: readonly (NetnsPath | undefined)[]): Place[] {
  return [...new Set(spaces)]
    .filter((ns) => ns !== undefined)
    .slice(0, MOST_TARGETS)
    .map((ns) => ({ name: 'target', ns }))
}

async function traced(from: string, to: string, where: string | undefined, values: Given['values']): Promise<Told> {
  // A namespace that is named counts before others with the same address.
  const named = [from, to].flatMap((word) => (word.startsWith('/') ? namedPod(word) : []))
  const pods = [...named, ...attachedPods(values['cache-dir'] ?? '/var/lib/cni')]
  const [status, services] = await Promise.all([
    quietly(async () => (await answerOf('/status', values)) as Status),
    quietly(async () => (await answerOf('/services', values)) as readonly ServiceView[] | null),
  ])
  const sender = endOf(from, pods) ?? podOfAgent(from, pods, values)
  if (sender === undefined) throw unknownEnd(from, 'FROM')
  if (sender.netns === undefined && !sender.isNode)
    throw new ValueError(`${from} is not on this node: want a pod of this node, or node; run plumb trace on its node`)
  const asked = where === undefined ? undefined : portOf(where)
  const target = targetOf(to, asked, sender, pods, services ?? undefined, values)
  const { destination, port, protocol } = target
  const ns = sender.netns ?? 'host'
  const source = sourceOf(sender, destination)
  const decision =
    protocol === 'ICMP' ? undefined : decisionOf({ from: source, to: destination, port, protocol }, values)
  const facts = await readTraceFacts(
    { status, services: services ?? undefined, decision },
    ns,
    pods,
    subnetFileOf(values),
  )
  const probe: Probe = {
    ...{ protocol, source, destination, port },
    sourcePort: LOWEST_PORT + Math.floor(Math.random() * PORTS),
    // Odd, because the kernel gives a packet whose IP id is 0 another one.
    token: ((Math.random() * 2 ** 32) | 1) >>> 0,
  }
  const tunnel = facts.links.find(({ vxlan }) => vxlan !== undefined)?.vxlan?.port
  const destinations = destinationsOf(probe, services ?? [], facts)
  const targets = destinations.filter((ip) => facts.at(ip)?.isNode === false).map((ip) => namespaceOf(ip, pods))
  const places: Place[] = [
    ...(sender.netns === undefined ? [] : [{ name: 'source', ns: sender.netns } as const]),
    { name: 'node', ns: 'host' },
    ...spacesOf(targets.filter((path) => path !== sender.netns)),
  ]
  const command = commandOf(values.far)
  const far = command && (await startFar(command, { probe, destinations }))
  const wanted = { probe, places, facts, ...(tunnel !== undefined && { tunnel }), ...(far && { far }) }
  const { hops, lostAt, differsAt } = await trace(wanted).finally(() => far?.close())
  const found = { hops, ...(lostAt && { lostAt }), ...(differsAt && { differsAt }) }
  return { from, to, protocol, source, destination, port, ...found, conclusion: conclusionOf(found) }
}

// Where the packet may arrive: at its destination, or at the endpoints of a Service.
function destinationsOf(
  { destination, port, protocol }: Probe,
  services: readonly ServiceView[],
  facts: TraceFacts,
): Ip[] {
  const asked = `${isSix(destination) ? `[${destination}]` : destination}:${port}/${protocol}`
  const isNode = facts.at(destination)?.isNode === true
  const ends = services
    .flatMap(({ ports }) => ports)
    .filter(({ addresses, nodePort }) => addresses.includes(asked) || (isNode && nodePort === port))
    .flatMap(({ endpoints }) => endpoints.map(({ address }) => address.replace(/^\[?(.*?)\]?:\d+$/, '$1') as Ip))
  return [destination, ...ends]
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
  services: readonly ServiceView[] | undefined,
  values: Given['values'],
): Asked & { readonly destination: Ip } {
  const echo: Asked = { port: 0, protocol: 'ICMP' }
  const end = endOf(to, pods)
  const isOfSender = (ip: Ip) => sender.ips.some((own) => isSix(own) === isSix(ip))
  const service = end ? undefined : services?.find(({ namespace, name }) => to === `${namespace}/${name}`)
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
  const destination = end?.isNode && to === 'node' ? nodeAddress(sender, ips) : ips.find(isOfSender)
  if (destination === undefined)
    throw new ValueError(`${sender.name} and ${to} have no addresses of one family: want two of IPv4, or two of IPv6`)
  return { ...(asked ?? echo), destination }
}

// The node's address for the sender: the one that the sender's gateway or the default route has.
function nodeAddress(sender: End, ips: readonly Ip[]): Ip | undefined {
  const own = sender.ips[0]
  if (own === undefined) return undefined
  return ips.find((ip) => isSix(ip) === isSix(own) && !/^(127\.|::1$)/.test(ip))
}

// `10.96.0.1:80/TCP`, or `[fd00::1]:53/UDP`.
function addressIn(text: string): (Asked & { readonly destination: Ip }) | undefined {
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
function ofPolicy<Reply extends object>(
  asked: object,
  { 'policy-socket': socket = SOCKET }: Given['values'],
): Reply | undefined {
  try {
    return question<Reply>({ socket, name: 'the agent for network policy', advice: '' }, asked, QUIET_MS)()
  } catch (cause) {
    if (cause instanceof CniError) return undefined
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

function conclusionOf({ hops, lostAt, differsAt }: Comparison): string {
  const at = (name: string | undefined) => hops.find(({ hop }) => hop === name)
  const [differing, lost] = [at(differsAt), at(lostAt)]
  if (differing) {
    const { expected, seen } = differing
    return `The packet does not do what it should at ${differsAt}: expected ${outcomeText(expected)}, seen ${outcomeText(seen)}`
  }
  if (lost) return `The packet is lost at ${lostAt}: ${lost.expected?.says || lost.seen?.says}`
  return hops.at(-1)?.hop === 'answer' ? 'The packet arrives, and the answer comes back' : 'The packet arrives'
}

function outcomeText(outcome: Hop['expected']): string {
  if (!outcome) return '-'
  const verdict = outcome.passes ? 'passes' : 'lost'
  return outcome.says === '' ? verdict : outcome.passes ? outcome.says : `${verdict}: ${outcome.says}`
}

/** Formats what a trace found: a line a hop, then the conclusion. */
export function traceText({ from, to, protocol, source, destination, port, hops, conclusion }: Told): string {
  const where = port === 0 ? '' : ` port ${port}`
  const rows = hops.map(({ hop, expected, seen, differs }) => {
    const mark = differs ? 'DIFFERS' : seen === undefined ? '-' : seen.passes ? 'ok' : 'LOST'
    return [mark, hop, outcomeText(expected), outcomeText(seen)]
  })
  return [
    `${protocol} ${from} (${source}) → ${to} (${destination})${where}`,
    '',
    table(['', 'HOP', 'EXPECTED', 'SEEN'], rows),
    '',
    conclusion,
  ].join('\n')
}

function help(): string {
  return `usage: plumb trace FROM TO [PORT[/PROTOCOL]] [options]: follow one packet, and say where and why it is lost

FROM is a pod of this node, or node. TO is a pod, a Service, an address, or node. A pod is
NAMESPACE/NAME, a container's id, an address, or the path of a network namespace. A Service is
NAMESPACE/NAME. PROTOCOL is tcp or udp; without a PORT the packet is an echo request.

It sends one packet from FROM, and follows it through the rules and links of this node. Each line
shows what should happen and what does. It needs root, and takes at most 20 seconds.
With --far it also follows the packet on the node of the receiver: COMMAND starts plumb there.

${describeOptions(names, ABOUTS)}

exit status: 0 the packet arrives, 1 it is lost, 2 the command line is wrong, 3 it does not do
what it should`
}
