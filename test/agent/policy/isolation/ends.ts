// The ends of the isolation histories: four pods, the node and a host outside, their addresses, and the process of each.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Ip } from '../../../../lib/text/ip.ts'
import { linesOf } from '../../../../lib/text/lines.ts'
import type { Namespace } from '../../../support/harness.ts'
import { UNDERLAY } from '../../../support/nodes.ts'
import type { Order } from './end.ts'

/** What the two ends that are no pods are called. */
export const [NODE_NAME, OUTSIDE_NAME] = ['the node', 'the outside'] as const
export const NAMES = ['a', 'b', 'c', 'd'] as const
/** The namespace of each pod. */
const SPACES = { a: 'x', b: 'x', c: 'y', d: 'y' } as const
export const PROTOCOLS = ['TCP', 'UDP'] as const
export type Protocol = (typeof PROTOCOLS)[number]
/** Two more addresses than a type of link has pods at most: the next pod soon gets the address of a former one. */
export const MOST = 2
export const RANGES = {
  bridge: [
    [{ subnet: '10.244.1.0/24', rangeStart: '10.244.1.2', rangeEnd: '10.244.1.4' }],
    [{ subnet: 'fd00:61::/64', rangeStart: 'fd00:61::2', rangeEnd: 'fd00:61::4', gateway: 'fd00:61::1' }],
  ],
  ptp: [
    [{ subnet: '10.62.0.0/24', rangeStart: '10.62.0.2', rangeEnd: '10.62.0.4' }],
    [{ subnet: 'fd00:62::/64', rangeStart: 'fd00:62::2', rangeEnd: 'fd00:62::4' }],
  ],
} as const
export type Type = keyof typeof RANGES
/** The host outside, on the underlay. It is a Node of the cluster, too. */
export const OUTSIDE = { 4: '172.30.0.253', 6: 'fd00:30::253' } as const
export const NODE = { 4: UNDERLAY.v4(1), 6: UNDERLAY.v6(1) } as const
export const VIP = { 4: '10.96.0.10', 6: 'fd00:96::10' } as const
export const NODE_PORT = 30_080
export const [HTTP, FIXED] = [80, 7946] as const

/** Who sends and answers: a pod, the node itself, or the host outside. */
export interface End {
  readonly name: string
  readonly prober: Prober
  /** Its addresses. A pod has them while it has an attachment. */
  ips: readonly Ip[]
  /** Another one with every attachment. */
  serial: number
}
export interface Slot extends End {
  readonly name: (typeof NAMES)[number]
  readonly netns: string
  readonly namespace: string
  type: Type
  /** The UID that ADD was told. */
  uid: string
  /** The labels of its object in the API. The object may stay after its pod. */
  labels: Readonly<Record<string, string>> | undefined
  /** ADD came while the agent was away. */
  isUnseen: boolean
}

/** Where a flow goes: an address, or the Service by its address or a node port. */
export type Target = { readonly ip: Ip } | { readonly service: 'address' | 'port'; readonly family: 4 | 6 }
export interface Flow {
  readonly id: string
  readonly from: End
  readonly target: Target
  readonly protocol: Protocol
  readonly sport: number
  readonly dport: number
  /** Of TCP: the two ends that it was made between, as long as nothing has refused it. */
  whole: string | undefined
}

export type Prober = ReturnType<typeof startProber>
export interface Told {
  readonly came: Readonly<Record<string, number>>
  readonly backs: Readonly<Record<string, string>>
}

/** Starts the process of an end with this name in a namespace. */
export function startProber(name: string, way: readonly string[]) {
  const child = Bun.spawn([...way, process.execPath, join(import.meta.dir, 'end.ts'), name], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => (await lines.next()).value as string
  let last: Promise<unknown> = Promise.resolve()
  const ask = async <T>(order: Order): Promise<T> => {
    child.stdin.write(`${JSON.stringify(order)}\n`)
    child.stdin.flush()
    return JSON.parse(await next()) as T
  }
  return {
    ready: async () => assert.equal(await next(), 'ready'),
    // Answers come in the order of the questions.
    ask<T>(order: Order): Promise<T> {
      const answer = last.then(() => ask<T>(order))
      last = answer.catch(() => {})
      return answer
    },
    async end() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

export function slotOf(name: (typeof NAMES)[number], netns: string): Slot {
  return {
    name,
    netns,
    prober: startProber(name, ['ip', 'netns', 'exec', netns]),
    namespace: SPACES[name],
    type: 'ptp',
    uid: '',
    ips: [],
    serial: 0,
    labels: undefined,
    isUnseen: false,
  }
}

export const familyOf = (ip: Ip) => (ip.includes(':') ? 6 : 4)
export const ofFamily = ({ ips }: End, family: 4 | 6) => ips.find((one) => familyOf(one) === family)

/** Makes the ways between the host outside and the node. */
export async function lead(hub: Namespace, sh: (script: string) => Promise<unknown>): Promise<void> {
  const space = hub.path.slice(hub.path.lastIndexOf('/') + 1)
  const subnets = Object.values(RANGES).flatMap((ranges) => ranges.map(([{ subnet }]) => subnet))
  await sh(
    [
      `ip link add outside type veth peer name outside0 netns ${space}`,
      `ip -n ${space} link set outside0 master hub0 up`,
      `ip address add ${OUTSIDE[4]}/24 dev outside`,
      `ip address add ${OUTSIDE[6]}/64 dev outside nodad`,
      'ip link set outside up',
      ...subnets.map((one) => `ip route add ${one} via ${NODE[one.includes(':') ? 6 : 4]}`),
    ].join('\n'),
  )
}
