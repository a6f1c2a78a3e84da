// What did happen to a packet, hop by hop: from the sights of the packet and of its answer.
import type { Drop } from '../../lib/os/drop-reasons.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { failing, type HopName, type Outcome, type Outcomes, passing } from './hops.ts'
import { endText } from './oracle.ts'
import { type Probe, sizesOf } from './packet.ts'
import type { Sight } from './sights.ts'

/** What was seen, and how to read it. */
export interface Evidence {
  readonly probe: Probe
  readonly sights: readonly Sight[]
  /** Why the kernel dropped packets of this process. */
  readonly drops: readonly Drop[]
  /** The node itself sends. */
  readonly isNodeSource: boolean
  /** The names of the links of VXLAN. */
  readonly tunnels: readonly string[]
  /** The largest packet that a link of the node takes, in bytes. */
  mtuOf?(link: string): number | undefined
  /** The namespace of the receiving pod is watched, or the node itself receives. */
  readonly isTargetWatched: boolean
  /** Why the sender's kernel did not take the packet. */
  readonly unsent?: string
  /** The next machine that does not answer for its address: `192.0.2.9 on eth0`. Undefined when it does. */
  readonly silent?: string
  /** The text of the rule that dropped the packet. Undefined when it is not known. */
  ruleOf(sight: Sight): string | undefined
}

/** The tables that decide, by hop. All others are `rules`. */
const TABLES: readonly (readonly ['guard' | 'service' | 'policy', RegExp])[] = [
  ['guard', /^plumb_guard$/],
  ['service', /^plumb_services/],
  ['policy', /^plumb_policy$/],
]
/** The kernel's reasons for drops, in the words of an administrator (include/net/dropreason-core.h). */
const REASONS: Readonly<Record<string, string>> = {
  IP_RPFILTER: 'the reverse path filter drops it',
  IP_INADDRERRORS: 'the node does not forward',
  IP_OUTNOROUTES: 'there is no route',
  IP_INNOROUTES: 'there is no route',
  NEIGH_FAILED: 'nobody answers for the next address',
  NEIGH_QUEUEFULL: 'nobody answers for the next address',
  NETFILTER_DROP: 'a rule outside of nft drops it',
  IP_CSUM: 'its checksum is wrong',
  TCP_CSUM: 'its checksum is wrong',
  UDP_CSUM: 'its checksum is wrong',
  PKT_TOO_BIG: 'it is too large for the next link',
}
/**
 * Reasons that say nothing about a packet that is lost on the way: those of sockets. A busy kernel handles packets of other
 * connections in the thread that sends.
 */
const USUAL = /^(NOT_SPECIFIED|NO_SOCKET|CONSUMED|QUEUE_PURGE|SKB_CONSUMED|TCP_.*|SOCKET_.*|UNIX_.*|PACKET_SOCK_.*)$/

/** The endpoint that the packet took. Undefined when its destination was not changed. */
export function chosenOf({ probe, sights }: Pick<Evidence, 'probe' | 'sights'>) {
  const last = sights.findLast(({ direction, isTunnel }) => direction === 'there' && !isTunnel)
  if (!last || (last.destination === probe.destination && last.port === probe.port)) return undefined
  return { ip: last.destination, port: last.port }
}

// The rule that refused the packet. Undefined when none did.
function refusalIn(sights: readonly Sight[]): Sight | undefined {
  return sights.find(({ direction, verdict, isTunnel }) => direction === 'there' && verdict === 'drop' && !isTunnel)
}

/** All sights at which a rule refused something: the packet, the one that carries it, or the answer. */
export function refusals(sights: readonly Sight[]): Sight[] {
  return sights.filter(({ verdict }) => verdict === 'drop')
}

/** What happened to a packet, up to the hop where it was lost. Pure. */
export function observe(evidence: Evidence): Outcomes {
  return collected(walk(evidence))
}

/** What happened to a packet on the node of its receiver, up to the hop where it was lost. Pure. */
export function observeFar(evidence: Evidence): Outcomes {
  return collected(walkFar(evidence))
}

function collected(steps: Generator<readonly [HopName, Outcome | undefined]>): Outcomes {
  const found = new Map<HopName, Outcome>()
  for (const [hop, outcome] of steps) {
    if (outcome === undefined) continue
    found.set(hop, outcome)
    if (!outcome.passes) break
  }
  return found
}

type Steps = Generator<readonly [HopName, Outcome | undefined], Sight | undefined>

function* walk(evidence: Evidence): Steps {
  const { probe, sights, isNodeSource, drops } = evidence
  const there = sights.filter(({ direction, isTunnel }) => direction === 'there' && !isTunnel)
  const onNode = there.filter(({ place }) => place === 'node')
  const inSource = there.filter(({ place }) => place === 'source')
  const refused = refusalIn(sights)

  const sent = inSource.find(({ hook, oif }) => hook === 'postrouting' && oif) ?? (isNodeSource ? onNode[0] : undefined)
  if (refused?.place === 'source') {
    yield ['sender', failing(`in the pod: ${ruleText(refused, evidence)}`)]
    return
  }
  if (!sent) {
    yield ['sender', failing(reasonOf(evidence) ?? evidence.unsent ?? 'it was not sent')]
    return
  }
  yield ['sender', passing(`by ${sent.oif ?? 'lo'}`, sent.oif)]

  if (!isNodeSource) {
    const port = onNode.find(({ family, iif }) => family === 'bridge' && iif) ?? onNode.find(({ iif }) => iif)
    if (!port) {
      const { silent } = evidence
      const told =
        silent === undefined ? `it did not reach the node${because(evidence)}` : `nobody answers for ${silent}`
      yield ['link', failing(told)]
      return
    }
    yield ['link', passing(port.iif ?? '', port.iif)]
  }
  yield ['guard', refusal('guard', evidence) ?? met(onNode, /^plumb_guard$/)]

  const [first, last] = [onNode[0], onNode.at(-1)]
  const isTranslated = first && last && (first.destination !== last.destination || first.port !== last.port)
  const target = last && { ip: last.destination, port: last.port }
  const translated =
    isTranslated && target ? passing(`→ ${endText(target)}${translator(onNode)}`, endText(target)) : undefined
  yield ['service', refusal('service', evidence) ?? translated]
  const end = yield* throughNode(evidence, onNode, '')

  const carriers = sights.filter(({ isTunnel, place }) => isTunnel && place === 'node')
  if (end?.oif !== undefined && evidence.tunnels.includes(end.oif)) {
    const [stopped, sentOut] = [refusals(carriers)[0], carriers.findLast(({ hook }) => hook === 'postrouting')]
    if (stopped) yield ['tunnel', failing(ruleText(stopped, evidence))]
    else if (!sentOut) yield ['tunnel', failing(`${end.oif} did not send it${because(evidence)}`)]
    else if (evidence.silent !== undefined) yield ['tunnel', failing(`nobody answers for ${evidence.silent}`)]
    else yield ['tunnel', passing(carried(sentOut, evidence))]
  }

  const answers = sights.filter(({ direction }) => direction === 'back')
  const receiver = received(evidence, onNode)
  yield ['receiver', receiver]
  const isAnswer = ({ place, hook }: Sight) =>
    (hook === 'input' || hook === 'prerouting') && place === (isNodeSource ? 'node' : 'source')
  const back = answers.find(isAnswer) ?? (isNodeSource ? answers.at(-1) : undefined)
  const lost = refusals(answers)[0]
  if (lost) yield ['answer', failing(ruleText(lost, evidence))]
  else if (back) yield ['answer', passing(`from ${back.source}`)]
  else if (answers.length > 0) yield ['answer', failing(`it did not come back${because({ ...evidence, drops })}`)]
  // A program may take a datagram and say nothing.
  else if (probe.protocol !== 'UDP' || receiver === undefined) yield ['answer', failing('none came back')]
  return undefined
}

function* walkFar(evidence: Evidence): Steps {
  const { sights } = evidence
  const [carriers, inner] = [true, undefined].map((is) =>
    sights.filter(({ direction, isTunnel, place }) => direction === 'there' && isTunnel === is && place === 'node'),
  ) as [Sight[], Sight[]]
  const [stopped, first] = [refusals(carriers)[0], inner.find(({ iif }) => iif)]
  if (stopped) yield ['far link', failing(ruleText(stopped, evidence))]
  else if (!first && carriers.length > 0)
    yield ['far link', failing(`the tunnel does not give it out${because(evidence)}`)]
  else if (!first) yield ['far link', failing(`it did not arrive at the node${because(evidence)}`)]
  if (!first) return undefined
  yield ['far link', passing(`by ${first.iif}`, first.iif)]
  yield* throughNode(evidence, inner, 'far ')
  yield ['receiver', received(evidence, inner)]
  return undefined
}

// Linux divides the packet of a tunnel that is too large for the uplink. Firewalls often drop the pieces.
function carried({ source, destination, port, oif = '' }: Sight, { probe, mtuOf }: Evidence): string {
  const way = `UDP ${source} → ${destination} port ${port} by ${oif}`
  const [, overIpv4 = 0, overIpv6 = 0] = sizesOf(probe)
  const [bytes, most] = [isSix(source) ? overIpv6 : overIpv4, mtuOf?.(oif)]
  return most === undefined || bytes <= most
    ? way
    : `${way}, in pieces: it has ${bytes} bytes, and ${oif} takes ${most}`
}

// The chain of another program that changed the destination.
function translator(onNode: readonly Sight[]): string {
  const [first] = onNode
  const changed = onNode.findIndex((one) => one.destination !== first?.destination || one.port !== first.port)
  const by = onNode
    .slice(0, changed)
    .findLast(({ handle, hook, verdict }) => handle !== undefined && hook === undefined && verdict === 'accept')
  if (by === undefined || by.table.startsWith('plumb_')) return ''
  return ` by the chain ${by.family} ${by.table} ${by.chain}`
}

// The hops on one node, from the route to the exit. Returns the sight at the exit.
function* throughNode(evidence: Evidence, onNode: readonly Sight[], prefix: '' | 'far '): Steps {
  const { probe, sights, isNodeSource } = evidence
  const forwarded = onNode.find(({ hook, family }) => hook === 'forward' && family !== 'bridge')
  const bridged = onNode.find(({ hook, family }) => hook === 'forward' && family === 'bridge')
  const taken = onNode.find(({ hook, family }) => hook === 'input' && family !== 'bridge')
  const out = isNodeSource ? onNode.findLast(({ hook }) => hook === 'output' || hook === 'postrouting') : undefined
  const way = bridged ?? forwarded ?? taken ?? out
  // The chain of another program may stand before the first chain of a hook, and drop the packet there.
  if (!way && !refusalIn(sights)) {
    const error = sights.find(({ answer }) => answer === 'error')
    const told = error && `${error.source} answers with an error of ICMP`
    yield [`${prefix}route`, failing(reasonOf(evidence) ?? told ?? 'the node dropped it before a rule could')]
    return undefined
  }
  if (way) yield [`${prefix}route`, wayText(way, onNode)]
  const isMet = way !== undefined && onNode.some(({ hook, table }) => hook === undefined && !/^plumb/.test(table))
  yield [`${prefix}rules`, refusal('rules', evidence) ?? (isMet ? passing('') : undefined)]
  const skipped = bridged && !forwarded ? passing('the frame skips the rules of IP') : undefined
  yield [`${prefix}policy`, refusal('policy', evidence) ?? met(onNode, /^plumb_policy$/) ?? skipped]

  const left = onNode.filter(({ hook }) => hook === 'postrouting')
  const isAnswered = sights.some(({ direction }) => direction === 'back')
  const isArrived = sights.some(({ place, direction }) => place === 'target' && direction === 'there')
  if (!taken && left.length === 0 && !isArrived && !isAnswered) {
    yield [`${prefix}exit`, failing(`it did not leave the node${because(evidence)}`)]
    return undefined
  }
  const end = left.find(({ family }) => family === 'bridge') ?? left.at(-1)
  if (taken || !end) return undefined
  const changed = left.find(({ source }) => source !== probe.source)
  if (prefix === '' && !isNodeSource)
    yield ['source', changed ? passing(changed.source, 'changed') : passing('kept', 'kept')]
  const isTunnelled = sights.some(({ isTunnel, place }) => isTunnel && place === 'node') && prefix === ''
  if (evidence.silent !== undefined && !isTunnelled)
    yield [`${prefix}exit`, failing(`nobody answers for ${evidence.silent}`)]
  else yield [`${prefix}exit`, passing(`by ${end.oif}`, end.oif)]
  return end
}

// What the receiver did with the packet. Undefined when nobody knows.
function received(evidence: Evidence, onNode: readonly Sight[]): Outcome | undefined {
  const { probe, sights, isTargetWatched } = evidence
  const isTaken = onNode.some(({ hook, family }) => hook === 'input' && family !== 'bridge')
  const isArrived =
    isTaken ||
    sights.some(({ place, direction, hook }) => place === 'target' && direction === 'there' && hook === 'input')
  const [answered] = sights.filter(({ direction }) => direction === 'back')
  const answer = answered?.answer
  const refused = sights.find(
    ({ place, direction, verdict }) => place === 'target' && direction === 'there' && verdict === 'drop',
  )
  if (refused) return failing(`in the pod: ${ruleText(refused, evidence)}`)
  if (isTargetWatched && !isArrived && answer === undefined) return failing(`it did not arrive${because(evidence)}`)
  if (answer === 'closed') return failing(closedText(probe))
  if (answer === 'error') return failing(`${answered?.source} sends an error of ICMP`)
  if (isArrived) return passing(answer === 'open' ? 'it answers' : 'it arrives')
  return answer === 'open' ? passing(`${answered?.source} answers`) : undefined
}

/** The hop of a table of nft. Pure. */
export function hopOf(table: string): 'guard' | 'service' | 'policy' | 'rules' {
  return TABLES.find(([, one]) => one.test(table))?.[0] ?? 'rules'
}

// The rule that refused the packet on the node, if it belongs to this hop.
function refusal(hop: 'guard' | 'service' | 'policy' | 'rules', evidence: Evidence): Outcome | undefined {
  const refused = refusalIn(evidence.sights)
  if (refused?.place !== 'node') return undefined
  return hopOf(refused.table) === hop ? failing(ruleText(refused, evidence)) : undefined
}

function closedText({ protocol, port }: Probe): string {
  return protocol === 'TCP'
    ? `it refuses the connection: RST from TCP port ${port}`
    : `it refuses ${protocol} port ${port}`
}

function wayText(way: Sight, onNode: readonly Sight[]): Outcome {
  if (way.family === 'bridge') return passing(`across the bridge to ${way.oif}`, bridgeOf(onNode))
  if (way.hook === 'input') return passing('to the node itself', 'local')
  return way.oif === 'lo' ? passing('to the node itself', 'local') : passing(`by ${way.oif}`, way.oif)
}

// The rules of inet see the bridge as the link, where br_netfilter hands its packets over.
function bridgeOf(onNode: readonly Sight[]): string | undefined {
  return onNode.find(({ family, hook }) => family !== 'bridge' && hook === 'forward')?.oif
}

function met(sights: readonly Sight[], table: RegExp): Outcome | undefined {
  return sights.some((one) => table.test(one.table)) ? passing('') : undefined
}

function ruleText(sight: Sight, { ruleOf }: Evidence): string {
  const { family, table, chain } = sight
  const rule = sight.handle === undefined ? 'policy drop' : (ruleOf(sight) ?? 'drop')
  return `the chain ${family} ${table} ${chain} drops it: ${rule}`
}

function because(evidence: Evidence): string {
  const reason = reasonOf(evidence)
  return reason === undefined ? '' : `: ${reason}`
}

function reasonOf({ drops }: Evidence): string | undefined {
  return reasonText(drops)
}

/**
 * The last reason that this file knows counts, or else the last one: the kernel drops the packet where its way ends.
 * Undefined without one. Pure.
 */
export function reasonText(drops: readonly Drop[]): string | undefined {
  const known = drops.findLast(({ reason }) => reason in REASONS)
  const drop = known ?? drops.findLast(({ reason }) => !USUAL.test(reason))
  if (drop === undefined) return undefined
  const { reason, where } = drop
  return `${REASONS[reason] ?? 'the kernel drops it'} (${reason} in ${where})`
}
