// lane: netns
// Tests agent/backend/uplink.ts and agent/parts/uplink.ts.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'

const FOUR = { Network: '10.244.0.0/16', Backend: { Type: 'alloc' } }
const SIX = { EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'alloc' } }
const DUAL = { ...FOUR, EnableIPv6: true, IPv6Network: 'fd00:244::/48' }

/**
 * What is asked, of a node with eth0 172.30.0.1 and the default routes, and eth1 172.31.0.1 and 172.31.0.9; what is
 * chosen.
 */
const CHOICES: readonly {
  readonly what: string
  readonly conf: object
  readonly options: readonly string[]
  readonly want: readonly string[]
}[] = [
  { what: 'nothing: the link of the default route', conf: FOUR, options: [], want: ['eth0', '172.30.0.1'] },
  { what: 'nothing, both families', conf: DUAL, options: [], want: ['eth0', '172.30.0.1', 'fd00:30::1'] },
  { what: 'a name', conf: FOUR, options: ['--iface', 'eth7', '--iface', 'eth1'], want: ['eth1', '172.31.0.1'] },
  {
    what: 'an address, the second of its link',
    conf: FOUR,
    options: ['--iface', '172.31.0.9'],
    want: ['eth1', '172.31.0.9'],
  },
  {
    what: 'a pattern of an address, the second of its link',
    conf: FOUR,
    options: ['--iface-regex', '^172.*9$'],
    want: ['eth1', '172.31.0.9'],
  },
  {
    what: 'a pattern of a name, of both families',
    conf: DUAL,
    options: ['--iface-regex', '^eth1$'],
    want: ['eth1', '172.31.0.1', 'fd00:31::5'],
  },
  {
    what: 'what it can reach',
    conf: FOUR,
    options: ['--iface-can-reach', '172.31.0.200'],
    want: ['eth1', '172.31.0.1'],
  },
  {
    what: 'a public address that a link has',
    conf: FOUR,
    options: ['--public-ip', '172.31.0.9'],
    want: ['eth1', '172.31.0.9'],
  },
  {
    what: 'IPv6 alone: not a deprecated address, not a temporary one, not a link-local one',
    conf: SIX,
    options: ['--iface', 'eth1'],
    want: ['eth1', 'fd00:31::5'],
  },
]

describe('plumb agent chooses its uplink', () => {
  for (const { what, conf, options, want } of CHOICES)
    it(
      `by ${what}`,
      inCluster(
        1,
        (cluster) => [...fileStore(cluster, conf), ...options],
        async (cluster) => {
          const [one] = cluster.nodes as [Node]
          await second(cluster)
          const { uplink } = await one.agent().ready(20_000)
          assert.deepEqual([uplink?.name, uplink?.tunnel.v4, uplink?.tunnel.v6].filter(Boolean), want)
          assert.deepEqual(uplink?.advertise, uplink?.tunnel)
        },
      ),
    )

  it(
    'of two default routes the lower metric counts, and the other takes over when that is gone, without a restart, and keeps it until its own is gone, too',
    inCluster(
      1,
      (cluster) => fileStore(cluster, FOUR),
      async (cluster) => {
        const [one] = cluster.nodes as [Node]
        await second(cluster)
        await one.ns.ip('route', 'replace', 'default', 'via', UNDERLAY.v4(254), 'metric', '0')
        await one.ns.ip('route', 'add', 'default', 'via', '172.31.0.254', 'metric', '50')
        const agent = one.agent()
        assert.equal((await agent.ready(20_000)).uplink?.name, 'eth0')
        await one.ns.ip('route', 'del', 'default', 'via', UNDERLAY.v4(254))
        await until(async () => (await agent.status())?.uplink?.name === 'eth1')
        await one.ns.ip('route', 'add', 'default', 'via', UNDERLAY.v4(254), 'metric', '10')
        await until(
          async () => (await agent.status())?.uplink?.why === 'eth1 was chosen before, is up and has its address',
        )
        await one.ns.ip('route', 'del', 'default', 'via', '172.31.0.254')
        await until(async () => (await agent.status())?.uplink?.name === 'eth0')
      },
    ),
  )

  it(
    'no default route: status and /readyz name the fix, and the agent starts when there is one',
    inCluster(
      1,
      (cluster) => fileStore(cluster, FOUR),
      async (cluster) => {
        const [one] = cluster.nodes as [Node]
        await one.ns.ip('route', 'del', 'default')
        const agent = one.agent()
        await until(async () =>
          (await agent.status())?.reasons.some((one) =>
            /there is no IPv4 default route; name the link with --iface \(there are eth0 \(172\.30\.0\.1 /.test(one),
          ),
        )
        const readyz = async () =>
          (
            await one.ns.exec([
              process.execPath,
              '-e',
              "const answer = await fetch('http://127.0.0.1:9469/readyz'); process.stdout.write(answer.status + ' ' + (await answer.text()))",
            ])
          ).stdout
        assert.match(await readyz(), /^503 [\s\S]*there is no IPv4 default route/)
        await one.ns.ip('route', 'add', 'default', 'via', UNDERLAY.v4(254))
        await agent.ready(5000)
        assert.match(await readyz(), /^200 /)
        assert.equal(agent.log().match(/no IPv4 default route/g)?.length, 1)
      },
    ),
  )

  for (const [conf, said] of [
    [{ Network: '10.244.0.0/29' }, /Network "10\.244\.0\.0\/29"/],
    [{ Network: '10.244.0.0/16', SubnetLen: 31 }, /SubnetLen 31/],
    [{ Network: '10.244.0.0/16', SubnetMin: '10.244.7.5' }, /SubnetMin "10\.244\.7\.5"/],
    [{ Network: '10.244.0.0/16', SubnetMin: '10.99.0.0' }, /SubnetMin "10\.99\.0\.0"/],
    [{ Network: '10.244.0.0/16', Backend: { Type: 'vxlam' } }, /vxlam/],
    [{ Network: '10.244.0.0/16', Backend: { Type: 'vxlan', VNI: -1 } }, /Backend\.VNI -1/],
  ] as const)
    it(
      `${JSON.stringify(conf)} ends it with status 1 and one line that says why, and nothing is made`,
      inCluster(
        1,
        (cluster) => fileStore(cluster, conf),
        async ({ nodes }) => {
          const [one] = nodes as [Node]
          const before = [await one.ns.ip('link'), await one.ns.ip('route')]
          const agent = one.agent()
          assert.equal(await agent.ended, 1)
          const last = agent.log().trim().split('\n')
          assert.equal(last.length, 2, agent.log())
          assert.match(last[1] ?? '', said)
          assert.deepEqual([await one.ns.ip('link'), await one.ns.ip('route')], before)
        },
      ),
    )
})

// A link of another network, with addresses of every kind.
async function second({ hub, nodes }: Cluster): Promise<void> {
  const { ns } = nodes[0] as Node
  await hub.ip('link', 'add', 'name', 'other1', 'up', 'type', 'veth', 'peer', 'name', 'eth1', 'netns', ns.path)
  await ns.exec(['sh', '-c', 'echo 2 >/proc/sys/net/ipv6/conf/eth1/use_tempaddr'])
  await ns.ip('link', 'set', 'eth1', 'up')
  for (const address of ['172.31.0.1/24', '172.31.0.9/24']) await ns.ip('addr', 'add', address, 'dev', 'eth1')
  await ns.ip('addr', 'add', 'fd00:31::4/64', 'dev', 'eth1', 'nodad', 'preferred_lft', '0', 'valid_lft', '1000')
  await ns.ip('addr', 'add', 'fd00:31::5/64', 'dev', 'eth1', 'nodad', 'mngtmpaddr')
  await until(async () => /temporary/.test(await ns.ip('addr', 'show', 'dev', 'eth1')))
  await ns.ip('-6', 'route', 'add', 'default', 'via', 'fd00:31::fe', 'dev', 'eth1', 'metric', '2000')
}
