// lane: netns
// Tests plugins/host-device.ts.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { inNamespaces, type Namespace, ping, plugin, until } from '../../support/harness.ts'
import { deviceConf, linkOf, makeDevices, names, onBus, withSysfs } from '../../support/host-devices.ts'
import { containerId, network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'

/** A node with dev0, up, its address 02:00:00:00:01:10. */
function lending(work: (node: Namespace, pod: Namespace) => Promise<void>) {
  return inNamespaces(['node', 'pod'], async ({ node, pod }) => {
    await makeDevices(node, 'dev0')
    await node.ip('link', 'set', 'dev', 'dev0', 'up')
    await work(node, pod)
  })
}

describe('host-device', () => {
  it(
    'HD 110: finds its device by device, and by hwaddr however that is written',
    lending(async (node, pod) => {
      const before = await linkOf(node, 'dev0')
      for (const keys of [
        { device: 'dev0' },
        { hwaddr: '02:00:00:00:01:10' },
        { hwaddr: '02-00-00-00-01-10' },
        { hwaddr: '0200.0000.0110', device: '' },
      ]) {
        const net = network(node, deviceConf(keys))
        const result = await net.add(pod)
        assert.deepEqual(result['interfaces'], [{ name: 'eth0', mac: before['address'], mtu: 1500, sandbox: pod.path }])
        assert.ok(await until(() => ping(node, addresses(result)[0] as string)))
        await net.check(pod, result)
        assert.deepEqual(await names(node), ['br0', 'far-dev0'])
        await net.del(pod)
        assert.deepEqual(await linkOf(node, 'dev0'), before)
        assert.deepEqual(traces(pod, net.conf), [])
      }
    }),
  )

  it(
    'HD 110: finds its device by pciBusID, by a deviceID on the PCI bus or the auxiliary one, and deviceID comes first; HD 117: pciID is in the result',
    lending(async (node, pod) => {
      const [card, part] = ['pci/devices/0000:5e:00.1', 'auxiliary/devices/mlx5_core.sf.4']
      const cases = [
        { on: card, conf: { pciBusID: '0000:5E:00.1' }, pciID: '0000:5e:00.1' },
        { on: `${card}/virtio3`, conf: { runtimeConfig: { DeviceID: '0000:5e:00.1' } }, pciID: '0000:5e:00.1' },
        { on: part, conf: { runtimeConfig: { deviceID: 'mlx5_core.sf.4' }, pciBusID: '0000:00:00.0' } },
      ]
      for (const { on, conf, pciID } of cases) {
        const sysfs = withSysfs(`mount -t tmpfs t /sys/bus\n${await onBus(node, on, 'dev0')}`)
        const net = network(node, deviceConf({ ...conf, ipam: undefined }))
        const result = await net.add(pod, sysfs)
        assert.equal(result['interfaces'][0].pciID, pciID)
        await net.check(pod, result, sysfs)
        await net.del(pod)
        assert.ok(await linkOf(node, 'dev0'))
      }
    }),
  )

  it(
    'HD 110: refuses a configuration without a device, and devices that are not there, in words that say what would be right',
    lending(async (node, pod) => {
      const refused = async (keys: object, msg: RegExp) => {
        const error = await network(node, deviceConf({ ipam: undefined, ...keys })).fails('ADD', pod)
        assert.deepEqual([error.code, msg.test(error.msg)], [7, true], error.msg)
      }
      await refused({}, /^Cannot choose a device: want one of "device", "hwaddr", "kernelpath", "pciBusID"/)
      await refused({ device: 'dev9' }, /device "dev9".*want/)
      await refused({ device: 'a/b' }, /device "a\/b": want an interface name/)
      await refused({ hwaddr: '02:00:00:00:01:99' }, /hwaddr "02:00:00:00:01:99".*want/)
      await refused({ hwaddr: '02:00' }, /hwaddr "02:00": want/)
      await refused({ kernelpath: '/etc' }, /kernelpath "\/etc": want a path below \/sys\/devices/)
      await refused({ kernelpath: '/sys/devices/../../etc' }, /kernelpath .*want a path below/)
      await refused({ kernelpath: '/sys/devices/nowhere' }, /kernelpath "\/sys\/devices\/nowhere".*want/)
      await refused({ pciBusID: '../../x' }, /pciBusID .*want an address of the PCI bus/)
      await refused({ pciBusID: 'ffff:ff:1f.7' }, /pciBusID "ffff:ff:1f.7".*want/)
      await refused({ runtimeConfig: { deviceID: 'mlx5_core.sf.9' } }, /deviceID "mlx5_core.sf.9".*want/)
      await refused({ runtimeConfig: { deviceID: '../x' } }, /deviceID .*want/)
      assert.deepEqual(await names(node), ['br0', 'dev0', 'far-dev0'])
    }),
  )

  it(
    'HD 111: a device of a DPDK driver has no link: it is in the result with its addresses and its pciID, and nothing is touched',
    lending(async (node, pod) => {
      const dir = '/sys/bus/pci/devices/0000:5e:00.2'
      const sysfs = withSysfs(
        `mount -t tmpfs t /sys/bus\nmkdir -p ${dir} /sys/bus/pci/drivers/vfio-pci\nln -s ../../drivers/vfio-pci ${dir}/driver`,
      )
      const net = network(node, deviceConf({ pciBusID: '0000:5e:00.2' }))
      const result = await net.add(pod, sysfs)
      assert.deepEqual(result['interfaces'], [{ name: 'eth0', sandbox: pod.path, pciID: '0000:5e:00.2' }])
      assert.deepEqual(addresses(result), ['10.1.0.10'])
      await net.check(pod, result, sysfs)
      assert.deepEqual(await names(pod), [])
      await net.del(pod, { netns: '' })
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    'HD 112, HD 118: DEL gives the device back under its name, up or down as it was, with its address, its size and its alias, and again succeeds',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      for (const set of ['up', 'down', 'alias uplink mtu 1400']) {
        await node.ip(...`link set dev dev0 ${set}`.split(' '))
        const before = await linkOf(node, 'dev0')
        const result = await net.add(pod)
        assert.equal(result['interfaces'][0].mtu, before['mtu'])
        await pod.ip(...'link set dev eth0 address 02:00:00:00:01:77 mtu 1300'.split(' '))
        await net.del(pod)
        assert.deepEqual(await linkOf(node, 'dev0'), before)
        await net.del(pod)
        assert.deepEqual(await linkOf(node, 'dev0'), before)
      }
    }),
  )

  it(
    'DEL gives the device back to the node also in a PID namespace other than that of /proc',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      await net.add(pod)
      // The plugin has a small number there, which is another process's in /proc.
      const file = join(mkdtempSync('/run/bin-'), 'host-device')
      const program = join(import.meta.dir, '../../../dist/host-device')
      writeFileSync(file, `#!/bin/sh\nunshare --pid --fork ${program}\n`, { mode: 0o755 })
      await net.del(pod, { file })
      assert.deepEqual(await linkOf(node, 'dev0'), before)
    }),
  )

  it(
    'HD 112: what a call leaves that was killed between its record and the move is forgotten by DEL, and the device is not touched',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      await net.add(pod)
      const [file = ''] = traces(pod, net.conf).filter((path) => path.includes('/attachments/'))
      const text = readFileSync(file, 'utf8')
      await net.del(pod)
      // The pod has a link of the very number and name meanwhile, which is its own.
      await pod.ip('link', 'add', 'eth0', 'index', '3', 'type', 'bridge')
      writeFileSync(file, text)
      await net.del(pod)
      assert.deepEqual([await linkOf(node, 'dev0'), await names(pod), traces(pod, net.conf)], [before, ['eth0'], []])
    }),
  )

  it(
    'HD 113: a DEL that finds the name taken on the node says so and leaves the device in the container; once it is free, it works',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      const result = await net.add(pod)
      await node.ip('link', 'add', 'dev0', 'type', 'bridge')
      const error = await net.fails('DEL', pod)
      assert.match(error.msg, /Cannot give dev0 back: the node has another link of that name/)
      assert.ok(await until(() => ping(node, addresses(result)[0] as string)))
      await node.ip('link', 'delete', 'dev0')
      await net.del(pod)
      assert.deepEqual(await linkOf(node, 'dev0'), before)
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    'HD 114: an ADD whose name is taken in the container says so; the device is on the node, as it was, and the other link too',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      await pod.ip('link', 'add', 'eth0', 'type', 'bridge')
      const theirs = await linkOf(pod, 'eth0')
      assert.match((await net.fails('ADD', pod)).msg, /eth0.*already/)
      assert.deepEqual([await linkOf(node, 'dev0'), await linkOf(pod, 'eth0')], [before, theirs])
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    'an ADD whose pool is full, which is seen while the device moves, gives the device back as it was',
    lending(async (node, pod) => {
      const dataDir = mkdtempSync('/run/ipam-')
      const net = network(
        node,
        deviceConf({
          device: 'dev0',
          ipam: { type: 'host-local', dataDir, ranges: [[{ subnet: '10.1.0.0/30', gateway: '10.1.0.1' }]] },
        }),
      )
      const before = await linkOf(node, 'dev0')
      const folder = join(dataDir, net.conf.name)
      mkdirSync(folder)
      writeFileSync(join(folder, '10.1.0.2'), 'somebody\r\neth0')
      assert.equal((await net.fails('ADD', pod)).code, 11)
      assert.deepEqual([await linkOf(node, 'dev0'), await names(pod)], [before, []])
      rmSync(folder, { recursive: true })
      await net.add(pod)
      await net.del(pod)
      assert.deepEqual([await linkOf(node, 'dev0'), traces(pod, net.conf)], [before, []])
    }),
  )

  it(
    'HD 115: whatever the device is called in the container by now, and whatever is called eth0 there, DEL finds it',
    lending(async (node, pod) => {
      const before = await linkOf(node, 'dev0')
      for (const [set, alias] of [
        ['name net7', undefined],
        ['name other alias mine', undefined],
        ['name net7', 'theirs'],
      ] as const) {
        const net = network(node, deviceConf({ device: 'dev0' }))
        if (alias) await node.ip('link', 'set', 'dev', 'dev0', 'alias', alias)
        await net.add(pod)
        for (const words of ['link set dev eth0 down', `link set dev eth0 ${set}`, 'link add eth0 type bridge'])
          await pod.ip(...words.split(' '))
        await net.del(pod)
        assert.deepEqual([(await linkOf(node, 'dev0'))['isUp'], await names(pod)], [before['isUp'], ['eth0']])
        await pod.ip('link', 'delete', 'eth0')
        assert.equal((await linkOf(node, 'dev0'))['ifalias'], alias)
        await node.ip('link', 'set', 'dev', 'dev0', 'alias', '')
      }
    }),
  )

  it(
    'HD 116: DEL without CNI_NETNS gives device and address back; where the namespace is gone the address is freed, and what came back by itself gets its name',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const before = await linkOf(node, 'dev0')
      await net.add(pod)
      await net.del(pod, { netns: '' })
      assert.deepEqual([await linkOf(node, 'dev0'), traces(pod, net.conf)], [before, []])
      await net.add(pod)
      // As the kernel moves a card when its namespace ends: down, under whatever name it had there.
      await pod.ip('link', 'set', 'dev', 'eth0', 'name', 'dev7', 'netns', node.path)
      await execa('ip', ['netns', 'delete', containerId(pod)])
      await net.del(pod)
      assert.deepEqual([await linkOf(node, 'dev0'), traces(pod, net.conf)], [before, []])
    }),
  )

  it(
    'HD 116: a device that died with its namespace keeps no address and no record',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      await net.add(pod)
      await execa('ip', ['netns', 'delete', containerId(pod)])
      await until(async () => !(await names(node)).includes('far-dev0'))
      await net.del(pod)
      assert.deepEqual(traces(pod, net.conf), [])
      await net.del(pod)
    }),
  )

  it(
    'STATUS is ready while the device is on the node or lent, and code 50 when it is nowhere; CHECK sees that it is gone or down',
    lending(async (node, pod) => {
      const net = network(node, deviceConf({ device: 'dev0' }))
      const status = () => plugin('host-device', { command: 'STATUS', conf: net.conf }, node)
      assert.equal((await status()).status, 0)
      const result = await net.add(pod)
      assert.equal((await status()).status, 0)
      // A lent device is not another one that is nowhere.
      const other = await plugin('host-device', { command: 'STATUS', conf: { ...net.conf, device: 'dev9' } }, node)
      assert.equal(other.error.code, 50)
      await pod.ip('link', 'set', 'dev', 'eth0', 'down')
      assert.match((await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).details, /eth0.*up/)
      await node.ip('link', 'delete', 'far-dev0')
      assert.match((await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg, /eth0.*missing/)
      await net.del(pod)
      assert.equal((await status()).error.code, 50)
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )
})
