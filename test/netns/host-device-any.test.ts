import assert from 'node:assert/strict'
import { type Namespace, ping, until } from '../harness.ts'
import { deviceConf, makeDevices, names, wire } from '../lent.ts'
import { type Conf, type Network, network } from '../network.ts'
import { addresses } from '../pool.ts'
import type { Subject } from '../suites/subject.ts'
import { testKill } from '../suites/testKill.ts'
import { testPlugin } from '../suites/testPlugin.ts'

/** A network with two devices: the container that comes first has dev0, another the one of the configuration. What is no hardware dies with its namespace: it is put back, as a card would come back. */
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
    if (!(await has()).includes('dev1')) await node.ip(...'link add name dev1 address 02:00:00:00:01:11 type veth peer name far-dev1 address 02:00:00:00:02:11'.split(' '))
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
