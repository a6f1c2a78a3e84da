// lane: netns
// Tests agent/dhcp and plugins/dhcp.ts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import {
  daemon,
  dnsmasq,
  LAN,
  lan,
  leased,
  leaseFiles,
  onServer,
  place,
  type Server,
  socketPath,
  systemd,
  udhcpd,
} from '../../support/dhcp.ts'
import { inNamespaces, plugin, type Row, until } from '../../support/harness.ts'
import { containerId, network, traces } from '../../support/network.ts'
import { patient } from '../../support/patience.ts'
import { addresses } from '../../support/pool.ts'

describe('plumb dhcp', () => {
  it(
    'a lease is renewed at T1, at T2 by any server, and when it is over the link is switched off, CHECK says so, and DEL works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      const [first] = [await udhcpd(node, 6), await daemon(node, socket)]
      const net = network(node, leased(socket))
      const began = Date.now()
      const result = await net.add(pod)
      await until(() => bound(socket)['expiresAt'] > began + 7500)
      assert.equal(bound(socket)['server'], LAN.server)
      await net.check(pod, result)
      // Its own server is no more; another one has its address to find out.
      await first.stop('SIGKILL')
      await onServer(node, 'addr', 'replace', '10.7.0.3/24', 'dev', 'lan0')
      await onServer(node, 'addr', 'delete', `${LAN.server}/24`, 'dev', 'lan0')
      await onServer(node, 'addr', 'replace', '10.7.0.3/24', 'dev', 'lan0')
      const second = await udhcpd(node, 6)
      await until(() => bound(socket)['server'] === '10.7.0.3', 8000)
      assert.equal(bound(socket)['address'], result['ips'][0].address)
      await net.check(pod, result)
      await second.stop('SIGKILL')
      await until(async () => !(await pod.json('link', 'show', 'eth0'))[0]?.['flags'].includes('UP'), 8000)
      const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.match(error.msg, /no server extended its IPv4 lease in time$/)
      await net.del(pod)
      assert.deepEqual([leaseFiles(socket), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'a lease whose link is gone is forgotten, by the daemon itself',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      await udhcpd(node, 4)
      const running = await daemon(node, socket)
      const net = network(node, leased(socket))
      await net.add(pod)
      await pod.ip('link', 'delete', 'eth0')
      await until(() => leaseFiles(socket).length === 0)
      assert.match(running.text(), /a lease has no link any more/)
      await net.del(pod)
    }),
  )

  it(
    'DEL with the daemon down succeeds, gives the address back by itself, and again; with the namespace gone the node tells the server',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server, daemon } = await place(node)
      await net.add(pod)
      await net.add(other)
      await daemon.stop('SIGKILL')
      await net.del(pod)
      await until(() => server.leases().length === 1)
      await net.del(pod)
      await node.ip('netns', 'delete', containerId(other))
      await net.del(other)
      await until(() => server.leases().length === 0)
      for (const one of [pod, other]) assert.deepEqual(traces(one, net.conf), [])
    }),
  )

  it(
    'leases survive a restart: the daemon asks whether they stand, CHECK and DEL work, and what has lost its namespace meanwhile is given back',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server, daemon: first, socket } = await place(node)
      const result = await net.add(pod)
      await net.add(other)
      await first.stop('SIGKILL')
      await node.ip('netns', 'delete', containerId(other))
      const before = count(server, /DHCPACK/g)
      await daemon(node, socket)
      await until(() => count(server, /DHCPACK/g) > before)
      await until(() => server.leases().length === 1)
      await net.check(pod, result)
      assert.deepEqual(leaseFiles(socket).length, 1)
      await net.del(pod)
      await until(() => server.leases().length === 0)
    }),
  )

  it(
    'CHECK ends in time: a daemon that is stopped, a lease that is gone, and another address than ADD gave are faults',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, daemon } = await place(node)
      const result = await net.add(pod)
      const at = {
        netns: pod,
        containerId: containerId(pod),
        conf: { ...net.conf, prevResult: { ...result, ips: [{ address: '10.7.0.9/24', interface: 2 }] } },
      }
      const wrong = await plugin('dhcp', { command: 'CHECK', ...at }, node)
      assert.match(wrong.error.msg, /its lease is 10\.7\.0\.5\d\/24/)
      const none = await plugin('dhcp', { command: 'CHECK', ...at, netns: other, containerId: 'other' }, node)
      assert.deepEqual([none.error.code, /^Cannot find a lease/.test(none.error.msg)], [3, true])
      await daemon.stop('SIGSTOP')
      const began = performance.now()
      const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.deepEqual([error.code, /it is silent for 3 s$/.test(error.msg)], [11, true])
      assert.ok(performance.now() - began < patient(5000))
      await daemon.stop('SIGCONT')
      await net.check(pod, result)
    }),
  )

  it(
    'STATUS is 50 with the daemon down, and fine with it up',
    inNamespaces(['node'], async ({ node }) => {
      const { net, daemon } = await place(node)
      const status = () => plugin('bridge', { command: 'STATUS', conf: net.conf }, node)
      assert.deepEqual([(await status()).status, (await status()).stdout], [0, ''])
      await daemon.stop()
      const { error } = await status()
      assert.deepEqual([error.code, /^Cannot reach the DHCP daemon at /.test(error.msg)], [50, true])
    }),
  )

  it(
    'GC gives back what is not on its list, with the daemon and without it',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server, daemon, socket } = await place(node)
      await net.add(pod)
      const kept = await net.add(other)
      await net.gc(other)
      await until(() => server.leases().length === 1)
      await net.check(other, kept)
      assert.equal(leaseFiles(socket).length, 1)
      await daemon.stop()
      await net.gc()
      await until(() => server.leases().length === 0)
      assert.deepEqual(leaseFiles(socket), [])
    }),
  )

  it(
    'two daemons at one socket: the second refuses to start, and the first goes on',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net, socket } = await place(node)
      await assert.rejects(daemon(node, socket), /another DHCP daemon does/)
      await net.add(pod)
    }),
  )

  it(
    'started as `dhcp daemon`, with the socket of systemd, below a prefix: it listens there, and leaves the socket when it ends',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      const server = await dnsmasq(node)
      // Everything is below /run/root, too.
      await node.exec(['sh', '-c', 'mkdir -p /run/root /run/cni && ln -sfn /run /run/root/run'])
      const running = await systemd(node, socket, '-hostprefix', '/run/root')
      const net = network(node, leased(socket))
      const result = await net.add(pod)
      await net.check(pod, result)
      await running.stop()
      assert.ok(existsSync(socket))
      await net.del(pod)
      await until(() => server.leases().length === 0)
    }),
  )

  it(
    'a DEL, or the end of who asked, ends an ADD that waits for a server',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      await daemon(node, socket, '-resendtimeout', '60s')
      const net = network(node, leased(socket))
      const waiting = net.fails('ADD', pod)
      await until(async () =>
        (await pod.json('link')).some(({ ifname, flags }) => ifname === 'eth0' && flags.includes('UP')),
      )
      const { status } = await plugin(
        'dhcp',
        { command: 'DEL', conf: net.conf, netns: pod, containerId: containerId(pod) },
        node,
      )
      assert.equal(status, 0)
      assert.match((await waiting).msg, /a DEL of the same attachment came/)
      const server = await dnsmasq(node)
      assert.match(addresses(await net.add(pod))[0] ?? '', /^10\.7\.0\.5\d$/)
      await until(() => server.leases().length === 1)
    }),
  )
})

/** What stands in the one file of a daemon's leases. */
function bound(socket: string): Row {
  return JSON.parse(readFileSync(`${socket}.leases/${leaseFiles(socket)[0]}`, 'utf8')).bound[4]
}

function count(server: Server, pattern: RegExp): number {
  return server.text().match(pattern)?.length ?? 0
}
