// lane: netns
// Tests cli/trace and cli/trace.ts beside an agent: policies and Services.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { type Live, live, policyOf } from '../../support/policy-live.ts'
import {
  arrives,
  dropped,
  live as following,
  isLostAt,
  isNothingLeft,
  type Said,
  traced,
} from '../../support/traces.ts'

const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.1.0', Backend: { Type: 'vxlan' } }
const NAMES = ['a', 'b', 'c']
const [VIP, EMPTY, SELF] = ['10.96.0.10', '10.96.0.11', '10.96.0.12']
const LATE = 20_000
/** Only c may send to port 80 of b. c may send to nobody but b. */
const POLICIES = [
  policyOf('guard', {
    podSelector: { matchLabels: { app: 'b' } },
    ingress: [{ from: [{ podSelector: { matchLabels: { app: 'c' } } }], ports: [{ port: 80 }] }],
  }),
  policyOf('leash', {
    podSelector: { matchLabels: { app: 'c' } },
    policyTypes: ['Egress'],
    egress: [{ to: [{ podSelector: { matchLabels: { app: 'b' } } }] }],
  }),
]
/** Everybody may send an echo request to b, and all else too. */
const PING = {
  kind: 'ClusterNetworkPolicy',
  metadata: { name: 'ping' },
  spec: {
    tier: 'Admin',
    priority: 1,
    subject: { pods: { namespaceSelector: {}, podSelector: { matchLabels: { app: 'b' } } } },
    ingress: [{ action: 'Accept', from: [{ namespaces: {} }] }],
  },
}

function inNode(work: (fixture: Live, node: Node, trace: (...words: string[]) => Promise<Said>) => Promise<void>) {
  return inCluster(
    1,
    (cluster) => [
      ...fileStore(cluster, CONF),
      `--network-policy=${join(cluster.dir, 'manifests')}`,
      `--service-proxy=${join(cluster.dir, 'manifests')}`,
      '--status-address=off',
    ],
    async ({ nodes: [one], dir }, test) => {
      test.timeout(120_000)
      const node = one as Node
      const fixture = await live(node, join(dir, 'manifests'), NAMES)
      const places = ['--socket', join(node.dir, 'agent.sock'), '--policy-socket', join(node.dir, 'policy.sock')]
      const files = ['--subnet-file', join(node.dir, 'subnet.env')]
      try {
        fixture.write('space.yaml', { kind: 'Namespace', metadata: { name: 'x' } })
        fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
        fixture.write('policies.yaml', ...POLICIES)
        fixture.write(
          'services.yaml',
          ...service(fixture, 'web', VIP, ['b']),
          ...service(fixture, 'empty', EMPTY, []),
          ...service(fixture, 'self', SELF, ['a']),
        )
        await node.agent().ready(60_000)
        await until(async () => (await fixture.passes('c', 'b')) && !(await fixture.passes('a', 'b')), LATE)
        await work(fixture, node, (...words) => traced(node.ns, ...words, ...places, ...files))
        await isNothingLeft(node.ns)
      } finally {
        await fixture.end()
      }
    },
  )
}

function service(fixture: Live, name: string, clusterIP: string, pods: readonly string[]): object[] {
  const metadata = { namespace: 'x', name }
  return [
    {
      kind: 'Service',
      metadata,
      spec: {
        clusterIP,
        clusterIPs: [clusterIP],
        ports: [
          {
            port: 8080,
            targetPort: 80,
            protocol: 'TCP',
            nodePort: 30_070 + Number(clusterIP.slice('10.96.0.'.length)),
          },
        ],
        type: 'NodePort',
      },
    },
    {
      kind: 'EndpointSlice',
      metadata: { namespace: 'x', name: `${name}-1`, labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      ports: [{ name: '', port: 80, protocol: 'TCP' }],
      endpoints: pods.map((pod) => ({ addresses: [fixture.ip(pod)], nodeName: 'n1', conditions: { ready: true } })),
    },
  ]
}

const hop = ({ hops }: Said, name: string) => hops.find((one) => one.hop === name)

describe('plumb trace beside an agent', () => {
  it(
    'a policy denies ingress or egress: the policy by its objects, and the rule of nft',
    inNode(async (fixture, node, trace) => {
      isLostAt(
        await trace('x/a', 'x/b', '80'),
        'policy',
        /^x\/guard isolates x\/b for ingress, and no rule allows it$/,
        /^the chain inet plumb_policy \S+ drops it: /,
      )
      isLostAt(await trace('x/c', 'x/a', '80'), 'policy', /^x\/leash isolates x\/c for egress/, /plumb_policy/)
      const web = await trace('x/c', 'x/b', '80')
      arrives(web)
      assert.match(hop(web, 'policy')?.expected?.says ?? '', /x\/guard ingress\[0\] allows it/)
      const places = ['--socket', join(node.dir, 'agent.sock'), '--policy-socket', join(node.dir, 'policy.sock')]
      const refused = await dropped(node.ns, [...places, '--for', '4'], () => fixture.passes('a', 'b'))
      const [first] = refused.dropped
      assert.deepEqual([first?.hop, first?.source, first?.protocol], ['policy', fixture.ip('a'), 'TCP'])
      assert.equal(first?.reason, 'x/guard isolates x/b for ingress, and no rule allows it')
      // A NetworkPolicy with ports allows no echo request. One without ports, or of a tier, may.
      isLostAt(await trace('x/a', 'x/b'), 'policy', /^x\/guard isolates x\/b for ingress/, /plumb_policy/)
      isLostAt(await trace('x/c', 'x/b'), 'policy', /^x\/guard isolates x\/b for ingress/, /plumb_policy/)
      isLostAt(await trace('x/c', 'x/a'), 'policy', /^x\/leash isolates x\/c for egress/, /plumb_policy/)
      const free = await trace('x/b', 'x/a')
      arrives(free)
      assert.match(hop(free, 'policy')?.expected?.says ?? '', /^no policy selects x\/b for egress/)
      fixture.write('tier.yaml', PING)
      let allowed = await trace('x/a', 'x/b')
      await until(async () => {
        allowed = await trace('x/a', 'x/b')
        return allowed.status === 0
      }, LATE)
      assert.match(
        hop(allowed, 'policy')?.expected?.says ?? '',
        /ClusterNetworkPolicy ping \(Admin\) ingress\[0\] accepts it/,
      )
      fixture.write('tier.yaml')
      await until(async () => (await trace('x/a', 'x/b')).lostAt === 'policy', LATE)
      // A node reaches its own pods.
      arrives(await trace('node', 'x/b', '80'))
      // Frames of the bridge skip the rules [DR2]. The agent sets this again.
      await until(async () => {
        await node.ns.exec(['sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=0'])
        const skipping = await trace('x/a', 'x/b', '80')
        return skipping.differsAt === 'policy' && /seen the frame skips the rules of IP/.test(skipping.conclusion)
      }, LATE)
      await node.ns.exec(['sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=1'])
      // The kernel does not do what the objects want: the first hop where they differ is told.
      await node.ns.exec(['nft', 'flush', 'chain', 'inet', 'plumb_policy', 'forward_in'])
      await until(async () => {
        const wrong = await trace('x/a', 'x/b', '80')
        // The agent repairs the chain. Then the packet is refused again.
        return wrong.status === 3 ? wrong.differsAt === 'policy' : wrong.lostAt === 'policy'
      }, LATE)
    }),
  )
  it(
    'a ClusterIP leads to an endpoint, also from the node and by a NodePort; one without endpoints refuses',
    inNode(async ({ ip }, node, trace) => {
      for (const to of [VIP, 'x/web', 'web.x.svc', 'web.x.svc.cluster.local']) {
        const said = await trace('x/c', to, '8080')
        arrives(said)
        assert.equal(hop(said, 'service')?.expected?.says, `x/web → ${ip('b')}:80`)
        assert.equal(hop(said, 'service')?.seen?.says, `→ ${ip('b')}:80`)
      }
      isLostAt(await trace('x/a', VIP, '8080'), 'policy', /x\/guard/, /plumb_policy/)
      // The same for the packets of a program.
      const places = ['--socket', join(node.dir, 'agent.sock'), '--policy-socket', join(node.dir, 'policy.sock')]
      const client = `require('node:net').connect({ host: '${VIP}', port: 8080 }).on('connect', function () { this.destroy() })`
      const pod = `${node.ns.path}-c`
      const real = await following(node.ns, ['x/c', 'x/web', '8080', ...places], () =>
        node.ns.exec(['nsenter', `--net=${pod}`, '--', process.execPath, '-e', client]),
      )
      arrives(real)
      assert.equal(hop(real, 'service')?.seen?.says, `→ ${ip('b')}:80`)
      arrives(await trace('node', VIP, '8080'))
      arrives(await trace('n1', VIP, '8080'))
      assert.equal((await trace('x/a', 'n1')).hops.find((one) => one.hop === 'route')?.seen?.key, 'local')
      const byPort = await trace('x/c', UNDERLAY.v4(1), '30080')
      assert.equal(hop(byPort, 'service')?.seen?.says, `→ ${ip('b')}:80`, JSON.stringify(byPort))
      // A pod that reaches itself by its Service gets the address of the node as the sender.
      await node.ns.exec(['bridge', 'link', 'set', 'dev', 'va', 'hairpin', 'on'])
      const itself = await trace('x/a', 'x/self', '8080')
      assert.deepEqual([itself.status, hop(itself, 'source')?.seen?.key], [0, 'changed'], JSON.stringify(itself))
      isLostAt(await trace('x/c', EMPTY, '8080'), 'service', /^x\/empty has no endpoint/, /plumb_services/)
    }),
  )
  it(
    'packets to the outside get the address of the node',
    inNode(async (_, node, trace) => {
      await node.ns.exec(['sh', '-c', 'echo 1 >/proc/sys/net/ipv4/ip_forward'])
      const said = await trace('x/a', UNDERLAY.v4(254), '80')
      assert.deepEqual(hop(said, 'source')?.seen, { passes: true, says: UNDERLAY.v4(1), key: 'changed' })
      assert.equal(hop(said, 'source')?.expected?.key, 'changed')
      assert.equal(said.lostAt, 'exit', JSON.stringify(said))
    }),
  )
})
