// lane: vm
// Tests plugins/host-device.ts.
import assert from 'node:assert/strict'
import { readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { execa } from 'execa'
import { inNamespaces, type Namespace, ping, until } from '../../support/harness.ts'
import { deviceConf, linkOf, names, withSysfs } from '../../support/host-devices.ts'
import { containerId, network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'

/** The machine's two network cards, one wire between them, and where they are when no test has them. */
const [CARD, OTHER, HOME] = ['0000:00:11.0', '0000:00:12.0', '/machine-netns']
/** As the node's own sysfs shows it. */
const sysfs = () => withSysfs('mount -t sysfs sysfs /sys')

/** A node with the card `nic0`, up, the other one in `world` with 10.1.0.1. */
function carded(work: (node: Namespace, pod: Namespace) => Promise<void>) {
  return inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
    const home = (...argv: string[]) => execa('nsenter', [`--net=${HOME}`, '--', 'ip', ...argv])
    await home('link', 'set', 'dev', 'eth0', 'name', 'nic0', 'netns', node.path, 'up')
    await home('link', 'set', 'dev', 'eth1', 'name', 'nic1', 'netns', world.path, 'up')
    try {
      await world.ip('addr', 'add', '10.1.0.1/24', 'dev', 'nic1')
      await work(node, pod)
    } finally {
      await node.ip('link', 'set', 'dev', 'nic0', 'name', 'eth0', 'netns', HOME)
      await world.ip('link', 'set', 'dev', 'nic1', 'name', 'eth1', 'netns', HOME)
    }
  })
}

describe('host-device with a network card of PCI', () => {
  it(
    'HD 110, HD 117: by pciBusID, kernelpath and deviceID; pciID is in the result, packets pass, and the card comes back as it was',
    carded(async (node, pod) => {
      const before = await linkOf(node, 'nic0')
      const kernelpath = realpathSync(`/sys/bus/pci/devices/${CARD}`)
      const virtio = `${kernelpath}/${(await node.exec(['ls', kernelpath])).stdout.split('\n').find((name) => name.startsWith('virtio'))}`
      for (const keys of [
        { pciBusID: CARD },
        { kernelpath: virtio },
        { runtimeConfig: { deviceID: CARD }, pciBusID: OTHER },
      ]) {
        const net = network(node, deviceConf(keys))
        const result = await net.add(pod, sysfs())
        assert.deepEqual(
          result['interfaces'],
          [{ name: 'eth0', mac: '52:54:00:00:00:01', mtu: 1500, sandbox: pod.path, pciID: CARD }],
          JSON.stringify(keys),
        )
        assert.ok(await until(() => ping(pod, '10.1.0.1')))
        await net.check(pod, result, sysfs())
        await net.del(pod, sysfs())
        assert.deepEqual(await linkOf(node, 'nic0'), before)
        assert.deepEqual(traces(pod, net.conf), [])
      }
      // The other card is another node's: sysfs of this one shows no link below it.
      assert.match(
        (await network(node, deviceConf({ pciBusID: OTHER })).fails('ADD', pod, sysfs())).msg,
        /pciBusID "0000:00:12.0".*want a device that is there and has a link on the node/,
      )
    }),
  )

  it(
    'HD 115, HD 116: a card that lost name, mark, address and size in the container is found by what it was made with, and comes back with all of them',
    carded(async (node, pod) => {
      const before = await linkOf(node, 'nic0')
      const net = network(node, deviceConf({ pciBusID: CARD }))
      const result = await net.add(pod, sysfs())
      assert.equal(addresses(result).length, 1)
      await pod.ip(...'link set dev eth0 down'.split(' '))
      await pod.ip(...'link set dev eth0 name moved alias mine address 02:00:00:00:09:09 mtu 1400'.split(' '))
      await net.del(pod, { netns: '' })
      assert.deepEqual([await linkOf(node, 'nic0'), await names(pod), traces(pod, net.conf)], [before, [], []])
    }),
  )

  it(
    'HD 118: the kernel itself gives a card back when its namespace ends, to the first namespace: DEL there restores name and state',
    inNamespaces(['pod'], async ({ pod }) => {
      const home: Namespace = {
        ...pod,
        path: HOME,
        exec: (argv, { env = {}, stdin = '' } = {}) =>
          execa('nsenter', [`--net=${HOME}`, '--', ...argv], {
            input: stdin,
            env: { PATH: process.env['PATH'] ?? '', ...env },
            extendEnv: false,
            reject: false,
          }).then(({ exitCode = -1, stdout, stderr }) => ({ status: exitCode, stdout, stderr })),
      }
      const seen = async () =>
        JSON.parse((await home.exec(['ip', '-j', '-d', 'link'])).stdout).map(
          ({
            ifname,
            address,
            flags,
            ifalias,
          }: {
            ifname: string
            address: string
            flags: string[]
            ifalias?: string
          }) => [ifname, address, flags.includes('UP'), ifalias],
        )
      await home.exec(['ip', 'link', 'set', 'dev', 'eth0', 'up'])
      const before = await seen()
      const net = network(home, deviceConf({ device: 'eth0' }))
      await net.add(pod)
      await pod.ip('link', 'set', 'dev', 'eth0', 'down')
      await pod.ip('link', 'set', 'dev', 'eth0', 'name', 'net1')
      await execa('ip', ['netns', 'delete', containerId(pod)])
      await until(async () => (await seen()).length === before.length, 20_000)
      await net.del(pod)
      assert.deepEqual(await seen(), before)
      assert.deepEqual(traces(pod, net.conf), [])
      await home.exec(['ip', 'link', 'set', 'dev', 'eth0', 'down'])
    }),
  )

  it(
    'HD 111: a card that a DPDK driver has is attached without a link',
    carded(async (node, pod) => {
      await execa('modprobe', ['uio_pci_generic'])
      const device = `/sys/bus/pci/devices/${CARD}`
      await node.ip('link', 'set', 'dev', 'nic0', 'name', 'eth0', 'netns', HOME)
      const bind = (driver: string) => {
        writeFileSync(`${device}/driver_override`, driver || '\n')
        writeFileSync(`${device}/driver/unbind`, CARD)
        writeFileSync('/sys/bus/pci/drivers_probe', CARD)
      }
      bind('uio_pci_generic')
      try {
        assert.match(readFileSync(`${device}/uevent`, 'utf8'), /DRIVER=uio_pci_generic/)
        const net = network(node, deviceConf({ pciBusID: CARD }))
        const result = await net.add(pod, sysfs())
        assert.deepEqual(result['interfaces'], [{ name: 'eth0', sandbox: pod.path, pciID: CARD }])
        await net.check(pod, result, sysfs())
        await net.del(pod)
        assert.deepEqual(traces(pod, net.conf), [])
      } finally {
        bind('')
        const found = await until(
          async () =>
            (await execa('nsenter', [`--net=${HOME}`, 'ip', '-o', 'link'])).stdout.match(
              /: (\w+): .*52:54:00:00:00:01/,
            )?.[1] ?? '',
          20_000,
        )
        await execa('nsenter', [`--net=${HOME}`, 'ip', 'link', 'set', 'dev', found, 'name', 'nic0', 'netns', node.path])
      }
    }),
  )
})
