// lane: vmlong
// Tests the fast path of a running agent with agent/parts/fast-path.ts, agent/services and the plugins portmap and bandwidth.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { tc } from '../../support/bandwidth.ts'
import { add, everythingOn, manifest, onFastPath, podManifest } from '../../support/fast-path.ts'
import { fileOf, inFastPath, shared, type Talker, talker, untilInFastPath } from '../../support/fast-path-world.ts'
import { until } from '../../support/harness.ts'
import { type Agent, type Cluster, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'

const CONF = {
  Network: '10.244.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  Backend: { Type: 'vxlan' },
}
const VIP = { self: '10.96.0.11', sticky: '10.96.0.12', moving: '10.96.0.13' } as const
const [CLUSTER, LOCAL, HOST] = [30_082, 30_083, 8082]
/** The limits of shaped pods, in bits a second. */
const RATE = 4_000_000
/** Pods a, b and e have links of their own on the first node; c and i stand on a bridge of the second. */
const NAMES = ['a', 'b', 'e', 'c', 'i'] as const
type Name = (typeof NAMES)[number]

interface Pod {
  readonly ips: readonly string[]
  readonly talker: Talker
}

describe('Services, ports and limits in the fast path of a running agent', () => {
  const cluster = shared<Cluster>((work) => inCluster(8, (one) => everythingOn(one, CONF), work))
  const pods: Partial<Record<Name, Pod>> = {}
  const agents: Agent[] = []
  const pod = (name: Name) => pods[name] as Pod
  const ip = (name: Name, family: 4 | 6 = 4) => pod(name).ips[family === 4 ? 0 : 1] as string
  const node = (n: 1 | 2) => cluster().nodes[n - 1] as Node
  const endpoints = (...names: readonly Name[]) =>
    names.map((name) => ({
      addresses: [ip(name)],
      nodeName: node(name === 'c' || name === 'i' ? 2 : 1).name,
      conditions: { ready: true },
    }))
  let client: Talker
  let serial = 0

  before(async function () {
    this.timeout(600_000)
    // Policy between pods of one bridge wants it, and the agent does not load it.
    await execa('modprobe', ['br_netfilter'])
    const { nodes, dir } = cluster()
    const [one, two, ...rest] = nodes as [Node, Node, ...Node[]]
    manifest(dir, 'pods.yaml', { kind: 'Namespace', metadata: { name: 'x' } })
    agents.push(one.agent('--pods=routed'), two.agent('--pods=bridge'))
    for (const agent of agents) await agent.ready(120_000)
    const wants: Readonly<Partial<Record<Name, object>>> = {
      a: { portMappings: [{ hostPort: HOST, containerPort: 82, protocol: 'tcp' }] },
      e: { bandwidth: { egressRate: RATE, egressBurst: 400_000 } },
      i: { bandwidth: { ingressRate: RATE, ingressBurst: 400_000 } },
    }
    for (const [k, name] of NAMES.entries()) {
      const [own, space] = [k < 3 ? one : two, rest[k] as Node]
      const { ips } = await add(own, { ...space, name }, wants[name])
      pods[name] = { ips, talker: await talker(fileOf(space.ns), name) }
    }
    client = await talker(fileOf((rest[5] as Node).ns), 'client')
    manifest(
      dir,
      'pods.yaml',
      { kind: 'Namespace', metadata: { name: 'x' } },
      ...NAMES.map((name, k) => podManifest(name, (k < 3 ? one : two).name, pod(name).ips)),
    )
    const affinity = { sessionAffinity: 'ClientIP' }
    const onPort = (port: number, externalTrafficPolicy: string) => ({
      type: 'NodePort',
      externalTrafficPolicy,
      ports: ['TCP', 'UDP'].map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 82, nodePort: port })),
    })
    manifest(
      dir,
      'services.yaml',
      ...service('self', { clusterIP: VIP.self }, endpoints('a')),
      ...service('sticky', { clusterIP: VIP.sticky, ...affinity }, endpoints('c', 'i')),
      ...service('cluster', { clusterIP: '10.96.0.14', ...onPort(CLUSTER, 'Cluster') }, endpoints('c')),
      ...service('local', { clusterIP: '10.96.0.15', ...onPort(LOCAL, 'Local') }, endpoints('a')),
    )
    moveTo('c')
    await onFastPath(agents[0] as Agent, { pods: 2, slowPods: 1 })
    await onFastPath(agents[1] as Agent, { pods: 2, slowPods: 0 })
  })

  function moveTo(name: Name): void {
    manifest(cluster().dir, 'moving.yaml', ...service('moving', { clusterIP: VIP.moving }, endpoints(name)))
  }

  /** Opens a flow, and waits until it is in the fast path of a node. Gives its name and its line of conntrack. */
  async function begin(
    who: Talker,
    from: string,
    to: string,
    { on, isTcp = true, port = 82 }: { readonly on: Node; readonly isTcp?: boolean; readonly port?: number },
  ): Promise<readonly [string, string]> {
    const flow = `flow ${++serial}`
    await until(() => who.open(flow, to, isTcp, port).then(() => true), 30_000)
    await untilInFastPath(who, flow, on.ns, from, to)
    const [line = ''] = await inFastPath(on.ns, from, to)
    return [flow, line]
  }

  it('hairpin: a pod reaches itself by its Service', async () => {
    const [flow, line] = await begin(pod('a').talker, ip('a'), VIP.self, { on: node(1) })
    assert.deepEqual(await pod('a').talker.say(flow, 1000, 20), Array(20).fill('1000'))
    assert.match(line, new RegExp(`src=${ip('a')} dst=(?!${ip('a')} )`), 'the answers go by the node')
  })

  it('session affinity: while a flow is in the fast path, all others of its client go to the same endpoint', async () => {
    const [flow] = await begin(pod('a').talker, ip('a'), VIP.sticky, { on: node(1), isTcp: false })
    const [first] = await pod('a').talker.say(flow)
    for (let i = 0; i < 8; i++) {
      await pod('a').talker.open(`other ${i}`, VIP.sticky, false)
      assert.deepEqual(await pod('a').talker.say(`other ${i}`), [first])
    }
  })

  it('to the outside: a pod has the address of its node, in both families', async () => {
    for (const [family, there, own] of [
      [4, UNDERLAY.v4(8), UNDERLAY.v4(1)],
      [6, UNDERLAY.v6(8), UNDERLAY.v6(1)],
    ] as const) {
      const [flow, line] = await begin(pod('a').talker, ip('a', family), there, { on: node(1) })
      assert.match(line, new RegExp(`src=${there} dst=${own} `))
      assert.deepEqual(await pod('a').talker.say(flow, 1000, 20), Array(20).fill('1000'))
    }
  })

  it('a NodePort with externalTrafficPolicy Cluster: an endpoint of another node answers, and sees the node', async () => {
    const to = UNDERLAY.v4(1)
    const [flow, line] = await begin(client, UNDERLAY.v4(8), to, { on: node(1), isTcp: false, port: CLUSTER })
    assert.deepEqual(await client.say(flow, 100, 20), Array(20).fill('c 100'))
    assert.match(line, new RegExp(`src=${ip('c')} dst=(?!${UNDERLAY.v4(8)} )`))
  })

  it('a NodePort with externalTrafficPolicy Local: an endpoint of the node answers, and sees the client', async () => {
    const to = UNDERLAY.v4(1)
    await node(1).ns.exec(['conntrack', '-D', '-s', UNDERLAY.v4(8)])
    const [flow, line] = await begin(client, UNDERLAY.v4(8), to, { on: node(1), isTcp: false, port: LOCAL })
    assert.deepEqual(await client.say(flow, 100, 20), Array(20).fill('a 100'))
    assert.match(line, new RegExp(`src=${ip('a')} dst=${UNDERLAY.v4(8)} `))
  })

  it('a host port: its pod answers, and sees the client', async () => {
    await node(1).ns.exec(['conntrack', '-D', '-s', UNDERLAY.v4(8)])
    const [flow, line] = await begin(client, UNDERLAY.v4(8), UNDERLAY.v4(1), { on: node(1), port: HOST })
    assert.deepEqual(await client.say(flow, 1000, 20), Array(20).fill('1000'))
    assert.match(line, new RegExp(`src=${ip('a')} dst=${UNDERLAY.v4(8)} `))
  })

  it('a UDP Service whose endpoint goes: the client goes on to another one', async () => {
    const [flow] = await begin(pod('a').talker, ip('a'), VIP.moving, { on: node(1), isTcp: false })
    assert.deepEqual(await pod('a').talker.say(flow), ['c 10'])
    moveTo('i')
    await until(async () => (await pod('a').talker.say(flow))[0] === 'i 10', 30_000)
    assert.deepEqual(await pod('a').talker.say(flow, 10, 20), Array(20).fill('i 10'))
    await untilInFastPath(pod('a').talker, flow, node(1).ns, ip('a'), VIP.moving)
  })

  it('ingressRate: what a pod receives by the fast path has its limit', async () => {
    const [flow] = await begin(pod('a').talker, ip('a'), ip('i'), { on: node(2) })
    const before = await bytesOf(node(2))
    const [bytes, began] = [600_000, performance.now()]
    assert.deepEqual(await pod('a').talker.say(flow, bytes), [`${bytes}`])
    const seconds = (performance.now() - began) / 1000
    assert.equal((await inFastPath(node(2).ns, ip('a'), ip('i'))).length, 1)
    assert.ok((await bytesOf(node(2))) - before >= bytes)
    assert.ok(seconds >= (8 * bytes - 400_000) / RATE, `${seconds} s`)
  })

  it('egressRate: what a pod sends has its limit, for the pod stays on the way by the rules', async () => {
    const flow = `flow ${++serial}`
    await pod('e').talker.open(flow, ip('c'), true)
    assert.deepEqual(await pod('e').talker.say(flow, 10, 20), Array(20).fill('10'))
    const before = await bytesOf(node(1))
    const [bytes, began] = [600_000, performance.now()]
    assert.deepEqual(await pod('e').talker.say(flow, bytes), [`${bytes}`])
    const seconds = (performance.now() - began) / 1000
    assert.deepEqual(await inFastPath(node(1).ns, ip('e'), ip('c')), [])
    assert.ok((await bytesOf(node(1))) - before >= bytes)
    assert.ok(seconds >= (8 * bytes - 400_000) / RATE, `${seconds} s`)
  })
})

function service(name: string, spec: object, endpoints: readonly object[]): object[] {
  const ports = ['TCP', 'UDP'].map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 82 }))
  return [
    { kind: 'Service', metadata: { namespace: 'x', name }, spec: { ports, ...spec } },
    {
      kind: 'EndpointSlice',
      metadata: { namespace: 'x', name, labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      ports,
      endpoints,
    },
  ]
}

/** What the limits of a node have let pass, in bytes. */
async function bytesOf({ ns }: Node): Promise<number> {
  const found = await tc(ns, 'qdisc show')
  return found.filter(({ kind }) => kind === 'tbf').reduce((sum, { bytes }) => sum + bytes, 0)
}
