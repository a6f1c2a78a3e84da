// lane: vm
// Tests test/support/machine.
import assert from 'node:assert/strict'
import { forgetsThoseOfAnAddress } from '../forgotten.ts'
import { inNamespaces, plugin } from '../harness.ts'
import { bridgeConf } from '../network.ts'

/** What the plugins that are tried here are made of, and the kernel of many a machine lacks. */
const LINKS: Readonly<Record<string, string>> = {
  dummy: 'link add upper type dummy',
  ipvlan: 'link add upper link lower type ipvlan mode l2',
  macvlan: 'link add upper link lower type macvlan mode bridge',
  vlan: 'link add upper link lower type vlan id 5',
  vrf: 'link add upper type vrf table 10',
  'a bridge with VLANs': 'link add upper type bridge vlan_filtering 1',
}

describe("the virtual machine's kernel", () => {
  for (const [what, line] of Object.entries(LINKS))
    it(
      `has ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        await node.ip('link', 'add', 'lower', 'type', 'dummy')
        await node.ip(...line.split(' '))
        assert.equal((await node.json('link', 'show', 'upper'))[0]?.['ifname'], 'upper')
      }),
    )

  it(
    'runs plumb: a bridge, its pool in the same process',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { status, stdout, stderr } = await plugin(
        'bridge',
        { command: 'ADD', conf: bridgeConf(), netns: pod },
        node,
      )
      assert.deepEqual([status, stderr], [0, ''], stdout)
      assert.equal((await plugin('bridge', { command: 'DEL', conf: bridgeConf(), netns: pod }, node)).status, 0)
    }),
  )

  it(
    'an older kernel forgets the connections that an address began or answers, and no other ones',
    inNamespaces(['node'], forgetsThoseOfAnAddress),
  )
})
