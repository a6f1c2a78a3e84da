import type { Cidr } from '../../../lib/text/ip.ts'
import { MOST, type SubnetKey } from '../../lease/lease.ts'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** The keys of a network in etcd: the keys of flannel, and below `plumb/` keys that flannel never reads. */
export interface Keys {
  readonly config: Uint8Array
  /** All records and leases as one range. One read and one watch cover both. */
  readonly all: { readonly key: Uint8Array; readonly rangeEnd: Uint8Array }
  lease(key: SubnetKey): Uint8Array
  /** The range of all leases of the IPv4 subnet in this key, with any IPv6 subnet. Undefined without an IPv4 subnet. */
  sameV4(key: SubnetKey): { readonly key: Uint8Array; readonly rangeEnd: Uint8Array } | undefined
  /** The record of a node: it names the subnets of the node. It stays after the end of the lease and never ends. */
  record(node: string): Uint8Array
  /**
   * The claim key of an IPv6 subnet in a dual-stack network: it names the node that owns the subnet. The key of a lease
   * begins with the IPv4 subnet, so it cannot protect the IPv6 subnet.
   */
  claim(v6: Cidr): Uint8Array
  /** The kind of a key in `all`. Undefined for a key that is neither a lease nor a record. */
  read(key: Uint8Array): { readonly lease: string } | { readonly node: string } | undefined
}

/** Makes the keys of a network below its prefix. */
export function keysBelow(prefix: string): Keys {
  const [leases, records, claims] = [`${prefix}/subnets/`, `${prefix}/plumb/nodes/`, `${prefix}/plumb/ipv6/`]
  return {
    config: encode(`${prefix}/config`),
    all: { key: encode(records), rangeEnd: after(leases) },
    lease: (key) => encode(leases + key),
    sameV4(key) {
      const v4 = key.split('&')[0] as string
      // In a dual-stack key, "&" follows the IPv4 subnet. No key of another subnet lies in this range.
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

/** Text as bytes, as etcd stores it. */
export function encode(text: string): Uint8Array {
  return encoder.encode(text)
}

/** Bytes of etcd as text. A value that is too long is cut just after the limit, so that the parser refuses it. */
export function decode(bytes: Uint8Array): string {
  return decoder.decode(bytes.subarray(0, MOST + 1))
}

// The end of the range of all keys with this prefix (etcd's "prefix"). The last byte of the prefix is ASCII.
function after(prefix: string): Uint8Array {
  const end = encode(prefix)
  end[end.length - 1] = (end[end.length - 1] as number) + 1
  return end
}
