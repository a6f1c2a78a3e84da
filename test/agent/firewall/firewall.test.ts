// lane: netns
// Tests agent/firewall and agent/parts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { assertReach, becomePod, gatewayOf, routeByHub, stand } from '../../support/etcd-networks.ts'
import { ping, until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../../support/nodes.ts'
import { sourceSeen } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
/** A mount namespace without the programs of iptables, for what comes after it. */
const NFT_ONLY = [
  'unshare',
  '--mount',
  'sh',
  '-ec',
  `mkdir -p /run/nft-only
mount -t tmpfs tmpfs /run/nft-only
mkdir /run/nft-only/up /run/nft-only/work
mount -t overlay -o lowerdir=/usr/sbin,upperdir=/run/nft-only/up,workdir=/run/nft-only/work overlay /usr/sbin
rm -f /usr/sbin/*tables*
exec "$@"`,
  'sh',
]

describe('plumb agent and the firewall', () => {
  before(function () {
    if (!existsSync('/usr/sbin/iptables-nft')) skip(this, 'iptables is not installed')
  })
  const store = (cluster: Cluster) => fileStore(cluster, CONF)

  for (const { what, way, options, out } of [
    { what: 'masquerades', way: [], options: [], out: 'the node' },
    { what: 'on a node without iptables masquerades', way: NFT_ONLY, options: [], out: 'the node' },
    {
      what: 'towards --non-masquerade-cidrs does not masquerade',
      way: [],
      options: ['--non-masquerade-cidrs', '172.30.0.0/24'],
      out: 'the pod',
    },
  ] as const)
    it(
      `${what} what a pod sends out of the network, and lets it keep its address towards pods and its node; the world has its own towards pods of this node, the node's towards those of others`,
      inCluster(4, store, async (cluster, test) => {
        test.timeout(60_000)
        await routeByHub(cluster)
        const [one, two, three, four] = cluster.nodes as [Node, Node, Node, Node]
        const agents = [one, two].map((node) => node.agentBy(way, ...options))
        for (const agent of agents) await agent.ready(20_000)
        const [from, to] = [(await becomePod(three, one)).v4 as string, (await becomePod(four, two)).v4 as string]
        // The answer to a pod's own address finds its way, too.
        await cluster.hub.ip('route', 'add', `${from}/32`, 'via', UNDERLAY.v4(1))
        assert.equal(await sourceSeen(three.ns, four.ns, to), from)
        assert.equal(await sourceSeen(three.ns, one.ns, gatewayOf(one).v4 as string), from)
        assert.equal(
          await sourceSeen(three.ns, cluster.hub, UNDERLAY.v4(254)),
          out === 'the pod' ? from : UNDERLAY.v4(1),
        )
        // The world keeps its address towards a pod of this node, and has the node's towards one of another, so that
        // the answer comes back through here.
        await cluster.hub.ip('route', 'add', `${to}/32`, 'via', UNDERLAY.v4(1))
        assert.equal(await sourceSeen(cluster.hub, three.ns, from), UNDERLAY.v4(254))
        assert.equal(await sourceSeen(cluster.hub, four.ns, to), from.replace(/2$/, '0'))
        if (way === NFT_ONLY)
          for (const agent of agents) assert.equal(readdir(agent.pid).filter((name) => /tables/.test(name)).length, 0)
      }),
    )

  it(
    "pods pass a FORWARD policy of DROP of iptables; what somebody flushes, doubles or moves is back within 5 s, others' rules stay; the nft rules too",
    inCluster(3, store, async (cluster, test) => {
      test.timeout(60_000)
      const [one, two, three] = cluster.nodes as [Node, Node, Node]
      for (const line of ['-P FORWARD DROP', '-N DOCKER-USER', '-A DOCKER-USER -j RETURN', '-A FORWARD -j DOCKER-USER'])
        assert.equal((await one.ns.exec(['iptables-nft', ...line.split(' ')])).status, 0)
      const agents = [one, two].map((node) => node.agent())
      for (const agent of agents) await agent.ready(20_000)
      await stand(two)
      await becomePod(three, one)
      const target = gatewayOf(two).v4 as string
      await until(() => ping(three.ns, target))
      const rules = async () => (await one.ns.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout
      const before = await rules()
      const chain = /chain (PLUMB-F\S+)/.exec(before)?.[1]
      for (const argv of [
        `iptables-nft -F ${chain}`,
        `iptables-nft -D FORWARD -j ${chain}`,
        `iptables-nft -A ${chain} -s 10.244.0.0/16 -j ACCEPT`,
        `iptables-nft -A FORWARD -j ${chain}`,
        `nft add rule inet ${await tableOf(one)} postrouting counter`,
        `nft flush chain inet ${await tableOf(one)} postrouting`,
        `nft delete element inet ${await tableOf(one)} network4 { 10.244.0.0/16 }`,
        `nft delete table inet ${await tableOf(one)}`,
      ]) {
        const { status, stderr } = await one.ns.exec(argv.split(' '))
        assert.equal(status, 0, `${argv}: ${stderr}`)
        await until(async () => assert.equal(sorted(await rules()), sorted(before), argv) === undefined, 5000)
        assert.ok(await ping(three.ns, target), argv)
      }
    }),
  )

  it(
    'as long as nothing changes no process is started, on a node with a FORWARD chain of iptables, either',
    inCluster(2, store, async (cluster, test) => {
      test.timeout(60_000)
      for (const { ns } of cluster.nodes) await ns.exec(['iptables-nft', '-P', 'FORWARD', 'DROP'])
      const agents = cluster.nodes.map((node) => node.agent())
      for (const agent of agents) await agent.ready(20_000)
      await assertReach(cluster.nodes, { v4: 1450 })
      const seen = () => agents.map(({ pid }) => childrenOf(pid))
      // What the start and the pings stirred up is over when there was nothing new for three seconds. Chains are looked
      // at two seconds after a change.
      await until(async () => {
        const last = JSON.stringify(seen())
        await Bun.sleep(3000)
        return JSON.stringify(seen()) === last
      }, 30_000)
      const before = seen()
      assert.deepEqual(
        before.map(({ living }) => living.length),
        [2, 2],
      )
      await Bun.sleep(8000)
      assert.deepEqual(seen(), before)
      // It would have been noticed.
      await cluster.nodes[0]?.ns.ip('nexthop', 'flush', 'proto', '112')
      await until(() => (childrenOf(agents[0]?.pid ?? 0).faults ?? 0) > (before[0]?.faults ?? 0))
    }),
  )

  let { Network } = CONF
  it(
    'the same node with --ip-masq and without it, with forward rules and without them: nothing is left of the other; another Network: rules, routes, subnet and forward chain are of the new one alone',
    inCluster(
      2,
      (cluster) => fileStore(cluster, { ...CONF, Network }),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        await one.ns.exec(['iptables-nft', '-P', 'FORWARD', 'DROP'])
        // What the other node sends before its lease is known makes it a stranger for a while.
        const known = (text: string) => text.replace(/(set strangers\d \{[^}]*?)\n\t\telements = \{[^}]*\}/g, '$1')
        const rules = async () => sorted(known((await one.ns.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout))
        let agents = cluster.nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(20_000)
        // The set of the nodes' addresses follows the leases.
        await until(async () => /172\.30\.0\.1, 172\.30\.0\.2/.test(await rules()))
        const full = await rules()
        assert.match(full, /masquerade/)
        for (const [options, like] of [
          [['--ip-masq=false'], /^(?!.*masquerade)/s],
          [['--iptables-forward-rules=false'], /^(?!.*PLUMB-F)/s],
          [[], /masquerade.*PLUMB-F/s],
        ] as const) {
          await agents[0]?.stop()
          agents = [one.agent(...options), ...agents.slice(1)]
          // Without them FORWARD drops what pods send, and the node says so.
          if (options[0] === '--iptables-forward-rules=false')
            await until(
              async () => /^503 The chain ip filter FORWARD[ ,]/.test((await agents[0]?.readyz()) ?? ''),
              20_000,
            )
          else await agents[0]?.ready(20_000)
          await until(async () => like.test(await rules()))
        }
        await until(async () => (await rules()) === full).catch(async () => assert.equal(await rules(), full))
        const had = subnetEnv(one)?.['FLANNEL_SUBNET']
        await until(async () => /10\.244\./.test(await one.ns.ip('route', 'show', 'proto', '112')))
        for (const agent of agents) await agent.stop()
        Network = '10.99.0.0/16'
        agents = cluster.nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(20_000)
        await assertReach(cluster.nodes, { v4: 1450 })
        assert.match(await rules(), /10\.99\./)
        const all = [
          await rules(),
          await one.ns.ip('route'),
          await one.ns.ip('nexthop'),
          await one.ns.ip('addr', 'show', 'dev', 'flannel.1'),
          await one.ns.ip('neigh', 'show', 'dev', 'flannel.1'),
        ].join('\n')
        assert.doesNotMatch(all, /10\.244\./)
        assert.notEqual(subnetEnv(one)?.['FLANNEL_SUBNET'], had)
      },
    ),
  )
})

// proc(5): the page faults of all children that ended, and even the smallest has some, and those that live.
function childrenOf(pid: number): { readonly faults: number; readonly living: readonly string[] } {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  const tasks = [...new Bun.Glob('*').scanSync({ cwd: `/proc/${pid}/task`, onlyFiles: false })]
  return {
    faults: Number(fields[8]),
    living: tasks
      .flatMap((task) => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean))
      .sort(),
  }
}

// The programs that the agent has instead of those of iptables.
function readdir(pid: number): string[] {
  return existsSync(`/proc/${pid}/root/usr/sbin`)
    ? [...new Bun.Glob('*').scanSync({ cwd: join(`/proc/${pid}/root`, 'usr/sbin'), onlyFiles: false })]
    : ['no such process: tables']
}

async function tableOf({ ns }: Node): Promise<string> {
  return /table inet (plumb_agent\w*)/.exec((await ns.exec(['nft', 'list', 'tables'])).stdout)?.[1] ?? 'none'
}

// Tables, and what is in them, in one order: nft's is that of their making. Rules stay as they are.
function sorted(text: string): string {
  const tables = text.trim().split(/\n(?=table )/)
  const blocks = (table: string) => {
    const [head, ...rest] = table.trim().split('\n')
    return [head, ...rest.slice(0, -1).join('\n').split(/\n\n/).sort()].join('\n')
  }
  return tables.map(blocks).sort().join('\n')
}
