// lane: netns
// Tests plugins/macvlan.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type Namespace, ping, plugin, snapshot } from '../../support/harness.ts'
import { JOURNAL, noted } from '../../support/journal.ts'
import { aliasOf, lanConf, linksOf, onLan, ROUTER } from '../../support/lan.ts'
import { type Conf, containerId, network, traces } from '../../support/network.ts'
import { calls, shimmed } from '../../support/tool-shims.ts'

describe('macvlan: what is left', () => {
  before(() => rmSync(JOURNAL, { recursive: true, force: true }))
  afterEach(() => assert.deepEqual(noted('link'), [], 'a record outlived its attachment'))

  it(
    "linkInContainer: the master is the pod's, named or of its default route; a missing one is an error, and nothing is left",
    onLan(['pod'], async ({ node, pod }) => {
      await node.ip('link', 'add', 'lan1', 'type', 'veth', 'peer', 'name', 'in0', 'netns', pod.path)
      for (const [ns, dev] of [
        [node, 'lan1'],
        [pod, 'in0'],
      ] as const)
        await ns.ip('link', 'set', dev, 'up')
      const net = network(node, macvlan({ linkInContainer: true, master: 'in0', mtu: 1400 }))
      const result = await net.add(pod)
      const link = (await linksOf(pod)).find(({ ifname }) => ifname === 'eth0')
      assert.deepEqual(
        [link?.['link'], link?.['mtu'], result['interfaces'][0].mtu, link?.['ifalias']],
        ['in0', 1400, 1400, aliasOf(pod, net.conf)],
      )
      await net.check(pod, result)
      await net.del(pod, { netns: '' })
      assert.deepEqual(
        (await linksOf(pod)).map(({ ifname }) => ifname),
        ['in0'],
      )
      await pod.ip('route', 'add', 'default', 'dev', 'in0')
      await net.add(pod, { conf: { ...net.conf, master: undefined } })
      await net.del(pod)
      for (const [keys, want] of [
        [{ master: 'eth1' }, `Cannot find the master "eth1" in ${pod.path}: there is no such link`],
        [{ mtu: 1501 }, 'Cannot use mtu 1501: want 0 to 1500, the mtu of its master in0'],
      ] as const) {
        const { code, msg } = await net.fails('ADD', pod, { conf: { ...net.conf, ...keys } })
        assert.deepEqual([code, msg, traces(pod, net.conf)], [7, want, []])
      }
    }),
  )

  it(
    'a pool that fails leaves no link, also when it is another program, and a retry works',
    onLan(['pod', 'other'], async ({ node, pod, other }) => {
      const { ipam, ...rest } = macvlan()
      const net = network(node, {
        ...rest,
        ipam: { ...ipam, ranges: [[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.9', rangeEnd: '10.1.0.9' }]] },
      })
      await net.add(other)
      assert.equal((await net.fails('ADD', pod)).code, 11)
      assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
      await net.del(other)
      const dir = mkdtempSync('/run/pool-')
      writeFileSync(
        `${dir}/theirs`,
        `#!/bin/sh\n[ "$CNI_COMMAND" != ADD ] || { echo '{"code":123,"msg":"no luck"}'; exit 1; }\n`,
        { mode: 0o755 },
      )
      assert.equal(
        (await net.fails('ADD', pod, { conf: { ...net.conf, ipam: { type: 'theirs' } }, path: dir })).code,
        123,
      )
      assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
      // A gateway that is on no link of the pod.
      const wrong = {
        ...net.conf,
        ipam: {
          type: 'static',
          addresses: [{ address: '10.1.0.9/24' }],
          routes: [{ dst: '10.9.0.0/16', gw: '192.0.2.1' }],
        },
      }
      assert.match((await net.fails('ADD', pod, { conf: wrong })).msg, /The kernel or a tool refused/)
      assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
      await net.add(pod)
      assert.ok(await ping(pod, ROUTER.four))
      await net.del(pod)
    }),
  )

  it(
    'DEL, with the master, its configuration and the default route gone, removes the link and frees the address, whether the namespace is named or not',
    onLan(['pod'], async ({ node, pod }) => {
      for (const [netns, keys] of [
        [pod, {}],
        ['', {}],
        [null, { master: 'eth7', mode: 'tunnel', mtu: -1 }],
        ['/run/netns/gone', { master: undefined }],
      ] as const) {
        const net = network(node, macvlan())
        await net.add(pod)
        await net.del(pod, { netns, conf: { ...net.conf, ...keys } })
        assert.deepEqual([await linksOf(pod), traces(pod, net.conf)], [[], []])
      }
      const net = network(node, macvlan())
      await net.add(pod)
      // Its macvlan goes with it.
      await node.ip('link', 'delete', 'eth1')
      for (const _ of [1, 2]) await net.del(pod)
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    "dns is the pool's, unless the configuration names anything, even an empty list",
    onLan(['pod'], async ({ node, pod }) => {
      const resolvConf = `${mkdtempSync('/run/resolv-')}/resolv.conf`
      writeFileSync(resolvConf, 'nameserver 10.1.0.53\nsearch a.example\n')
      const { ipam, ...rest } = macvlan()
      const net = network(node, { ...rest, ipam: { ...ipam, resolvConf } })
      const pooled = { nameservers: ['10.1.0.53'], search: ['a.example'] }
      for (const [dns, want] of [
        [undefined, pooled],
        [{ nameservers: ['192.0.2.53'] }, { nameservers: ['192.0.2.53'] }],
        [{ options: [] }, undefined],
      ] as const) {
        assert.deepEqual((await net.add(pod, { conf: { ...net.conf, dns } }))['dns'], want)
        await net.del(pod)
      }
    }),
  )

  it(
    'a taken interface name is a clear error; the other link stays as it is, by ADD and by the DEL that follows it',
    onLan(['pod'], async ({ node, pod }) => {
      const others = network(node, macvlan())
      await others.add(pod)
      const before = await snapshot(pod)
      for (const conf of [macvlan(), macvlan({ ipam: undefined })]) {
        const net = network(node, conf)
        const { code, msg } = await net.fails('ADD', pod)
        assert.deepEqual([code, msg], [4, `Cannot create eth0 in ${pod.path}: a link of that name is there already`])
        await net.del(pod)
        await net.gc()
        assert.equal(await snapshot(pod), before)
        assert.ok(traces(pod, conf).every((path) => path.includes(others.conf.name)))
      }
      await others.del(pod)
      assert.deepEqual(await linksOf(pod), [])
    }),
  )

  it(
    "GC removes the link of a stale attachment from a namespace that lives, and nobody else's: not the listed ones, another network's, or what took its name since",
    onLan(['pod', 'other', 'third'], async ({ node, pod, other, third }) => {
      const [net, another] = [network(node, macvlan()), network(node, macvlan())]
      for (const one of [pod, other, third]) await net.add(one)
      await another.add(pod, { ifname: 'eth5' })
      await third.ip('link', 'delete', 'dev', 'eth0')
      await third.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'x0')
      await net.gc(other)
      assert.deepEqual(
        await Promise.all(
          [pod, other, third].map(async (one) => (await linksOf(one)).map(({ ifname }) => ifname).sort()),
        ),
        [['eth5'], ['eth0'], ['eth0', 'x0']],
      )
      assert.deepEqual([traces(third, net.conf), noted('link').length], [[], 2])
      await another.del(pod, { ifname: 'eth5', netns: '' })
      await net.gc()
      assert.deepEqual(await linksOf(other), [])
    }),
  )

  it(
    'DEL of what is not there starts no tool at all, with and without a namespace; ADD starts one on the node and one in the pod, DEL one',
    onLan(['pod'], async ({ node, pod }) => {
      const net = network(node, macvlan())
      const counted = async (command: string, netns: Namespace | string) => {
        const shim = shimmed('macvlan', { ip: 'exec "$real" "$@" < "$input"', nft: 'exec "$real" "$@" < "$input"' })
        const { status, stdout } = await plugin(
          'macvlan',
          { command, conf: net.conf, containerId: containerId(pod), netns, file: shim.file },
          node,
        )
        assert.equal(status, 0, stdout)
        return calls(shim)
      }
      for (const netns of [pod, '', '/run/netns/gone']) assert.equal(await counted('DEL', netns), 0)
      assert.deepEqual([await counted('ADD', pod), await counted('DEL', pod)], [2, 1])
    }),
  )
})

function macvlan(keys: object = {}): Conf {
  return lanConf('macvlan', { master: 'eth1', ...keys })
}
