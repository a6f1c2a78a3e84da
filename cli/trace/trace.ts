// A trace follows one packet through the node, and holds it against what should happen. Begin here. `oracle.ts` says
// what should happen, `watch.ts` follows the packet, `seen.ts` reads what was seen, `hops.ts` lays both side by side.
import type { Drop } from '../../lib/os/drop-reasons.ts'
import { run } from '../../lib/os/exec.ts'
import { inside } from '../../lib/os/netns.ts'
import { sendPacket } from '../../lib/os/raw-packets.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns } from '../../lib/text/values.ts'
import { type Far, withFar } from './far.ts'
import { type Comparison, compare } from './hops.ts'
import { probeMarks } from './marks.ts'
import { foresee, type TraceFacts } from './oracle.ts'
import { type Probe, packetOf } from './packet.ts'
import { ruleTexts } from './rules.ts'
import { chosenOf, observe } from './seen.ts'
import { Reader, type Sight } from './sights.ts'
import { type TracedNamespace, watch } from './watch.ts'

/** A packet to trace. */
export interface Wanted {
  readonly probe: Probe
  /** The namespaces in which it is followed. The node is among them. The first one sends. */
  readonly places: readonly TracedNamespace[]
  readonly facts: TraceFacts
  /** The UDP port of VXLAN on this node. */
  readonly tunnel?: number
  /** The half on the node of the receiver. */
  readonly far?: Far
}
/** What a trace found. */
export interface Traced extends Comparison {
  readonly sights: readonly Sight[]
}

/** A trace takes no longer, in milliseconds. */
export const LIMIT_MS = 20_000
/** How often the kernel's messages are read; the time without a message after which no more is expected. */
const [LOOK_MS, QUIET_MS] = [5, 1500]
/** The time that an answer takes after the packet was refused, or after a datagram has arrived. */
const [AFTER_MS, DATAGRAM_MS] = [100, 300]

/** Sends the packet, follows it and compares. Removes all that it made. Throws ExecError, and Error with an errno. */
export async function trace(wanted: Wanted): Promise<Traced> {
  const { probe, places, tunnel } = wanted
  const watching = await watch(places, probeMarks(probe, tunnel, 'own'))
  try {
    const reader = new Reader(probe, watching.table, tunnel)
    const unsent = sendFrom(places[0] as TracedNamespace, probe)
    const look = () => watching.messages().flatMap((one) => reader.read(one) ?? [])
    return await judge(wanted, look, () => watching.drops?.drops() ?? [], unsent)
  } finally {
    await watching.close()
  }
}

/** Looks until all was seen, and compares it with what should happen. Throws ExecError. */
export async function judge(
  { probe, places, facts, far }: Wanted,
  look: () => Sight[],
  dropped: (sights: readonly Sight[]) => Drop[],
  unsent: string | undefined,
): Promise<Traced> {
  const sender = places[0] as TracedNamespace
  const sights = await gather(look, places, probe)
  let silent = await silentNext(probe, sights, facts, sender)
  // The kernel asks for a MAC three times, a second apart, and holds the packet meanwhile.
  for (let tries = 0; silent !== undefined && tries < 2; tries++) {
    sights.push(...(await gather(look, places, probe)))
    // The kernel forgets a neighbour soon after it has told the sender that nobody answers.
    const isTold = sights.some(({ answer }) => answer === 'error')
    silent = (await silentNext(probe, sights, facts, sender)) ?? (isTold ? silent : undefined)
    if (isTold) break
  }
  const isNodeSource = sender.ns === 'host'
  const chosen = chosenOf({ probe, sights })
  const receiver = facts.at(chosen?.ip ?? probe.destination)
  const texts = await ruleTexts(sights, places)
  const seen = observe({
    ...(silent !== undefined && { silent }),
    ...(unsent !== undefined && { unsent }),
    probe,
    sights,
    drops: dropped(sights),
    isNodeSource,
    tunnels: tunnelsOf(facts),
    mtuOf: (link) => facts.links.find(({ name }) => name === link)?.mtu,
    isTargetWatched: receiver !== undefined && (receiver.isNode || places.some(({ name }) => name === 'target')),
    ruleOf: (sight) => texts.get(sight),
  })
  const { protocol, source, destination, port, size } = probe
  const attempt = { protocol, source, destination, port, ...(size !== undefined && { size }) }
  const expected = foresee({ ...attempt, ...(chosen && { chosen }) }, facts)
  const other = await far?.answer({ ...(chosen ?? { ip: destination, port }), probe })
  return { ...compare(withFar(expected, other?.expected ?? []), withFar(seen, other?.seen ?? [])), sights }
}

/** The names of the links of VXLAN. */
export function tunnelsOf({ links }: Pick<TraceFacts, 'links'>): string[] {
  return links.flatMap(({ name, kind }) => (kind === 'vxlan' ? [name] : []))
}

// Why the kernel did not take the packet. A rule may have dropped it: then the sights say more.
function sendFrom({ ns }: TracedNamespace, probe: Probe): string | undefined {
  try {
    inside(ns, () => sendPacket(probe.source, probe.destination, packetOf(probe)))
    return undefined
  } catch (cause) {
    const { message } = cause as Error
    return message === 'sendto: EMSGSIZE' ? 'it is too large for the link of the sender' : message
  }
}

// The next machine on the way, when it does not say its MAC.
async function silentNext(
  probe: Probe,
  sights: readonly Sight[],
  facts: TraceFacts,
  sender: TracedNamespace,
): Promise<string | undefined> {
  if (!sights.some(({ place }) => place === 'node')) {
    const first = facts.route('sender', probe.destination, probe.source)
    if ('errno' in first) return undefined
    const gateway = first.via ?? probe.destination
    return (await isSilent(gateway, first.dev, sender.ns)) ? `${gateway} on ${first.dev} of the pod` : undefined
  }
  const left = sights.findLast(
    ({ place, hook, family }) => place === 'node' && hook === 'postrouting' && family !== 'bridge',
  )
  const isAnswered = sights.some(({ answer }) => answer === 'open' || answer === 'closed')
  if (isAnswered || left?.oif === undefined) return undefined
  const to = left.isTunnel ? left.destination : (chosenOf({ probe, sights })?.ip ?? probe.destination)
  const way = facts.route('node', to, left.isTunnel ? left.source : probe.source, left.iif)
  const next = 'errno' in way ? to : (way.via ?? to)
  return (await isSilent(next, left.oif, 'host')) ? `${next} on ${left.oif}` : undefined
}

async function gather(look: () => Sight[], places: readonly TracedNamespace[], { protocol }: Probe): Promise<Sight[]> {
  const started = performance.now()
  const sights: Sight[] = []
  const sender = places[0]?.name
  const isBack = ({ place, direction, hook }: Sight) => place === sender && direction === 'back' && hook === 'input'
  const isTaken = ({ place, hook }: Sight) => place === 'target' && hook === 'input'
  for (let last = started; ; ) {
    const more = look()
    sights.push(...more)
    const now = performance.now()
    if (more.length > 0) last = now
    const quiet = now - last
    // The messages of one packet come at once, in each namespace by itself.
    if (sights.some(isBack) && quiet > LOOK_MS) return sights
    if (sights.some(({ verdict }) => verdict === 'drop') && quiet > AFTER_MS) return sights
    if (protocol === 'UDP' && sights.some(isTaken) && quiet > DATAGRAM_MS) return sights
    if (quiet > QUIET_MS || now - started > LIMIT_MS) return sights
    await Bun.sleep(LOOK_MS)
  }
}

/** The states of a neighbour that has not answered (linux/neighbour.h). */
const SILENT = ['INCOMPLETE', 'FAILED']

// Whether a namespace asks for the MAC of a neighbour, and gets no answer. False when it does not ask.
async function isSilent(ip: Ip, dev: string, ns: Netns): Promise<boolean> {
  const { status, stdout } = await run(['ip', '-json', 'neigh', 'show', ip, 'dev', dev], '', ns)
  if (status !== 0 || stdout.trim() === '') return false
  const rows = JSON.parse(stdout) as readonly { readonly state?: readonly string[] }[]
  return rows.some(({ state }) => state?.some((one) => SILENT.includes(one)))
}
