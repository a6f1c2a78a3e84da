// lane: vm
// Tests plugins/ipvlan.ts.
import assert from 'node:assert/strict'
import { lanConf, onLan, ROUTER } from '../../support/lan.ts'
import { traces } from '../../support/network.ts'
import { glance, live } from '../../support/pod-life.ts'

const conf = (keys: object = {}) => lanConf('ipvlan', { master: 'eth1', ...keys })

describe('ipvlan', () => {
  it(
    'l2: a life of two pods, the last DEL with master and default route gone',
    onLan(['pod', 'other'], async (all) => {
      await live(
        { conf: conf({ mtu: 1400 }), kind: 'ipvlan', data: { mode: 'l2' }, router: Object.values(ROUTER), meets: true },
        all,
        () => all.node.ip('link', 'delete', 'eth1'),
      )
    }),
  )

  it(
    'l3 and l3s, the mtu, the master of the default route, and the link and addresses of the plugin before it',
    onLan(['pod'], async ({ node, pod }) => {
      for (const mode of ['l3', 'l3s']) {
        const { link, result } = await glance(conf({ mode, mtu: 1300 }), { node, pod })
        assert.deepEqual(
          [link['linkinfo'].info_data.mode, link['mtu'], result['interfaces'][0].mac],
          [mode, 1300, link['address']],
        )
      }
      const { ipam: _, ...rest } = conf({
        master: undefined,
        prevResult: {
          cniVersion: '1.1.0',
          interfaces: [{ name: 'eth1' }],
          ips: [{ address: '10.1.0.77/24', gateway: ROUTER.four, interface: 0 }],
          routes: [{ dst: '0.0.0.0/0' }],
        },
      })
      const chained = await glance(rest, { node, pod })
      assert.deepEqual(
        [
          chained.link['addr_info'].find(({ family }: { family: string }) => family === 'inet')?.local,
          chained.result['ips'].length,
        ],
        ['10.1.0.77', 1],
      )
      await node.ip('route', 'add', 'default', 'dev', 'eth1')
      const byRoute = conf({ master: undefined })
      assert.equal((await glance(byRoute, { node, pod })).link['mtu'], 1450)
      assert.deepEqual(traces(pod, byRoute), [])
    }),
  )
})
