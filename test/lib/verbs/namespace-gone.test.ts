// lane: netns
// Tests lib/verbs: DEL without a namespace.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { chain, good } from '../../support/chained.ts'
import { foreignPlugin } from '../../support/foreign-plugin.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { deviceConf, makeDevices } from '../../support/host-devices.ts'
import { wireLan } from '../../support/lan.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'

const KEYS = {
  tuning: { mtu: 1400, sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1' } },
  sbr: {},
  portmap: { runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80 }] } },
  bandwidth: { ingressRate: 8000, ingressBurst: 80_000 },
}

describe('an ADD for a container whose former namespace went without a DEL', () => {
  for (const [type, keys] of Object.entries(KEYS))
    it(
      `${type} works in the new one, and its DEL leaves nothing`,
      inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
        const net = chain(node, { type, ...keys })
        const id = { containerId: 'same' }
        await net.add(pod, {}, id)
        await execa('ip', ['netns', 'delete', containerId(pod)])
        await network(node, net.bridge).del(pod, id)
        const prevResult = await net.add(next, {}, id)
        good(await net.call('CHECK', next, { prevResult }, id))
        good(await net.call('DEL', next, {}, id))
      }),
    )

  it(
    'host-device lends the device again, as it was on the node',
    inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
      await makeDevices(node, 'dev0')
      const net = network(node, deviceConf({ device: 'dev0', ipam: undefined }))
      await net.add(pod, { containerId: 'same' })
      await execa('ip', ['netns', 'delete', containerId(pod)])
      // What is no hardware the kernel deletes with the namespace: somebody makes it again.
      await until(async () => !(await node.json('link')).some(({ ifname }) => ifname === 'far-dev0'))
      await makeDevices(node, 'dev0')
      await net.add(next, { containerId: 'same' })
      assert.deepEqual(
        (await next.json('link')).map(({ ifname }) => ifname),
        ['lo', 'eth0'],
      )
      await net.del(next, { containerId: 'same' })
      assert.ok((await node.json('link')).some(({ ifname }) => ifname === 'dev0'))
    }),
  )
})

describe('DEL', () => {
  it(
    'of a pod whose CNI_NETNS has a file where a folder was ends with 0 and leaves nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const dir = mkdtempSync('/run/netns-')
      const net = network(node, bridgeConf({ isGateway: true, ipMasq: true }))
      symlinkSync(pod.path, join(dir, 'pod'))
      await net.add(pod, { netns: join(dir, 'pod') })
      rmSync(dir, { recursive: true })
      writeFileSync(dir, '')
      await net.del(pod, { netns: join(dir, 'pod') })
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    'of a pod whose namespace goes while its pool works ends with 0 and leaves nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await wireLan(node)
      // A pool by its link: it is asked before the link goes.
      const pool = foreignPlugin({ ADD: { ips: [{ address: '10.1.0.7/24' }] } }, 'dhcp')
      const file = join(pool.dir, 'dhcp')
      const deletes = `[ "$CNI_COMMAND" = DEL ] && { umount '${pod.path}'; rm -f '${pod.path}'; }`
      writeFileSync(file, readFileSync(file, 'utf8').replace('exit 0', `${deletes}\nexit 0`))
      const net = network(node, { ...bridgeConf(), type: 'macvlan', master: 'eth1', ipam: { type: 'dhcp' } })
      await net.add(pod, { path: pool.dir })
      await net.del(pod, { path: pool.dir })
      assert.deepEqual(pool.calls().filter((one) => one.startsWith('DEL')).length > 0, true)
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    "works when the path of the pod's namespace leads to the node's own meanwhile; that of an unknown pod is refused",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      // As /proc/PID/ns/net, when the number is a process of the node's by now.
      const netns = join(mkdtempSync('/run/pid-'), 'net')
      symlinkSync(pod.path, netns)
      const net = network(node, bridgeConf({ ipMasq: true }))
      await net.add(pod, { netns })
      rmSync(netns)
      symlinkSync(node.path, netns)
      await net.del(pod, { netns })
      assert.deepEqual(traces(pod, net.conf), [])
      assert.equal((await net.fails('DEL', pod, { netns })).code, 8)
    }),
  )
})

describe('STATUS of a network', () => {
  for (const type of ['bridge', 'ptp', 'flannel'])
    it(
      `${type} says code 50 when the program of its pool is missing`,
      inNamespaces(['node'], async ({ node }) => {
        const conf = { ...bridgeConf(), type, ipam: { type: 'nowhere' }, subnetFile: '/run/subnet.env' }
        await node.exec([
          'sh',
          '-c',
          'printf "FLANNEL_NETWORK=10.244.0.0/16\\nFLANNEL_SUBNET=10.244.1.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n" >/run/subnet.env',
        ])
        const { code, msg } = await network(node, conf).fails('STATUS', node, {
          netns: null,
          containerId: null,
          ifname: null,
        })
        assert.deepEqual([code, msg], [50, 'Cannot find the IPAM plugin "nowhere"'])
      }),
    )
})
