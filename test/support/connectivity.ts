// needs: dhcp
// Nodes whose runtimes have a network, and `plumb connectivity` between them.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { listFiles } from '../../lib/os/reading.ts'
import { makeNetwork, type Place } from './doctor.ts'
import { until } from './harness.ts'
import { API, type Kube, onKube, served } from './kube-nodes.ts'
import { administer, type KubeServer, type Raw, refusal } from './kube-server.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, UNDERLAY } from './nodes.ts'
import { conforms } from './schemas.ts'

/** Chains the plugin for host ports, as the network of the chart does. */
const PORTS = [{ type: 'portmap', capabilities: { portMappings: true } }]
/** The program. */
export const PLUMB = join(import.meta.dir, '../../dist/plumb')
const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

/** An address outside of the cluster, for each family. */
export const OUTSIDE = ['172.30.0.200', 'fd00:30::200'] as const

const RESULTS = '/run/plumb/connectivity/cache/results'

interface Side {
  readonly node: string
  readonly place: string
  readonly ip: string
  readonly port?: number
}
/** A case as `plumb connectivity --json` has it. */
export interface Case {
  readonly way: string
  readonly test: string
  readonly family: string
  readonly from: Side
  readonly to: Side
  readonly state: 'ok' | 'failed' | 'not made'
  readonly says: string
}
/** What `plumb connectivity --json` prints. */
export interface Told {
  readonly status: number
  readonly cases: readonly Case[]
  readonly notMade: readonly { readonly what: string; readonly why: string }[]
  readonly findings: readonly { readonly code: string; readonly text: string }[]
  readonly throughput?: readonly {
    readonly from: Side
    readonly to: Side
    readonly mbits?: number
    readonly nodesMbits?: number
    readonly says: string
  }[]
}
/** A node with its agent. */
export interface Member extends Place {
  readonly agent: Agent
}

/** The words that run the command on the first of these nodes, with a far end on each of the others. */
export function wordsOf([near, ...fars]: readonly Place[], ...more: string[]): string[] {
  const { node, bin, lists } = near as Place
  const far = ({ node, bin, lists }: Place) => {
    const [enter, env] = [`nsenter --net=${node.ns.path}`, `env CNI_PATH=${bin} NETCONFPATH=${lists}`]
    return `${node.name}=sh -c 'exec ${enter} ${env} ${PLUMB} "$@" --socket ${join(node.dir, 'agent.sock')}' --`
  }
  return [
    PLUMB,
    'connectivity',
    ...fars.flatMap((one) => ['--far', far(one)]),
    ...['--socket', join(node.dir, 'agent.sock'), '--subnet-file', join(node.dir, 'subnet.env')],
    ...['--conf-dir', lists, '--bin-dir', bin],
    ...more,
  ]
}

/** Runs `plumb connectivity --json` on the first of these nodes. */
export async function connectivity(places: readonly Place[], ...more: string[]): Promise<Told> {
  const { status, stdout, stderr } = await (places[0] as Place).node.ns.exec(wordsOf(places, '--json', ...more))
  assert.ok(stdout.startsWith('{\n    "cases"'), `${status}: ${stdout}\n${stderr}`)
  const told = JSON.parse(stdout) as Told
  conforms('connectivity', told)
  // Without its agent, this node has the name of the machine.
  const names = new Set(places.map(({ node }) => node.name))
  const named = (side: Side) =>
    side.node === '' || names.has(side.node) ? side : { ...side, node: (places[0] as Place).node.name }
  return { ...told, status, cases: told.cases.map((one) => ({ ...one, from: named(one.from), to: named(one.to) })) }
}

/** Wraps a test: nodes n1 and so on with agents, whose runtimes have the network of the agent. No pod is left. */
export function onNodes(count: number, work: (members: readonly Member[]) => Promise<void>) {
  const options = (cluster: Cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=2']
  return inCluster(count, options, async ({ nodes, hub }, test) => {
    test.timeout(900_000)
    const [four, six] = OUTSIDE
    await hub.ip('address', 'add', `${four}/24`, 'dev', 'hub0')
    await hub.ip('address', 'add', `${six}/64`, 'dev', 'hub0', 'nodad')
    const agents = nodes.map((node) => node.agent())
    await Promise.all(agents.map((agent) => agent.ready(30_000)))
    await until(async () => {
      const all = await Promise.all(agents.map((agent) => agent.status()))
      return all.every(
        (one) => one?.peers.length === count - 1 && one.peers.every(({ probe }) => probe?.state === 'answers'),
      )
    }, 45_000)
    const members = nodes.map(
      (node, i): Member => ({ ...makeNetwork(node, undefined, PORTS), agent: agents[i] as Agent }),
    )
    await work(members)
    for (const member of members) assert.deepEqual(await leftOn(member), [])
    const names = ['/run/netns', '/run/plumb/connectivity', RESULTS].flatMap(listFiles)
    assert.deepEqual(
      names.filter((name) => /^(plumb-connectivity-.*|[\da-f]{8}(\.lock)?|.*eth0)$/.test(name)),
      [],
    )
  })
}

/** Waits until so many test pods are attached, on all nodes together. */
export async function areAttached(count: number): Promise<void> {
  await until(async () => listFiles(RESULTS).length === count, 20_000)
}

/** The links of pods that a node has. */
export async function leftOn({ node }: Place): Promise<string[]> {
  const { stdout } = await node.ns.exec(['ip', '-br', 'link', 'show', 'type', 'veth'])
  return stdout.split('\n').filter((line) => line.startsWith('veth'))
}

/** The failed cases, each as a text with what is said of it. */
export function failures({ cases }: Told): string[] {
  return cases.filter(({ state }) => state === 'failed').map((one) => `${textOf(one)}: ${one.says}`)
}

/** A case as a text without its addresses. */
export function textOf({ way, test, family, from, to }: Case): string {
  return `${way}: ${test} ${family} ${from.node} → ${to.node}`
}

/** An API server with what the tests need of its administrator. */
export interface ClusterApi extends Kube {
  /** The way of who runs `plumb connectivity`. */
  readonly userKubeconfig: string
  /** Makes an object, if the server does not have it by itself. */
  post(path: string, object: object): Promise<unknown>
  list(path: string): Promise<readonly Raw[]>
  /** From now on, who runs `plumb connectivity` may create nothing. */
  refuse(): Promise<unknown>
}
/** Nodes whose agents serve the Services and enforce the policies of an API server. */
export interface InCluster<K extends ClusterApi = ClusterApi> {
  readonly members: readonly Member[]
  readonly kube: K
  /** Runs `plumb connectivity --json` on the first node, with the way to the API server. */
  connectivity(...more: string[]): Promise<Told>
  /** The words of that command. */
  readonly words: readonly string[]
  /** Starts the agent of a node again, with these options more. */
  restart(name: string, ...more: string[]): Promise<void>
  /** Starts the name server again. It knows this address of the API, by default the right one. */
  serveNames(ip?: string): Promise<void>
  /** The objects of tests that the API server has. */
  objects(): Promise<string[]>
}

/** The name server of the cluster: its Service, and the address of `kubernetes.default.svc.cluster.local`. */
const [DNS_VIP, KUBERNETES] = ['10.96.0.10', '10.96.0.1']

/** A server of this process. */
export async function servedCluster(): Promise<ClusterApi & { readonly server: KubeServer }> {
  const kube = await served(API.v4)
  const { server, kubeconfig } = kube
  const post = (path: string, object: object) => administer(server, path, object)
  for (const name of ['default', 'kube-system']) await post('/api/v1/namespaces', { metadata: { name } })
  await post('/api/v1/namespaces/default/services', serviceOf('kubernetes', KUBERNETES, 443, {}))
  return {
    ...kube,
    userKubeconfig: kubeconfig,
    post,
    list: async (path) => server.list(path),
    async refuse() {
      server.fault = ({ method }) =>
        method === 'POST' ? refusal(403, 'Forbidden', 'namespaces is forbidden') : undefined
    },
  }
}

/** Wraps a test: nodes n1 and so on, an API server, and a name server on the first node. */
export function inKubernetes<K extends ClusterApi>(
  count: number,
  serve: (test: Mocha.Context) => Promise<K>,
  work: (cluster: InCluster<K>) => Promise<void>,
) {
  let kube: K | undefined
  const network = { ...NETWORK, Backend: { Type: 'vxlan' } }
  const podCidrs = (n: number) => [`10.244.${n}.0/24`, `fd00:244:0:${n}::/64`]
  const start = async (test: Mocha.Context) => {
    test.timeout(600_000)
    kube = await serve(test)
    return kube
  }
  return onKube(count, { network, podCidrs }, start, async (nodes) => {
    const { post, list, userKubeconfig } = kube as K
    const [n1] = nodes as [Node]
    await post('/api/v1/namespaces/kube-system/services', serviceOf('kube-dns', DNS_VIP, 53, { 'k8s-app': 'kube-dns' }))
    await post('/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices', {
      metadata: { name: 'kube-dns-1', labels: { 'kubernetes.io/service-name': 'kube-dns' } },
      addressType: 'IPv4',
      ports: [
        { name: 'tcp', protocol: 'TCP', port: 53 },
        { name: 'udp', protocol: 'UDP', port: 53 },
      ],
      endpoints: [{ addresses: [UNDERLAY.v4(1)], conditions: { ready: true } }],
    })
    let dns: Bun.Subprocess | undefined
    const stopDns = async () => {
      dns?.kill('SIGKILL')
      await dns?.exited
    }
    const serveNames = async (ip?: string) => {
      await stopDns()
      const words = dnsmasq(UNDERLAY.v4(1), ip)
      dns = Bun.spawn(['nsenter', `--net=${n1.ns.path}`, '--', ...words], { stderr: 'inherit' })
    }
    try {
      await serveNames()
      const options = ['--network-policy=kubernetes', '--service-proxy=kubernetes']
      const agents = nodes.map((node) => node.agent(...options))
      await Promise.all(agents.map((agent) => agent.ready(40_000)))
      const members = nodes.map((node, i): Member => {
        const policy = { type: 'policy', socket: join(node.dir, 'policy.sock') }
        return { ...makeNetwork(node, undefined, [...PORTS, policy]), agent: agents[i] as Agent }
      })
      const words = ['--kubeconfig-file', userKubeconfig]
      await work({
        members,
        kube: kube as K,
        words: wordsOf(members, ...words),
        serveNames,
        async restart(name, ...more) {
          const i = nodes.findIndex((node) => node.name === name)
          await agents[i]?.stop()
          agents[i] = (nodes[i] as Node).agent(...options, ...more)
          await agents[i]?.ready(40_000)
        },
        connectivity: (...more) => connectivity(members, ...words, ...more),
        async objects() {
          const lists = await Promise.all(['/api/v1/namespaces', '/api/v1/pods', '/api/v1/services'].map(list))
          return lists
            .flat()
            .map(({ metadata }) => `${metadata.namespace ?? ''}/${metadata.name}`)
            .filter((name) => name.includes('plumb-connectivity'))
        },
      })
      for (const member of members) assert.deepEqual(await leftOn(member), [])
    } finally {
      await stopDns()
    }
  })
}

function serviceOf(name: string, ip: string, port: number, labels: object): object {
  const ports = ['TCP', 'UDP'].map((protocol) => ({ name: protocol.toLowerCase(), protocol, port, targetPort: port }))
  return { metadata: { name, labels }, spec: { clusterIP: ip, clusterIPs: [ip], ports } }
}

function dnsmasq(ip: string, api: string = KUBERNETES): string[] {
  const listen = [`--listen-address=${ip}`, '--bind-interfaces', '--port=53', '--no-resolv', '--no-hosts']
  const names = `--address=/kubernetes.default.svc.cluster.local/${api}`
  return ['dnsmasq', '--keep-in-foreground', '--conf-file=/dev/null', '--user=root', ...listen, names, '--pid-file']
}
