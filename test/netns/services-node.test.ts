// Tests agent/services and agent/parts/services.ts: what the agent takes from kube-proxy besides Services, with real
// packets.
import assert from 'node:assert/strict'
import { until } from '../support/harness.ts'
import { UNDERLAY } from '../support/nodes.ts'
import { type Fixture, withFixture } from '../support/services-fixture.ts'

const [NODE, SECOND, CLIENT] = [UNDERLAY.v4(1), '172.30.1.1', UNDERLAY.v4(3)]
const [VIP, UNALLOCATED, UNALLOCATED6] = ['10.96.0.10', '10.96.0.200', 'fd00:96::200']
const PORT = 30_080
const nodePort = (spec: object = {}) => ({
  clusterIP: VIP,
  type: 'NodePort',
  ports: [{ port: 80, nodePort: PORT }],
  ...spec,
})

function networks(fixture: Fixture, ...cidrs: readonly string[]): void {
  fixture.object({ kind: 'ServiceCIDR', metadata: { name: 'kubernetes' }, spec: { cidrs } })
}

describe('Services: what kube-proxy does besides', () => {
  it(
    'a packet to a ClusterIP of no Service is dropped on the node, from pods and from the node, as long as a ServiceCIDR has the address',
    withFixture(async (fixture) => {
      const { n1, client } = fixture
      // Where the default route leads, somebody refuses it.
      await client.ip('addr', 'add', `${UNALLOCATED}/32`, 'dev', 'lo')
      await client.ip('addr', 'add', `${UNALLOCATED6}/128`, 'dev', 'lo', 'nodad')
      await n1.ns.ip('route', 'replace', 'default', 'via', CLIENT)
      await n1.ns.ip('-6', 'route', 'replace', 'default', 'via', UNDERLAY.v6(3))
      const ask = async (who: 'p' | 'n1', ip: string = UNALLOCATED) =>
        (await fixture.tcp(who, ip, 80, { ms: 1000 }))[0]?.split(' ')[0]
      fixture.service('other', { clusterIP: VIP })
      fixture.slice('other', ['a'])
      await fixture.sync()
      for (const ip of [UNALLOCATED, UNALLOCATED6]) assert.equal(await ask('p', ip), 'ECONNREFUSED', ip)
      networks(fixture, '10.96.0.0/16', 'fd00:96::/112')
      await fixture.sync()
      for (const who of ['p', 'n1'] as const)
        for (const ip of [UNALLOCATED, UNALLOCATED6]) assert.equal(await ask(who, ip), 'timeout', `${who} ${ip}`)
      // What Services have in that network is as before: served, or refused at once.
      assert.equal(await ask('p', VIP), 'a')
      assert.deepEqual(await fixture.tcp('p', VIP, 81), ['ECONNREFUSED'])
      fixture.service('s', { clusterIP: UNALLOCATED })
      await fixture.sync()
      assert.equal(await ask('p'), 'ECONNREFUSED')
      fixture.slice('s', ['b'])
      await fixture.sync()
      assert.equal(await ask('p'), 'b')
      fixture.remove('Service', 's')
      networks(fixture, '10.97.0.0/16')
      await fixture.sync()
      assert.equal(await ask('p'), 'ECONNREFUSED')
      // A network with pods in it is refused, and pods are reached.
      networks(fixture, '10.0.0.0/8')
      await fixture.sync()
      assert.equal((await fixture.tcp('p', fixture.ip('c'), 8080))[0]?.split(' ')[0], 'c')
      const said = async () => JSON.stringify(await fixture.agents[0]?.status())
      await until(async () => /ClusterIPs 10\.0\.0\.0\/8 overlaps the network of pods/.test(await said()), 10_000)
    }),
  )

  it(
    '--service-cidr names networks of ClusterIPs without ServiceCIDR objects',
    withFixture(async (fixture) => {
      await fixture.client.ip('addr', 'add', `${UNALLOCATED}/32`, 'dev', 'lo')
      await fixture.n1.ns.ip('route', 'replace', 'default', 'via', CLIENT)
      await fixture.sync()
      assert.deepEqual(await fixture.tcp('p', UNALLOCATED, 80, { ms: 1000 }), ['timeout'])
    }, '--service-cidr=10.96.0.0/16'),
  )

  it(
    '--node-port-addresses=primary: NodePorts at the first address of the Node, and when that changes, at the new one',
    withFixture(async (fixture) => {
      const { n1 } = fixture
      await n1.ns.ip('addr', 'add', `${SECOND}/32`, 'dev', 'eth0')
      fixture.service('s', nodePort())
      fixture.slice('s', ['a'])
      const node = (...addresses: readonly (readonly [string, string])[]) =>
        fixture.object({
          kind: 'Node',
          metadata: { name: n1.name },
          status: { addresses: addresses.map(([type, address]) => ({ type, address })) },
        })
      const answers = async (...to: readonly string[]) =>
        Promise.all(to.map(async (ip) => (await fixture.tcp('client', ip, PORT))[0]?.split(' ')[0]))
      // Without a Node: the address of the link to the other nodes.
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['a', 'ECONNREFUSED'])
      assert.deepEqual(await fixture.tcp('n1', '127.0.0.1', PORT), ['ECONNREFUSED'])
      node(['ExternalIP', NODE], ['InternalIP', SECOND])
      await fixture.sync()
      await until(async () => (await answers(NODE, SECOND)).join() === 'ECONNREFUSED,a', 10_000)
      node(['InternalIP', NODE], ['InternalIP', SECOND])
      await fixture.sync()
      await until(async () => (await answers(NODE, SECOND)).join() === 'a,ECONNREFUSED', 10_000)
      // Also without endpoints, and after a restart.
      fixture.slice('s', [])
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['ECONNREFUSED', 'ECONNREFUSED'])
      await fixture.agents[0]?.stop('SIGKILL')
      await n1.agent().ready(30_000)
      fixture.slice('s', ['a'])
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['a', 'ECONNREFUSED'])
    }, '--node-port-addresses=primary'),
  )

  for (const [what, options, wanted] of [
    ['as kube-proxy sets them', [], ['86400', '3600', '30', '120', '0']],
    [
      'by the settings',
      [
        '--conntrack-tcp-timeout-established=0s',
        '--conntrack-tcp-timeout-close-wait=90s',
        '--conntrack-udp-timeout=10s',
        '--conntrack-udp-timeout-stream=20s',
        '--conntrack-tcp-be-liberal',
      ],
      ['432000', '90', '10', '20', '1'],
    ],
    ['left alone beside kube-proxy', ['--service-proxy-force'], ['432000', '60', '30', '120', '0']],
  ] as const)
    it(
      `the times of connections are ${what}`,
      withFixture(
        async (fixture) => {
          await fixture.sync()
          const names = ['tcp_timeout_established', 'tcp_timeout_close_wait', 'udp_timeout', 'udp_timeout_stream']
          const files = [...names, 'tcp_be_liberal'].map((name) => `/proc/sys/net/netfilter/nf_conntrack_${name}`)
          const { stdout } = await fixture.n1.ns.exec(['cat', ...files])
          assert.deepEqual(stdout.trim().split('\n'), wanted)
          // The number belongs to the machine, and is neither set from here nor a failure.
          const status = JSON.stringify(await fixture.agents[0]?.status())
          assert.doesNotMatch(status, /Cannot set net\.netfilter/)
        },
        ...options,
      ),
    )

  it(
    'a node whose agent finds tables of Services or of policy without the setting is not ready, and says how to go on',
    withFixture(async (fixture) => {
      const { n1 } = fixture
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      await fixture.agents[0]?.stop()
      const without = n1.agent('--service-proxy=')
      const said = async (agent = without) => JSON.stringify((await agent.status())?.reasons)
      const wanted =
        /plumb_services is of an agent with --service-proxy, .*; want --service-proxy, or: nft delete table inet plumb_services/
      await until(async () => wanted.test(await said()), 20_000)
      assert.equal((await without.status())?.ready, false)
      // Services are served as they were.
      assert.equal((await fixture.tcp('p', VIP, 80))[0]?.split(' ')[0], 'a')
      // What the sentence says ends it.
      assert.equal((await n1.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_services'])).status, 0)
      await without.ready(30_000)
      await without.stop()
      // The same for policy, and for Services when kube-proxy comes: its rules serve, and plumb's go.
      await n1.ns.exec(['nft', 'add', 'table', 'inet', 'plumb_policy'])
      const again = n1.agent()
      const isPolicy = async () => /plumb_policy is of an agent with --network-policy/.test(await said(again))
      await until(isPolicy, 20_000)
      assert.equal((await n1.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_policy'])).status, 0)
      await again.ready(30_000)
      await again.stop()
      assert.match((await n1.ns.exec(['nft', 'list', 'tables'])).stdout, /plumb_services/)
      const last = n1.agent('--service-proxy=')
      await until(async () => wanted.test(await said(last)), 20_000)
      assert.equal((await n1.ns.exec(['nft', 'add', 'table', 'ip', 'kube-proxy'])).status, 0)
      await last.ready(30_000)
      assert.doesNotMatch((await n1.ns.exec(['nft', 'list', 'tables'])).stdout, /plumb_services/)
    }),
  )
})
