// Packets of programs that the node drops: the trace sends nothing, and counts them by what dropped them.

import type { Link } from '../../agent/doctor/facts/links.ts'
import type { Traced } from '../../lib/os/nft-trace.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { HopName } from './hops.ts'
import { foresee, type TraceFacts } from './oracle.ts'
import { endsIn, type Flow, type Protocol } from './packet.ts'
import { ruleTextOf } from './rules.ts'
import { hopOf, reasonText } from './seen.ts'
import { type Marks, watch } from './watch.ts'

/** Which packets count. Without any of these, those that come from links of pods, or leave by one. */
export interface Filter {
  readonly sources?: readonly Ip[]
  readonly destinations?: readonly Ip[]
  readonly protocol?: Protocol
  /** Of the destination. */
  readonly port?: number
}
/** Packets that were dropped for the same reason. */
export interface Dropped extends Flow {
  readonly count: number
  readonly hop: HopName
  readonly reason: string
}
/** All that was dropped. */
export interface AllDropped {
  readonly dropped: readonly Dropped[]
  /** The packets that are in no line, because there are too many lines. */
  readonly others: number
}
/** What to look at. */
export interface DropQuestion {
  readonly filter: Filter
  /** The links of pods on the node, with their bridges. */
  readonly links: readonly string[]
  readonly facts: TraceFacts
  readonly waitMs: number
  /** What the objects of the cluster say about packets that a policy refuses. */
  refusal(flow: Flow): string | undefined
  ready(): void
}

/** How often the kernel's messages are read, in milliseconds. */
const LOOK_MS = 20
/** A packet that has not left the node in this time was dropped, in milliseconds. */
const GONE_MS = 500
/** The most lines. */
const MOST = 1000
/** How many packets the kernel tells of in a second: first ones of connections, and others. */
const LIMITS = { first: 'limit rate 200/second burst 200 packets', rest: 'limit rate 100/second burst 100 packets' }
/** Packets to all, which nodes drop as a matter of course. */
const TO_ALL = /^(22[4-9]|23\d|255)\.|^ff/

/** A packet that is on its way through the node. */
interface Open {
  readonly flow: Flow
  readonly bytes: number
  /** When the last message came. */
  at: number
  /** It is between two hooks, where only the kernel can drop it. */
  isInside: boolean
  /** The last hook was after the route. */
  isRouted: boolean
  /** The last hook was that of a bridge for frames to the node. */
  isFromBridge: boolean
}

/**
 * The links of pods: pairs of veth and taps, and the bridges that they are ports of. `uplink` is the link to other
 * nodes. Pure.
 */
export function podLinks(links: readonly Link[], uplink: string | undefined): string[] {
  const own = links.filter(({ name, kind }) => (kind === 'veth' || kind === 'tun') && name !== uplink)
  const bridges = own.flatMap(({ master }) => (master === undefined || master === uplink ? [] : [master]))
  return [...new Set([...own.map(({ name }) => name), ...bridges])]
}

/** Counts the packets that the node drops. Removes all that it made. Throws ExecError. */
export async function watchDropped(question: DropQuestion): Promise<AllDropped> {
  const { filter, links, waitMs, ready } = question
  const marks: Marks = { conditions: (_, family) => conditionsFor(filter, links, family), drops: links }
  const watching = await watch([{ name: 'node', ns: 'host' }], marks)
  const lines = new Map<string, { -readonly [K in keyof Dropped]: Dropped[K] }>()
  let others = 0
  const count = (flow: Flow, hop: HopName, reason: string) => {
    const key = JSON.stringify([flow, hop, reason])
    const line = lines.get(key)
    if (line) line.count++
    else if (lines.size < MOST) lines.set(key, { ...flow, count: 1, hop, reason })
    else others++
  }
  const open = new Map<number, Open>()
  const texts = new Map<string, string>()
  const ruled = async (flow: Flow, traced: Traced) => {
    const hop = hopOf(traced.table)
    const key = `${traced.family} ${traced.table} ${traced.chain} ${traced.handle}`
    const text = texts.get(key) ?? (await ruleText(traced))
    if (texts.size < MOST) texts.set(key, text)
    count(flow, hop, (hop === 'policy' ? question.refusal(flow) : undefined) ?? text)
  }
  try {
    ready()
    for (const until = performance.now() + waitMs; ; await Bun.sleep(LOOK_MS)) {
      const now = performance.now()
      for (const { traced } of watching.messages()) {
        const seen = packetIn(open, traced, traced.table === watching.table, now)
        if (!seen || traced.verdict !== 'drop' || traced.table === watching.table) continue
        open.delete(traced.id)
        if (isAsked(seen.flow, filter)) await ruled(seen.flow, traced)
      }
      const isLast = now > until
      for (const [id, one] of open) {
        if (now - one.at < (isLast ? GONE_MS / 5 : GONE_MS)) continue
        open.delete(id)
        if (!one.isInside || !isAsked(one.flow, filter)) continue
        const drops = watching.drops?.drops(links.map((link) => ({ link, bytes: one.bytes })))
        const reason = reasonText(drops ?? []) ?? foreseen(one, question.facts)
        if (reason !== undefined) count(one.flow, one.isRouted ? 'exit' : 'route', reason)
      }
      if (isLast) break
    }
  } finally {
    await watching.close()
  }
  return { dropped: [...lines.values()].sort((a, b) => b.count - a.count), others }
}

// The packet of a message, and where it is now.
function packetIn(open: Map<number, Open>, traced: Traced, isOwn: boolean, now: number): Open | undefined {
  const { id, chain, family, network, transport } = traced
  if (network) {
    const found = endsIn(network, transport)
    const known = open.get(id)
    // Translation changes the ends on the way. The first ones count.
    if (found && (!known || (isOwn && chain === 'prerouting' && now - known.at > GONE_MS))) {
      const before = family === 'bridge' ? undefined : fromBridge(open, found)
      if (before !== undefined) open.delete(before)
      open.set(id, { ...found, at: now, isInside: false, isRouted: false, isFromBridge: false })
    }
  }
  const one = open.get(id)
  if (!one) return undefined
  one.at = now
  if (isOwn) {
    one.isFromBridge = family === 'bridge' && chain === 'input'
    one.isInside = chain === 'prerouting' || chain === 'forward' || one.isFromBridge
    one.isRouted = chain === 'forward'
  }
  return one
}

// A frame that a bridge gives to the node goes on as another packet. The id of the first one that is like it.
function fromBridge(open: ReadonlyMap<number, Open>, { flow, bytes }: Pick<Open, 'flow' | 'bytes'>) {
  const text = JSON.stringify(flow)
  for (const [id, one] of open)
    if (one.isFromBridge && one.bytes === bytes && JSON.stringify(one.flow) === text) return id
  return undefined
}

function isAsked({ destination, source, protocol, port }: Flow, filter: Filter): boolean {
  if (TO_ALL.test(destination)) return false
  if (filter.sources && !filter.sources.includes(source)) return false
  if (filter.destinations && !filter.destinations.includes(destination)) return false
  if (filter.protocol !== undefined && filter.protocol !== protocol) return false
  return filter.port === undefined || filter.port === port
}

async function ruleText(traced: Traced): Promise<string> {
  const { family, table, chain, handle } = traced
  const rule = handle === undefined ? 'policy drop' : ((await ruleTextOf(traced, 'host')) ?? 'drop')
  return `the chain ${family} ${table} ${chain} drops it: ${rule}`
}

// The kernel's route says more than its silence.
function foreseen({ flow }: Open, facts: TraceFacts): string | undefined {
  const { source, destination, port, protocol } = flow
  if (protocol !== 'TCP' && protocol !== 'UDP' && protocol !== 'ICMP') return undefined
  const route = foresee({ source, destination, port, protocol }, facts).get('route')
  return route?.passes === false ? route.says : undefined
}

// The conditions of nft. Pure.
function conditionsFor(filter: Filter, links: readonly string[], family: 'inet' | 'bridge'): string[] {
  const { sources = [], destinations = [], protocol, port } = filter
  const ends = (['4', '6'] as const).flatMap((version): string[] => {
    const isOf = (ip: Ip) => ip.includes(':') === (version === '6')
    const [from, to] = [sources.filter(isOf), destinations.filter(isOf)]
    if ((filter.sources && from.length === 0) || (filter.destinations && to.length === 0)) return []
    const word = version === '6' ? 'ip6' : 'ip'
    const ether = family === 'bridge' ? `ether type ${word} ` : `meta nfproto ipv${version} `
    const named = `{ ${links.map((name) => `"${name}"`).join(', ')} }`
    if (!filter.sources && !filter.destinations)
      return links.length === 0 ? [] : [`${ether}iifname ${named}`, `${ether}oifname ${named}`]
    const [source, destination] = [
      from.length > 0 ? `${word} saddr { ${from.join(', ')} } ` : '',
      to.length > 0 ? `${word} daddr { ${to.join(', ')} } ` : '',
    ]
    return [`${ether}${source}${destination}`]
  })
  const at = port === undefined ? '' : ` dport ${port}`
  return ends.flatMap((end) => {
    const first = `${end} tcp flags & (syn | ack) == syn`
    if (protocol === 'ICMP') return [`${end} meta l4proto { icmp, icmpv6 } ${LIMITS.rest}`]
    if (protocol === 'UDP') return [`${end} ${at === '' ? 'meta l4proto udp' : `udp${at}`} ${LIMITS.rest}`]
    if (protocol === 'TCP') {
      const word = at === '' ? '' : ` tcp${at}`
      return [`${first}${word} ${LIMITS.first}`, `${end} tcp flags & syn == 0x0${word} ${LIMITS.rest}`]
    }
    return [
      `${first} ${LIMITS.first}`,
      `${end} meta l4proto != tcp ${LIMITS.rest}`,
      `${end} tcp flags & syn == 0x0 ${LIMITS.rest}`,
    ]
  })
}
