// lane: long
// Tests agent/parts/data-path.ts, agent/doctor and agent/backend/probes.ts: what stops the packets of pods is repaired,
// or named.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const LATE = 20_000
const READY = '200 ready\n'

interface Fixture {
  readonly one: Node
  readonly two: Node
  readonly hub: Namespace
  readonly agent: Agent
  /** A pod of node one, and its addresses. */
  readonly pod: Namespace
  readonly ips: readonly string[]
  readonly link: string
}

/** Two nodes with agents, and a pod on the first. */
function withFixture(
  work: (fixture: Fixture) => Promise<void>,
  ...more: readonly string[]
): (this: Mocha.Context) => Promise<void> {
  const options = (cluster: Cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=2', ...more]
  return inCluster(3, options, async ({ nodes, hub }, test) => {
    test.timeout(180_000)
    const [one, two, { ns: pod }] = nodes as [Node, Node, Node]
    const [agent, other] = [one.agent(), two.agent()]
    await Promise.all([agent.ready(30_000), other.ready(30_000)])
    await pod.exec(['ip', 'link', 'del', 'eth0'])
    const added = await call('ADD', one, pod)
    assert.equal(added.status, 0, added.stdout)
    const ips = added.result['ips'].map(({ address }: Row) => address.split('/')[0])
    const link = added.result['interfaces'][1].name
    await until(async () => (await agent.status())?.peers[0]?.probe?.state === 'answers', LATE)
    await until(async () => (await agent.readyz()) === READY, LATE)
    try {
      await work({ one, two, hub, agent, pod, ips, link })
    } finally {
      await call('DEL', one, pod)
    }
  })
}

function call(command: string, node: Node, pod: Namespace) {
  const env = subnetEnv(node) as Record<string, string>
  const subnet = (key: string) => env[key]?.replace(/1\/(\d+)$/, '0/$1').replace('::0/', '::/')
  const ranges = ['FLANNEL_SUBNET', 'FLANNEL_IPV6_SUBNET'].map((key) => [{ subnet: subnet(key) }])
  const conf = {
    cniVersion: '1.1.0',
    name: 'path',
    type: 'bridge',
    bridge: 'cni0',
    isDefaultGateway: true,
    hairpinMode: true,
    ipam: { type: 'host-local', dataDir: join(node.dir, 'networks'), ranges },
  }
  return plugin(
    'bridge',
    { command, conf, containerId: `path-${node.ns.path.replace(/.*\//, '')}`, netns: pod, ifname: 'eth0' },
    node.ns,
  )
}

const sysctl = async ({ ns }: Node, name: string) => (await ns.exec(['sysctl', '-n', name])).stdout.trim()
const repairs = async (agent: Agent) => JSON.stringify((await agent.status())?.repairs ?? [])
const talks = ({ one, ips }: Fixture) =>
  until(async () => (await Promise.all(ips.map((ip) => ping(one.ns, ip)))).every(Boolean), LATE)

/** What readyz says while something is wrong, and that plumb status says it, too, with this exit status. */
async function named({ one, agent }: Fixture, text: RegExp, status: 1 | 3): Promise<void> {
  await until(async () => text.test(await agent.readyz()), LATE).catch(async () =>
    assert.match(await agent.readyz(), text),
  )
  const said = await one.ns.exec([PLUMB, 'status', '--socket', join(one.dir, 'agent.sock')])
  assert.equal(said.status, status, said.stdout)
  assert.match(said.stdout, new RegExp(text.source.replace(/^\^\d+ (degraded: )?/, '')))
}

const well = (agent: Agent) =>
  until(async () => (await agent.readyz()) === READY, LATE).catch(async () => assert.equal(await agent.readyz(), READY))

describe('the way of pods through a node', () => {
  it(
    'forwarding that another program switches off is switched on again, in both families, and counts as a repair',
    withFixture(async (fixture) => {
      const { one, agent } = fixture
      for (const name of ['net.ipv4.ip_forward', 'net.ipv6.conf.all.forwarding']) {
        await one.ns.exec(['sysctl', '-qw', `${name}=0`])
        await until(async () => (await sysctl(one, name)) === '1', LATE)
        await until(async () => (await repairs(agent)).includes(name), LATE)
      }
      await well(agent)
    }),
  )

  it(
    'a table of another program that drops what pods forward is named with its chain, until it is gone',
    withFixture(async (fixture) => {
      const { one, agent } = fixture
      const nft = async (text: string) =>
        assert.equal((await one.ns.exec(['nft', '-f', '-'], { stdin: text })).status, 0)
      await nft(
        'table inet other {\n chain first { type filter hook forward priority 5; policy drop; ct state established,related accept\n iifname "docker0" accept\n }\n}\n',
      )
      await named(
        fixture,
        /^503 The chain inet other first, whose policy is drop, of another program drops packets from 10\.244\.\d+\.0\/24 to 10\.244\.0\.0\/16: pods do not reach pods of other nodes; run nft insert rule inet other first ip saddr 10\.244\./,
        1,
      )
      // A rule that lets them pass makes it well.
      await nft(
        'add rule inet other first ip saddr 10.244.0.0/16 accept\nadd rule inet other first ip6 saddr fd00:244::/48 accept\n',
      )
      await well(agent)
      await nft(
        'add chain inet other second\nadd rule inet other second counter drop\nflush chain inet other first\nadd rule inet other first jump second\n',
      )
      await named(fixture, /^503 The chain inet other first[ ,]/, 1)
      await nft('delete table inet other\n')
      await well(agent)
      // What only some packets meet is no reason.
      await nft(
        'table ip other {\n chain first { type filter hook forward priority 5; policy accept; tcp dport 25 drop\n ip saddr 192.0.2.0/24 drop\n iifname "docker0" drop\n }\n}\n',
      )
      await Bun.sleep(3000)
      assert.equal(await agent.readyz(), READY)
      // Docker's policy: the agent lets pods pass.
      await one.ns.exec(['iptables', '-P', 'FORWARD', 'DROP'])
      await until(async () => (await one.ns.exec(['iptables', '-S', 'FORWARD'])).stdout.includes('-j PLUMB-F'), LATE)
      await well(agent)
    }),
  )

  it(
    'a policy of FORWARD that drops is named when the agent may not let pods pass',
    withFixture(async (fixture) => {
      await fixture.one.ns.exec(['iptables', '-P', 'FORWARD', 'DROP'])
      await named(
        fixture,
        /^503 The chain ip filter FORWARD, whose policy is drop, of another program drops packets/,
        1,
      )
      await fixture.one.ns.exec(['iptables', '-P', 'FORWARD', 'ACCEPT'])
      await well(fixture.agent)
    }, '--iptables-forward-rules=false'),
  )

  it(
    'a hole in the MTU between nodes is found by packets of full size, and named at the peer',
    withFixture(async (fixture) => {
      const { one, hub, agent } = fixture
      await hub.ip('link', 'set', 'port2', 'mtu', '1400')
      await named(
        fixture,
        /^200 degraded: packets of full size \(1430 bytes\) do not reach 1 peer, small ones do: .*n2.*; a link between the nodes has a smaller MTU/,
        3,
      )
      assert.match(
        (await one.ns.exec([PLUMB, 'leases', '--socket', join(one.dir, 'agent.sock')])).stdout,
        /^n2 .* answers, but packets of full size do not reach it$/m,
      )
      await hub.ip('link', 'set', 'port2', 'mtu', '1500')
      await well(agent)
    }),
  )

  it(
    'the bridge of pods comes back when it is down, without an address or deleted, with its MAC, its addresses and its ports',
    withFixture(async (fixture) => {
      const { one, agent, link } = fixture
      const bridge = async () => (await one.ns.json('addr', 'show', 'dev', 'cni0'))[0] as Row
      const facts = ({ address, ifalias, addr_info }: Row) => [
        address,
        ifalias,
        addr_info
          .filter(({ scope }: Row) => scope === 'global')
          .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`),
      ]
      await talks(fixture)
      const before = facts(await bridge())
      await one.ns.ip('link', 'set', 'cni0', 'down')
      await talks(fixture)
      for (const ip of before[2] as string[]) {
        await one.ns.ip('addr', 'del', ip, 'dev', 'cni0')
        await talks(fixture)
      }
      await one.ns.ip('link', 'del', 'cni0')
      await talks(fixture)
      assert.deepEqual(facts(await bridge()), before)
      const [port] = await one.ns.json('link', 'show', 'dev', link)
      assert.deepEqual([port?.['master'], port?.['linkinfo'].info_slave_data.hairpin], ['cni0', true])
      for (const what of ['bridge cni0 up', 'address ', 'bridge cni0'])
        assert.ok((await repairs(agent)).includes(what), what)
      await well(agent)
    }),
  )

  it(
    'the bridge that was deleted while the agent did not run comes back with its ports when the agent starts',
    withFixture(async (fixture) => {
      const { one, agent, link } = fixture
      await talks(fixture)
      await agent.stop()
      await one.ns.ip('link', 'del', 'cni0')
      const later = one.agent()
      await later.ready(30_000)
      await talks(fixture)
      const [port] = await one.ns.json('link', 'show', 'dev', link)
      assert.deepEqual([port?.['master'], port?.['linkinfo'].info_slave_data.hairpin], ['cni0', true])
      await well(later)
    }),
  )

  it(
    'a pod’s link comes back when it is down or out of the bridge; one that is gone is named with its container, until DEL',
    withFixture(async (fixture) => {
      const { one, pod, agent, link } = fixture
      await talks(fixture)
      await one.ns.ip('link', 'set', link, 'down')
      await talks(fixture)
      await one.ns.ip('link', 'set', link, 'nomaster')
      await talks(fixture)
      await well(agent)
      await one.ns.ip('link', 'del', link)
      await named(
        fixture,
        /^200 degraded: The link veth\w+ of container path-\S+ is gone, and its pod has no network: delete the pod/,
        3,
      )
      await call('DEL', one, pod)
      await well(agent)
    }),
  )

  it(
    'a default route that is lost is named until it is back',
    withFixture(async (fixture) => {
      const { one, agent } = fixture
      const route = (await one.ns.ip('route', 'show', 'default')).trim()
      const six = (await one.ns.ip('-6', 'route', 'show', 'default')).trim()
      await one.ns.ip('route', 'del', 'default')
      if (six !== '') await one.ns.ip('-6', 'route', 'del', 'default')
      await named(
        fixture,
        /^200 degraded: This node has lost its default route: its pods reach nobody outside the network; run ip route add default via GATEWAY/,
        3,
      )
      await one.ns.ip('route', 'add', ...route.split(' '))
      await well(agent)
    }),
  )
})
