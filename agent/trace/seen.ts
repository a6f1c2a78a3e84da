// What did happen to a packet, hop by hop: from the sights of the packet and of its answer.
import type { Drop } from '../../lib/os/drop-reasons.ts'
import type { HopName, Outcome, Outcomes } from './hops.ts'
import { endText } from './oracle.ts'
import type { Probe } from './packet.ts'
import type { Sight } from './sights.ts'

/** What was seen, and how to read it. */
export interface Evidence {
  readonly probe: Probe
  readonly sights: readonly Sight[]
  /** Why the kernel dropped packets of this process. */
  readonly drops: readonly Drop[]
  /** The node itself sends. */
  readonly isNodeSource: boolean
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
const TABLES: readonly (readonly [HopName, RegExp])[] = [
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
  PKT_TOO_BIG: 'it is too large',
}
/** Reasons that say nothing about a packet that is lost on the way. */
const USUAL = ['NOT_SPECIFIED', 'NO_SOCKET', 'CONSUMED', 'QUEUE_PURGE', 'SKB_CONSUMED']

/** The endpoint that the packet took. Undefined when its destination was not changed. */
export function chosenOf({ probe, sights }: Pick<Evidence, 'probe' | 'sights'>) {
  const last = sights.findLast(({ direction, isTunnel }) => direction === 'there' && !isTunnel)
  if (!last || (last.destination === probe.destination && last.port === probe.port)) return undefined
  return { ip: last.destination, port: last.port }
}

/** The rule that refused the packet. Undefined when none did. */
export function refusalIn(sights: readonly Sight[]): Sight | undefined {
  return sights.find(({ direction, verdict }) => direction === 'there' && verdict === 'drop')
}

/** What happened to a packet, up to the hop where it was lost. Pure. */
export function observe(evidence: Evidence): Outcomes {
  const found = new Map<HopName, Outcome>()
  for (const [hop, outcome] of walk(evidence)) {
    if (outcome === undefined) continue
    found.set(hop, outcome)
    if (!outcome.passes) break
  }
  return found
}

function* walk(evidence: Evidence): Generator<readonly [HopName, Outcome | undefined]> {
  const { probe, sights, isNodeSource, isTargetWatched } = evidence
  const there = sights.filter(({ direction, isTunnel }) => direction === 'there' && !isTunnel)
  const onNode = there.filter(({ place }) => place === 'node')
  const inSource = there.filter(({ place }) => place === 'source')
  const refused = refusalIn(sights)
  const refusedAt = refused && (TABLES.find(([, table]) => table.test(refused.table))?.[0] ?? 'rules')
  const refusal = (hop: HopName) =>
    refused?.place === 'node' && refusedAt === hop ? failing(ruleText(refused, evidence)) : undefined

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
      yield ['link', failing(`it did not reach the node${because(evidence)}`)]
      return
    }
    yield ['link', passing(port.iif ?? '', port.iif)]
  }
  yield ['guard', refusal('guard') ?? met(onNode, /^plumb_guard$/)]

  const [first, last] = [onNode[0], onNode.at(-1)]
  const isTranslated = first && last && (first.destination !== last.destination || first.port !== last.port)
  const target = last && { ip: last.destination, port: last.port }
  yield [
    'service',
    refusal('service') ?? (isTranslated && target ? passing(`→ ${endText(target)}`, endText(target)) : undefined),
  ]

  const forwarded = onNode.find(({ hook, family }) => hook === 'forward' && family !== 'bridge')
  const bridged = onNode.find(({ hook, family }) => hook === 'forward' && family === 'bridge')
  const taken = onNode.find(({ hook, family }) => hook === 'input' && family !== 'bridge')
  const out = isNodeSource ? onNode.findLast(({ hook }) => hook === 'output' || hook === 'postrouting') : undefined
  const way = bridged ?? forwarded ?? taken ?? out
  // The chain of another program may stand before the first chain of a hook, and drop the packet there.
  if (!way && !refused) {
    const error = sights.find(({ answer }) => answer === 'error')
    const told = error && `${error.source} answers with an error of ICMP`
    yield ['route', failing(reasonOf(evidence) ?? told ?? 'the node dropped it before a rule could')]
    return
  }
  if (way) yield ['route', wayText(way, onNode)]
  const hooks = ['forward', 'input', 'output', 'postrouting']
  const isMet = onNode.some(({ hook, table }) => hook === undefined && !/^plumb/.test(table))
  yield [
    'rules',
    refusal('rules') ?? (isMet && onNode.some(({ hook }) => hooks.includes(hook ?? '')) ? passing('') : undefined),
  ]
  yield ['policy', refusal('policy') ?? met(onNode, /^plumb_policy$/)]

  const left = onNode.filter(({ hook }) => hook === 'postrouting')
  const arrived = sights.find(
    ({ place, direction, hook }) => place === 'target' && direction === 'there' && hook === 'input',
  )
  const answers = sights.filter(({ direction }) => direction === 'back')
  if (!taken && !left.length && !arrived && answers.length === 0) {
    yield ['exit', failing(`it did not leave the node${because(evidence)}`)]
    return
  }
  const end = left.find(({ family }) => family === 'bridge') ?? left.at(-1)
  const changed = left.find(({ source }) => source !== probe.source)
  if (!taken && end && !isNodeSource)
    yield ['source', changed ? passing(changed.source, 'changed') : passing('kept', 'kept')]
  if (!taken && end && evidence.silent !== undefined) {
    yield ['exit', failing(`nobody answers for ${evidence.silent}`)]
    return
  }
  if (!taken && end) yield ['exit', passing(`by ${end.oif}`, end.oif)]

  const answer = answers[0]?.answer
  if (isTargetWatched && !taken && !arrived && answer === undefined) {
    yield ['receiver', failing(`it did not arrive${because(evidence)}`)]
    return
  }
  if (answer === 'closed') yield ['receiver', failing(closedText(probe))]
  else if (answer === 'error') yield ['receiver', failing(`${answers[0]?.source} sends an error of ICMP`)]
  else if (arrived || taken) yield ['receiver', passing(answer === 'open' ? 'it answers' : 'it arrives')]
  else if (answer === 'open') yield ['receiver', passing(`${answers[0]?.source} answers`)]

  const back = answers.find(
    ({ place, hook }) => (hook === 'input' || hook === 'prerouting') && place === (isNodeSource ? 'node' : 'source'),
  )
  const lost = sights.find(({ direction, verdict }) => direction === 'back' && verdict === 'drop')
  if (lost) yield ['answer', failing(ruleText(lost, evidence))]
  else if (back || (isNodeSource && answers.length > 0))
    yield ['answer', passing(`from ${back?.source ?? answers.at(-1)?.source}`)]
  else if (answers.length > 0) yield ['answer', failing(`it did not come back${because(evidence)}`)]
  // A program may take a datagram and say nothing.
  else if (probe.protocol !== 'UDP' || !(arrived || taken)) yield ['answer', failing('none came back')]
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

// The last one: the kernel drops the packet where its way ends.
function reasonOf({ drops }: Evidence): string | undefined {
  const drop = drops.findLast(({ reason }) => !USUAL.includes(reason))
  if (drop === undefined) return undefined
  const { reason, where } = drop
  return `${REASONS[reason] ?? 'the kernel drops it'} (${reason} in ${where})`
}

function passing(says: string, key?: string): Outcome {
  return { passes: true, says, ...(key !== undefined && { key }) }
}

function failing(says: string): Outcome {
  return { passes: false, says }
}
