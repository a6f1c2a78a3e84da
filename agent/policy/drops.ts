import { closeSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Logged, listenToLog, loggedIn } from '../../lib/os/nflog.ts'
import { type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Pod } from '../cluster/objects.ts'
import type { Protocol } from '../cluster/reading.ts'
import type { Failures } from '../scheduler/failures.ts'
import type { EnforcementSettings } from '../settings/settings.ts'
import { decide, type Objects } from './oracle.ts'
import { LOG_GROUP } from './table.ts'
import { objectsOf, type PolicyKnowledge } from './view.ts'

const PACKET_BYTES = 160
const PAUSE_MS = 5000
const PROTOCOLS: Readonly<Record<number, Protocol>> = { 6: 'TCP', 17: 'UDP', 132: 'SCTP' }
const OTHERS: Readonly<Record<number, string>> = { 1: 'ICMP', 58: 'ICMPv6' }
// Headers between those of IPv6 and the transport: hop-by-hop, routing, fragment, destination options (RFC 8200).
const EXTENSIONS: ReadonlySet<number> = new Set([0, 43, 44, 60])
const FRAGMENT = 44

/**
 * What a packet says of its connection. `protocol` is `other` for one without ports, and `name` is its name then, too.
 */
interface Packet {
  readonly source: Ip
  readonly destination: Ip
  readonly protocol: Protocol | 'other'
  readonly name: string
  readonly port: number
}

/** Reads the headers of a packet. Undefined when it is cut off, or no IP packet. Pure. */
export function packetOf(bytes: DataView): Packet | undefined {
  try {
    const version = bytes.getUint8(0) >> 4
    if (version === 4)
      return transport(bytes, ipv4(bytes, 12), ipv4(bytes, 16), bytes.getUint8(9), (bytes.getUint8(0) & 15) * 4)
    if (version !== 6) return undefined
    let [next, at] = [bytes.getUint8(6), 40]
    while (EXTENSIONS.has(next)) {
      const length = next === FRAGMENT ? 8 : (bytes.getUint8(at + 1) + 1) * 8
      ;[next, at] = [bytes.getUint8(at), at + length]
    }
    return transport(bytes, ipv6(bytes, 8), ipv6(bytes, 24), next, at)
  } catch (cause) {
    if (cause instanceof RangeError) return undefined
    throw cause
  }
}

function transport(bytes: DataView, source: Ip, destination: Ip, number: number, at: number): Packet {
  const protocol = PROTOCOLS[number]
  if (protocol !== undefined) return { source, destination, protocol, name: protocol, port: bytes.getUint16(at + 2) }
  return { source, destination, protocol: 'other', name: OTHERS[number] ?? `protocol ${number}`, port: 0 }
}

function ipv4(bytes: DataView, at: number): Ip {
  return parseIp([0, 1, 2, 3].map((i) => bytes.getUint8(at + i)).join('.'))
}

function ipv6(bytes: DataView, at: number): Ip {
  return parseIp(Array.from({ length: 8 }, (_, i) => bytes.getUint16(at + 2 * i).toString(16)).join(':'))
}

/** The line of the log about a refused packet: both ends, and the reason of the oracle. Pure. */
export function lineOf(
  { prefix, packet }: Logged,
  podAt: (ip: Ip) => Pod | undefined,
  objects: Objects,
  isAudit: boolean,
): string {
  const verb = isAudit ? 'would drop' : 'dropped'
  const found = packetOf(packet)
  if (!found) return `${verb} a packet that is no whole IP packet (${prefix})`
  const { source, destination, protocol, name, port } = found
  const [from, to] = [podAt(source), podAt(destination)]
  const shown = (pod: Pod | undefined, ip: Ip) => (pod ? `${pod.namespace}/${pod.name} (${ip})` : ip)
  const at = protocol === 'other' ? '' : ` port ${port}`
  const way = `${verb} ${name} ${shown(from, source)} → ${shown(to, destination)}${at}`
  if (prefix === 'unknown') {
    const unknown = from ? destination : source
    return `${way}: ${!from === !to ? 'an address of this node' : unknown} belongs to no known pod`
  }
  const ends = { from: from ?? { ip: source }, to: to ?? { ip: destination } }
  const { passes, reason } = decide(objects, { ...ends, source, destination, protocol, port })
  return `${way}: ${passes ? 'a policy or a pod that has changed since' : reason}`
}

/** Where refused packets are told, and whether they are. */
export interface DropLogOptions {
  readonly enforcement: Pick<EnforcementSettings, 'isLogged'>
  readonly failures: Pick<Failures, 'report'>
  log(text: string): void
  /** Notes a packet that policy refused, described in one line. */
  refused(text: string): void
}

type DropKnowledge = Pick<PolicyKnowledge, 'cluster' | 'state' | 'isAudit'>

/** The log of the packets that the table refuses. */
export class DropLog {
  readonly #options: DropLogOptions
  readonly #known: () => DropKnowledge
  readonly #changed: () => void
  #isHeard = false

  /** `known` is what is known of pods and policies now. `changed` is called when `isHeard` changes. */
  constructor(options: DropLogOptions, known: () => DropKnowledge, changed: () => void) {
    this.#options = options
    this.#known = known
    this.#changed = changed
  }

  /** The agent hears what the rules log. */
  get isHeard(): boolean {
    return this.#isHeard
  }

  /** Logs packets until the signal, when the settings ask for that. Never throws. */
  async follow(signal: AbortSignal): Promise<void> {
    const { enforcement, failures, log, refused } = this.#options
    if (!enforcement.isLogged) return
    const dropped = (packet: Logged) => {
      const { state, cluster, isAudit } = this.#known()
      const line = lineOf(packet, (ip) => state.podAt(ip), objectsOf(cluster), isAudit)
      log(`policy: ${line}`)
      refused(line)
    }
    const failing = (why: string | undefined) => {
      const text = `Cannot log what network policy refuses: ${why}`
      failures.report('log of policy', why === undefined ? [] : [{ scope: 'part', text }])
      this.#isHeard = why === undefined
      this.#changed()
    }
    await followDrops({ dropped, failing }, signal)
  }
}

/** The receiver of refused packets. */
interface DropListener {
  dropped(packet: Logged): void
  /** Called with the reason when listening fails, and with undefined when it works. */
  failing(why: string | undefined): void
}

// Receives refused packets from the kernel. Reports a failure and tries again.
async function followDrops({ dropped, failing }: DropListener, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const why = await hear(dropped, failing, signal)
    if (signal.aborted) return
    // The kernel had no room for packets. Those are lost, and the next one arrives again.
    if (why === 'ENOBUFS') continue
    failing(why)
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined)
  }
}

async function hear(
  dropped: DropListener['dropped'],
  failing: DropListener['failing'],
  signal: AbortSignal,
): Promise<string> {
  let fd = -1
  try {
    ;({ fd } = listenToLog(LOG_GROUP, PACKET_BYTES))
    const reader = Bun.file(fd).stream().getReader()
    const end = () => void reader.cancel()
    signal.addEventListener('abort', end)
    try {
      failing(undefined)
      for (;;) {
        const { value } = await reader.read()
        if (value === undefined) return 'the socket ended'
        for (const one of loggedIn(value)) dropped(one)
      }
    } finally {
      signal.removeEventListener('abort', end)
    }
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code ?? (cause as Error).message
  } finally {
    if (fd >= 0) closeSync(fd)
  }
}
