import { ValueError } from '../../../lib/errors.ts'
import type { Cidr } from '../../../lib/ip.ts'
import { type Both, decodeKey, decodeLease, type Lease, type SubnetKey } from '../../lease.ts'
import type { Snapshot } from '../../store.ts'
import { folder } from './folder.ts'

/** Where a network's files are: `subnets/KEY` as flannel's values in etcd, `nodes/NODE` says whose a key is. */
export interface Place {
  readonly dir: string
}

/** One file of `subnets/`, and what the records say of it. */
export interface Held {
  readonly key: SubnetKey
  readonly subnets: Both<Cidr>
  /** The value, as text and read; why not, when it cannot be. */
  readonly text: string
  readonly lease: Omit<Lease, 'node' | 'expires'> | undefined
  readonly why?: string
  readonly node?: string
  /** In milliseconds since 1970; absent for one that never does. */
  readonly expires?: number
}

/** One file of `nodes/`. */
export interface NodeRecord {
  readonly subnet: string
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
  /** Another text when anything has changed. */
  readonly stamp: string
}

/** Reads a network's files again and again; only those that are new or changed are opened. The function throws Error for a disk that fails. */
export function reader({ dir }: Place): () => Files {
  const subnets = folder(`${dir}/subnets`, lease)
  const nodes = folder(`${dir}/nodes`, record)
  return () => {
    const now = Date.now()
    const records = new Map([...nodes.look()].flatMap(([node, one]) => (one ? [[node, one]] : [])))
    const owners = new Map([...records].map(([node, { subnet }]) => [subnet, node]))
    const found = [...subnets.look()].map(([name, one]) => {
      const node = owners.get(name)
      const { expires } = (node !== undefined && records.get(node)) || {}
      return { ...one, name, ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) }
    })
    const held = found.flatMap((one) => (one.subnets ? [{ ...one, key: one.name as SubnetKey, subnets: one.subnets }] : []))
    const isOver = ({ expires = Number.POSITIVE_INFINITY }: Held) => expires <= now
    const ended = held.filter(isOver)
    return {
      held: held.filter((one) => !isOver(one)),
      ended,
      records,
      strangers: found.flatMap(({ name, subnets, why = '' }) => (subnets ? [] : [{ key: name, why }])),
      stamp: [subnets.stamp(), nodes.stamp(), ...ended.map(({ key }) => key)].join('\n'),
    }
  }
}

/** What the files tell, as every store tells it. */
export function snapshotOf({ held, strangers }: Files): Snapshot {
  const leases = held.flatMap(({ lease, node, expires }): Lease[] => (lease ? [{ ...lease, ...(node !== undefined && { node }), ...(expires !== undefined && { expires }) }] : []))
  return { leases, unreadable: [...held.flatMap(({ key, why }) => (why === undefined ? [] : [{ key, why }])), ...strangers] }
}

function lease(text: string, name: string): Pick<Held, 'text' | 'lease' | 'why'> & { readonly subnets?: Both<Cidr> } {
  let subnets: Both<Cidr> | undefined
  try {
    subnets = decodeKey(name)
    return { text, subnets, lease: decodeLease(subnets, text) }
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    return { text, lease: undefined, why: cause.message, ...(subnets && { subnets }) }
  }
}

// One that cannot be read says nothing: its node gets its lease back by its addresses.
function record(text: string): NodeRecord | undefined {
  try {
    const { subnet, expires, reserved } = JSON.parse(text)
    return typeof subnet === 'string' ? { subnet, ...(Number.isFinite(expires) && { expires }), ...(reserved === true && { reserved }) } : undefined
  } catch {
    return undefined
  }
}
