// lane: netns
// Tests plumb agent --install-cni --pods=routed: routed pods of a node with network policy, Services and host ports.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Answer, isSilent, ping, plugin, until } from '../support/harness.ts'
import { type Port, works } from '../support/host-ports.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../support/nodes.ts'
import { answers, reach, serve } from '../support/servers.ts'

const CONF = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'host-gw' } }
const VIPS = ['10.96.0.10', 'fd00:96::10'] as const
const ONLY_B = {
  kind: 'NetworkPolicy',
  metadata: { namespace: 'x', name: 'only-b' },
  spec: {
    podSelector: { matchLabels: { app: 'a' } },
    ingress: [{ from: [{ podSelector: { matchLabels: { app: 'b' } } }] }],
  },
}

describe('plumb agent --install-cni --pods=routed', () => {
  it(
    'pods reach each other, the node, other nodes and the outside; a pod reaches itself by Service and host port; policy decides; what goes down comes back; DEL leaves nothing',
    inCluster(
      6,
      (cluster) => [
        ...fileStore(cluster, CONF),
        '--install-cni',
        '--pods=routed',
        '--status-address=off',
        '--service-health-address=off',
        `--service-proxy=${join(cluster.dir, 'manifests')}`,
        `--network-policy=${join(cluster.dir, 'manifests')}`,
      ],
      async ({ nodes, dir }, test) => {
        test.timeout(180_000)
        const [one, two, a, b, c, outside] = nodes as [Node, Node, Node, Node, Node, Node]
        mkdirSync(join(dir, 'manifests'))
        const write = (file: string, ...objects: object[]) =>
          writeFileSync(join(dir, 'manifests', file), objects.map((object) => JSON.stringify(object)).join('\n---\n'))
        write('pods.yaml', ...[a, b].map(({ name }) => podObject(name, one.name)), podObject(c.name, two.name))
        const agents = [one, two].map((node) => node.agent())
        for (const agent of agents) await agent.ready(30_000)
        const path = join(one.dir, 'net.d/10-flannel.conflist')
        await until(() => JSON.parse(readFileSync(path, 'utf8')))
        assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')).plugins[0].delegate, {
          type: 'ptp',
          routed: true,
          portMappings: true,
          policy: { socket: join(one.dir, 'policy.sock') },
        })
        for (const pod of [a, b, c]) await pod.ns.ip('link', 'del', 'eth0')
        const port: Port = { hostPort: 8080, containerPort: 80, protocol: 'tcp' }
        const added = {
          a: works(await call('ADD', one, a, [port])).result,
          b: works(await call('ADD', one, b)).result,
          c: works(await call('ADD', two, c)).result,
        }
        const [ofA, ofB, ofC] = [added.a, added.b, added.c].map((result) =>
          result['ips'].map(({ address }: { address: string }) => address.split('/')[0] as string),
        ) as [string[], string[], string[]]
        for (const pod of [a, b, c]) await serve(pod.ns, pod.name, 'tcp 80')
        write(
          'service.yaml',
          {
            kind: 'Service',
            metadata: { namespace: 'x', name: 's' },
            spec: { clusterIPs: VIPS, ports: [{ port: 80 }] },
          },
          ...[4, 6].map((family, i) => ({
            kind: 'EndpointSlice',
            metadata: { namespace: 'x', name: `s${family}`, labels: { 'kubernetes.io/service-name': 's' } },
            addressType: `IPv${family}`,
            ports: [{ name: '', port: 80 }],
            endpoints: [{ addresses: [ofA[i]], nodeName: one.name, conditions: { ready: true } }],
          })),
        )
        // Pods of one node and of two keep their address.
        for (const i of [0, 1]) {
          assert.equal(await reach(b.ns, ofA[i] as string, 80), `${a.name} ${ofB[i]}`)
          assert.equal(await reach(c.ns, ofA[i] as string, 80), `${a.name} ${ofC[i]}`)
          assert.equal(await reach(a.ns, ofC[i] as string, 80), `${c.name} ${ofA[i]}`)
        }
        // From the node: its own address, and not the gateway.
        assert.equal(await reach(one.ns, ofA[0] as string, 80), `${a.name} ${UNDERLAY.v4(1)}`)
        assert.equal(await reach(one.ns, ofA[1] as string, 80), `${a.name} ${UNDERLAY.v6(1)}`)
        // The outside sees the node (--ip-masq).
        await serve(outside.ns, 'outside', 'tcp 81')
        assert.equal(await reach(a.ns, UNDERLAY.v4(6), 81), `outside ${UNDERLAY.v4(1)}`)
        assert.equal(await reach(a.ns, UNDERLAY.v6(6), 81), `outside ${UNDERLAY.v6(1)}`)
        // The Service: from another pod, another node's pod, the node, and the pod itself.
        for (const [i, vip] of VIPS.entries()) {
          assert.equal(await reach(b.ns, vip, 80), `${a.name} ${ofB[i]}`)
          assert.equal(await reach(c.ns, vip, 80), `${a.name} ${ofC[i]}`)
          assert.match(await reach(one.ns, vip, 80), new RegExp(`^${a.name} `))
          assert.match(await reach(a.ns, vip, 80), new RegExp(`^${a.name} `))
        }
        // The host port: from outside, from another pod, and from the pod itself.
        assert.equal(await reach(outside.ns, UNDERLAY.v4(1), 8080), `${a.name} ${UNDERLAY.v4(6)}`)
        assert.equal(await reach(outside.ns, UNDERLAY.v6(1), 8080), `${a.name} ${UNDERLAY.v6(6)}`)
        for (const from of [a, b, c])
          assert.match(await reach(from.ns, UNDERLAY.v4(1), 8080), new RegExp(`^${a.name} `))

        // What goes down comes back, with its routes and its gateway.
        const link = added.a['interfaces'][0].name
        await one.ns.ip('link', 'set', link, 'down')
        await one.ns.ip('link', 'set', link, 'up')
        await one.ns.ip('addr', 'del', '169.254.1.1/32', 'dev', link)
        for (const i of [0, 1]) assert.equal(await reach(b.ns, ofA[i] as string, 80), `${a.name} ${ofB[i]}`)
        await until(() => ping(a.ns, '169.254.1.1'), 20_000)
        assert.match(agents[0]?.log() ?? '', /repaired .*route to 10\.244\./)

        // Policy, for pods of the same node and of another one.
        write('policy.yaml', ONLY_B)
        for (const i of [0, 1]) {
          await until(async () => !(await answers(c.ns, ofA[i] as string, 80)), 10_000)
          assert.equal(await reach(b.ns, ofA[i] as string, 80), `${a.name} ${ofB[i]}`)
          assert.ok(await ping(one.ns, ofA[i] as string), 'the node reaches its pods, for probes')
        }
        write('policy.yaml', ONLY_B, {
          ...ONLY_B,
          metadata: { namespace: 'x', name: 'none-to-b' },
          spec: { podSelector: { matchLabels: { app: 'b' } }, policyTypes: ['Ingress'] },
        })
        for (const i of [0, 1]) await until(async () => !(await answers(a.ns, ofB[i] as string, 80)), 10_000)
        // A forged address of another pod does not pass.
        await c.ns.ip('addr', 'add', '10.244.77.77/32', 'dev', 'eth0')
        const forged = ['ping', '-n', '-q', '-c', '1', '-w', '1', '-I', '10.244.77.77', UNDERLAY.v4(2)]
        assert.notEqual((await c.ns.exec(forged)).status, 0)
        assert.ok(await ping(c.ns, UNDERLAY.v4(2)))
        // The gateway answers pods alone.
        await outside.ns.ip('route', 'add', '169.254.1.1/32', 'via', UNDERLAY.v4(1))
        assert.ok(await isSilent(outside.ns, '169.254.1.1'))

        for (const [node, pod] of [
          [two, c],
          [one, a],
          [one, b],
        ] as const)
          works(await call('DEL', node, pod, pod === a ? [port] : []))
        assert.equal(await answers(outside.ns, UNDERLAY.v4(1), 8080), false)
        for (const { ns } of [one, two]) {
          const links = (await ns.json('link', 'show', 'type', 'veth')).map(({ ifname }) => ifname)
          assert.deepEqual(links, ['eth0'])
        }
        // The nodes of the test share a journal, so the last DEL alone finds that nobody needs the guard.
        const { stdout } = await one.ns.exec(['nft', 'list', 'table', 'inet', 'plumb'])
        assert.doesNotMatch(stdout, /elements = \{[^}]*comment/)
      },
    ),
  )
})

function podObject(name: string, nodeName: string): object {
  return {
    kind: 'Pod',
    metadata: { namespace: 'x', name, labels: { app: name === 'n3' ? 'a' : name === 'n4' ? 'b' : 'c' } },
    spec: { nodeName, containers: [] },
    status: { phase: 'Pending' },
  }
}

// The first plugin of the network that the agent wrote, as a runtime calls it. The pod is another namespace.
async function call(command: string, node: Node, pod: Node, portMappings: readonly Port[] = []): Promise<Answer> {
  const { name, cniVersion, plugins } = JSON.parse(readFileSync(join(node.dir, 'net.d/10-flannel.conflist'), 'utf8'))
  const bin = join(node.dir, 'bin')
  const conf = {
    ...plugins[0],
    name,
    cniVersion,
    dataDir: join(node.dir, 'flannel'),
    ipam: { dataDir: join(node.dir, 'networks') },
    runtimeConfig: { portMappings },
  }
  return plugin(
    plugins[0].type,
    {
      command,
      conf,
      containerId: pod.name,
      netns: pod.ns,
      path: bin,
      file: join(bin, plugins[0].type),
      args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${pod.name};K8S_POD_INFRA_CONTAINER_ID=${pod.name}`,
    },
    node.ns,
  )
}
