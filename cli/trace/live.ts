// A trace of a packet that a program sends: the trace sends nothing, and waits for one.
import type { Decision } from '../../agent/policy/view.ts'
import { wishMarks } from './marks.ts'
import { type AwaitedPackets, type Probe, realProbeOf } from './packet.ts'
import { Reader, type TraceMessage } from './sights.ts'
import { judge, type Traced, type Wanted } from './trace.ts'
import { type TracedNamespace, watch } from './watch.ts'

/** A packet to wait for. */
export interface Awaited extends Omit<Wanted, 'probe'> {
  readonly wish: AwaitedPackets
  /** How long to wait, in milliseconds. */
  readonly waitMs: number
  /** What the agent says of policy for the packet. */
  decide(probe: Probe): Decision | undefined
  /** Called when packets count from now on. */
  ready(): void
}

/** How often the kernel's messages are read, in milliseconds. */
const LOOK_MS = 5
/** The time in which the tables are loaded, before the first packet counts. */
const LOAD_MS = 300
/** The most messages that are kept. A packet has about 40. */
const MOST = 10_000

/**
 * Waits for a packet of a program, follows it and compares. Undefined when none came. Removes all that it made. Throws
 * ExecError.
 */
export async function traceLive(awaited: Awaited): Promise<(Traced & { readonly probe: Probe }) | undefined> {
  const { wish, places, facts, tunnel, waitMs, decide, ready } = awaited
  // A table is loaded after another one. From this second on, all of them select the same packets.
  const from = Math.ceil((Date.now() + LOAD_MS) / 1000)
  const link = facts.at(wish.source)?.link
  const links = link === undefined ? [] : [link]
  const watching = await watch(places, wishMarks(wish, from, tunnel, links))
  try {
    await Bun.sleep(Math.max(0, from * 1000 - Date.now()))
    ready()
    const heard: TraceMessage[] = []
    const until = performance.now() + waitMs
    let probe: Probe | undefined
    while (probe === undefined) {
      const more = watching.messages()
      heard.push(...more)
      heard.splice(0, heard.length - MOST)
      probe = firstIn(more, wish, places[0] as TracedNamespace, watching.table)
      if (probe === undefined && performance.now() > until) return undefined
      if (probe === undefined) await Bun.sleep(LOOK_MS)
    }
    const { bytes } = probe.real ?? { bytes: 0 }
    const reader = new Reader(probe, watching.table, tunnel)
    const look = () => [...heard.splice(0), ...watching.messages()].flatMap((one) => reader.read(one) ?? [])
    const decision = decide(probe)
    const wanted = { ...awaited, probe, facts: { ...facts, decision } }
    const dropped = () => watching.drops?.drops(links.map((one) => ({ link: one, bytes }))) ?? []
    return { ...(await judge(wanted, look, dropped, undefined)), probe }
  } finally {
    await watching.close()
  }
}

// The first packet that leaves the sender.
function firstIn(
  heard: readonly TraceMessage[],
  wish: AwaitedPackets,
  { name }: TracedNamespace,
  table: string,
): Probe | undefined {
  for (const { place, traced } of heard) {
    if (place !== name || traced.table !== table || traced.chain !== 'output' || !traced.network) continue
    const probe = realProbeOf(wish, traced.network, traced.transport)
    if (probe) return probe
  }
  return undefined
}
