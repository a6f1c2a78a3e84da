import { existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { networkText } from '../../agent/node/install.ts'
import type { Status } from '../../agent/state/status.ts'
import { inside } from '../../lib/os/netns.ts'
import { flanneld } from '../../scripts/peers.ts'
import { type Kind as Listed, serveObjects } from '../agent/object-server.ts'
import { KUBE_PROXY } from '../agent/services-fixture.ts'
import { type Call, call, type Place } from '../call.ts'
import { makePlaces, removePlaces } from '../node.ts'
import type { Side } from '../sides.ts'
import { ip, run } from '../tools.ts'
import { listed, objects, write } from './manifests.ts'
import { PODS, type PodName, type World } from './paths.ts'

const [NETWORK, FIRST, LAST] = ['10.244.0.0/16', '10.244.1.0', '10.244.2.0']
const ADDRESSES = { n1: '172.30.0.1', n2: '172.30.0.2' } as const
/**
 * A stream is the same in each boot. Its window does not follow delays, as cubic's does, and does not shrink in a rest.
 * It does not begin where that of a connection before it ended.
 */
const STEADY = { tcp_congestion_control: 'reno', tcp_slow_start_after_idle: 0, tcp_no_metrics_save: 1 }
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin'
const [POLL_MS, LIMIT_MS] = [50, 120_000]
const ETCD = `http://${ADDRESSES.n1}:2379`
const PREFIX = '/coreos.com/network'
const PUT = `
const [url, body] = process.argv.slice(-2)
const put = async () => (await fetch(url, { method: 'POST', body })).ok
for (let n = 0; n < 300 && !(await put().catch(() => false)); n++) await Bun.sleep(100)
process.exit((await put()) ? 0 : 1)`

type NodeName = keyof typeof ADDRESSES
interface Node {
  readonly name: NodeName
  readonly place: Place
  /** The folder of its files. */
  readonly dir: string
}
/** Two nodes and their pods, on which everything runs. */
export interface Nodes {
  /** The namespace of a pod, and its address. */
  pod(name: PodName): { readonly place: Place; readonly address: string }
  node(name: NodeName): Place
  /** A call for one more pod of node n1, which no policy holds up. */
  more(): Call
  /** Stops all programs but the traffic's, or lets them go on. The kernel does the rest alone. */
  freeze(isFrozen: boolean): void
  /** Throws Error with the end of its log when a program has ended. */
  look(): void
  /** The end of each program's log. */
  said(): string
  close(): Promise<void>
}

/** plumb, or what it is compared with. */
export interface Contender {
  readonly name: string
  readonly plugins: Side
  /** More arguments of plumb's agent. */
  readonly flags: readonly string[]
}

let serial = 0

/** Makes two nodes with agents and pods. Throws Error with the log of a program that ended. */
export async function openNodes(world: World, contender: Contender): Promise<Nodes> {
  const id = ++serial
  const root = `/run/budget/${id}`
  const names = ['n1', 'n2', ...Object.keys(PODS)].map((name) => `${name}-${id}`)
  const [p1, p2, ...podPlaces] = makePlaces(names) as [Place, Place, ...Place[]]
  const nodes = [
    { name: 'n1', place: p1, dir: `${root}/n1` },
    { name: 'n2', place: p2, dir: `${root}/n2` },
  ] as const satisfies readonly Node[]
  for (const folder of [`${root}/manifests`, `${root}/store`, '/run/cni']) mkdirSync(folder, { recursive: true })
  inside(p1, () => ip([`link add eth0 type veth peer name eth0 netns n2-${id}`]))
  for (const { name, place, dir } of nodes) {
    mkdirSync(journalOf(dir), { recursive: true })
    inside(place, () => {
      ip([`address add ${ADDRESSES[name]}/24 dev eth0`, 'link set eth0 up'])
      ip([`route add default via ${ADDRESSES[name === 'n1' ? 'n2' : 'n1']}`])
      for (const one of ['ipv4/ip_forward', 'bridge/bridge-nf-call-iptables'])
        writeFileSync(`/proc/sys/net/${one}`, '1')
    })
  }
  for (const place of podPlaces)
    inside(place, () => {
      for (const [key, value] of Object.entries(STEADY)) writeFileSync(`/proc/sys/net/ipv4/${key}`, String(value))
    })
  const programs: Program[] = []
  const start = (node: Node, name: string, argv: readonly string[]) => {
    const made = program(node, name, argv)
    programs.push(made)
    return made
  }
  const places = new Map(Object.keys(PODS).map((name, i) => [name as PodName, podPlaces[i] as Place]))
  const addresses = new Map<PodName, string>()
  const made: Nodes = {
    pod: (name) => ({ place: places.get(name) as Place, address: addresses.get(name) as string }),
    node: (name) => (name === 'n1' ? p1 : p2),
    more: () => ({
      side: contender.plugins,
      node: p1,
      pod: makePlaces([`more-${id}`])[0] as Place,
      run: journalOf(nodes[0].dir),
      ...plumbPod('a1', nodes[0], { ...world, policy: false }),
    }),
    freeze(isFrozen) {
      for (const one of programs) one.signal(isFrozen ? 'SIGSTOP' : 'SIGCONT')
    },
    look() {
      for (const one of programs) one.look()
    },
    said: () => programs.map((one) => one.log().slice(-1000)).join('\n'),
    async close() {
      for (const one of programs) one.signal('SIGKILL')
      await Promise.all(programs.map((one) => one.ended))
      removePlaces([p1, p2, ...podPlaces])
    },
  }
  const add = (confOf: (pod: PodName, node: Node) => Omit<Call, 'side' | 'node' | 'pod'>) => {
    for (const [pod, { node }] of Object.entries(PODS) as [PodName, (typeof PODS)[PodName]][]) {
      const on = nodes.find(({ name }) => name === node) as Node
      const place = places.get(pod) as Place
      call(
        { side: contender.plugins, node: on.place, pod: place, run: journalOf(on.dir), ...confOf(pod, on) },
        'ADD',
        pod,
      )
      addresses.set(
        pod,
        inside(place, () => addressOf(run(['ip', '-4', '-o', 'address', 'show', 'eth0']))),
      )
    }
  }
  try {
    if (contender.plugins.ours) {
      const manifests = `${root}/manifests`
      write(manifests, objects(world, addresses))
      writeFileSync(`${root}/store/config`, networkOf(world))
      for (const node of nodes) await agent(node, world, root, contender.flags, start)
      add((pod, node) => plumbPod(pod, node, world))
      write(manifests, objects(world, addresses))
    } else {
      await etcd(nodes[0], world, start)
      for (const node of nodes) await flannel(node, start)
      add(referencePod)
      const lists = listed(objects(world, addresses))
      for (const node of nodes) kubeProxy(node, lists, start)
    }
    return made
  } catch (cause) {
    await made.close()
    throw cause
  }
}

function journalOf(dir: string): string {
  return `${dir}/run`
}

interface Program {
  readonly ended: Promise<number>
  signal(name: NodeJS.Signals): void
  /** Throws Error with the end of its log when it has ended. */
  look(): void
  log(): string
}
type Start = (node: Node, name: string, argv: readonly string[]) => Program

// Each node has a journal of attachments of its own, also where agents look for it.
const OWN_JOURNAL = [
  'unshare',
  '--mount',
  'sh',
  '-ec',
  'mount -t tmpfs t /run/cni; mkdir /run/cni/plumb; mount --bind "$0" /run/cni/plumb; exec "$@"',
]

// In a process group of its own: its tools and monitors are stopped with it.
function program({ place, dir }: Node, name: string, argv: readonly string[]): Program {
  const path = join(dir, `${name}.log`)
  const log = openSync(path, 'a')
  const child = inside(place, () =>
    Bun.spawn([...OWN_JOURNAL, journalOf(dir), ...argv], {
      stdin: 'ignore',
      stdout: log,
      stderr: log,
      cwd: '/',
      env: { PATH },
      detached: true,
    } as never),
  )
  const text = () => readFileSync(path, 'utf8')
  return {
    ended: child.exited,
    signal(signal) {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, signal)
    },
    look() {
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(`${argv.join(' ')} ended: ${text().slice(-2000)}`)
    },
    log: text,
  }
}

async function until(what: string, one: Program, isDone: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + LIMIT_MS; !(await isDone()); await Bun.sleep(POLL_MS)) {
    one.look()
    if (performance.now() > end) throw new Error(`${what} did not come: ${one.log().slice(-2000)}`)
  }
}

function networkOf({ backend }: World): string {
  return JSON.stringify({
    Network: NETWORK,
    SubnetLen: 24,
    SubnetMin: FIRST,
    SubnetMax: LAST,
    Backend: { Type: backend },
  })
}

async function agent(node: Node, world: World, root: string, flags: readonly string[], start: Start): Promise<void> {
  const { name, dir } = node
  const socket = `${dir}/agent.sock`
  const options = {
    store: 'file',
    'file-store-dir': `${root}/store`,
    'node-name': name,
    iface: 'eth0',
    'ip-masq': 'true',
    'subnet-file': `${dir}/subnet.env`,
    'state-dir': `${dir}/state`,
    socket,
    'policy-socket': `${dir}/policy.sock`,
    'status-address': 'off',
    'service-proxy': `${root}/manifests`,
    ...(world.policy && { 'network-policy': `${root}/manifests` }),
  }
  const argv = [
    join(import.meta.dir, '../../dist/plumb'),
    'agent',
    ...Object.entries(options).map(([key, value]) => `--${key}=${value}`),
    ...flags,
  ]
  const made = start(node, 'agent', argv)
  await until('the agent', made, async () => {
    const answer = await fetch('http://agent/status', { unix: socket }).catch(() => undefined)
    const status = answer && ((await answer.json()) as Status)
    return status?.ready === true && status.services !== undefined && (status.policy !== undefined || !world.policy)
  })
}

// What `plumb agent --install-cni` writes for the runtime.
function plumbPod(pod: PodName, { dir }: Node, { policy }: World): Omit<Call, 'side' | 'node' | 'pod'> {
  const wish = {
    pods: PODS[pod].link,
    ...(policy && { policySocket: `${dir}/policy.sock` }),
  }
  const { plugins, name } = JSON.parse(networkText(`${dir}/subnet.env`, wish))
  const conf = { cniVersion: '1.0.0', name, ...plugins[0], dataDir: `${dir}/flannel`, ipam: { dataDir: `${dir}/pool` } }
  return { type: 'flannel', conf, args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${pod}` }
}

// What flannel's plugin gives to bridge (flannel-io/cni-plugin, flannel_linux.go), and the same pool for ptp.
function referencePod(pod: PodName, { dir }: Node): Omit<Call, 'side' | 'node' | 'pod'> {
  const env = readFileSync(`${dir}/subnet.env`, 'utf8')
  const base = { cniVersion: '1.0.0', name: 'cbr0' }
  const subnet = /^FLANNEL_SUBNET=(.*)$/m.exec(env)?.[1]?.replace(/\.1\/24$/, '.0/24')
  const mtu = Number(/^FLANNEL_MTU=(.*)$/m.exec(env)?.[1])
  const ipam = { type: 'host-local', dataDir: `${dir}/pool`, ranges: [[{ subnet }]] }
  const portmap = { type: 'portmap', conf: { ...base, type: 'portmap', capabilities: { portMappings: true } } }
  if (PODS[pod].link === 'routed')
    return {
      type: 'ptp',
      conf: { ...base, type: 'ptp', mtu, ipam: { ...ipam, routes: [{ dst: '0.0.0.0/0' }] } },
      chained: [portmap],
    }
  return {
    type: 'bridge',
    conf: {
      ...base,
      type: 'bridge',
      bridge: 'cni0',
      hairpinMode: true,
      isDefaultGateway: true,
      isGateway: true,
      ipMasq: false,
      mtu,
      ipam: { ...ipam, routes: [{ dst: NETWORK }] },
    },
    chained: [portmap],
  }
}

async function etcd(node: Node, world: World, start: Start): Promise<void> {
  const argv = [
    'etcd',
    `--data-dir=${node.dir}/etcd`,
    `--listen-client-urls=${ETCD}`,
    `--advertise-client-urls=${ETCD}`,
    '--log-level=error',
  ]
  const made = start(node, 'etcd', argv)
  const b64 = (text: string) => Buffer.from(text).toString('base64')
  const body = JSON.stringify({ key: b64(`${PREFIX}/config`), value: b64(networkOf(world)) })
  // From within the node. It asks until etcd is there.
  const put = [process.execPath, '-e', PUT, `${ETCD}/v3/kv/put`, body]
  const asking = inside(node.place, () => Bun.spawn(put, { stdin: 'ignore', stdout: 'inherit', stderr: 'inherit' }))
  await until('etcd', made, () => asking.exitCode !== null)
  if (asking.exitCode !== 0) throw new Error(`etcd took no network: ${made.log().slice(-2000)}`)
}

async function flannel(node: Node, start: Start): Promise<void> {
  const path = flanneld()?.path as string
  const file = `${node.dir}/subnet.env`
  const argv = [path, `--etcd-endpoints=${ETCD}`, `--etcd-prefix=${PREFIX}`, '--iface=eth0', '--ip-masq=true']
  const made = start(node, 'flanneld', [...argv, `--subnet-file=${file}`])
  await until('flanneld', made, () => existsSync(file) && /Running backend/.test(made.log()))
}

// Each node has an API server of the bench at a port of its own loopback.
function kubeProxy(node: Node, lists: Readonly<Record<string, Listed>>, start: Start): void {
  const meta = { name: node.name, uid: `uid-${node.name}`, resourceVersion: '1' }
  const status = { addresses: [{ type: 'InternalIP', address: ADDRESSES[node.name] }] }
  const own = [{ metadata: meta, spec: { podCIDR: NETWORK, podCIDRs: [NETWORK] }, status }]
  const kinds = { ...lists, '/api/v1/nodes': { kind: 'Node', apiVersion: 'v1', items: own } }
  inside(node.place, () => serveObjects(6443, kinds, () => 1))
  const conf = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:6443' } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  }
  writeFileSync(join(node.dir, 'kubeconfig'), JSON.stringify(conf))
  start(node, 'kube-proxy', [
    KUBE_PROXY,
    `--kubeconfig=${join(node.dir, 'kubeconfig')}`,
    `--hostname-override=${node.name}`,
    '--proxy-mode=nftables',
    `--cluster-cidr=${NETWORK}`,
    '--kube-api-content-type=application/json',
    // A node that is a namespace may not change what is the whole kernel's.
    '--conntrack-max-per-core=0',
    '--conntrack-tcp-timeout-established=0',
    '--conntrack-tcp-timeout-close-wait=0',
  ])
}

function addressOf(text: string): string {
  return / inet ([\d.]+)\//.exec(text)?.[1] ?? ''
}
