// The ends of the isolation histories: four pods, the node and a host outside, their addresses, and the process of each.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Ip } from '../../../../lib/text/ip.ts'
import { linesOf } from '../../../../lib/text/lines.ts'
import type { Namespace } from '../../../support/harness.ts'
import { UNDERLAY } from '../../../support/nodes.ts'
import type { Order } from './end.ts'
import { IS_OFFLOADED } from './mode.ts'

/** What the two ends that are no pods are called. */
export const [NODE_NAME, OUTSIDE_NAME] = ['the node', 'the outside'] as const
export const NAMES = ['a', 'b', 'c', 'd'] as const
/** The namespace of each pod. */
const SPACES = { a: 'x', b: 'x', c: 'y', d: 'y' } as const
export const PROTOCOLS = ['TCP', 'UDP'] as const
export type Protocol = (typeof PROTOCOLS)[number]
/** Two more addresses than a type of link has pods at most: the next pod soon gets the address of a former one. */
export const MOST = 2
const rangeOf = (subnet: string, prefix: string, first = 2) => ({
  subnet,
  rangeStart: `${prefix}${first}`,
  rangeEnd: `${prefix}${first + 2}`,
})
const rangesOf = (bridge: readonly [Range, Range], ptp: readonly [Range, Range]) =>
  ({
    bridge: [[bridge[0]], [{ ...bridge[1], gateway: bridge[1].rangeStart.replace(/2$/, '1') }]],
    ptp: [[ptp[0]], [ptp[1]]],
  }) as const
type Range = ReturnType<typeof rangeOf>
// The pods of bridges are in the node's subnet, and those of ptp are not. Those in the fast path all are.
export const RANGES = IS_OFFLOADED
  ? rangesOf(
      [rangeOf('10.244.1.0/26', '10.244.1.'), rangeOf('fd00:244:0:1::/112', 'fd00:244:0:1::')],
      [rangeOf('10.244.1.64/26', '10.244.1.', 66), rangeOf('fd00:244:0:1::1:0/112', 'fd00:244:0:1::1:')],
    )
  : rangesOf(
      [rangeOf('10.244.1.0/24', '10.244.1.'), rangeOf('fd00:61::/64', 'fd00:61::')],
      [rangeOf('10.62.0.0/24', '10.62.0.'), rangeOf('fd00:62::/64', 'fd00:62::')],
    )
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
  /** Of each flow of UDP, the numbers that came since its sender began to count. */
  readonly numbers: Readonly<Record<string, { readonly first: number; readonly last: number; readonly count: number }>>
  readonly backs: Readonly<Record<string, string>>
}

/** Starts the process of an end with this name in a namespace. */
export function startProber(name: string, way: readonly string[]) {
  const child = Bun.spawn(
    [...way, process.execPath, join(import.meta.dir, 'end.ts'), name, ...(IS_OFFLOADED ? ['slowly'] : [])],
    {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    },
  )
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
