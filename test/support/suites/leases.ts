import assert from 'node:assert/strict'
import { overlaps } from '../../../agent/lease/allocate.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { type NetworkConf, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import type { Draft, Snapshot, SubnetStore } from '../../../agent/store/store.ts'
import { type Cidr, parseCidr, parseIp } from '../../../lib/text/ip.ts'
import { until } from '../harness.ts'
import { patient } from '../patience.ts'

/** A network in a store, as the store's administrator sees it. */
export interface Held {
  /** A node's way to it; closed with the test. */
  open(): Promise<SubnetStore>
  configure(text: string): Promise<void>
  /** Writes a lease by hand, one that does not end. */
  put(key: string, value: string): Promise<void>
  del(key: string): Promise<void>
  /** The keys of the leases, in order, and their values. */
  list(): Promise<Record<string, string>>
}

/** What the tests of every store are given: its name, and networks. */
export interface Given {
  readonly name: string
  /** A fresh network with nothing in it. */
  bare(): Promise<Held>
  /** One with a configuration, SMALL unless given. */
  network(text?: string): Promise<Held & { readonly conf: NetworkConf; claim(wanted: Draft): Promise<Lease> }>
}

/** Long after every test. */
export const signal: AbortSignal = AbortSignal.timeout(patient(600_000))
/** 3 subnets: 10.5.1.0/24 to 10.5.3.0/24. */
export const SMALL = '{"Network":"10.5.0.0/22","SubnetLen":24}'
/** The same with as many IPv6 ones: fd00:5:0:1::/64 to fd00:5:0:3::/64. */
export const DUAL =
  '{"Network":"10.5.0.0/22","SubnetLen":24,"EnableIPv6":true,"IPv6Network":"fd00:5::/62","IPv6SubnetLen":64}'

/** What a node asks for: its address ends in a number, which its MAC does too. */
export function draft(node: string, last: number, more: Partial<Draft> = {}): Draft {
  return {
    node,
    ips: { v4: parseIp(`172.30.0.${last}`) },
    backend: 'vxlan',
    data: { v4: { VNI: 1, VtepMAC: mac(last) } },
    ...more,
  }
}

/** The same with both families, or with IPv6 alone. */
export function dualDraft(node: string, last: number, more: Partial<Draft> = {}): Draft {
  const { ips, data, ...rest } = draft(node, last)
  return {
    ...rest,
    ips: { ...ips, v6: parseIp(`fd30::${last}`) },
    data: { ...data, v6: { VNI: 1, VtepMAC: mac(last + 100) } },
    ...more,
  }
}

/** The networks of a store for the suites. `held` makes a fresh one. */
export function given(name: string, held: () => Promise<Held>): Given {
  return {
    name,
    bare: held,
    async network(text = SMALL) {
      const made = await held()
      await made.configure(text)
      const conf = parseNetworkConf(text)
      return { ...made, conf, claim: async (wanted) => (await made.open()).claim(wanted, conf, signal) }
    },
  }
}

/** Takes the snapshots of a store, until the end. */
export function watch(store: SubnetStore): {
  readonly all: Snapshot[]
  until(like: (last: Snapshot) => boolean, ms?: number): Promise<Snapshot>
  end(): Promise<void>
} {
  const [all, ends] = [[] as Snapshot[], new AbortController()]
  const taking = (async () => {
    for await (const one of store.leases(ends.signal)) all.push(one)
  })()
  return {
    all,
    async until(like, ms) {
      const last = () => all.at(-1) ?? { leases: [], unreadable: [] }
      try {
        await until(() => all.length > 0 && like(last()), ms)
        return last()
      } catch (cause) {
        throw new Error(`No such snapshot; the last of ${all.length}: ${JSON.stringify(last()).slice(0, 500)}`, {
          cause,
        })
      }
    },
    async end() {
      ends.abort()
      await taking
    },
  }
}

/** Throws when two leases have an address in common. */
export function assertApart(leases: readonly Lease[]): void {
  for (const [i, one] of leases.entries())
    for (const other of leases.slice(i + 1))
      assert.ok(!overlaps(one.subnets, other.subnets), JSON.stringify([one, other]))
}

/** What a node had. */
export function before(cidr: string): { readonly v4: Cidr } {
  return { v4: parseCidr(cidr) }
}

/** The MAC of a draft's node. */
export function mac(last: number): string {
  return `02:00:00:00:00:${last.toString(16).padStart(2, '0')}`
}
