import type { Cidr } from '../../../lib/text/ip.ts'
import type { SubnetKey } from '../../lease/lease.ts'
import { MOST } from '../../lease/limits.ts'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** Where a network's things stand in etcd: flannel's own keys, and below `plumb/` what flannel's readers never look at. */
export interface Keys {
  readonly config: Uint8Array
  /** All records and leases: one range, so that one read and one watch tell of both. */
  readonly all: { readonly key: Uint8Array; readonly rangeEnd: Uint8Array }
  lease(key: SubnetKey): Uint8Array
  /** The leases that hold an IPv4 subnet of the same length, whatever their IPv6 one is. Undefined for a key without an IPv4 subnet. */
  sameV4(key: SubnetKey): { readonly key: Uint8Array; readonly rangeEnd: Uint8Array } | undefined
  /** Which subnets a node has: its record. It stays when the lease has ended, and never ends by itself. */
  record(node: string): Uint8Array
  /** Who has an IPv6 subnet of a dual-stack network: its lease's key begins with the IPv4 one, and so does not tell. */
  claim(v6: Cidr): Uint8Array
  /** What a key of `all` is; undefined for what is neither. */
  read(key: Uint8Array): { readonly lease: string } | { readonly node: string } | undefined
}

/** The keys of a network below its prefix. */
export function keysBelow(prefix: string): Keys {
  const [leases, records, claims] = [`${prefix}/subnets/`, `${prefix}/plumb/nodes/`, `${prefix}/plumb/ipv6/`]
  return {
    config: encode(`${prefix}/config`),
    all: { key: encode(records), rangeEnd: after(leases) },
    lease: (key) => encode(leases + key),
    sameV4(key) {
      const v4 = key.split('&')[0] as string
      // "&" is what follows an IPv4 subnet in a key of two: no other subnet's key lies between.
      return v4.startsWith('0.0.0.0-') ? undefined : { key: encode(leases + v4), rangeEnd: after(`${leases}${v4}&`) }
    },
    record: (node) => encode(records + node),
    claim: (v6) => encode(claims + v6.replace('/', '-')),
    read(key) {
      const text = decode(key)
      if (text.startsWith(leases)) return { lease: text.slice(leases.length) }
      return text.startsWith(records) ? { node: text.slice(records.length) } : undefined
    },
  }
}

/** Text as etcd keeps it. */
export function encode(text: string): Uint8Array {
  return encoder.encode(text)
}

/** What etcd keeps, as text; of one that is too long to be read no more than tells so. */
export function decode(bytes: Uint8Array): string {
  return decoder.decode(bytes.subarray(0, MOST + 1))
}

// The end of the range of everything that begins so (etcd's "prefix"): the last byte is ASCII.
function after(prefix: string): Uint8Array {
  const end = encode(prefix)
  end[end.length - 1] = (end[end.length - 1] as number) + 1
  return end
}
