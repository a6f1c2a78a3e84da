import { openEchoes } from '../../../lib/os/echo.ts'
import { format, type Ip, split } from '../../../lib/text/ip.ts'
import type { Status } from '../../state/status.ts'
import { status } from './agent.ts'
import type { Fact } from './facts.ts'

/** What a peer answers now that the agent calls silent or narrow. */
export interface Reach {
  /** The node answers at its own address. */
  readonly answers: boolean
  /** The node answers over the tunnel. Large packets are missed first, so a narrow peer may be silent. */
  readonly isTunnelled: boolean
  /** The largest packet that the tunnel carries, in bytes. Absent when the node does not answer over it. */
  readonly largest?: number
}

/** The most peers that are asked. They are asked at once, and each answer counts within WAIT_MS. */
const [MOST, WAIT_MS, LOOK_MS] = [32, 400, 10]
const TUNNELLED = ['vxlan', 'ipip', 'udp', 'wireguard']
/** The smallest packet that a link with IPv4 carries in one piece (RFC 791). */
const SMALLEST = 576

/** Whether nodes answer whose tunnel does not, by the addresses of the nodes. */
export const reach: Fact<ReadonlyMap<Ip, Reach>> = {
  read: async ({ of }) => readReach(await of(status)),
  inAgent: { missing: 'the answers of nodes' },
}

/**
 * Asks the peers that the agent calls silent or narrow, at the addresses of their nodes and over the tunnel. Looks for the
 * largest packet that a narrow one gets. Only IPv4. Takes no time when all peers answer. Throws Error when echo requests
 * cannot be sent.
 */
export async function readReach(status: Status | undefined): Promise<ReadonlyMap<Ip, Reach>> {
  const found = new Map<Ip, Reach>()
  const own = status?.uplink?.tunnel.v4 as Ip | undefined
  if (!status || own === undefined) return found
  const isWrong = (state: string | undefined) => state === 'silent' || state === 'narrow'
  const peers = status.peers.filter(({ probe, ips }) => isWrong(probe?.state) && ips.v4 !== undefined).slice(0, MOST)
  const isTunnel = TUNNELLED.includes(status.backend)
  const from = isTunnel && status.subnets.v4 ? firstOf(status.subnets.v4) : own
  const nodes = peers.map(({ ips }) => ips.v4 as Ip)
  const ends = peers.map(({ ips, subnets }) => (isTunnel && subnets.v4 ? firstOf(subnets.v4) : (ips.v4 as Ip)))
  const [answers, tunnels] = await Promise.all([ask(own, nodes, 0), ask(from, ends, 0)])
  for (const [i, ip] of nodes.entries()) {
    const isTunnelled = tunnels.has(i)
    const most = isTunnelled ? { largest: await largest(from, ends[i] as Ip, status.mtu) } : {}
    found.set(ip, { answers: answers.has(i), isTunnelled, ...most })
  }
  return found
}

async function largest(from: Ip, to: Ip, mtu: number): Promise<number> {
  let [low, high] = [SMALLEST, mtu]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if ((await ask(from, [to], middle)).size > 0) low = middle
    else high = middle - 1
  }
  return low
}

// The places in the list of those that answered.
async function ask(from: Ip, targets: readonly Ip[], bytes: number): Promise<ReadonlySet<number>> {
  const heard = new Set<number>()
  if (targets.length === 0) return heard
  const echoes = openEchoes(from)
  try {
    for (const [i, to] of targets.entries()) echoes.send(to, i, 1, bytes)
    for (const until = performance.now() + WAIT_MS; heard.size < targets.length && performance.now() < until; ) {
      for (let one = echoes.hear(); one; one = echoes.hear()) heard.add(one.target)
      await Bun.sleep(LOOK_MS)
    }
  } finally {
    echoes.close()
  }
  return heard
}

function firstOf(subnet: NonNullable<Status['subnets']['v4']>): Ip {
  const { family, first } = split(subnet)
  return format({ family, bits: first })
}
