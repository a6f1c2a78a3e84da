import { existsSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodeKey, encodeValue } from '../../agent/lease/lease.ts'
import { inside } from '../../lib/os/netns.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { flanneld } from '../../scripts/peers.ts'
import { type Cluster, startEtcd } from '../../test/support/etcd.ts'
import type { Place } from '../call.ts'
import { makePlaces, removePlaces } from '../node.ts'
import type { Bench } from '../part.ts'
import { ip, run as tool } from '../tools.ts'
import { type Usage, usage } from './process.ts'

/** An agent to be measured: how the tables call it, and how it is started. */
export interface Contender {
  readonly name: string
  readonly ours: boolean
  argv(dir: string): string[]
  /** Of its environment, what is not in every one. */
  readonly env?: Readonly<Record<string, string>>
}
/** One foreign node, by its number. */
export interface Foreign {
  readonly subnet: Cidr
  /** The first address of the subnet: the neighbour on the VXLAN device. */
  readonly gateway: string
  readonly mac: string
  readonly ip: Ip
}
/** How a network is: its backend, and how many foreign leases it begins with. */
export interface Network {
  readonly backend: 'vxlan' | 'host-gw' | 'ipip' | 'wireguard' | 'udp'
  readonly leases: number
}
/** An agent that runs on a node of its own. */
export interface Running {
  readonly contender: Contender
  readonly node: Place
  /** The folder of its files. */
  readonly dir: string
  readonly pid: number
  /** When it was started, by performance.now(). */
  readonly started: number
  usage(): Usage
  /**
   * Waits until the node has a route for each of so many foreign leases: how long that took since the start, in
   * milliseconds; undefined when it took longer than `limitMs`. Throws Error with its log when it ends.
   */
  reached(count: number, limitMs: number): Promise<number | undefined>
  /** This node's own subnet. */
  subnet(): string
  stop(): Promise<void>
}
/** A store with networks in it, and nodes beside it. */
export interface Store {
  readonly contenders: readonly Contender[]
  /** One more foreign lease. */
  join(prefix: string, backend: Network['backend'], n: number): Promise<void>
}
/** etcd with networks in it, and nodes beside it. */
export interface Fixture extends Store {
  readonly etcd: Cluster
  /** Puts a network for one contender into etcd, with its foreign leases; gives its prefix. */
  populate(network: Network): Promise<string>
  /** Starts an agent on a node that has nothing yet. */
  start(contender: Contender, prefix: string): Promise<Running>
  /** Ends all that still runs, etcd too. */
  close(): Promise<void>
}

const NETWORK = '10.128.0.0/9'
/** All nodes share it: for host-gw they have to. */
const UNDERLAY = 12
// Routes are counted by the kernel's own statistics: a walk of some milliseconds.
const LOOK_MS = 25

/** plumb's agent, and flanneld where it was built. */
function contenders(endpoints: readonly string[], prefixOf: (dir: string) => string): Contender[] {
  const common = (dir: string) => [
    `--etcd-endpoints=${endpoints}`,
    `--etcd-prefix=${prefixOf(dir)}`,
    '--iface=eth0',
    `--subnet-file=${dir}/subnet.env`,
    '--ip-masq',
  ]
  const theirs = flanneld()
  return [
    {
      name: 'plumb',
      ours: true,
      argv: (dir) => [
        join(import.meta.dir, '../../dist/plumb'),
        'agent',
        ...common(dir),
        // Each run is another node. The store gives the name of one that it knows to no other.
        `--node-name=bench-${Bun.hash(dir).toString(36)}`,
        `--state-dir=${dir}/state`,
        `--socket=${dir}/agent.sock`,
      ],
    },
    ...(theirs
      ? [{ name: `flanneld ${theirs.version}`, ours: false, argv: (dir: string) => [theirs.path, ...common(dir)] }]
      : []),
  ]
}

/** What stands in tables for a flanneld that is not there; empty when it is. */
export function missing({ contenders }: Store): string {
  return contenders.some(({ ours }) => !ours)
    ? ''
    : ' There is no flanneld on this machine to compare with (`node_modules/.bin/bun scripts/peers.ts flanneld` builds one).'
}

/** Starts etcd. The caller closes it. */
export async function openFixture(bench: Bench): Promise<Fixture> {
  const etcd = await startEtcd()
  const prefixes = new Map<string, string>()
  const running = new Set<Running>()
  let [networks, nodes] = [0, 0]
  return {
    etcd,
    contenders: contenders(etcd.endpoints, (dir) => prefixes.get(dir) as string),
    async populate({ backend, leases }) {
      const prefix = `/bench${++networks}`
      await etcd.put(
        `${prefix}/config`,
        JSON.stringify({ Network: NETWORK, SubnetLen: 24, Backend: { Type: backend } }),
      )
      const pairs = Array.from({ length: leases }, (_, n) => pair(prefix, backend, n))
      const [first, ...others] = pairs
      if (first === undefined) return prefix
      // All live by an etcd lease, as real ones do.
      await etcd.put(...first, 86_400)
      const [kept] = await etcd.list(`${prefix}/subnets/`)
      await etcd.putMany(others, kept?.lease)
      return prefix
    },
    join: (prefix, backend, n) => etcd.put(...pair(prefix, backend, n)),
    async start(contender, prefix) {
      const dir = bench.dataDir()
      prefixes.set(dir, prefix)
      const n = ++nodes
      const [node] = makePlaces([`agent${n}`]) as [Place]
      await etcd.attach({ path: node }, 100 + n)
      inside(node, () => ip([`address add 172.31.255.${n}/${UNDERLAY} dev eth0`]))
      const made = startOn(contender, node, dir)
      running.add(made)
      return made
    },
    async close() {
      await Promise.all([...running].map((agent) => agent.stop()))
      await etcd.stop()
    },
  }
}

/** The nth foreign node. */
export function foreign(n: number): Foreign {
  const [high, low] = [n >> 8, n & 255]
  const hex = (part: number) => part.toString(16).padStart(2, '0')
  const gateway = `10.${129 + high}.${low}.0`
  return {
    subnet: `${gateway}/24` as Cidr,
    gateway,
    mac: `02:00:00:00:${hex(high)}:${hex(low)}`,
    ip: `172.16.${high}.${low}` as Ip,
  }
}

function pair(prefix: string, backend: Network['backend'], n: number): [key: string, value: string] {
  const { subnet, ip, mac } = foreign(n)
  return [
    `${prefix}/subnets/${encodeKey({ v4: subnet })}`,
    encodeValue({ ips: { v4: ip }, backend, data: backend === 'vxlan' ? { v4: { VNI: 1, VtepMAC: mac } } : {} }),
  ]
}

/** Starts an agent on a node, with its files in a folder. */
export function startOn(contender: Contender, node: Place, dir: string): Running {
  mkdirSync(dir, { recursive: true })
  const log = openSync(`${dir}/log`, 'a')
  const argv = contender.argv(dir)
  const started = performance.now()
  const child = inside(node, () =>
    Bun.spawn(argv, {
      stdin: 'ignore',
      stdout: log,
      stderr: log,
      cwd: '/',
      // flanneld has one WireGuard key for all nodes of a machine, where nothing else is said.
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', WIREGUARD_KEY_FILE: `${dir}/wgkey`, ...contender.env },
    }),
  )
  const failed = (why: string) =>
    new Error(`${argv.join(' ')} ${why}: ${readFileSync(`${dir}/log`, 'utf8').slice(-1000)}`)
  const routes = () =>
    [...readFileSync(`/proc/${child.pid}/net/fib_triestat`, 'utf8').matchAll(/Prefixes:\s+(\d+)/g)].reduce(
      (sum, [, n]) => sum + Number(n),
      0,
    )
  const before = routes()
  return {
    contender,
    node,
    dir,
    pid: child.pid,
    started,
    usage: () => usage(child.pid),
    async reached(count, limitMs) {
      for (const end = started + limitMs; performance.now() < end; await Bun.sleep(LOOK_MS)) {
        if (child.exitCode !== null || child.signalCode !== null) throw failed('has ended')
        const now = performance.now()
        // The last few only by asking: the node's own address is among what the kernel counts.
        if (routes() - before >= count && has(node, count)) return now - started
      }
      return undefined
    },
    subnet: () =>
      /^FLANNEL_SUBNET=(.*)\.1\/24$/m.exec(
        existsSync(`${dir}/subnet.env`) ? readFileSync(`${dir}/subnet.env`, 'utf8') : '',
      )?.[1] ?? '',
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill('SIGKILL')
      await child.exited
      removePlaces([node])
    },
  }
}

function has(node: Place, count: number): boolean {
  const rows = inside(node, () => tool(['ip', '-4', 'route', 'show'])).split('\n')
  return rows.filter((row) => /^10\.\d+\.\d+\.0\/24 /.test(row)).length >= count
}
