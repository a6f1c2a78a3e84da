import type { Result } from '../cni/result.ts'
import { question as askFor } from '../os/ask.ts'
import type { Owner } from '../text/owner.ts'
import { brief, type Mac, type NetnsPath, type NetworkName } from '../text/values.ts'

/** The request of an attachment to DHCP servers. */
export interface Wants {
  readonly families: readonly (4 | 6)[]
  /** Numbers of DHCPv4 options to ask for, in order. */
  readonly request: readonly number[]
  /** Options to send along with every message, by number. */
  readonly provide: readonly (readonly [code: number, value: string])[]
}
/** A question to the daemon: one JSON object on one line of its socket. */
export type Question =
  | { readonly verb: 'add'; readonly owner: Owner; readonly netns: NetnsPath; readonly wants: Wants }
  | { readonly verb: 'check' | 'del'; readonly owner: Owner }
  | { readonly verb: 'gc'; readonly network: NetworkName; readonly keep: readonly Owner[] }
  | { readonly verb: 'status' }
/** The answer of the daemon. */
export interface Reply {
  readonly result?: Result
}
/** A lease in its file. The next start of the daemon reads it, as does a DEL that finds no daemon. */
export interface LeaseFile {
  readonly owner: Owner
  readonly netns: NetnsPath
  /** The index of the lease's interface. Another interface may have the same name later. */
  readonly index: number
  readonly wants: Wants
  /** Whole packets that give the lease back, each with its destination MAC. */
  readonly release: readonly { readonly version: 4 | 6; readonly to: Mac; readonly packet: string }[]
  /** Data for the daemon only. */
  readonly bound: unknown
}

/** The default socket. The daemon of the reference plugin listens there, too. */
export const SOCKET = '/run/cni/dhcp.sock'

/** The folder of a daemon's leases. Its path derives from the socket, so a program that knows the socket finds them. */
export function leasesOf(socket: string): string {
  return `${socket}.leases`
}

/** The name of an attachment's file in the folder of leases. */
export function leaseName({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}

/** Asks the daemon as `question` does (lib/os/ask.ts), waits for the answer, and throws the same errors. */
export async function askDaemon(socket: string, question: Question, quietMs: number): Promise<Reply> {
  const advice = 'start it: plumb dhcp (conf/plumb-dhcp.service), or set ipam.daemonSocketPath to where it listens'
  return askFor<Reply>({ socket, name: 'the DHCP daemon', advice }, question, quietMs)()
}
