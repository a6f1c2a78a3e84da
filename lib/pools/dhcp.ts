import type { Result } from '../cni/result.ts'
import { CniError, CODE } from '../text/errors.ts'
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
/** The answer of the daemon, on one line. An empty line before it means that the daemon is at work. */
export interface Reply {
  readonly result?: Result
  readonly error?: { readonly code: number; readonly msg: string; readonly details?: string }
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

/** The folder of a daemon's leases. Its path derives from the socket, so a program that knows the socket finds the leases. */
export function leasesOf(socket: string): string {
  return `${socket}.leases`
}

/** The name of an attachment's file in the folder of leases. */
export function leaseName({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}

/**
 * Asks the daemon and waits for its answer. Waits as long as the daemon sends data within each `quietMs` milliseconds.
 * Throws the daemon's error as CniError. Throws DaemonDown when the daemon cannot be reached or stays silent.
 */
export function ask(socket: string, question: Question, quietMs: number): Promise<Reply> {
  return new Promise((resolve, reject) => {
    let text = ''
    const down = (why: string) => reject(new DaemonDown(socket, why))
    let timer = setTimeout(down, quietMs, `it is silent for ${quietMs / 1000} s`)
    Bun.connect({
      unix: socket,
      socket: {
        open: (to) => void to.write(`${JSON.stringify(question)}\n`),
        data(from, bytes) {
          clearTimeout(timer)
          timer = setTimeout(down, quietMs, `it is silent for ${quietMs / 1000} s`)
          text += bytes.toString()
          if (!text.trimStart().includes('\n')) return
          clearTimeout(timer)
          // Settles before the connection ends, because an end without an answer is an error.
          settle(text, resolve, reject)
          from.end()
        },
        close: () => down('it ended'),
        error: (_, cause) => down(cause.message),
        connectError: (_, cause) => down((cause as NodeJS.ErrnoException).code ?? cause.message),
      },
    }).catch((cause: NodeJS.ErrnoException) => down(cause.code ?? cause.message))
  })
}

/** CniError 11: no daemon answers at the socket. */
export class DaemonDown extends CniError {
  override name = 'DaemonDown'
  constructor(socket: string, why: string) {
    super(CODE.tryLater, `Cannot reach the DHCP daemon at ${socket}: ${why}`, 'start it: plumb dhcp (conf/plumb-dhcp.service), or set ipam.daemonSocketPath to where it listens')
  }
}

function settle(text: string, resolve: (reply: Reply) => void, reject: (cause: Error) => void): void {
  try {
    const reply: Reply = JSON.parse(text)
    if (reply.error) reject(new CniError(reply.error.code, reply.error.msg, reply.error.details ?? ''))
    else resolve(reply)
  } catch (cause) {
    reject(new CniError(CODE.internal, 'Cannot read what the DHCP daemon answered', (cause as Error).message, { cause }))
  }
}
