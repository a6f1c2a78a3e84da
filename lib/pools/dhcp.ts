import type { Result } from '../cni/result.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Owner } from '../text/owner.ts'
import { brief, type Mac, type NetnsPath, type NetworkName } from '../text/values.ts'

/** What an attachment asks of DHCP servers. */
export interface Wants {
  readonly families: readonly (4 | 6)[]
  /** Numbers of DHCPv4 options to ask for, in order. */
  readonly request: readonly number[]
  /** Options to send along with every message, by number. */
  readonly provide: readonly (readonly [code: number, value: string])[]
}
/** What the daemon is asked: one JSON object on a line of its socket. */
export type Question =
  | { readonly verb: 'add'; readonly owner: Owner; readonly netns: NetnsPath; readonly wants: Wants }
  | { readonly verb: 'check' | 'del'; readonly owner: Owner }
  | { readonly verb: 'gc'; readonly network: NetworkName; readonly keep: readonly Owner[] }
  | { readonly verb: 'status' }
/** What it answers, on a line; an empty line before it says that it is at work. */
export interface Reply {
  readonly result?: Result
  readonly error?: { readonly code: number; readonly msg: string; readonly details?: string }
}
/** A lease as its file holds it, for the daemon's next start and for a DEL that finds no daemon. */
export interface LeaseFile {
  readonly owner: Owner
  readonly netns: NetnsPath
  /** The link it was got through: one of the same name may be another. */
  readonly index: number
  readonly wants: Wants
  /** Packets that give it back, whole, with where they go on the link. */
  readonly release: readonly { readonly version: 4 | 6; readonly to: Mac; readonly packet: string }[]
  /** What the daemon alone reads. */
  readonly bound: unknown
}

/** Where the reference's daemon listens, too. */
export const SOCKET = '/run/cni/dhcp.sock'

/** The folder of a daemon's leases: beside its socket, so that who knows that finds them. */
export function leasesOf(socket: string): string {
  return `${socket}.leases`
}

/** The name of an attachment's file there. */
export function leaseName({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}

/** Asks the daemon and waits for its answer, as long as it gives a sign of life within each `quietMs`. Throws CniError: what the daemon said, or 11 with `isDown` when it is not there, or gives no sign. */
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
          // Before the end, which counts as none.
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

/** Nobody answers at a daemon's socket. */
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
