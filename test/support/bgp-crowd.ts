// needs: bird
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { birdFiles } from '../../agent/bgp/bird.ts'
import { birdConf } from '../../agent/bgp/bird-conf.ts'
import { askBird } from '../../agent/bgp/birdc.ts'
import { parseBgp } from '../../agent/bgp/configuration.ts'
import { encodeKey, encodeValue, type Lease } from '../../agent/lease/lease.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { type Namespace, namespaceAt } from './harness.ts'

// Many nodes as BGP sees them: a BIRD each, with the configuration that an agent would make, in a namespace of its own
// on one bridge.

/** The network of the pods. Each node has a /24 of it. */
export const NETWORK = '10.128.0.0/9'
/** The configuration of BGP: the first two nodes are reflectors. */
export const REFLECTED = 'routeReflectors: { nodes: [n1, n2], clusterId: 10.0.0.1 }\n'
const PREFIX = 'crowd'
const ANSWER_MS = 300_000
const LOOK_MS = 100

/** A node of the crowd. */
export interface Member {
  readonly n: number
  readonly ns: Namespace
  readonly dir: string
}
/** The nodes of a crowd. */
export interface Crowd {
  readonly members: readonly Member[]
  /** The lease of a node. */
  lease(n: number): Lease
  /** Starts the BIRDs of these nodes, as nodes of a cluster that has the nodes `all`. */
  start(which: readonly number[], all: readonly number[]): Promise<void>
  /** Gives the BIRDs of these nodes the configuration of a cluster that has the nodes `all`. */
  configure(which: readonly number[], all: readonly number[]): Promise<void>
  /** Ends the BIRD of a node as a cleanup does, so that its routes are withdrawn. */
  stop(n: number): Promise<void>
  /** Waits until each of these nodes has so many networks. Gives the time that this took, in milliseconds. */
  reached(which: readonly number[], networks: number): Promise<number>
  /** The process id of a node's BIRD. */
  pid(n: number): number
  end(): Promise<void>
}

/** Makes the namespaces of so many nodes. Their folders are in `dir`. */
export async function makeCrowd(dir: string, count: number): Promise<Crowd> {
  const all = Array.from({ length: count }, (_, i) => i + 1)
  const name = (n: number) => `${PREFIX}-${n}`
  const mac = (n: number) => `02:00:00:00:${hex(n >> 8)}:${hex(n & 255)}`
  sh(`ip netns add ${PREFIX}-hub; ip -n ${PREFIX}-hub link add hub0 up type bridge`)
  for (const n of all) {
    // The kernel counts the neighbours of all namespaces together, but not those that are permanent.
    const others = n > 2 ? [1, 2] : all.filter((one) => one !== n)
    const lines = [
      'link set lo up',
      `link set eth0 address ${mac(n)} up`,
      `addr add ${ipOf(n)}/16 dev eth0`,
      ...others.map((one) => `neigh add ${ipOf(one)} lladdr ${mac(one)} dev eth0 nud permanent`),
    ]
    const link = `link add port${n} master hub0 up type veth peer name eth0 netns ${name(n)}`
    sh(`ip netns add ${name(n)}; ip -n ${PREFIX}-hub ${link}; ip -n ${name(n)} -b -`, lines.join('\n'))
  }
  const members = all.map((n) => ({ n, ns: namespaceAt(name(n), `n${n}`), dir: join(dir, `n${n}`) }))
  const dirOf = (n: number) => join(dir, `n${n}`, 'bird')
  const started = new Map<number, Bun.Subprocess>()
  const conf = parseBgp('bgp.yaml', REFLECTED)
  const write = (n: number, nodes: readonly number[]) => {
    const own = lease(n)
    const { text } = birdConf({
      conf,
      node: `n${n}`,
      subnets: own.subnets,
      ips: own.ips,
      seenAs: own.ips,
      others: nodes.filter((one) => one !== n).map(lease),
      networks: [NETWORK as Cidr],
      isOnLink: () => true,
      labelsOf: () => undefined,
      addresses: [],
      passwords: new Map(),
      logFile: birdFiles(dirOf(n)).log,
    })
    writeFileSync(birdFiles(dirOf(n)).conf, text)
  }
  const socket = (n: number) => birdFiles(dirOf(n)).socket
  const networks = async (n: number) => {
    const lines = await askBird(socket(n), 'show route count')
    return Number(/for (\d+) networks/.exec(lines.map(({ text }) => text).join('\n'))?.[1])
  }
  return {
    members,
    lease,
    async start(which, nodes) {
      for (const n of which) {
        mkdirSync(dirOf(n), { recursive: true })
        write(n, nodes)
        const { conf, socket, pid } = birdFiles(dirOf(n))
        const argv = ['bird', '-f', '-c', conf, '-s', socket, '-P', pid]
        const child = Bun.spawn(['nsenter', `--net=/run/netns/${name(n)}`, '--', ...argv], {
          stdio: ['ignore', 'ignore', 'ignore'],
        })
        started.set(n, child)
      }
    },
    async configure(which, nodes) {
      for (const n of which) {
        write(n, nodes)
        await askBird(socket(n), 'configure')
      }
    },
    async stop(n) {
      started.get(n)?.kill('SIGTERM')
      await started.get(n)?.exited
      started.delete(n)
    },
    async reached(which, wanted) {
      const begun = performance.now()
      const late = new Set(which)
      for (;;) {
        for (const n of late) if (existsSync(socket(n)) && (await networks(n)) === wanted) late.delete(n)
        const took = performance.now() - begun
        if (late.size === 0) return took
        if (took > ANSWER_MS) {
          const [first = 0] = late
          assert.fail(`${late.size} nodes lack networks: n${first} has ${await networks(first)} of ${wanted}`)
        }
        await Bun.sleep(LOOK_MS)
      }
    },
    pid: (n) => Number(readFileSync(birdFiles(dirOf(n)).pid, 'utf8')),
    async end() {
      for (const child of started.values()) child.kill('SIGKILL')
      await Promise.all([...started.values()].map(({ exited }) => exited))
      sh(`for one in /run/netns/${PREFIX}-*; do ip netns delete "\${one##*/}"; done`)
    },
  }
}

/** Writes the lease of a node into the folder of the file store. */
export function writeLease(store: string, { node, ...lease }: Lease): void {
  const key = encodeKey(lease.subnets)
  for (const [folder, name, text] of [
    ['nodes', node as string, JSON.stringify({ subnet: key })],
    ['subnets', key, encodeValue(lease)],
  ] as const) {
    mkdirSync(join(store, folder), { recursive: true })
    writeFileSync(join(store, folder, '.new'), text)
    renameSync(join(store, folder, '.new'), join(store, folder, name))
  }
}

function lease(n: number): Lease {
  const subnet = `10.${128 + (n >> 8)}.${n & 255}.0/24` as Cidr
  return { node: `n${n}`, subnets: { v4: subnet }, ips: { v4: ipOf(n) }, backend: 'host-gw', data: {} }
}

function ipOf(n: number): Ip {
  return `172.30.${n >> 8}.${n & 255}` as Ip
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0')
}

function sh(script: string, stdin = ''): void {
  const { exitCode, stderr } = Bun.spawnSync(['sh', '-ec', script], { stdin: Buffer.from(stdin) })
  assert.equal(exitCode, 0, stderr.toString())
}
