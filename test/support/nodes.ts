import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Status } from '../../agent/state/status.ts'
import { inNamespaces, type Namespace, until } from './harness.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
/** The underlay: node n, from 1 on, has these addresses on its eth0. */
export const UNDERLAY = { v4: (n: number) => `172.30.0.${n}`, v6: (n: number) => `fd00:30::${n}` } as const

/** A node of a cluster: its namespace, and a folder for all that its agent writes. */
export interface Node {
  readonly n: number
  readonly name: string
  readonly ns: Namespace
  readonly dir: string
  /** Its usual options and the cluster's. */
  readonly options: readonly string[]
  /** Starts an agent with the cluster's options and these. */
  agent(...more: readonly string[]): Agent
  /** The same by way of a program that becomes it: `env NAME=VALUE`. */
  agentBy(way: readonly string[], ...more: readonly string[]): Agent
  /** The same by another program, such as one of shim.ts. */
  agentAs(program: string, ...more: readonly string[]): Agent
}
/** A running agent. */
export interface Agent {
  readonly pid: number
  /** What it has said so far. */
  log(): string
  /** Rejects, with its log, when it is not ready within the time. */
  ready(ms?: number): Promise<Status>
  status(): Promise<Status | undefined>
  /** What it answers to /readyz: the code and the text. */
  readyz(): Promise<string>
  /** Its exit status, 128 and the signal's number. */
  readonly ended: Promise<number>
  stop(signal?: NodeJS.Signals): Promise<number>
}
/** Nodes on one bridge, and what they share. */
export interface Cluster {
  readonly nodes: readonly Node[]
  /** The bridge that they stand on; a router, should they need one. */
  readonly hub: Namespace
  readonly dir: string
}

/**
 * Wraps a test: nodes on one bridge, IPv4 and IPv6, each with its folder; `options` go to every agent. All of it ends
 * with the test.
 */
export function inCluster(
  count: number,
  options: (cluster: Cluster) => readonly string[],
  work: (cluster: Cluster, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  const names = Array.from({ length: count }, (_, i) => `n${i + 1}`)
  return inNamespaces(['hub', ...names], async (spaces, test) => {
    const dir = mkdtempSync(join(tmpdir(), 'cluster-'))
    const running: Agent[] = []
    const hub = spaces['hub'] as Namespace
    try {
      const cluster: Cluster = { hub, dir, nodes: [] }
      await hub.ip('link', 'add', 'name', 'hub0', 'type', 'bridge')
      await hub.ip('link', 'set', 'hub0', 'up')
      for (const [i, name] of names.entries()) {
        const ns = spaces[name] as Namespace
        await joinHub(hub, ns, i + 1)
        const own = join(dir, name)
        mkdirSync(own)
        const begin = (program: readonly string[], argv: readonly string[]): Agent => {
          const made = start(ns, program, argv)
          running.push(made)
          return made
        }
        ;(cluster.nodes as Node[]).push({
          n: i + 1,
          name,
          ns,
          dir: own,
          get options() {
            return [...usual(name, own), ...options(cluster)]
          },
          agent(...more) {
            return begin([PLUMB], [...this.options, ...more])
          },
          agentBy(way, ...more) {
            return begin([...way, PLUMB], [...this.options, ...more])
          },
          agentAs(program, ...more) {
            return begin([program], [...this.options, ...more])
          },
        })
      }
      await work(cluster, test)
    } finally {
      await Promise.all(running.map((agent) => agent.stop('SIGKILL')))
      rmSync(dir, { recursive: true, force: true })
    }
  })
}

/** Options for the `file` store in the cluster's shared folder, on this network configuration. */
export function fileStore({ dir }: Cluster, conf: object): string[] {
  const shared = join(dir, 'store')
  mkdirSync(shared, { recursive: true })
  writeFileSync(join(shared, 'config'), JSON.stringify(conf))
  return ['--store', 'file', '--file-store-dir', shared]
}

/** subnet.env of a node, by key; undefined while there is none. */
export function subnetEnv({ dir }: Node): Record<string, string> | undefined {
  const path = join(dir, 'subnet.env')
  if (!existsSync(path)) return undefined
  return Object.fromEntries(
    readFileSync(path, 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.split('=') as [string, string]),
  )
}

function usual(name: string, dir: string): string[] {
  return [
    '--node-name',
    name,
    '--subnet-file',
    join(dir, 'subnet.env'),
    '--state-dir',
    join(dir, 'state'),
    '--socket',
    join(dir, 'agent.sock'),
    '--policy-socket',
    join(dir, 'policy.sock'),
    '--cni-conf-dir',
    join(dir, 'net.d'),
    '--cni-bin-dir',
    join(dir, 'bin'),
    '--ip-masq',
  ]
}

async function joinHub(hub: Namespace, ns: Namespace, n: number): Promise<void> {
  for (const one of [hub, ns])
    await one.exec([
      'sh',
      '-c',
      'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding',
    ])
  await hub.ip('link', 'add', 'name', `port${n}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns.path)
  await hub.ip('link', 'set', `port${n}`, 'master', 'hub0', 'up')
  await ns.ip('link', 'set', 'lo', 'up')
  await ns.ip('link', 'set', 'eth0', 'up')
  await ns.ip('addr', 'add', `${UNDERLAY.v4(n)}/24`, 'dev', 'eth0')
  await ns.ip('addr', 'add', `${UNDERLAY.v6(n)}/64`, 'dev', 'eth0', 'nodad')
  await ns.ip('route', 'add', 'default', 'via', UNDERLAY.v4(254))
  await ns.ip('route', 'add', 'default', 'via', UNDERLAY.v6(254))
}

function start(ns: Namespace, program: readonly string[], argv: readonly string[]): Agent {
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...program, 'agent', ...argv], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
  })
  let said = ''
  for (const pipe of [child.stdout, child.stderr])
    void (async () => {
      for await (const text of pipe.pipeThrough(new TextDecoderStream())) said += text
    })()
  const ended = child.exited.then(() => child.exitCode ?? 128 + (child.signalCode ? 1 : 0))
  const socket = argv[argv.lastIndexOf('--socket') + 1] as string
  const status = async (): Promise<Status | undefined> => {
    try {
      return (await (await fetch('http://plumb/status', { unix: socket })).json()) as Status
    } catch {
      return undefined
    }
  }
  return {
    pid: child.pid,
    log: () => said,
    status,
    readyz: async () => {
      const answer = await fetch('http://plumb/readyz', { unix: socket })
      return `${answer.status} ${await answer.text()}`
    },
    ended,
    ready: (ms = 10_000) =>
      until<Status | undefined>(async () => {
        const seen = await status()
        if (child.exitCode !== null) throw new Error(`the agent ended with ${child.exitCode}: ${said}`)
        return seen?.ready ? seen : undefined
      }, ms)
        .then((seen) => seen as Status)
        .catch(async (cause: Error) => {
          throw new Error(
            `the agent of ${ns.name} is not ready: ${JSON.stringify([(await status())?.reasons, (await status())?.degraded])} ${cause.message}\n${said}`,
          )
        }),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      return ended
    },
  }
}
