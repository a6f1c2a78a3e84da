// needs: bird
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { BgpStatus } from '../../agent/bgp/view.ts'
import { readText } from '../../lib/os/reading.ts'
import { podOn } from './flows.ts'
import { inNamespaces, type Namespace, until } from './harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, UNDERLAY } from './nodes.ts'

/** The network of the pods. The first subnets are those of nodes without plumb, and no node draws them. */
const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.32.0', Backend: { Type: 'host-gw' } }
/** The top-of-rack router: its address on the hub, and its AS number. */
export const TOR = { ip: UNDERLAY.v4(254), ip6: UNDERLAY.v6(254), asn: 65_000 } as const
/** An address outside of the cluster, behind the router. */
export const WORLD = '203.0.113.2'
const ANSWER_MS = 30_000

/** A BIRD that a test runs. */
export interface Router {
  readonly pid: number
  /** What birdc prints for a command. */
  ask(...words: readonly string[]): Promise<string>
  /** Replaces its configuration. */
  configure(text: string): Promise<void>
  stop(signal?: NodeJS.Signals): Promise<void>
}

/** Starts a BIRD with a configuration in a namespace, and waits for its answer. `bin` has the programs of another BIRD. */
export async function startRouter(ns: Namespace, dir: string, text: string, bin?: string): Promise<Router> {
  mkdirSync(dir, { recursive: true })
  const [conf, socket] = [join(dir, 'bird.conf'), join(dir, 'bird.ctl')]
  writeFileSync(conf, text)
  const [daemon, client] = ['bird', 'birdc'].map((name) => (bin === undefined ? name : join(bin, name)))
  const argv = [daemon as string, '-f', '-c', conf, '-s', socket, '-P', join(dir, 'bird.pid')]
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...argv], {
    stdio: ['ignore', 'ignore', Bun.file(join(dir, 'log'))],
  })
  const ask = async (...words: readonly string[]) =>
    (await ns.exec([client as string, '-s', socket, ...words])).stdout.replace(/^BIRD .*ready\.\n/, '')
  const running = await until(async () => {
    if (child.exitCode !== null) throw new Error(readFileSync(join(dir, 'log'), 'utf8'))
    return (await ask('show', 'status')).includes('Daemon is up')
  }, ANSWER_MS)
  assert.ok(running)
  return {
    pid: child.pid,
    ask,
    async configure(next) {
      writeFileSync(conf, next)
      assert.match(await ask('configure'), /Reconfigur/)
    },
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      await child.exited
    },
  }
}

/** The configuration of a router that has sessions with nodes. */
export interface TorOptions {
  readonly nodes: readonly number[]
  /** Routes that it announces. */
  readonly routes?: readonly string[]
  /** More lines of each session, and of each session's export filter. */
  readonly session?: readonly string[]
  readonly filter?: readonly string[]
  readonly more?: readonly string[]
}

/** Makes the configuration of a router at `TOR`, or at another address. */
export function torConf(
  { nodes, routes = [], session = ['graceful restart on;'], filter = [], more = [] }: TorOptions,
  { ip = TOR.ip as string } = {},
): string {
  return [
    `router id ${ip};`,
    'protocol device { }',
    'protocol kernel { ipv4 { export where source = RTS_BGP; }; merge paths on; scan time 2; }',
    'protocol static {',
    '  ipv4;',
    ...routes.map((route) => `  route ${route} blackhole;`),
    '}',
    ...more,
    ...nodes.flatMap((n) => [
      `protocol bgp n${n} {`,
      `  local ${ip} as ${TOR.asn};`,
      `  neighbor ${UNDERLAY.v4(n)} as 64512;`,
      '  direct;',
      '  connect delay time 1; connect retry time 2; error wait time 1, 2;',
      ...session.map((line) => `  ${line}`),
      '  ipv4 {',
      '    import all;',
      `    export filter { if source != RTS_STATIC then reject; ${filter.join(' ')} accept; };`,
      '  };',
      '}',
    ]),
    '',
  ].join('\n')
}

/** Nodes with agents that run BGP, a router on their link, and the world behind it. */
export interface BgpScene extends Cluster {
  readonly agents: Agent[]
  readonly world: Namespace
  readonly tor: Router
  /** The pod of each node. */
  readonly pods: readonly { readonly ns: Namespace; readonly ip: string }[]
  /** Writes the file of `--bgp-config`, for all nodes. */
  write(yaml: string): void
  /** The file of `--bgp-config`. */
  readonly file: string
  /** The routes of the router's kernel to a destination. */
  routes(dst: string): Promise<string>
  /** What node n's BIRD says. */
  bird(n: number, ...words: readonly string[]): Promise<string>
}

/** The usual configuration: the router as the one peer. */
export const WITH_TOR = `peers: [{ name: tor, address: ${TOR.ip}, asn: ${TOR.asn}, import: [0.0.0.0/0] }]\n`

/**
 * Wraps a test: nodes with agents that run BGP, and the router with the configuration `tor`. `conf` is the network.
 */
export function withBgp(
  { count, yaml, tor, conf = CONF }: { count: number; yaml: string; tor: string; conf?: object },
  work: (scene: BgpScene, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  const names = Array.from({ length: count }, (_, i) => `pod${i + 1}`)
  return inNamespaces(['world', ...names], async (spaces, test) => {
    test.timeout(300_000)
    const given = (cluster: Cluster) => [
      ...fileStore(cluster, conf),
      `--bgp-config=${join(cluster.dir, 'bgp.yaml')}`,
      '--status-address=off',
      '--probe-interval=0',
    ]
    await inCluster(count, given, async (cluster) => {
      const { hub, dir, nodes } = cluster
      const file = join(dir, 'bgp.yaml')
      const write = (text: string) => writeFileSync(file, text)
      write(yaml)
      const world = spaces['world'] as Namespace
      await hub.ip('addr', 'add', `${TOR.ip}/24`, 'dev', 'hub0')
      await hub.ip('addr', 'add', `${TOR.ip6}/64`, 'dev', 'hub0', 'nodad')
      await hub.ip(...`link add world0 up type veth peer name eth0 netns ${world.path}`.split(' '))
      await hub.ip('addr', 'add', '203.0.113.1/24', 'dev', 'world0')
      await world.ip('addr', 'add', `${WORLD}/24`, 'dev', 'eth0')
      await world.ip('link', 'set', 'eth0', 'up')
      await world.ip('route', 'add', 'default', 'via', '203.0.113.1')
      const router = await startRouter(hub, join(dir, 'tor'), tor)
      const agents = nodes.map((node) => node.agent())
      try {
        await Promise.all(agents.map((agent) => agent.ready(ANSWER_MS)))
        const pods: { ns: Namespace; ip: string }[] = []
        for (const [i, node] of nodes.entries()) {
          const ns = spaces[`pod${i + 1}`] as Namespace
          pods.push({ ns, ip: await podOn(node, ns) })
        }
        await work(
          {
            ...cluster,
            agents,
            world,
            tor: router,
            pods,
            write,
            file,
            routes: (dst) => hub.ip('route', 'show', dst),
            bird: async (n, ...words) => birdOf(nodes[n - 1] as Node, ...words),
          },
          test,
        )
      } catch (cause) {
        const logs = agents.map((agent) => agent.log().slice(-1500)).join('\n---\n')
        const birds = nodes
          .map(({ dir }) => readText(join(dir, 'bird/bird.log'))?.slice(-2500) ?? 'BIRD has no log')
          .join('\n---\n')
        const seen = await router.ask('show', 'protocols')
        throw new Error(`${(cause as Error).message}\n${seen}\n${logs}\n${birds}`, { cause })
      } finally {
        await Promise.all(nodes.map(endBird))
        await router.stop('SIGKILL')
      }
    }).call(test)
  })
}

/** What birdc prints for a command to the BIRD of a node's agent. */
export async function birdOf({ ns, dir }: Node, ...words: readonly string[]): Promise<string> {
  return (await ns.exec(['birdc', '-s', join(dir, 'bird/bird.ctl'), ...words])).stdout
}

/** Ends the BIRD of a node, which outlives its agent. */
export async function endBird(node: Node): Promise<void> {
  const pid = birdPid(node)
  if (pid === undefined) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}

/** The process id of the BIRD of a node. */
export function birdPid({ dir }: Node): number | undefined {
  try {
    return Number(readFileSync(join(dir, 'bird/bird.pid'), 'utf8')) || undefined
  } catch {
    return undefined
  }
}

/** Waits until the sessions of an agent are established, all or those of some names, and gives its status of BGP. */
export async function established(agent: Agent, names?: readonly string[], ms = 30_000): Promise<BgpStatus> {
  const found = await until(async () => {
    const bgp = (await agent.status())?.bgp
    const wanted = bgp?.sessions.filter(({ name }) => names === undefined || names.includes(name)) ?? []
    const isUp = wanted.length > 0 && wanted.every(({ state }) => state === 'Established')
    return isUp && wanted.length >= (names?.length ?? 1) ? bgp : undefined
  }, ms)
  return found as BgpStatus
}
