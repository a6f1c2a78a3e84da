import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { type Both, decodeKey, decodeLease, type Lease, type SubnetKey } from '../../lease/lease.ts'
import { isNodeName } from '../../lease/node-name.ts'
import type { Snapshot } from '../store.ts'
import { Folder, type Found } from './folder.ts'

/** One file of `subnets/`, and what the records say of it. */
export interface Held {
  readonly key: SubnetKey
  readonly subnets: Both<Cidr>
  /** The value, as text and read; why not, when it cannot be. */
  readonly text: string
  readonly lease: Omit<Lease, 'node' | 'expires'> | undefined
  readonly why?: string
  /** When its file was written, in milliseconds since 1970. */
  readonly writtenMs: number
  readonly node?: string
  /** In milliseconds since 1970; absent for one that never does. */
  readonly expires?: number
}

/** One file of `nodes/`. */
export interface NodeRecord {
  readonly subnet: string
  /** Of the node that has it. */
  readonly identity?: string
  readonly expires?: number
  /** The lease was there before the node: it never expires, and stays when the node gives it back. */
  readonly reserved?: true
}

/** A network's files as they are. */
export interface Files {
  /** But for leases that have ended. */
  readonly held: readonly Held[]
  readonly ended: readonly Held[]
  readonly records: ReadonlyMap<string, NodeRecord>
  readonly strangers: Snapshot['unreadable']
}

/** A network's files: `subnets/KEY` with flannel's values, `nodes/NODE` with whose a key is. All methods throw Error for a disk that fails. */
export class Network {
  readonly subnets: Folder<ReturnType<typeof lease>>
  readonly nodes: Folder<NodeRecord | undefined>

  /** Nothing is read yet. */
  constructor(dir: string) {
    this.subnets = new Folder(`${dir}/subnets`, lease)
    this.nodes = new Folder(`${dir}/nodes`, record)
  }

  /** As they are now. */
  look(): Files {
    this.subnets.look()
    this.nodes.look()
    return this.files()
  }

  /** Another text when there is something else to tell: a file has changed, or a lease has ended. */
  stamp(): string {
    const now = Date.now()
    const ended = this.nodes.entries().reduce((count, [, one]) => count + Number(one?.expires !== undefined && one.expires <= now), 0)
    return `${this.subnets.version} ${this.nodes.version} ${ended}`
  }

  /** As they were when last looked at. */
  files(): Files {
    const now = Date.now()
    const records = new Map(this.nodes.entries().flatMap(([node, one]) => (one && isNodeName(node) ? [[node, one]] : [])))
    const owners = new Map([...records].map(([node, { subnet }]) => [subnet, node]))
    const [held, ended, strangers]: [Held[], Held[], { key: string; why: string }[]] = [[], [], []]
    for (const [name, { subnets, ...one }] of this.subnets.entries()) {
      const node = owners.get(name)
      const { expires } = (node !== undefined && records.get(node)) || {}
      if (!subnets) strangers.push({ key: name, why: one.why ?? '' })
      else (expires !== undefined && expires <= now ? ended : held).push({ ...one, subnets, key: name as SubnetKey, ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) })
    }
    return { held, ended, records, strangers }
  }
}

/** What the files tell, as every store tells it. */
export function snapshotOf({ held, strangers }: Files): Snapshot {
  const leases = held.toSorted((a, b) => a.writtenMs - b.writtenMs).flatMap(({ lease, node, expires }): Lease[] => (lease ? [{ ...lease, ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) }] : []))
  return { leases, unreadable: [...held.flatMap(({ key, why }) => (why === undefined ? [] : [{ key, why }])), ...strangers] }
}

function lease({ text, why, writtenMs }: Found, name: string): Pick<Held, 'text' | 'lease' | 'why' | 'writtenMs'> & { readonly subnets?: Both<Cidr> } {
  let subnets: Both<Cidr> | undefined
  try {
    subnets = decodeKey(name)
    if (why !== undefined) return { text, writtenMs, subnets, lease: undefined, why }
    return { text, writtenMs, subnets, lease: decodeLease(subnets, text) }
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    return { text, writtenMs, lease: undefined, why: why ?? cause.message, ...(subnets && { subnets }) }
  }
}

// One that cannot be read says nothing: its node gets its lease back by its addresses.
function record({ text }: Found): NodeRecord | undefined {
  try {
    const { subnet, identity, expires, reserved } = JSON.parse(text)
    return typeof subnet === 'string' ? { subnet, ...(typeof identity === 'string' && { identity }), ...(Number.isFinite(expires) && { expires }), ...(reserved === true && { reserved }) } : undefined
  } catch {
    return undefined
  }
}
