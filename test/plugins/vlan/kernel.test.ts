// lane: vm
// Tests plugins/vlan.ts.
import assert from 'node:assert/strict'
import { lanConf, linksOf, onLan, ROUTER } from '../../support/lan.ts'
import { network } from '../../support/network.ts'
import { glance, live } from '../../support/pod-life.ts'

const conf = (keys: object = {}) => lanConf('vlan', { master: 'eth1', vlanId: 5, ...keys })

describe('vlan', () => {
  it(
    'a life of an attachment in VLAN 5, where the router is, beside one in VLAN 6; the last DEL with the master gone',
    onLan(['pod', 'other', 'third'], async (all) => {
      const { node } = all
      await node.exec([
        'sh',
        '-ec',
        `ip addr flush dev lan0; ip link add link lan0 name lan0.5 type vlan id 5; ip link set lan0.5 up; ip addr add ${ROUTER.four}/24 dev lan0.5; ip addr add ${ROUTER.six}/64 dev lan0.5 nodad`,
      ])
      const life = {
        conf: conf({ mtu: 1400 }),
        beside: { vlanId: 6 },
        kind: 'vlan',
        data: { id: 5 },
        router: Object.values(ROUTER),
        meets: false,
      }
      await live(life, all, async () => {
        // VLAN 6 is the other pod's.
        const { code, msg } = await network(node, conf({ vlanId: 6 })).fails('ADD', all.third)
        assert.deepEqual(
          [code, msg, await linksOf(all.third)],
          [11, 'Cannot create VLAN 6 of eth1: it is there already, and a link has each of its VLANs once', []],
        )
        await node.ip('link', 'delete', 'eth1')
      })
    }),
  )

  it(
    "the master's mtu, linkInContainer, and a link without addresses",
    onLan(['pod'], async ({ node, pod }) => {
      assert.equal((await glance(conf(), { node, pod })).link['mtu'], 1450)
      await pod.ip('link', 'add', 'in0', 'mtu', '1420', 'type', 'dummy')
      await pod.ip('link', 'set', 'in0', 'up')
      const { link } = await glance(conf({ master: 'in0', linkInContainer: true }), { node, pod })
      assert.deepEqual([link['link'], link['mtu'], link['linkinfo'].info_data.id], ['in0', 1420, 5])
      const bare = await glance(conf({ ipam: undefined }), { node, pod })
      assert.deepEqual(
        [Object.keys(bare.result), bare.link['flags'].includes('UP')],
        [['cniVersion', 'interfaces'], true],
      )
    }),
  )
})
