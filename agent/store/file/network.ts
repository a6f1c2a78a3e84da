import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { type Both, decodeKey, decodeLease, type Lease, type SubnetKey } from '../../lease/lease.ts'
import { isNodeName } from '../../lease/node-name.ts'
import type { Snapshot } from '../store.ts'
import { Folder, type FolderFile } from './folder.ts'

/** A file of `subnets/`, with the data of its record in `nodes/`. */
export interface SubnetEntry {
  readonly key: SubnetKey
  readonly subnets: Both<Cidr>
  /** The value as text. `lease` has the decoded value. `why` is the reason when the value is unreadable. */
  readonly text: string
  readonly lease: Omit<Lease, 'node' | 'expires'> | undefined
  readonly why?: string
  /** Time of writing of the file, in milliseconds since 1970. */
  readonly writtenMs: number
  readonly node?: string
  /** End of the lease, in milliseconds since 1970. Absent for a lease without an end. */
  readonly expires?: number
}

/** A file of `nodes/`: the record of a node. */
export interface NodeRecord {
  readonly subnet: string
  /** Identity of the node that has the lease. */
  readonly identity?: string
  readonly expires?: number
  /** The lease existed before the node claimed it. It never ends, and it stays when the node gives it back. */
  readonly reserved?: true
}

/** The files of a network at one moment. */
export interface Files {
  /** Leases that have not ended. */
  readonly held: readonly SubnetEntry[]
  readonly ended: readonly SubnetEntry[]
  readonly records: ReadonlyMap<string, NodeRecord>
  /** Files whose names are no keys of leases. */
  readonly unreadable: Snapshot['unreadable']
}

/**
 * The files of a network. `subnets/KEY` has a lease value in flannel's format. `nodes/NODE` has the record of a node,
 * with the key of its lease. All methods throw Error when the disk fails.
 */
export class Network {
  readonly subnets: Folder<ReturnType<typeof lease>>
  readonly nodes: Folder<NodeRecord | undefined>

  /** Reads nothing yet. */
  constructor(dir: string) {
    this.subnets = new Folder(`${dir}/subnets`, lease)
    this.nodes = new Folder(`${dir}/nodes`, record)
  }

  /** Looks at all files and returns their current state. */
  look(): Files {
    this.subnets.look()
    this.nodes.look()
    return this.files()
  }

  /** A stamp that changes when a file has changed, or when a lease has ended. */
  stamp(): string {
    const now = Date.now()
    const ended = this.nodes.entries().filter(([, one]) => one?.expires !== undefined && one.expires <= now)
    return `${this.subnets.version} ${this.nodes.version} ${ended.length}`
  }

  /** The state of the files at the last look. */
  files(): Files {
    const now = Date.now()
    const records = new Map<string, NodeRecord>()
    for (const [node, one] of this.nodes.entries()) if (one && isNodeName(node)) records.set(node, one)
    const owners = new Map([...records].map(([node, { subnet }]) => [subnet, node]))
    const [held, ended, unreadable]: [SubnetEntry[], SubnetEntry[], { key: string; why: string }[]] = [[], [], []]
    for (const [name, { subnets, ...one }] of this.subnets.entries()) {
      const node = owners.get(name)
      if (!subnets) {
        unreadable.push({ key: name, why: one.why ?? '' })
        continue
      }
      const expires = node === undefined ? undefined : records.get(node)?.expires
      const isEnded = expires !== undefined && expires <= now
      const owner = { ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) }
      const list = isEnded ? ended : held
      list.push({ ...one, subnets, key: name as SubnetKey, ...owner })
    }
    return { held, ended, records, unreadable }
  }
}

/** The snapshot of the files, as every store gives it. */
export function snapshotOf({ held, unreadable }: Files): Snapshot {
  const byAge = held.toSorted((a, b) => a.writtenMs - b.writtenMs)
  const leases = byAge.flatMap(({ lease, node, expires }): Lease[] => {
    if (!lease) return []
    return [{ ...lease, ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) }]
  })
  const damaged = held.flatMap(({ key, why }) => (why === undefined ? [] : [{ key, why }]))
  return { leases, unreadable: [...damaged, ...unreadable] }
}

type LeaseFile = Pick<SubnetEntry, 'text' | 'lease' | 'why' | 'writtenMs'> & { readonly subnets?: Both<Cidr> }

function lease({ text, why, writtenMs }: FolderFile, name: string): LeaseFile {
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

// A record that is unreadable counts as absent. Its node then gets its lease back by its addresses.
function record({ text }: FolderFile): NodeRecord | undefined {
  try {
    const { subnet, identity, expires, reserved } = JSON.parse(text)
    if (typeof subnet !== 'string') return undefined
    return {
      subnet,
      ...(typeof identity === 'string' && { identity }),
      ...(Number.isFinite(expires) && { expires }),
      ...(reserved === true && { reserved }),
    }
  } catch {
    return undefined
  }
}
