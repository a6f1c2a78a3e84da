// lane: peers
// Tests agent with agent/backend/types/vxlan.ts, beside flanneld and etcd.
import assert from 'node:assert/strict'
import { inside } from '../../../lib/os/netns.ts'
import { txChecksum } from '../../../lib/os/sockets.ts'
import { parse } from '../../../lib/text/values.ts'
import { assertReach, flow, gatewayOf, stand } from '../../support/etcd-networks.ts'
import { besideFlanneld } from '../../support/flanneld.ts'
import { ping, until } from '../../support/harness.ts'
import { type Node, UNDERLAY } from '../../support/nodes.ts'
import { sourceSeen } from '../../support/packets.ts'

const SIZE = { v4: 1450 }

describe('vxlan in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  const conf = (Backend: object) => ({ Network: '10.5.0.0/16', Backend: { Type: 'vxlan', ...Backend } })
  const asked = async ({ ns }: Node, dev: string) => (await ns.json('link', 'show', dev))[0]?.['linkinfo']['info_data']

  it(
    'VNI of seven digits and port 4789: device and packets are flanneld’s, beside a VXLAN network of another program on each of the two ports',
    network.on(2, conf({ VNI: 1_234_567, Port: 4789 }), async ([first, second], { nodes }) => {
      for (const [node, other] of [
        [first, second],
        [second, first],
      ] as const)
        for (const [id, port] of [
          [5, 8472],
          [6, 4789],
        ]) {
          const ends = `local ${UNDERLAY.v4(node.n)} remote ${UNDERLAY.v4(other.n)} dstport ${port}`
          await node.ns.ip(...`link add name other${id} up type vxlan id ${id} dev eth0 ${ends}`.split(' '))
          await node.ns.ip('addr', 'add', `192.168.${id}.${node.n}/24`, 'dev', `other${id}`)
        }
      await network.flannel(first)
      const agent = second.agent()
      await agent.ready(20_000)
      await assertReach(nodes, SIZE)
      const [theirs, own] = [await asked(first, 'flannel.1234567'), await asked(second, 'flannel.1234567')]
      assert.deepEqual({ ...own, local: '' }, { ...theirs, local: '' })
      assert.deepEqual([own.id, own.port], [1_234_567, 4789])
      for (const id of [5, 6]) for (const node of nodes) assert.ok(await ping(node.ns, `192.168.${id}.${3 - node.n}`))
      assert.deepEqual((await agent.status())?.degraded, [])
    }),
  )

  for (const [what, theirs, own] of [
    ['flanneld', true, false],
    ['plumb', false, true],
  ] as const)
    it(
      `GBP on the node with ${what} alone: packets of full size and TCP pass both ways; a packet with a mark reaches no node without GBP, and any node with it`,
      network.on(2, conf({ GBP: theirs }), async ([first, second], { nodes }) => {
        await network.flannel(first)
        await network.configure(conf({ GBP: own }))
        await second.agent().ready(20_000)
        assert.equal((await asked(first, 'flannel.1')).gbp === true, theirs)
        assert.equal((await asked(second, 'flannel.1')).gbp === true, own)
        await assertReach(nodes, SIZE)
        for (const [from, to] of [
          [first, second],
          [second, first],
        ] as const)
          await sourceSeen(from.ns, to.ns, gatewayOf(to).v4 as string)
        const [group, plain] = theirs ? [first, second] : [second, first]
        assert.equal(await passesMarked(group, plain), false)
        assert.equal(await passesMarked(plain, group), true)
      }),
    )

  it(
    'a MAC that another program gives the device, as systemd does by its MACAddressPolicy, is put back, and the peer’s packets arrive again; udev leaves the device alone, because its MAC was set',
    network.on(2, conf({}), async ([first, second], { nodes }) => {
      await network.flannel(first)
      const agent = second.agent()
      await agent.ready(20_000)
      await assertReach(nodes, SIZE)
      const mac = async () => (await second.ns.json('link', 'show', 'flannel.1'))[0]?.['address']
      // NET_ADDR_SET of linux/netdevice.h: udev changes a MAC that the kernel has made up (NET_ADDR_RANDOM, 1).
      const type = 'mount -t sysfs sysfs /sys; cat /sys/class/net/flannel.1/addr_assign_type'
      assert.equal((await second.ns.exec(['unshare', '-m', 'sh', '-c', type])).stdout, '3\n')
      const before = await mac()
      const leases = await network.leases()
      const pings = await flow(first.ns, gatewayOf(first).v4 as string, gatewayOf(second).v4 as string)
      await second.ns.ip('link', 'set', 'dev', 'flannel.1', 'address', '0e:00:00:00:00:77')
      await until(async () => (await mac()) === before)
      await assertReach(nodes, SIZE)
      const { lost } = await pings.end()
      assert.ok(lost <= 100, `${lost} of a hundred packets a second were lost`)
      assert.match(agent.log(), /repaired changes of another program: .*flannel\.1/)
      assert.deepEqual(await network.leases(), leases)
    }),
  )

  it(
    'TxChecksumOffload false, which flanneld ignores: plumb’s device computes checksums itself, also when another program turned that back, and TCP passes both ways',
    network.on(2, conf({ TxChecksumOffload: false }), async ([first, second], { nodes }) => {
      await network.flannel(first)
      await second.agent().ready(20_000)
      await assertReach(nodes, SIZE)
      for (const node of nodes) await stand(node)
      const offload = (to?: boolean) => inside(parse.netns(second.ns.path), () => txChecksum('flannel.1', to))
      assert.equal(offload(), false)
      for (const [from, to] of [
        [first, second],
        [second, first],
      ] as const)
        await sourceSeen(from.ns, to.ns, gatewayOf(to).v4 as string)
      await second.ns.ip('link', 'delete', 'flannel.1')
      await until(async () => (await second.ns.exec(['ip', 'link', 'show', 'flannel.1'])).status === 0)
      await assertReach(nodes, SIZE)
      assert.equal(offload(), false)
    }),
  )
})

// Whether an echo request with a mark, as kube-proxy gives it, is answered.
async function passesMarked(from: Node, to: Node): Promise<boolean> {
  const [source, target] = [gatewayOf(from).v4 as string, gatewayOf(to).v4 as string]
  const argv = ['ping', '-n', '-q', '-c', '1', '-w', '2', '-m', '77', '-I', source, target]
  return (await from.ns.exec(argv)).status === 0
}
