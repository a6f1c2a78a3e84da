import assert from 'node:assert/strict'
import { join } from 'node:path'
import { clusterPolicyOf } from '../../agent/cluster/cluster-policy.ts'
import { type clusterNodeOf, namespaceOf, type Pod, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { decide, type Verdict } from '../../agent/policy/oracle.ts'
import { load, update } from '../../agent/policy/program.ts'
import { type Cluster, POLICY_KINDS, PolicyState } from '../../agent/policy/state.ts'
import { TABLE } from '../../agent/policy/table.ts'
import type { Run } from '../../lib/os/run.ts'
import { type Ip, parseCidr } from '../../lib/text/ip.ts'
import { linesOf } from '../../lib/text/lines.ts'
import { type Namespace as Netns, until } from './harness.ts'
import { SILENT_MS } from './patience.ts'

const POD = join(import.meta.dir, 'policy-pod.ts')
const NODE = 'node-1'
const SUBNETS = [parseCidr('10.1.0.0/24'), parseCidr('fd01::/64')]
const SPACES = ['x', 'y', 'z'] as const
const NAMES = ['a', 'b', 'c'] as const
/** Of the upstream tests: a pod's name is its label `pod`, a namespace's its label `ns`. */
const PORTS = [
  { name: 'serve-80-tcp', protocol: 'TCP', containerPort: 80 },
  { name: 'serve-81-tcp', protocol: 'TCP', containerPort: 81 },
  { name: 'serve-80-udp', protocol: 'UDP', containerPort: 80 },
  { name: 'serve-81-udp', protocol: 'UDP', containerPort: 81 },
  { name: 'serve-80-sctp', protocol: 'SCTP', containerPort: 80 },
  { name: 'serve-81-sctp', protocol: 'SCTP', containerPort: 81 },
]
/** A probe that nobody answers is given up after so long. An allowed one is tried again. */
const TIMEOUT_MS = 2 * SILENT_MS
/** An allowed probe that fails is tried again: the machine may be busy. */
const TRIES = 4

/** The table in a pod that remembers which SCTP packets came, by sender and port. */
const SEEN = `table inet seen
delete table inet seen
table inet seen {
  set seen { type ipv4_addr . inet_service; flags dynamic; size 65535; }
  chain input { type filter hook input priority 0; meta l4proto sctp add @seen { ip saddr . sctp dport }; }
}
`

interface Probe {
  readonly from: Pod
  readonly to: Pod
  readonly source: Ip
  readonly destination: Ip
  readonly protocol: 'TCP' | 'UDP'
  readonly port: number
}

/** What the pods of a node have: ports of a bridge, or links of their own to which the node routes. */
export type Links = 'bridge' | 'routed'

/** A node with nine pods, x/a to z/c, each with an address per family, and policies in its kernel. */
export interface Fixture {
  readonly node: Netns
  readonly cluster: {
    readonly pods: Map<string, Pod>
    readonly namespaces: Cluster['namespaces'] & Map<string, ReturnType<typeof namespaceOf>>
    readonly policies: Map<string, ReturnType<typeof policyOf>>
    readonly clusterPolicies: Map<string, ReturnType<typeof clusterPolicyOf>>
    readonly nodes: Map<string, ReturnType<typeof clusterNodeOf>>
  }
  readonly names: readonly string[]
  /** The address of a pod, IPv4 unless asked. */
  ip(pod: string, family?: 4 | 6): Ip
  /** Adds or replaces a NetworkPolicy, as the API has it. */
  policy(namespace: string, name: string, spec: object): void
  /** Adds or replaces a ClusterNetworkPolicy, as the API has it. */
  clusterPolicy(name: string, spec: object): void
  /** Gives a pod or a namespace other labels. */
  label(what: string, labels: Readonly<Record<string, string>>): void
  /** Brings what stands now into the kernel, and compares every probe with the oracle. Gives how many pass. */
  matches(): Promise<number>
  /** Brings it into the kernel, without probes. */
  sync(): Promise<void>
  /** Tries some probes, `x/a y/b 80 TCP`. */
  passes(from: string, to: string, port?: number, protocol?: 'TCP' | 'UDP'): Promise<boolean>
  end(): Promise<void>
}

/** Makes them in a namespace of a test. */
export async function policyFixture(node: Netns, links: Links = 'bridge'): Promise<Fixture> {
  const pods = new Map<string, Pod>()
  const [namespaces, policies] = [
    new Map(SPACES.map((name) => [name as string, namespaceOf({ metadata: { name, labels: { ns: name } } })])),
    new Map<string, ReturnType<typeof policyOf>>(),
  ]
  const raws = new Map<
    string,
    { metadata: { namespace: string; name: string; labels: Record<string, string> }; spec: object; status: object }
  >()
  const setup = [
    'sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1',
    'ip link set lo up',
    ...(links === 'bridge' ? BRIDGE : ROUTES),
  ]
  const all = SPACES.flatMap((namespace, i) =>
    NAMES.map((name, k) => ({ key: `${namespace}/${name}`, namespace, name, last: 10 * (i + 1) + k })),
  )
  const unique = node.path.slice(node.path.lastIndexOf('/') + 1)
  for (const { key, namespace, name, last } of all) {
    const ns = `${unique}-${namespace}${name}`
    setup.push(`ip netns add ${ns}`, ...(links === 'bridge' ? onBridge(ns, last) : byRoutes(ns, last)))
    setup.push(`ip -n ${ns} link set lo up`)
    raws.set(key, {
      metadata: { namespace, name, labels: { pod: name } },
      spec: { nodeName: NODE, containers: [{ name: 'c', ports: PORTS }] },
      status: { phase: 'Running', podIPs: [{ ip: `10.1.0.${last}` }, { ip: `fd01::${last}` }] },
    })
    pods.set(key, podOf(raws.get(key)) as Pod)
  }
  const made = await node.exec(['sh', '-ec', setup.join('\n')])
  assert.equal(made.status, 0, made.stderr)
  const processes = new Map(all.map(({ key, namespace, name }) => [key, startPod(`${unique}-${namespace}${name}`)]))
  await Promise.all([...processes.values()].map((one) => one.ready()))
  const cluster = {
    pods,
    namespaces,
    policies,
    clusterPolicies: new Map<string, ReturnType<typeof clusterPolicyOf>>(),
    nodes: new Map<string, ReturnType<typeof clusterNodeOf>>(),
  }
  const state = new PolicyState(cluster, NODE)
  const keys = new Map(POLICY_KINDS.map((kind) => [kind, new Set<string>()]))
  let isLoaded = false
  const run: Run = async (argv, stdin) => node.exec([...argv], { stdin })
  const objects = () => ({
    pods: [...pods.values()],
    namespaces: [...namespaces.values()],
    policies: [...policies.values()],
    clusterPolicies: [...cluster.clusterPolicies.values()],
    nodes: [...cluster.nodes.values()],
  })
  const ip = (pod: string, family: 4 | 6 = 4) =>
    (pods.get(pod) as Pod).ips.find((one) => one.includes(':') === (family === 6)) as Ip
  async function sync(): Promise<void> {
    // Each step tells every key that was ever there. What is the same costs nothing.
    for (const kind of POLICY_KINDS) for (const key of cluster[kind].keys()) keys.get(kind)?.add(key)
    state.apply(keys)
    await (isLoaded ? update(state, run) : load(state, { subnets: SUBNETS, isAudit: false }, run))
    isLoaded = true
    // A new probe may have the ports of an old one, whose connection is still known.
    await node.exec(['conntrack', '-F'])
  }
  async function answers(probes: readonly Probe[]): Promise<boolean[]> {
    const found = new Map<Probe, boolean>()
    await Promise.all(
      all.map(async ({ key }) => {
        const own = probes.filter(({ from }) => `${from.namespace}/${from.name}` === key)
        if (own.length === 0) return
        const said = await (processes.get(key) as Answering).ask(
          own.map(({ destination, port, protocol }) => ({ ip: destination, port, protocol })),
        )
        for (const [i, one] of own.entries()) found.set(one, said[i] as boolean)
      }),
    )
    return probes.map((one) => found.get(one) as boolean)
  }
  // The first packet of a connection is what a policy decides. Each pod's own nft remembers which came.
  async function sctp(): Promise<string[]> {
    const inside = (key: string, words: readonly string[], stdin = '') =>
      node.exec(['ip', 'netns', 'exec', `${unique}-${key.replace('/', '')}`, 'nft', ...words], { stdin })
    const attempts = [...pods.values()].flatMap((from) =>
      [...pods.values()].flatMap((to) =>
        [80, 81].map((port) => ({
          from,
          to,
          source: ip(`${from.namespace}/${from.name}`),
          destination: ip(`${to.namespace}/${to.name}`),
          protocol: 'SCTP' as const,
          port,
        })),
      ),
    )
    await Promise.all(all.map(({ key }) => inside(key, ['-f', '-'], SEEN)))
    const wanted = attempts.filter((one) => decide(objects(), one).passes)
    await Promise.all(
      all.map(({ key }) =>
        (processes.get(key) as Answering).initiate(
          attempts
            .filter(({ from }) => `${from.namespace}/${from.name}` === key)
            .map(({ destination, port }) => ({ ip: destination, port })),
        ),
      ),
    )
    const came = async () =>
      new Map(
        await Promise.all(
          all.map(
            async ({ key }) => [key, (await inside(key, ['list', 'set', 'inet', 'seen', 'seen'])).stdout] as const,
          ),
        ),
      )
    const isIn = (found: ReadonlyMap<string, string>, { to, source, port }: (typeof attempts)[number]) =>
      found.get(`${to.namespace}/${to.name}`)?.includes(`${source} . ${port}`)
    let found = await came()
    const isAll = async () => {
      found = await came()
      return wanted.every((one) => isIn(found, one))
    }
    // Those that did not come are named below.
    await until(isAll, 1000).catch(() => undefined)
    return attempts
      .filter((one) => isIn(found, one) !== wanted.includes(one))
      .map(
        (one) =>
          `${textOf(one)} ${wanted.includes(one) ? 'does not pass' : 'passes'}: ${decide(objects(), one).reason}`,
      )
  }
  return {
    node,
    cluster,
    names: all.map(({ key }) => key),
    ip,
    policy: (namespace, name, spec) =>
      void policies.set(`${namespace}/${name}`, policyOf({ metadata: { namespace, name }, spec })),
    clusterPolicy: (name, spec) =>
      void cluster.clusterPolicies.set(name, clusterPolicyOf({ metadata: { name }, spec })),
    label(what, labels) {
      const raw = raws.get(what)
      if (raw) pods.set(what, podOf({ ...raw, metadata: { ...raw.metadata, labels } }) as Pod)
      else namespaces.set(what, namespaceOf({ metadata: { name: what, labels } }))
    },
    sync,
    async matches() {
      await sync()
      const probes = [...pods.values()].flatMap((from) =>
        [...pods.values()].flatMap((to) =>
          ([4, 6] as const).flatMap((family) =>
            (['TCP', 'UDP'] as const).flatMap((protocol) =>
              [80, 81].map(
                (port): Probe => ({
                  from,
                  to,
                  source: ip(`${from.namespace}/${from.name}`, family),
                  destination: ip(`${to.namespace}/${to.name}`, family),
                  protocol,
                  port,
                }),
              ),
            ),
          ),
        ),
      )
      const wanted = new Map<Probe, Verdict>(probes.map((one) => [one, decide(objects(), one)]))
      let left = probes
      const wrong: string[] = []
      for (let tries = 0; left.length > 0 && tries < TRIES; tries++) {
        const said = await answers(left)
        for (const [i, one] of left.entries())
          if (said[i] && !wanted.get(one)?.passes) wrong.push(`${textOf(one)} passes: ${wanted.get(one)?.reason}`)
        left = left.filter((one, i) => !said[i] && wanted.get(one)?.passes)
      }
      for (const one of left) wrong.push(`${textOf(one)} does not pass: ${wanted.get(one)?.reason}`)
      wrong.push(...(await sctp()))
      if (wrong.length > 0)
        wrong.push((await node.exec(['nft', '-a', 'list', 'table', 'inet', TABLE])).stdout.slice(0, 6000))
      assert.deepEqual(wrong, [])
      return [...wanted.values()].filter(({ passes }) => passes).length
    },
    async passes(from, to, port = 80, protocol = 'TCP') {
      const [sender, receiver] = [pods.get(from) as Pod, pods.get(to) as Pod]
      const [answer] = await answers([
        { from: sender, to: receiver, source: ip(from), destination: ip(to), protocol, port },
      ])
      return answer as boolean
    },
    async end() {
      for (const one of processes.values()) one.kill()
      await node.exec([
        'sh',
        '-c',
        all.map(({ namespace, name }) => `ip netns delete ${unique}-${namespace}${name}`).join('\n'),
      ])
    },
  }
}

const BRIDGE = [
  'ip link add br0 type bridge',
  'ip addr add 10.1.0.1/24 dev br0',
  'ip addr add fd01::1/64 dev br0 nodad',
  'ip link set br0 up',
  'sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1',
]
// The node's own addresses, as those of its uplink: the gateway is no source.
const ROUTES = ['ip addr add 172.30.0.1/32 dev lo', 'ip addr add fd30::1/128 dev lo nodad']

function onBridge(ns: string, last: number): string[] {
  return [
    `ip link add p${last} master br0 up type veth peer name eth0 netns ${ns}`,
    `ip -n ${ns} addr add 10.1.0.${last}/24 dev eth0`,
    `ip -n ${ns} addr add fd01::${last}/64 dev eth0 nodad`,
    `ip -n ${ns} link set eth0 up`,
    `ip -n ${ns} route add default via 10.1.0.1`,
    `ip -n ${ns} route add default via fd01::1`,
  ]
}

// As the plugin ptp with "routed" does it.
function byRoutes(ns: string, last: number): string[] {
  return [
    `ip link add p${last} type veth peer name eth0 netns ${ns}`,
    `sysctl -qw net.ipv6.conf.p${last}.accept_dad=0`,
    `ip link set p${last} up`,
    `ip addr add 169.254.1.1/32 dev p${last} scope link`,
    `ip addr add fe80::1/64 dev p${last} nodad`,
    `ip route add 10.1.0.${last} dev p${last} scope global`,
    `ip route add fd01::${last} dev p${last}`,
    `ip -n ${ns} addr add 10.1.0.${last}/32 dev eth0`,
    `ip -n ${ns} addr add fd01::${last}/128 dev eth0 nodad`,
    `ip -n ${ns} link set eth0 up`,
    `ip -n ${ns} route add 169.254.1.1 dev eth0 scope link`,
    `ip -n ${ns} route add default via 169.254.1.1`,
    `ip -n ${ns} route add default via fe80::1 dev eth0`,
  ]
}

/** What a pod has seen: datagrams by their sender, and its flows by name. */
export interface Seen {
  readonly came: Readonly<Record<string, number>>
  readonly flows: Readonly<Record<string, { readonly sent: number; readonly received: number; readonly error: string }>>
}
/** The process of a pod (policy-pod.ts). */
export interface Answering {
  ready(): Promise<void>
  ask(probes: readonly object[]): Promise<boolean[]>
  /** Begins a flow to an address, without an end. */
  flow(name: string, ip: string, isTcp: boolean): Promise<Seen>
  tell(): Promise<Seen>
  /** Sends the first packet of an SCTP connection to each. */
  initiate(all: readonly { readonly ip: string; readonly port: number }[]): Promise<Seen>
  kill(): void
}

/** Starts the process of a pod in a namespace, by the name of its file below /run/netns. */
export function startPod(netns: string): Answering {
  const child = Bun.spawn(['ip', 'netns', 'exec', netns, process.execPath, POD], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => ((await lines.next()).value as string | undefined) ?? ''
  async function say<T>(question: object): Promise<T> {
    child.stdin.write(`${JSON.stringify(question)}\n`)
    child.stdin.flush()
    return JSON.parse(await next())
  }
  return {
    ready: async () => void assert.equal(await next(), 'ready'),
    ask: (probes) => say({ probes, ms: TIMEOUT_MS }),
    flow: (name, ip, isTcp) => say({ flow: name, ip, isTcp }),
    tell: () => say({ tell: true }),
    initiate: (all) => say({ initiate: all }),
    kill: () => child.kill('SIGKILL'),
  }
}

function textOf({
  from,
  to,
  destination,
  protocol,
  port,
}: Pick<Probe, 'from' | 'to' | 'destination' | 'port'> & { readonly protocol: string }): string {
  return `${from.namespace}/${from.name} to ${to.namespace}/${to.name} (${destination}) ${protocol} ${port}`
}
