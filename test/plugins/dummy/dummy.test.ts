// lane: netns
// Tests plugins/dummy.ts.
import assert from 'node:assert/strict'
import type { Result } from '../../../lib/cni/result.ts'
import dummy from '../../../plugins/dummy.ts'
import { told } from '../../support/explained-lines.ts'
import { inNamespaces, snapshot } from '../../support/harness.ts'
import { hasKind } from '../../support/kinds.ts'
import { lanConf, refusing } from '../../support/lan.ts'
import { network, traces } from '../../support/network.ts'

const GIVEN = { ips: [{ address: '10.1.0.2/24' }, { address: 'fd00:1::2/64' }] } as unknown as Result

describe('dummy, as far as no kernel has to make one', () => {
  it('the node makes it in the pod, with a MAC that is the same for the same attachment', () => {
    const { lines, result } = told(dummy, { type: 'dummy', ipam: { type: 'host-local' } }, GIVEN)
    const mac = result.interfaces?.[0]?.mac
    assert.match(
      lines,
      new RegExp(`^node ip: link add name plumb… address ${mac} netns /run/netns/pod type dummy$`, 'm'),
    )
    assert.deepEqual(result.interfaces, [{ name: 'eth0', mac, mtu: 1500, sandbox: '/run/netns/pod' }])
    assert.deepEqual(told(dummy, { type: 'dummy', ipam: { type: 'host-local' } }, GIVEN).result, result)
  })

  it(
    'without ipam it is refused, and nothing changes; where the kernel has no such links ADD says that and gives the address back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const before = [await snapshot(node), await snapshot(pod)]
      const net = network(node, lanConf('dummy'))
      await refusing(net, pod, [
        [{ ipam: undefined }, /^Cannot read ipam\.type: it is missing, and a dummy is there for its addresses/],
        [{ ipam: {} }, /^Cannot read ipam\.type: it is missing/],
      ])
      if (!hasKind('dummy')) assert.match((await net.fails('ADD', pod)).msg, /Unknown device type/)
      assert.deepEqual([await snapshot(node), await snapshot(pod), traces(pod, net.conf)], [...before, []])
    }),
  )
})
