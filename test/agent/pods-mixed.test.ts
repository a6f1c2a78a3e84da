// lane: netns
// Tests agent/doctor/pod-proxies.ts: a node whose setting `pods` changes while its pods live.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type AttachedPod,
  attach,
  everythingOn,
  manifest,
  onlyFrom,
  podManifest,
  serviceOf,
} from '../support/fast-path.ts'
import { ping, until } from '../support/harness.ts'
import { type Agent, inCluster, type Node, UNDERLAY } from '../support/nodes.ts'
import { answers, reach, serve } from '../support/servers.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'host-gw' } }
/** Pods answer on this port with their name and the client's address. */
const PORT = 83
const VIPS = ['10.96.0.10', '10.96.0.11'] as const

/** What the next agent makes of pods. */
let pods: 'bridge' | 'routed' = 'bridge'

describe('plumb agent --pods=routed on a node with pods of a bridge, and back', () => {
  it(
    'pods of both kinds reach each other, other nodes, Services and host ports in both families; policy decides; DEL and cleanup leave nothing',
    inCluster(
      6,
      (cluster) => everythingOn(cluster, CONF, pods),
      async ({ nodes, dir }, test) => {
        test.timeout(240_000)
        const [one, two, a, b, c, d] = nodes as [Node, Node, Node, Node, Node, Node]
        manifest(
          dir,
          'pods.yaml',
          { kind: 'Namespace', metadata: { name: 'x' } },
          ...manifests([one, two], [a, b, c, d]),
        )
        let agent = one.agent()
        for (const started of [agent, two.agent()]) await started.ready(60_000)
        for (const node of [one, two]) await until(() => existsSync(networkOf(node)), 20_000)
        const ofA = await attached(one, a, 8081)
        const ofC = await attached(two, c)
        assert.match(ofA.kind, /bridge/)

        // New pods are routed. The old one keeps its port.
        agent = await restarted(one, agent, 'routed')
        const ofB = await attached(one, b, 8082)
        assert.match(ofB.kind, /ptp/)
        await reachEachOther(ofA, ofB)
        await reachEachOther(ofA, ofC)
        await reachEachOther(ofB, ofC)
        for (const [i, pod] of [ofA, ofB].entries()) {
          manifest(
            dir,
            `service${i}.yaml`,
            ...named(`s${i}`, serviceOf(VIPS[i] as string, PORT, pod.ips[0] as string, one.name)),
          )
          assert.ok(await ping(one.ns, pod.ips[0] as string), 'the node reaches its pods')
        }
        for (const from of [ofA, ofB, ofC])
          for (const [i, to] of [ofA, ofB].entries()) {
            assert.match(
              await reach(from.ns, VIPS[i] as string, PORT),
              new RegExp(`^${to.name} `),
              `${from.name} by Service`,
            )
            for (const address of [UNDERLAY.v4(1), UNDERLAY.v6(1)])
              assert.match(
                await reach(from.ns, address, 8081 + i),
                new RegExp(`^${to.name} `),
                `${from.name} by ${address}`,
              )
          }

        // Policy between the kinds, each way.
        for (const [from, to] of [
          [ofA, ofB],
          [ofB, ofA],
        ] as const) {
          manifest(dir, 'policy.yaml', onlyFrom(to.name, ofC.name))
          for (const ip of to.ips) {
            await until(async () => !(await answers(from.ns, ip, PORT)), 20_000)
            await until(() => answers(ofC.ns, ip, PORT), 20_000)
          }
          manifest(dir, 'policy.yaml', { kind: 'Namespace', metadata: { name: 'y' } })
          for (const ip of to.ips) await until(() => answers(from.ns, ip, PORT), 20_000)
        }

        // A new agent and a bridge that was down find everything as it was.
        agent = await restarted(one, agent, 'routed')
        await one.ns.ip('link', 'del', 'cni0')
        await until(async () => (await reached(ofA, ofB)) && (await reached(ofB, ofA)), 30_000)

        // Back to the bridge, with a routed pod that lives.
        agent = await restarted(one, agent, 'bridge')
        const ofD = await attached(one, d)
        assert.match(ofD.kind, /bridge/)
        await reachEachOther(ofB, ofD)
        await reachEachOther(ofA, ofD)

        for (const pod of [ofA, ofB, ofC, ofD]) assert.equal((await pod.del()).status, 0)
        await until(async () => (await proxies(one)) === '', 20_000)
        for (const node of [one, two]) {
          const links = (await node.ns.json('link', 'show', 'type', 'veth')).map(({ ifname }) => ifname)
          assert.deepEqual(links, ['eth0'])
          assert.deepEqual(leases(node), [])
        }
        await agent.stop()
        await one.ns.ip('neigh', 'add', 'proxy', ofB.ips[0] as string, 'dev', 'eth0', 'protocol', '112')
        assert.equal((await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])).status, 0)
        assert.equal(await proxies(one), '')
      },
    ),
  )
})

/** A pod with a server, and the network of its node at the time of its ADD. */
type Attached = AttachedPod & { readonly kind: string }

async function attached(node: Node, pod: Node, hostPort?: number): Promise<Attached> {
  const kind = isRouted(node) ? 'ptp' : 'bridge'
  const portMappings = hostPort === undefined ? [] : [{ hostPort, containerPort: PORT, protocol: 'tcp' }]
  const found = await attach(node, pod, { portMappings })
  await serve(pod.ns, pod.name, `tcp ${PORT}`)
  return { ...found, kind }
}

function networkOf({ dir }: Node): string {
  return join(dir, 'net.d/10-flannel.conflist')
}

function isRouted(node: Node): boolean {
  return readFileSync(networkOf(node), 'utf8').includes('"ptp"')
}

// The network is written when the agent can serve pods.
async function restarted(node: Node, before: Agent, wanted: typeof pods): Promise<Agent> {
  await before.stop()
  pods = wanted
  const agent = node.agent()
  await agent.ready(60_000)
  await until(() => isRouted(node) === (wanted === 'routed'), 20_000)
  return agent
}

async function reachEachOther(a: Attached, b: Attached): Promise<void> {
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const)
    for (const [i, ip] of to.ips.entries())
      assert.equal(await reach(from.ns, ip, PORT), `${to.name} ${from.ips[i]}`, `${from.name} to ${ip}`)
}

async function reached(from: Attached, to: Attached): Promise<boolean> {
  return (await Promise.all(to.ips.map((ip) => answers(from.ns, ip, PORT)))).every(Boolean)
}

function manifests([one, two]: readonly [Node, Node], [a, b, c, d]: readonly [Node, Node, Node, Node]): object[] {
  return [...[a, b, d].map(({ name }) => podManifest(name, one.name)), podManifest(c.name, two.name)]
}

/** The objects of a Service, under another name. */
function named(name: string, objects: readonly object[]): object[] {
  const [service, slice] = objects as readonly [Manifest, Manifest]
  const labels = { 'kubernetes.io/service-name': name }
  return [
    { ...service, metadata: { ...service.metadata, name } },
    { ...slice, metadata: { ...slice.metadata, name, labels } },
  ]
}
interface Manifest {
  readonly metadata: object
}

async function proxies({ ns }: Node): Promise<string> {
  const all = await Promise.all(['-4', '-6'].map((family) => ns.exec(['ip', family, 'neigh', 'show', 'proxy'])))
  return all.map(({ stdout }) => stdout).join('')
}

function leases({ dir }: Node): string[] {
  const path = join(dir, 'networks')
  const all = existsSync(path) ? readdirSync(path, { recursive: true }).map(String) : []
  return all.filter((one) => /(^|\/)(\d+\.|[\da-f]+:)/.test(one))
}
