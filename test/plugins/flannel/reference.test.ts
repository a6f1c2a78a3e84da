// lane: peers
// Tests plugins/flannel.ts.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DIST } from '../../support/cnitool.ts'
import { ENV, fileOf, flannelConf } from '../../support/flannel.ts'
import { inNamespaces, ping, plugin, until } from '../../support/harness.ts'
import { containerId, network } from '../../support/network.ts'
import { PLUGINS } from '../../support/node-by-hand.ts'
import { skip } from '../../support/skip.ts'

describe('flannel among the reference plugins', () => {
  before(function () {
    if (!existsSync(`${PLUGINS}/bridge`)) skip(this, `no reference plugins in ${PLUGINS}`)
  })

  it(
    "takes over a pod of flannel's own plugin over the reference bridge: DEL removes link, address, rules and flannel's file",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = flannelConf(ENV.v4, { cniVersion: '0.3.1' })
      const pool = conf.ipam?.dataDir as string
      // What flannel-io/cni-plugin 1.9.1 kept for this configuration, and gave to bridge.
      const asked = {
        cniVersion: '0.3.1',
        bridge: 'br0',
        ipMasq: true,
        ipam: {
          dataDir: pool,
          ranges: [[{ subnet: '10.1.17.0/24' }]],
          routes: [{ dst: '10.1.0.0/16' }],
          type: 'host-local',
        },
        isDefaultGateway: true,
        isGateway: true,
        mtu: 1472,
        name: conf.name,
        type: 'bridge',
      }
      writeFileSync(join(conf.dataDir, containerId(pod)), JSON.stringify(asked))
      const before = (await node.exec(['iptables-save', '-t', 'nat'])).stdout
      const added = await plugin(
        'bridge',
        {
          command: 'ADD',
          conf: asked,
          containerId: containerId(pod),
          netns: pod,
          path: PLUGINS,
          file: `${PLUGINS}/bridge`,
        },
        node,
      )
      assert.equal(added.status, 0, added.stdout)
      assert.notEqual((await node.exec(['iptables-save', '-t', 'nat'])).stdout, before)
      await network(node, conf).del(pod)
      assert.deepEqual(
        [
          readdirSync(conf.dataDir),
          readdirSync(join(pool, conf.name)).filter((name) => /^\d/.test(name)),
          await node.json('link', 'show', 'type', 'veth'),
        ],
        [[], [], []],
      )
      assert.doesNotMatch((await node.exec(['iptables-save', '-t', 'nat'])).stdout, /10\.1\.17\./)
    }),
  )

  it(
    "takes over a pod with host ports of flannel's list, in which portmap is a plugin of its own: DEL of the list in one process removes the ports' rules too",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = flannelConf(ENV.v4, { cniVersion: '1.0.0' })
      const asked = {
        cniVersion: '1.0.0',
        bridge: 'br0',
        ipam: { dataDir: conf.ipam?.dataDir, ranges: [[{ subnet: '10.1.17.0/24' }]], type: 'host-local' },
        isDefaultGateway: true,
        isGateway: true,
        name: conf.name,
        type: 'bridge',
      }
      writeFileSync(join(conf.dataDir, containerId(pod)), JSON.stringify(asked))
      const call = (type: string, conf: object) =>
        plugin(
          type,
          {
            command: 'ADD',
            conf,
            containerId: containerId(pod),
            netns: pod,
            path: PLUGINS,
            file: `${PLUGINS}/${type}`,
          },
          node,
        )
      const added = await call('bridge', asked)
      assert.equal(added.status, 0, added.stdout)
      const runtimeConfig = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] }
      const mapped = await call('portmap', {
        cniVersion: '1.0.0',
        name: conf.name,
        type: 'portmap',
        capabilities: { portMappings: true },
        runtimeConfig,
        prevResult: added.result,
      })
      assert.equal(mapped.status, 0, mapped.stdout)
      const rules = async () => (await node.exec(['iptables-save', '-t', 'nat'])).stdout
      assert.match(await rules(), /--dport 8080|--dports 8080/)
      const net = network(node, { ...conf, delegate: { bridge: 'br0', portMappings: true }, runtimeConfig })
      await net.del(pod)
      assert.doesNotMatch(await rules(), /8080/)
      assert.deepEqual(readdirSync(conf.dataDir), [])
    }),
  )

  it(
    'delegates to the reference bridge, which uses the reference pool or ours, as CNI_PATH has them: packets, DEL three ways, nothing left',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = flannelConf(ENV.v4, { cniVersion: '1.0.0' })
      const net = network(node, conf)
      const alone = mkdtempSync('/run/bin-')
      symlinkSync(`${PLUGINS}/bridge`, join(alone, 'bridge'))
      for (const path of [PLUGINS, `${alone}:${DIST}`]) {
        for (const netns of [pod, '', '/run/netns/gone']) {
          const result = await net.add(pod, { path })
          assert.match(result['ips'][0].address, /^10\.1\.17\.\d+\/24$/)
          await until(() => ping(pod, '10.1.17.1'))
          assert.ok(existsSync(fileOf(conf, pod)))
          await net.del(pod, { path, netns })
          assert.deepEqual(readdirSync(conf.dataDir), [])
          // Without the namespace the reference bridge leaves the link to the owner of that.
          if (netns !== pod) await pod.ip('link', 'delete', 'eth0')
        }
      }
      assert.deepEqual(
        [
          readdirSync(join(conf.ipam?.dataDir as string, conf.name)).filter((name) => /^\d/.test(name)),
          await node.json('link', 'show', 'type', 'veth'),
        ],
        [[], []],
      )
    }),
  )
})
