// lane: netns
// Tests plugins/flannel.ts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { dirOf, ENV, fileOf, flannelConf, writeEnv } from '../../support/flannel.ts'
import { foreignPlugin } from '../../support/foreign-plugin.ts'
import { inNamespaces, ping, snapshot } from '../../support/harness.ts'
import { containerId, network, traces } from '../../support/network.ts'

const ADDED = { cniVersion: '1.1.0', ips: [{ address: '10.1.17.2/24' }], someKey: { of: 'its maker' } }

describe('flannel: what is kept between ADD and DEL', () => {
  for (const [way, netns] of Object.entries({
    'a live namespace': undefined,
    'an empty CNI_NETNS': '',
    'a namespace that is gone': '/run/netns/gone',
  })) {
    it(
      `DEL with nothing kept and ${way} succeeds, without a subnet.env and with a delegate that is another program, too`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const bridge = foreignPlugin({}, 'bridge')
        bridge.fail('DEL', 999, 'it was not to be asked')
        const before = await snapshot(node)
        for (const more of [
          {},
          { path: bridge.dir },
          { conf: flannelConf(ENV.v4, { dataDir: '/etc/passwd' }) },
          { conf: flannelConf(ENV.v4, { delegate: { type: 'nowhere' } }) },
        ]) {
          const net = network(node, flannelConf(ENV.v4))
          await net.del(pod, { ...(netns !== undefined && { netns }), ...more })
          rmSync(net.conf['subnetFile'] as string)
          await net.del(pod, { ...(netns !== undefined && { netns }), ...more })
        }
        assert.deepEqual([bridge.calls(), await snapshot(node)], [[], before])
      }),
    )
  }

  it(
    'DEL with nothing kept asks a pool that is another program only when it can tell it the ranges',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const pool = foreignPlugin({}, 'host-local')
      const net = network(node, flannelConf(ENV.v4))
      const path = `${pool.dir}:${join(import.meta.dir, '../../../dist')}`
      await net.del(pod, { path })
      assert.deepEqual(
        [pool.calls(), JSON.parse(pool.stdin('DEL')).ipam.ranges],
        [[`DEL ${containerId(pod)}`], [[{ subnet: '10.1.17.0/24' }]]],
      )
      rmSync(net.conf['subnetFile'] as string)
      pool.forget()
      pool.fail('DEL', 999, 'no IP ranges specified')
      await net.del(pod, { path })
      assert.deepEqual(pool.calls(), [])
    }),
  )

  it(
    'DEL when what was kept is lost or torn finds link and address by the attachment all the same',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, flannelConf(ENV.dual))
      const path = fileOf(net.conf, pod)
      for (const damage of [
        () => rmSync(path),
        () => writeFileSync(path, '{"type": "bri'),
        () => writeFileSync(path, ''),
      ]) {
        await net.add(pod)
        damage()
        rmSync(net.conf['subnetFile'] as string)
        await net.del(pod)
        assert.deepEqual(
          [traces(pod, net.conf), readdirSync(dirOf(net.conf)), await node.json('link', 'show', 'type', 'veth')],
          [[], [], []],
        )
        writeEnv(net.conf['subnetFile'] as string, ENV.dual)
      }
    }),
  )

  it(
    'a DEL that the delegate fails keeps what ADD asked, says why, and the next one does it',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const bridge = foreignPlugin({ ADD: ADDED }, 'bridge')
      const net = network(node, flannelConf(ENV.v4))
      assert.deepEqual(await net.add(pod, { path: bridge.dir }), ADDED)
      const asked = readFileSync(fileOf(net.conf, pod), 'utf8')
      bridge.fail('DEL', 42, 'not now')
      const { code, msg } = await net.fails('DEL', pod, { path: bridge.dir })
      assert.deepEqual([code, msg, readFileSync(fileOf(net.conf, pod), 'utf8')], [42, 'not now', asked])
      // Nobody answers to this type any more: that is no reason to forget what is there.
      assert.equal((await net.fails('DEL', pod, { path: '/opt/none' })).code, 7)
      bridge.answer('DEL', '')
      await net.del(pod, { path: bridge.dir, netns: '' })
      assert.deepEqual([JSON.parse(bridge.stdin('DEL')), readdirSync(dirOf(net.conf))], [JSON.parse(asked), []])
    }),
  )

  it(
    'two interfaces of a container are kept apart: each DEL asks for its own, and the other goes on working',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, flannelConf(ENV.v4))
      await net.add(pod)
      writeEnv(net.conf['subnetFile'] as string, ENV.v4.replaceAll('10.1.17.', '10.1.18.'))
      const more = { ifname: 'net1', conf: { ...net.conf, delegate: { bridge: 'br1', isDefaultGateway: false } } }
      assert.equal((await net.add(pod, more))['ips'][0].address, '10.1.18.2/24')
      assert.deepEqual(readdirSync(dirOf(net.conf)).sort(), [`${containerId(pod)}:eth0`, `${containerId(pod)}:net1`])
      await net.del(pod)
      assert.ok(await ping(pod, '10.1.18.1'))
      assert.deepEqual(readdirSync(dirOf(net.conf)), [`${containerId(pod)}:net1`])
      await net.del(pod, { ifname: 'net1' })
      assert.deepEqual(
        [traces(pod, net.conf), readdirSync(dirOf(net.conf)), await node.json('link', 'show', 'type', 'veth')],
        [[], [], []],
      )
    }),
  )

  it(
    'DEL and CHECK ask for what ADD did, when subnet.env says something else by then, or nothing, and the network another delegate',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const bridge = foreignPlugin({ ADD: ADDED }, 'bridge')
      const net = network(node, flannelConf(ENV.v4))
      const path = bridge.dir
      await net.add(pod, { path })
      const asked = JSON.parse(bridge.stdin('ADD'))
      writeEnv(net.conf['subnetFile'] as string, ENV.dual.replaceAll('10.1.', '10.7.'))
      await net.check(pod, ADDED, { path })
      assert.deepEqual(JSON.parse(bridge.stdin('CHECK')), { ...asked, prevResult: ADDED })
      // A network that learned a newer version since: the previous result speaks that.
      await net.check(
        pod,
        { ...ADDED, cniVersion: '0.4.0' },
        { path, conf: { ...net.conf, cniVersion: '0.4.0', prevResult: { ...ADDED, cniVersion: '0.4.0' } } },
      )
      assert.equal(JSON.parse(bridge.stdin('CHECK')).cniVersion, '0.4.0')
      rmSync(net.conf['subnetFile'] as string)
      await net.del(pod, { path, conf: { ...net.conf, delegate: { type: 'ptp' } } })
      assert.deepEqual([JSON.parse(bridge.stdin('DEL')), readdirSync(dirOf(net.conf))], [asked, []])
    }),
  )

  it(
    'a name that stands there twice, in other case, is the same one in what is kept and in DEL; a configuration too deep to be passed on is refused',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { name, ...conf } = flannelConf(ENV.v4)
      const net = network(node, { name, ...conf, NAME: 'another' })
      await net.add(pod)
      assert.equal(JSON.parse(readFileSync(fileOf(net.conf, pod), 'utf8')).name, name)
      await net.del(pod)
      assert.deepEqual([traces(pod, net.conf), readdirSync(dirOf(net.conf))], [[], []])
      const deep = (levels: number) =>
        JSON.stringify({ name, ...conf }).replace(
          '"isDefaultGateway":true',
          `"deep":${'['.repeat(levels)}${']'.repeat(levels)}`,
        )
      for (const levels of [900, 100_000]) {
        const { code, msg } = await net.fails('ADD', pod, { conf: deep(levels) })
        assert.deepEqual(
          [code, msg, readdirSync(dirOf(net.conf))],
          [6, 'Cannot read the configuration: it is nested more than 100 deep', []],
        )
      }
      await net.del(pod, { conf: deep(900) })
      assert.equal(
        (await net.fails('DEL', pod, { conf: deep(100_000) })).msg,
        'Cannot read the configuration: it is nested more than 1000 deep',
      )
    }),
  )

  it(
    "flannel's own file of a container, which names no interface, is taken for DEL and CHECK, and removed; another network's is left",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const bridge = foreignPlugin({}, 'bridge')
      const net = network(node, flannelConf(ENV.v4))
      const path = bridge.dir
      const file = join(dirOf(net.conf), containerId(pod))
      const asked = {
        cniVersion: '1.1.0',
        name: net.conf.name,
        type: 'bridge',
        mtu: 1400,
        ipam: { type: 'host-local', ranges: [[{ subnet: '10.9.9.0/24' }]] },
      }
      writeFileSync(file, JSON.stringify({ ...asked, name: 'other' }))
      await net.del(pod, { path })
      assert.deepEqual([bridge.calls(), readdirSync(dirOf(net.conf))], [[], [containerId(pod)]])
      writeFileSync(file, JSON.stringify(asked))
      await net.check(pod, ADDED, { path })
      bridge.fail('DEL', 42, 'not now')
      await net.fails('DEL', pod, { path })
      assert.deepEqual(readdirSync(dirOf(net.conf)), [containerId(pod)])
      bridge.answer('DEL', '')
      await net.del(pod, { path })
      assert.deepEqual([JSON.parse(bridge.stdin('DEL')), readdirSync(dirOf(net.conf))], [asked, []])
    }),
  )
})
