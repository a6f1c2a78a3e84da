// lane: netns
// Tests agent/dhcp and plugins/dhcp.ts.
import assert from 'node:assert/strict'
import { daemon, dhcpd6, LAN, lan, leased, leaseFiles, place, socketPath } from '../../support/dhcp.ts'
import { inNamespaces, ping, type Row, until } from '../../support/harness.ts'
import { network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'

const [FOUR, SIX] = ['--dhcp-range=10.7.0.50,10.7.0.59,120', '--dhcp-range=fd07::50,fd07::59,64,120']
const DNS = ['--dhcp-option=option6:dns-server,[fd07::53]', '--dhcp-option=option6:domain-search,six.example']

describe('dhcp, IPv6', () => {
  it(
    '"families": ["ipv6"]: an address alone, with DNS; it answers, and DEL gives it back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net, server, socket } = await place(node, { ipam: { families: ['ipv6'] }, server: [SIX, ...DNS] })
      const result = await net.add(pod)
      const [address = ''] = addresses(result)
      assert.match(address, /^fd07::5\d$/)
      assert.deepEqual(result['ips'], [{ address: `${address}/128`, interface: 2 }])
      assert.deepEqual(result['dns'], { nameservers: ['fd07::53'], search: ['six.example'] })
      // The prefix is for router advertisements to tell: by hand here.
      await pod.ip('route', 'add', 'fd07::/64', 'dev', 'eth0')
      assert.ok(await until(() => ping(pod, LAN.server6)))
      await until(() => server.leases().includes(address))
      // Rapid commit, which this server is fond of.
      assert.doesNotMatch(server.text(), /DHCPADVERTISE|DHCPREQUEST/)
      await net.check(pod, result)
      await net.del(pod)
      await until(() => !server.leases().includes(address))
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'a server that wants to be asked twice; it renews at T1, and is forgotten after DEL',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      const server = await dhcpd6(node, 6)
      await daemon(node, socket)
      const net = network(node, leased(socket, { families: ['ipv6'] }))
      const result = await net.add(pod)
      assert.match(addresses(result)[0] ?? '', /^fd07::7\d$/)
      assert.match(server.text(), /Solicit message[\s\S]*Advertise[\s\S]*Request message[\s\S]*Reply/)
      await until(() => /Renew message[\s\S]*Reply/.test(server.text()), 8000)
      await net.check(pod, result)
      await server.stop('SIGKILL')
      await until(async () => !(await pod.json('link', 'show', 'eth0'))[0]?.['flags'].includes('UP'), 15_000)
      assert.match(
        (await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).msg,
        /no server extended its IPv6 lease in time$/,
      )
      await net.del(pod)
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'both families: an address and DNS of each, in one ADD; one that gets no answer fails it, and the other is given back',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server } = await place(node, {
        ipam: { families: ['ipv4', 'ipv6'] },
        server: [FOUR, '--dhcp-range=fd07::50,fd07::50,64,120', ...DNS, '--dhcp-option=option:dns-server,10.7.0.53'],
      })
      const result = await net.add(pod)
      assert.deepEqual(
        result['ips'].map(({ address }: Row) => address.includes(':')),
        [false, true],
      )
      assert.deepEqual(result['dns'], { nameservers: ['10.7.0.53', 'fd07::53'], search: ['six.example'] })
      const error = await net.fails('ADD', other)
      assert.deepEqual([error.code, error.msg], [11, 'Cannot get an IPv6 lease on eth0: no server gave one within 4 s'])
      await until(() => server.leases().length === 2)
      assert.deepEqual(traces(other, net.conf), [])
    }),
  )

  it(
    'a lease is kept through a restart of the daemon; DEL without a daemon gives it back',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net, server, socket, daemon: first } = await place(node, { ipam: { families: ['ipv6'] }, server: [SIX] })
      const result = await net.add(pod)
      await first.stop('SIGKILL')
      const second = await daemon(node, socket)
      await until(() => /DHCPREBIND/.test(server.text()))
      await net.check(pod, result)
      await second.stop()
      await net.del(pod)
      await until(() => !server.leases().some((address) => address.startsWith('fd07::')))
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
    }),
  )
})
