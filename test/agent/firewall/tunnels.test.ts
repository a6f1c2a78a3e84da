// lane: netns
// Tests agent/firewall/tunnels.ts and agent/parts/tunnels.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { becomePod, flow, gatewayOf, stand } from '../../support/etcd-networks.ts'
import { type Namespace, ping, until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { arrivals, inject, refusedBy } from '../../support/stranger.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const DUAL = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const store = (cluster: Cluster) => fileStore(cluster, DUAL)
const DEVICES = { v4: 'flannel.1', v6: 'flannel-v6.1' } as const
/** Until a sender without a lease is named. */
const LATE_MS = 90_000
const FAMILIES = ['v4', 'v6'] as const

describe('plumb agent and tunnelled packets of strangers', () => {
  it(
    'VXLAN from an address without a lease reaches no pod, in both families; it is counted and named. With --tunnel-sources=any, or a network of the sender, it does',
    inCluster(3, store, async ({ nodes }, test) => {
      test.timeout(120_000)
      const [one, two, third] = nodes as [Node, Node, Node]
      await two.agent().ready(30_000)
      let agent = one.agent('--tunnel-sources', 'any')
      await agent.ready(30_000)
      assert.equal(await tunnels(one), '')
      for (const family of FAMILIES) {
        const dev = await leadTo(third.ns, one, family, UNDERLAY[family](3))
        const count = await arrivals(one, DEVICES[family])
        await until(async () => {
          await inject(third.ns, dev, one, family)
          return (await count()) > 0
        })
      }
      await agent.stop()
      agent = one.agent()
      await agent.ready(30_000)
      let refused = 0
      for (const family of FAMILIES) {
        const count = await arrivals(one, DEVICES[family])
        await inject(third.ns, await leadTo(third.ns, one, family, UNDERLAY[family](3)), one, family)
        await until(async () => (await refusedBy(one)).refused >= refused + 5)
        assert.equal(await count(), 0)
        refused = (await refusedBy(one)).refused
      }
      // A lease might come a moment later.
      assert.deepEqual((await refusedBy(one)).strangers, [])
      await until(
        async () => (await refusedBy(one)).strangers.join() === [UNDERLAY.v4(3), UNDERLAY.v6(3)].join(),
        LATE_MS,
      )
      const metrics = await (await fetch('http://plumb/metrics', { unix: join(one.dir, 'agent.sock') })).text()
      assert.match(metrics, new RegExp(`^plumb_tunnel_refused_packets_total ${refused}$`, 'm'))
      const { stdout } = await one.ns.exec([PLUMB, 'status', '--socket', join(one.dir, 'agent.sock')])
      assert.match(
        stdout,
        /refused\s+\d+ tunnelled packets in the last ten minutes, from addresses without a lease: 172\.30\.0\.3, fd/,
      )
      assert.match(agent.log(), /refused tunnelled packets from \S+.*: no lease has this address/)
      // Nodes reach each other all the same.
      for (const node of [one, two]) await stand(node)
      for (const family of FAMILIES)
        assert.ok(await reaches(two.ns, gatewayOf(two)[family] as string, gatewayOf(one)[family] as string))
      await agent.stop()
      await one.agent('--tunnel-sources', `leases,${UNDERLAY.v4(3)}/32,fd00:30::/64`).ready(30_000)
      for (const family of FAMILIES) {
        const count = await arrivals(one, DEVICES[family])
        await inject(third.ns, await leadTo(third.ns, one, family, UNDERLAY[family](3)), one, family)
        assert.equal(await count(), 5)
      }
      const before = (await refusedBy(one)).refused
      assert.equal(before, refused)
    }),
  )

  it(
    'a node that sends before its lease is known is not named as a stranger, and a host without a lease is',
    inCluster(2, store, async ({ nodes }, test) => {
      test.timeout(150_000)
      const [one, two] = nodes as [Node, Node]
      const agent = one.agent()
      await agent.ready(30_000)
      const stranger = UNDERLAY.v4(77)
      await two.ns.ip('addr', 'add', `${stranger}/24`, 'dev', 'eth0')
      for (const [i, local] of [UNDERLAY.v4(2), stranger].entries()) {
        await inject(two.ns, await leadTo(two.ns, one, 'v4', local), one)
        await until(async () => (await refusedBy(one)).refused >= 5 * (i + 1))
      }
      await two.ns.ip('link', 'del', 'stranger')
      await two.ns.ip('addr', 'flush', 'dev', 'lo', 'scope', 'global')
      await two.agent('--iface', UNDERLAY.v4(2)).ready(30_000)
      await until(async () => (await refusedBy(one)).strangers.length > 0, LATE_MS)
      assert.deepEqual((await refusedBy(one)).strangers, [stranger])
      const lines = agent.log().match(/refused tunnelled packets from .*/g)
      assert.deepEqual(lines, [
        `refused tunnelled packets from ${stranger}: no lease has this address; if a node sends from it, want it in --tunnel-sources`,
      ])
    }),
  )

  it(
    'a pod cannot send into the tunnels of its node or of another one; a VXLAN network of another program with the same port goes on',
    inCluster(3, store, async ({ nodes }, test) => {
      test.timeout(120_000)
      const [one, two, pod] = nodes as [Node, Node, Node]
      for (const agent of [one, two].map((node) => node.agent())) await agent.ready(30_000)
      // Another VNI, between addresses that no lease has.
      for (const [node, other] of [
        [one, two],
        [two, one],
      ] as const) {
        const [local, remote] = [UNDERLAY.v4(node.n + 50), UNDERLAY.v4(other.n + 50)]
        await node.ns.ip('addr', 'add', `${local}/24`, 'dev', 'eth0')
        const device = `link add name vx77 up type vxlan id 77 local ${local} remote ${remote} dstport 8472`
        await node.ns.ip(...device.split(' '))
        await node.ns.ip('addr', 'add', `192.168.77.${node.n}/24`, 'dev', 'vx77')
      }
      assert.ok(await ping(two.ns, '192.168.77.1'))
      const address = (await becomePod(pod, one)).v4 as string
      for (const target of [one, two]) {
        const dev = await leadTo(pod.ns, target, 'v4', address)
        const count = await arrivals(target, DEVICES.v4)
        const before = (await refusedBy(one)).refused
        await inject(pod.ns, dev, target)
        await until(async () => (await refusedBy(one)).refused >= before + 5)
        assert.equal(await count(), 0)
        await until(async () => (await refusedBy(one)).strangers.join() === address, LATE_MS)
        assert.equal((await refusedBy(two)).refused, 0)
      }
    }),
  )

  it(
    'the set follows the leases, rules stay as they are; a start after SIGKILL refuses no packet of a node; what another program changed is put back; cleanup leaves nothing',
    inCluster(3, store, async ({ nodes }, test) => {
      test.timeout(180_000)
      const [one, two, three] = nodes as [Node, Node, Node]
      let agent = one.agent()
      await agent.ready(30_000)
      await two.agent().ready(30_000)
      const rules = () =>
        one.ns.exec(['nft', '-a', '-s', '-t', 'list', 'table', 'inet', tunnelsName]).then((o) => o.stdout)
      const tunnelsName = await tunnels(one)
      await until(async () => (await members(one, 'nodes4')).join() === [UNDERLAY.v4(1), UNDERLAY.v4(2)].join())
      const before = await rules()
      const last = three.agent()
      await last.ready(30_000)
      await until(async () => (await members(one, 'nodes4')).length === 3, 5000)
      assert.deepEqual(await members(one, 'nodes6'), [1, 2, 3].map(UNDERLAY.v6))
      await last.stop()
      assert.equal((await three.ns.exec([PLUMB, 'agent', 'cleanup', ...three.options])).status, 0)
      assert.equal(await tunnels(three), '')
      await until(async () => (await members(one, 'nodes4')).length === 2, 5000)
      assert.equal(await rules(), before)
      for (const node of [one, two]) await stand(node)
      const [from, to] = [gatewayOf(two).v4 as string, gatewayOf(one).v4 as string]
      await until(() => reaches(two.ns, from, to))
      const pings = await flow(two.ns, from, to)
      for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
        await agent.stop(signal)
        agent = one.agent()
        await agent.ready(30_000)
      }
      assert.equal((await pings.end()).lost, 0)
      assert.equal((await refusedBy(one)).refused, 0)
      const { n } = one
      for (const line of [
        `delete element inet ${tunnelsName} nodes4 { ${UNDERLAY.v4(2)} }`,
        `add element inet ${tunnelsName} nodes4 { ${UNDERLAY.v4(n + 100)} }`,
        `flush chain inet ${tunnelsName} input`,
        `insert rule inet ${tunnelsName} forward accept`,
        `delete table inet ${tunnelsName}`,
      ]) {
        const wanted = [await plain(one, tunnelsName), await members(one, 'nodes4'), await members(one, 'nodes6')]
        const { status, stderr } = await one.ns.exec(['nft', line])
        assert.equal(status, 0, stderr)
        await until(
          async () =>
            assert.deepEqual(
              [await plain(one, tunnelsName), await members(one, 'nodes4'), await members(one, 'nodes6')],
              wanted,
              line,
            ) === undefined,
          10_000,
        )
      }
      assert.match(agent.log(), /repaired changes of another program: nft table plumb_tunnels/)
    }),
  )

  it(
    'a node that sends from another address than it announces says so in its lease, and its packets are taken',
    inCluster(2, store, async ({ nodes }, test) => {
      test.timeout(120_000)
      const [one, two] = nodes as [Node, Node]
      await two.ns.ip('addr', 'add', `${UNDERLAY.v4(102)}/32`, 'dev', 'eth0')
      await one.agent().ready(30_000)
      const agent = two.agent(
        '--iface',
        'eth0',
        '--advertise-address',
        UNDERLAY.v4(102),
        '--tunnel-address',
        UNDERLAY.v4(2),
      )
      await agent.ready(30_000)
      for (const node of [one, two]) await stand(node)
      await until(() => reaches(two.ns, gatewayOf(two).v4 as string, gatewayOf(one).v4 as string))
      assert.deepEqual(await members(one, 'nodes4'), [UNDERLAY.v4(1), UNDERLAY.v4(102), UNDERLAY.v4(2)].sort())
      assert.equal((await refusedBy(one)).refused, 0)
    }),
  )
})

// A VXLAN device of a namespace that leads to a node, with the MAC of that node's device.
async function leadTo(from: Namespace, to: Node, family: 'v4' | 'v6', local: string): Promise<string> {
  const [device] = await to.ns.json('link', 'show', DEVICES[family])
  await from.exec(['ip', 'link', 'delete', 'stranger'])
  const remote = `local ${local} remote ${UNDERLAY[family](to.n)} dstport 8472`
  await from.ip(...`link add name stranger up type vxlan id 1 ${remote}`.split(' '))
  const gateway = gatewayOf(to)[family] as string
  await from.ip(
    'neigh',
    'replace',
    gateway,
    'lladdr',
    device?.['address'] as string,
    'dev',
    'stranger',
    'nud',
    'permanent',
  )
  return 'stranger'
}

async function tunnels({ ns }: Node): Promise<string> {
  return /table inet (plumb_tunnels\w*)/.exec((await ns.exec(['nft', 'list', 'tables'])).stdout)?.[1] ?? ''
}

async function members(node: Node, set: string): Promise<string[]> {
  const { stdout } = await node.ns.exec(['nft', '-j', 'list', 'set', 'inet', await tunnels(node), set])
  if (stdout === '') return []
  const { nftables } = JSON.parse(stdout) as { nftables: readonly { set?: { elem?: string[] } }[] }
  return nftables.flatMap((one) => one.set?.elem ?? []).sort()
}

async function plain({ ns }: Node, table: string): Promise<string> {
  return (await ns.exec(['nft', '-s', '-t', 'list', 'table', 'inet', table])).stdout
}

async function reaches(from: Namespace, source: string, target: string): Promise<boolean> {
  return (await from.exec(['ping', '-n', '-q', '-c', '1', '-w', '2', '-I', source, target])).status === 0
}
