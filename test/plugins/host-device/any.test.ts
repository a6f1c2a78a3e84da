// lane: netns
// Tests plugins/host-device.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DIST, folder, on } from '../../support/cnitool.ts'
import { inNamespaces, type Namespace, ping, type Row, until } from '../../support/harness.ts'
import { deviceConf, linkOf, makeDevices, names, wire } from '../../support/host-devices.ts'
import { rewrite } from '../../support/journal.ts'
import { type Conf, containerId, type Network, network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'
import type { Subject } from '../../support/suites/subject.ts'
import { testKill } from '../../support/suites/testKill.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'
import { shimmed } from '../../support/tool-shims.ts'

/**
 * A network with two devices: the container that comes first has dev0, another the one of the configuration. What is no
 * hardware dies with its namespace: it is put back, as a card would come back.
 */
function lent(node: Namespace, conf: Conf): Network {
  const net = network(node, conf)
  let first: Namespace | undefined
  const devices = () => makeDevices(node, 'dev0', 'dev1')
  return {
    ...net,
    async add(pod, more) {
      if (!first) await devices()
      first ??= pod
      return net.add(pod, { ...(first === pod && { conf: { ...conf, device: 'dev0' } }), ...more })
    },
    async del(pod, more) {
      await net.del(pod, more)
      await again()
    },
    async gc(...keep) {
      await net.gc(...keep)
      if (keep.every((pod) => pod === first)) await again()
    },
  }
  // Either it is back, or it dies, which may take the kernel a while.
  async function again(): Promise<void> {
    const has = () => names(node)
    await until(async () => (await has()).includes('dev1') || !(await has()).includes('far-dev1'))
    if (!(await has()).includes('dev1'))
      await node.ip(
        ...'link add name dev1 address 02:00:00:00:01:11 type veth peer name far-dev1 address 02:00:00:00:02:11'.split(
          ' ',
        ),
      )
    await wire(node, 'dev1')
  }
}

const subject: Subject = {
  type: 'host-device',
  conf: () => deviceConf({ device: 'dev1' }),
  refused: (conf) => ({ ...conf, hwaddr: 'no address' }),
  again: 'refused',
  network: lent,
  async works(pod, result, node) {
    for (const address of addresses(result)) assert.ok(await until(() => ping(node, address)))
    assert.ok(await ping(pod, '10.1.0.1'))
  },
}

testPlugin(subject)
describe('host-device, killed', () => testKill(subject))

describe('host-device, before and after others', () => {
  it(
    'HD 111: a pool that asks on the link (dhcp) finds it in the container, and a pool that fails brings the device back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await makeDevices(node, 'dev0')
      const before = await linkOf(node, 'dev0')
      const dir = mkdtempSync('/run/asking-')
      const pool = (answer: string) =>
        writeFileSync(
          `${dir}/asking`,
          `#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nnsenter --net=$CNI_NETNS ip link show dev $CNI_IFNAME >&2 >/dev/null || exit 1\n${answer}\n`,
          { mode: 0o755 },
        )
      const net = network(node, deviceConf({ device: 'dev0', ipam: { type: 'asking' } }))
      pool('exit 3')
      await net.fails('ADD', pod, { path: dir })
      assert.deepEqual([await linkOf(node, 'dev0'), await names(pod), traces(pod, net.conf)], [before, [], []])
      pool(
        `echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.77/24"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1"}]}'`,
      )
      const result = await net.add(pod, { path: dir })
      assert.deepEqual([result['ips'], result['interfaces'].length], [[{ interface: 0, address: '10.1.0.77/24' }], 1])
      assert.ok(await until(() => ping(node, '10.1.0.77')))
      await net.del(pod, { path: dir })
      assert.deepEqual(await linkOf(node, 'dev0'), before)
    }),
  )

  it(
    'an ADD without a pool after one that was killed works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await makeDevices(node, 'dev0')
      const before = await linkOf(node, 'dev0')
      const net = network(node, deviceConf({ device: 'dev0', ipam: undefined }))
      const result = await net.add(pod)
      rewrite(containerId(pod), (entry) => ({ ...entry, unfinished: true }))
      assert.deepEqual(await net.add(pod), result)
      assert.match((await net.fails('ADD', pod)).msg, /already/)
      await net.del(pod)
      assert.deepEqual([await linkOf(node, 'dev0'), traces(pod, net.conf)], [before, []])
    }),
  )
})

describe('host-device, explained', () => {
  it(
    'plumb cni explain tells beforehand how the device goes and comes back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await makeDevices(node, 'dev0')
      await node.ip('link', 'set', 'dev', 'dev0', 'up')
      const net = network(node, deviceConf({ device: 'dev0', ipam: undefined }))
      const dir = folder({ name: net.conf.name, cniVersion: '1.1.0', plugins: [net.conf] })
      const { works } = on(node, dir)
      const told = async (...argv: string[]): Promise<string[]> =>
        JSON.parse(
          await works(['explain', net.conf.name, '--json', ...argv], [join(DIST, 'plumb'), 'cni']),
        ).plugins[0].runs.flatMap(({ namespace, lines }: Row) =>
          lines.map(
            ({ text }: Row) => `${namespace === 'host' ? 'node' : 'pod'}: ${text.replace(/\/proc\/\d+/, '/proc/PID')}`,
          ),
        )
      assert.deepEqual(await told(pod.path), [
        `node: link set dev dev0 name eth0 alias dev0 netns ${pod.path}`,
        'pod: link set dev eth0 up',
      ])
      await works(['add', net.conf.name, pod.path], [join(DIST, 'plumb'), 'cni'])
      assert.deepEqual(await told('--del', pod.path), [
        'pod: link set dev eth0 name dev0 alias "" netns /proc/PID/ns/net up',
      ])
      await works(['del', net.conf.name, pod.path], [join(DIST, 'plumb'), 'cni'])
    }),
  )
})

describe('host-device, on the way', () => {
  it(
    'a link that takes the name in the container while the device moves there: ADD says so, the device is back as it was, and the pool has its address back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await makeDevices(node, 'dev0')
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      const { file } = shimmed('host-device', {
        ip: `grep -q ' netns ' "$input" && $real -n ${containerId(pod)} link add eth0 type bridge; exec $real "$@" < "$input"`,
      })
      assert.match((await net.fails('ADD', pod, { file })).msg, /eth0.*already/)
      assert.deepEqual([await linkOf(node, 'dev0'), await names(pod), traces(pod, net.conf)], [before, ['eth0'], []])
    }),
  )
})
