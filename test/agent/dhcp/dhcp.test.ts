// lane: long
// Tests agent/dhcp and plugins/dhcp.ts.
import assert from 'node:assert/strict'
import { daemon, dnsmasq, LAN, lan, leased, leaseFiles, place, socketPath } from '../../support/dhcp.ts'
import { inNamespaces, type Namespace, ping, until } from '../../support/harness.ts'
import { type Conf, containerId, type Network, network, traces } from '../../support/network.ts'
import { patient } from '../../support/patience.ts'
import { addresses } from '../../support/pool.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'

// Alone it has no link: under bridge it goes through every verb of both.
testPlugin({
  type: 'bridge',
  conf: () => leased(socketPath()),
  refused: (conf) => ({ ...conf, ipam: { ...conf.ipam, request: [{ option: 'no-such' }] } }) as Conf,
  again: 'refused',
  async works(pod, result, node) {
    assert.match(addresses(result)[0] ?? '', /^10\.7\.0\.5\d$/)
    assert.ok(await until(() => ping(pod, LAN.server)))
    assert.ok(await until(() => ping(node, addresses(result)[0] as string)))
  },
  network: served,
})

describe('dhcp: what it gives', () => {
  it(
    'ADD gives an address, the gateway and routes of the server, and the pod reaches it; DEL gives it back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net, server, socket } = await place(node)
      const result = await net.add(pod)
      const [address = ''] = addresses(result)
      assert.match(address, /^10\.7\.0\.5\d$/)
      await until(() => assert.deepEqual(server.leases(), [address]) === undefined)
      assert.deepEqual(result['ips'], [{ address: `${address}/24`, gateway: LAN.node, interface: 2 }])
      assert.deepEqual(result['routes'], [{ dst: '0.0.0.0/0', gw: LAN.node }])
      assert.ok(await until(() => ping(pod, LAN.server)))
      await net.check(pod, result)
      assert.match(server.text(), new RegExp(`client-id|${containerId(pod)}|DHCPACK`))
      await net.del(pod)
      await until(() => server.leases().length === 0)
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
      assert.match(server.text(), /DHCPRELEASE\(lan0\) 10\.7\.0\.5\d/)
    }),
  )

  it(
    "the lease of a host-device is asked for on that device, once it is the pod's; DEL gives both back",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { server, socket } = await place(node)
      for (const words of [`link add dev0 up type veth peer name far0`, `link set far0 up master ${LAN.bridge}`])
        await node.ip(...words.split(' '))
      const net = network(node, leased(socket, {}, { type: 'host-device', device: 'dev0', bridge: undefined }))
      const result = await net.add(pod)
      await until(() => assert.deepEqual(server.leases(), addresses(result)) === undefined)
      assert.ok(await until(() => ping(pod, LAN.server)))
      await net.del(pod)
      await until(() => server.leases().length === 0)
      await node.ip('link', 'show', 'dev', 'dev0')
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'two links of a container have a lease each, and DEL takes its own',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net, server } = await place(node)
      const one = await net.add(pod)
      const two = await net.add(pod, { ifname: 'eth1' })
      const all = [...addresses(one), ...addresses(two)]
      assert.equal(new Set(all).size, 2)
      await until(() => assert.deepEqual(server.leases().toSorted(), all.toSorted()) === undefined)
      await net.del(pod)
      await until(() => server.leases().length === 1)
      assert.deepEqual(server.leases(), addresses(two))
      await net.check(pod, two, { ifname: 'eth1' })
      await net.del(pod, { ifname: 'eth1' })
      await until(() => server.leases().length === 0)
    }),
  )

  it(
    'eight pods at once have eight addresses, and give back all of them at once',
    inNamespaces(['node', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], async ({ node, ...rest }) => {
      const { net, server, socket } = await place(node)
      const pods = Object.values(rest)
      const results = await Promise.all(pods.map((pod) => net.add(pod)))
      const all = results.flatMap(addresses)
      assert.equal(new Set(all).size, 8)
      await until(() => assert.deepEqual(server.leases().toSorted(), all.toSorted()) === undefined)
      await Promise.all(pods.map((pod) => net.del(pod)))
      await until(() => server.leases().length === 0)
      assert.deepEqual(leaseFiles(socket), [])
    }),
  )

  it(
    'DEL again, and DEL of what was never added, succeed; ADD after it works',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server } = await place(node)
      await net.del(other)
      await net.add(pod)
      await net.del(pod)
      await net.del(pod)
      await net.del(pod, { netns: '' })
      const result = await net.add(pod)
      await until(() => assert.deepEqual(server.leases(), addresses(result)) === undefined)
      assert.ok(await until(() => ping(pod, LAN.server)))
    }),
  )

  it(
    'a pool with one address: the second pod is refused within -resendtimeout, nothing of it is left, and it gets the address when that is free',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server } = await place(node, { server: ['--dhcp-range=10.7.0.50,10.7.0.50,120'] })
      await net.add(pod)
      const began = performance.now()
      const error = await net.fails('ADD', other)
      assert.ok(performance.now() - began < patient(6000), `${performance.now() - began} ms`)
      assert.deepEqual([error.code, error.msg], [11, 'Cannot get an IPv4 lease on eth0: no server gave one within 4 s'])
      assert.deepEqual([traces(other, net.conf), (await other.json('link')).length], [[], 1])
      await net.del(pod)
      await until(() => server.leases().length === 0)
      assert.deepEqual(addresses(await net.add(other)), ['10.7.0.50'])
    }),
  )

  for (const [what, ipam] of Object.entries({
    'an option that has no number': { request: [{ option: 'no-such' }] },
    'a value of more than 255 bytes': { provide: [{ option: '12', value: 'x'.repeat(256) }] },
    'no IP version': { families: [] },
    'a socket that is no path': { daemonSocketPath: 'dhcp.sock' },
  }))
    it(
      `ADD refuses ${what} before anything is made`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = network(node, leased('/run/cni/none.sock', ipam))
        const error = await net.fails('ADD', pod)
        assert.deepEqual([error.code, (await node.json('link')).length], [7, 1])
        assert.match(error.msg, /want/)
      }),
    )
})

/** A network whose first ADD finds server and daemon ready. */
function served(node: Namespace, conf: Conf): Network {
  const net = network(node, conf)
  let ready: Promise<unknown> | undefined
  const start = () =>
    lan(node).then(() => Promise.all([dnsmasq(node), daemon(node, String(conf.ipam?.['daemonSocketPath']))]))
  return {
    ...net,
    async add(pod, more) {
      ready ??= start()
      await ready
      return net.add(pod, more)
    },
  }
}
