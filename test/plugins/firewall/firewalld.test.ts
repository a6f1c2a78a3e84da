// lane: netns
// Tests plugins/firewall.ts.
import assert from 'node:assert/strict'
import { bridgeBefore, chainedNetwork } from '../../support/chained-network.ts'
import { firewalld, missing } from '../../support/firewalld.ts'
import { inNamespaces, isSilent, ping, plugin, type Row, until } from '../../support/harness.ts'
import { noted } from '../../support/journal.ts'
import { bridgeConf, type Conf } from '../../support/network.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'
import { shimmed } from '../../support/tool-shims.ts'

const conf = (keys: object = {}): Conf => ({ cniVersion: '1.1.0', name: bridgeConf().name, type: 'firewall', ...keys })

describe('firewall, beside a real firewalld', () => {
  before(function () {
    const lacks = missing()
    if (lacks !== '') skip(this, `no firewalld: ${lacks}`)
  })

  it(
    'puts a pod into the zone, trusted or the one that is named, so that it reaches out past what firewalld rejects; DEL, also without a result, takes it out',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
      await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64')
      const daemon = await firewalld(node)
      const before = chainedNetwork(node, conf({ backend: 'nftables' }))
      await before.add(pod)
      for (const address of OUTSIDE) assert.ok(await isSilent(pod, address), address)
      await before.del(pod)
      const net = chainedNetwork(node, conf())
      const result = await net.add(pod)
      for (const source of sources(result)) assert.ok(await daemon.has('trusted', source), source)
      for (const address of OUTSIDE) assert.ok(await until(() => ping(pod, address)), address)
      await net.check(pod, result)
      // Another ADD finds it done.
      await net.add(pod)
      const named = chainedNetwork(node, conf({ name: 'named', backend: 'firewalld', firewalldZone: 'internal' }), {
        ...bridgeBefore(conf({ name: 'named' }), { bridge: 'br1' }),
        ipam: { type: 'host-local', ranges: [[{ subnet: '10.2.0.0/24' }], [{ subnet: 'fd00:2::/64' }]] },
      })
      const second = await named.add(other)
      for (const source of sources(second))
        assert.ok((await daemon.has('internal', source)) && !(await daemon.has('trusted', source)), source)
      await net.del(pod)
      await named.gc()
      for (const source of sources(result)) assert.equal(await daemon.has('trusted', source), false, source)
      for (const source of sources(second)) assert.equal(await daemon.has('internal', source), false, source)
    }),
  )

  it(
    'CHECK tells of a source that firewalld lost when it was reloaded, another ADD puts it back; DEL works when firewalld is gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const daemon = await firewalld(node)
      const net = chainedNetwork(node, conf())
      const result = await net.add(pod)
      await daemon.reload()
      const { details } = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.match(
        details ?? '',
        /source 10\.1\.0\.2\/32 of zone trusted of firewalld is missing; source fd00:1::2\/128 of zone trusted of firewalld is missing/,
      )
      await net.add(pod)
      await net.check(pod, result)
      await daemon.stop()
      await net.del(pod)
    }),
  )

  it(
    'a zone that firewalld does not have, one that does not have the address to itself, and a name that none can have, are refused by name, and nothing is left; without firewalld that is said, and the pod works',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = chainedNetwork(node, conf({ firewalldZone: 'no/zone' }))
      assert.match(
        (await net.fails('ADD', pod, { conf: { ...net.conf, prevResult } })).msg,
        /firewalldZone "no\/zone": want the name of a zone/,
      )
      const without = chainedNetwork(node, conf({ backend: 'firewalld' }))
      await without.add(other)
      await without.del(other)
      await firewalld(node)
      const absent = chainedNetwork(node, conf({ firewalldZone: 'nowhere' }))
      assert.match(
        (await absent.fails('ADD', pod, { conf: { ...absent.conf, prevResult } })).msg,
        /Cannot put 10\.1\.0\.9\/32 into the zone nowhere of firewalld: there is no such zone/,
      )
      await chainedNetwork(node, conf({ name: 'first' })).add(other)
      const late = await plugin(
        'firewall',
        {
          command: 'ADD',
          conf: conf({ name: 'late', firewalldZone: 'home', prevResult: { ips: [{ address: '10.1.0.2/24' }] } }),
          containerId: 'c2',
          netns: pod,
        },
        node,
      )
      assert.match(
        late.error.msg,
        /Cannot put 10\.1\.0\.2\/32 into the zone home of firewalld: it is a source of another zone/,
      )
      assert.ok(!noted('firewall').includes('c2'))
      assert.doesNotMatch((await node.exec(['nft', 'list', 'set', 'inet', 'plumb', 'pods4'])).stdout, /10\.1\.0\.9/)
    }),
  )

  it(
    'a firewalld that does not answer fails the ADD with what was asked of it, and nothing is left',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await firewalld(node)
      const own = conf({ prevResult })
      const mute = shimmed('firewall', {
        'dbus-send': 'echo "Error org.freedesktop.DBus.Error.NoReply: no reply" >&2; exit 1',
      })
      const { error } = await plugin(
        'firewall',
        { command: 'ADD', conf: own, containerId: 'c3', netns: pod, file: mute.file },
        node,
      )
      assert.deepEqual(
        [error.code, error.msg],
        [
          11,
          'Cannot put 10.1.0.9/32 into the zone trusted of firewalld: Error org.freedesktop.DBus.Error.NoReply: no reply',
        ],
      )
      assert.match(error.details, /zone\.addSource string:trusted string:10\.1\.0\.9\/32$/)
      // Nor could the undoing ask it: the runtime's DEL does.
      const { status } = await plugin(
        'firewall',
        { command: 'DEL', conf: { ...own, prevResult: undefined }, containerId: 'c3', netns: pod },
        node,
      )
      assert.equal(status, 0)
      assert.ok(!noted('firewall').includes('c3'))
      assert.doesNotMatch((await node.exec(['nft', 'list', 'set', 'inet', 'plumb', 'pods4'])).stdout, /10\.1\.0\.9/)
    }),
  )
})

const prevResult = { ips: [{ address: '10.1.0.9/24' }] }
const OUTSIDE = [WORLD.world4, WORLD.world6]

function sources({ ips }: Row): string[] {
  return ips.map(({ address }: Row) => `${address.split('/')[0]}/${address.includes(':') ? 128 : 32}`)
}
