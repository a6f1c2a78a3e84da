import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Backend, Facts, Wanted } from '../../agent/backend/backend.ts'
import type { Uplink } from '../../agent/backend/uplink.ts'
import { Converger } from '../../agent/kernel/converge.ts'
import type { Outcome } from '../../agent/kernel/outcome.ts'
import type { Scope } from '../../agent/kernel/ownership.ts'
import type { Both, Lease } from '../../agent/lease/lease.ts'
import { run } from '../../lib/os/exec.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'
import { type Namespace, until } from './harness.ts'

/** The pods' networks of a cluster: node N has 10.244.N.0/24 and fd00:244:N::/64, or those of another number. */
export const NETWORKS = networks(244)

/** A node of a cluster: its lease, its uplink, and what its agent would do. */
export interface Member {
  readonly ns: Namespace
  readonly lease: Lease
  readonly uplink: Uplink
  /** What its backend wants, given these peers. */
  want(peers: readonly Member[]): Wanted
  /** One step towards it. */
  reach(peers: readonly Member[]): Promise<Outcome>
  readonly converger: Converger
  /** An agent that is started again: it knows nothing. */
  restarted(more?: Partial<How>): Member
}
/** What a cluster has to be told. */
export type Wiring = Partial<How> & Pick<How, 'backend'>
/** How the members of a cluster are wired. */
export interface How {
  readonly backend: Backend
  readonly options: Readonly<Record<string, unknown>>
  /** Which families there are. */
  readonly families: readonly ('v4' | 'v6')[]
  readonly nexthops: boolean
  readonly instance: string
  readonly scope: Partial<Scope>
  readonly prefix: number
  readonly uplink: Partial<Uplink>
}

/**
 * A cluster: `lan` is its switch, and the other namespaces are its nodes. Node N has 192.0.2.N and 2001:db8::N on eth0
 * of MTU 1500, and the first addresses of its subnets on a bridge `cni0`. Gives three members, or as many as there are
 * nodes.
 */
export async function cluster(
  { lan, ...nodes }: Readonly<Record<string, Namespace>> & { readonly lan: Namespace },
  how: Wiring,
): Promise<[Member, Member, Member]> {
  await wire(lan, Object.values(nodes))
  return members(Object.values(nodes), how) as [Member, Member, Member]
}

async function wire(lan: Namespace, nodes: readonly Namespace[]): Promise<void> {
  for (const ns of [lan, ...nodes]) await ns.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
  await lan.ip('link', 'add', 'name', 'lan0', 'up', 'type', 'bridge')
  for (const [i, ns] of nodes.entries()) {
    const n = i + 1
    await lan.ip('link', 'add', `port${n}`, 'up', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns.path)
    await lan.ip('link', 'set', `port${n}`, 'master', 'lan0')
    await ns.ip('link', 'set', 'lo', 'up')
    await ns.ip('link', 'set', 'eth0', 'up')
    await ns.ip('address', 'add', `192.0.2.${n}/24`, 'dev', 'eth0')
    await ns.ip('address', 'add', `2001:db8::${n}/64`, 'dev', 'eth0', 'nodad')
    await ns.ip('link', 'add', 'name', 'cni0', 'up', 'type', 'bridge')
    await ns.ip('address', 'add', `10.244.${n}.1/24`, 'dev', 'cni0')
    await ns.ip('address', 'add', `fd00:244:${n}::1/64`, 'dev', 'cni0', 'nodad')
  }
}

/** The nodes' agents, as far as they are told here: dual stack through nexthop objects unless said otherwise. */
export function members(nodes: readonly Namespace[], how: Wiring): Member[] {
  return nodes.map((ns, i) =>
    member(ns, i + 1, {
      options: {},
      families: ['v4', 'v6'],
      nexthops: true,
      instance: 'default',
      scope: {},
      prefix: 244,
      uplink: {},
      ...how,
    }),
  )
}

/** The configuration of a backend on node N, with a state directory that ends with this process. */
export function confOf<C>(backend: Backend<C>, options: How['options'], n: number): C {
  const conf = backend.conf(options)
  return backend.equip?.(conf, { stateDir: stateDir(), node: `node-${n}` }) ?? conf
}

let state: string | undefined

function stateDir(): string {
  if (state !== undefined) return state
  const made = mkdtempSync(join(tmpdir(), 'state-'))
  process.on('exit', () => rmSync(made, { recursive: true, force: true }))
  state = made
  return made
}

/** A lease as a store gives it. */
export function lease(
  n: number,
  data: Both<unknown>,
  backend: string,
  families: How['families'] = ['v4', 'v6'],
  prefix = 244,
): Lease {
  const of = <T>(both: Required<Both<T>>): Both<T> =>
    Object.fromEntries(families.map((family) => [family, both[family]]))
  return {
    node: `node-${n}`,
    subnets: of({ v4: `10.${prefix}.${n}.0/24` as Cidr, v6: `fd00:${prefix}:${n}::/64` as Cidr }),
    ips: of({ v4: `192.0.2.${n}` as Ip, v6: `2001:db8::${n}` as Ip }),
    backend,
    data,
  }
}

/** The uplink of node N. */
export function uplink(n: number, families: How['families'] = ['v4', 'v6']): Uplink {
  const { ips } = lease(n, {}, '', families)
  const routes = [
    { dst: '192.0.2.0/24', gateway: false },
    { dst: '2001:db8::/64', gateway: false },
    { dst: '0.0.0.0/0', gateway: true },
    { dst: '::/0', gateway: true },
  ].map((route) => ({ ...route, dst: route.dst as Cidr, dev: parse.ifname('eth0') }))
  return { name: parse.ifname('eth0'), index: 2, mtu: 1500, tunnel: ips, advertise: ips, routes }
}

/** How many of the packets, a hundred a second, were lost while the work was done. */
export async function pinging(from: Member, to: Member, work: () => Promise<void>): Promise<number> {
  const pid = '/run/pinging.pid'
  const ping = from.ns.exec([
    'sh',
    '-c',
    `echo $$ >${pid}; exec ping -n -i 0.01 -W 1 -I ${addressOf(from, 'v4')} ${addressOf(to, 'v4')}`,
  ])
  await until(async () => (await from.ns.exec(['cat', pid])).status === 0)
  try {
    await work()
  } finally {
    await from.ns.exec(['sh', '-c', `kill -INT "$(cat ${pid})" && rm ${pid}`])
  }
  const { stdout } = await ping
  const [, sent, received] = /(\d+) packets transmitted, (\d+) received/.exec(stdout) ?? []
  assert.ok(Number(sent) > 3, stdout)
  // The one that was under way when it was stopped does not count.
  return Math.max(0, Number(sent) - Number(received) - 1)
}

function networks(prefix: number): Cidr[] {
  return [`10.${prefix}.0.0/16` as Cidr, `fd00:${prefix}::/32` as Cidr]
}

function member(ns: Namespace, n: number, how: How): Member {
  const { backend, options, families, nexthops } = how
  const conf = confOf(backend, options, n)
  const up = { ...uplink(n, families), ...how.uplink }
  const { leaseType = backend.type } = backend
  const own = lease(n, backend.announce(`node-${n}`, up, conf), leaseType, families, how.prefix)
  const facts: Facts = { nexthops, instance: parse.network(how.instance), networks: networks(how.prefix) }
  const converger = new Converger(
    { instance: facts.instance, links: backend.links(conf), networks: networks(how.prefix), ...how.scope },
    run,
    parse.netns(ns.path),
  )
  const want = (peers: readonly Member[]) =>
    backend.want(
      own,
      peers.map(({ lease }) => lease),
      up,
      conf,
      facts,
    )
  return {
    ns,
    lease: own,
    uplink: up,
    converger,
    want,
    reach: (peers) => converger.step(want(peers).resources),
    restarted: (more = {}) => member(ns, n, { ...how, ...more }),
  }
}

/**
 * The same node with its address as a /32 and all routes by a gateway on the switch, as some clouds have it. It drops
 * packets that it would not answer by the same link.
 */
export async function behindGateway(one: Member, lan: Namespace): Promise<Member> {
  const [address, gateway] = [one.uplink.tunnel.v4, '192.0.2.254']
  await lan.ip('address', 'add', `${gateway}/24`, 'dev', 'lan0')
  await lan.exec(['sh', '-c', 'echo 1 >/proc/sys/net/ipv4/ip_forward'])
  await one.ns.ip('address', 'flush', 'dev', 'eth0', 'scope', 'global')
  await one.ns.ip('address', 'add', `${address}/32`, 'dev', 'eth0')
  await one.ns.ip('route', 'add', gateway, 'dev', 'eth0', 'scope', 'link')
  await one.ns.ip('route', 'add', 'default', 'via', gateway)
  await one.ns.exec(['sh', '-c', 'echo 1 | tee /proc/sys/net/ipv4/conf/*/rp_filter'])
  const dev = one.uplink.name
  const routes = [
    { dst: `${gateway}/32` as Cidr, dev, gateway: false },
    { dst: '0.0.0.0/0' as Cidr, dev, gateway: true },
  ]
  return one.restarted({ uplink: { routes } })
}

/**
 * Throws unless a member's node has packets of full size for every other one's pods, and back, with no fragments: `mtu`
 * by family.
 */
export async function assertReached(one: Member, others: readonly Member[], mtu: Both<number>): Promise<void> {
  for (const other of others) {
    for (const [family, headers] of [
      ['v4', 28],
      ['v6', 48],
    ] as const) {
      const size = mtu[family]
      if (size === undefined) continue
      const [from, to] = [addressOf(one, family), addressOf(other, family)]
      const { status, stdout, stderr } = await one.ns.exec([
        'ping',
        '-n',
        '-q',
        '-M',
        'do',
        '-c',
        '1',
        '-i',
        '0.2',
        '-w',
        '3',
        '-I',
        from,
        '-s',
        String(size - headers),
        to,
      ])
      assert.equal(status, 0, `No packets of ${size} bytes from ${from} to ${to}:\n${stdout}${stderr}`)
    }
  }
}

/** Whether a packet of 64 bytes from one member's pods' address reaches the other's. */
export async function answers(one: Member, other: Member, family: 'v4' | 'v6' = 'v4'): Promise<boolean> {
  return (
    (
      await one.ns.exec([
        'ping',
        '-n',
        '-q',
        '-c',
        '1',
        '-w',
        '1',
        '-I',
        addressOf(one, family),
        addressOf(other, family),
      ])
    ).status === 0
  )
}

/**
 * What there is of the agent's on a node, as text: links by alias, what stands on them, nexthops, and routes by number;
 * one per line, sorted.
 */
export async function held({ ns }: Pick<Member, 'ns'>): Promise<string[]> {
  const found = (await ns.json('link')).filter(({ ifalias }) => ifalias?.startsWith('plumb-agent/'))
  const links = found.map(({ ifname }) => ifname)
  const asks = [
    ['nexthop', 'show'],
    ['-4', 'route', 'show', 'proto', '112'],
    ['-6', 'route', 'show', 'proto', '112'],
    ['neigh', 'show', 'nud', 'permanent', 'proto', '112'],
    ...links.flatMap((dev) => [
      ['address', 'show', 'dev', dev, 'scope', 'global'],
      ['route', 'show', 'dev', dev, 'proto', 'boot'],
    ]),
  ]
  const texts = await Promise.all(asks.map((ask) => ns.ip('-o', ...ask)))
  const shown = (argv: readonly string[]) => ns.exec(argv).then(({ stdout }) => stdout)
  const fdb = await Promise.all(links.map((dev) => shown(['bridge', 'fdb', 'show', 'dev', dev])))
  const isWireguard = ({ linkinfo }: (typeof found)[number]) => linkinfo?.info_kind === 'wireguard'
  const wireguard = found.filter(isWireguard).map(({ ifname }) => shown(['wg', 'show', ifname, 'allowed-ips']))
  return [
    ...found.map(({ ifname, mtu, address, flags, ifalias }) => `${ifname} ${mtu} ${address} ${flags} ${ifalias}`),
    ...texts,
    ...fdb,
    ...(await Promise.all(wireguard)),
  ]
    .flatMap((text) => text.split('\n'))
    .map((text) => text.replace(/^\d+: /, '').trim())
    .filter(Boolean)
    .sort()
}

function addressOf({ lease: { subnets } }: Member, family: 'v4' | 'v6'): string {
  return family === 'v4'
    ? (subnets.v4 as string).replace('.0/24', '.1')
    : (subnets.v6 as string).replace('::/64', '::1')
}
