import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { daemon, dnsmasq, LAN, lan, leased, leaseFiles, onServer, place, type Server, socketPath, udhcpd } from '../dhcp.ts'
import { inNamespaces, ping, plugin, type Row, until } from '../harness.ts'
import { containerId, network, traces } from '../network.ts'
import { addresses } from '../pool.ts'

describe('dhcp', () => {
  it(
    '[DH 150] ADD gives an address, the gateway and routes of the server, and the pod reaches it; DEL gives it back',
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
    '[DH 151] two links of a container have a lease each, and DEL takes its own',
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
    '[DH 152] DEL again, and DEL of what was never added, succeed; ADD after it works',
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
    '[DH 153] a pool with one address: the second pod is refused within -resendtimeout, nothing of it is left, and it gets the address when that is free',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, server } = await place(node, { server: ['--dhcp-range=10.7.0.50,10.7.0.50,120'] })
      await net.add(pod)
      const began = performance.now()
      const error = await net.fails('ADD', other)
      assert.ok(performance.now() - began < 6000, `${performance.now() - began} ms`)
      assert.deepEqual([error.code, error.msg], [11, 'Cannot get an IPv4 lease on eth0: no server gave one within 4 s'])
      assert.deepEqual([traces(other, net.conf), (await other.json('link')).length], [[], 1])
      await net.del(pod)
      await until(() => server.leases().length === 0)
      assert.deepEqual(addresses(await net.add(other)), ['10.7.0.50'])
    }),
  )

  it(
    '[DH 154] provide and request: values, CNI_ARGS by fromArg, names and numbers are on the wire; skipDefault asks for nothing else',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const provide = [
        { option: 'host-name', fromArg: 'K8S_POD_NAME' },
        { option: 'vendor-class-identifier', value: 'plumb' },
        { option: '77', value: 'users' },
      ]
      const { net, server, socket } = await place(node, { ipam: { provide, request: [{ option: '42' }] } })
      await net.add(pod, { args: 'IgnoreUnknown=1;K8S_POD_NAME=web-0' })
      const first = server.text()
      assert.match(first, /client provides name: web-0/)
      assert.match(first, /vendor class: plumb/)
      assert.match(first, /user class: (users|sers)/)
      assert.deepEqual(asked(server), [121, 1, 3, 6, 15, 26, 33, 119, 42])
      const bare = network(node, leased(socket, { provide: [{ option: 'dhcp-client-identifier', value: 'me' }], request: [{ skipDefault: true, option: 'subnet-mask' }, { option: 'routers' }] }))
      await bare.add(other)
      assert.deepEqual(asked(server), [1, 3])
      await until(() => server.leases().length === 2)
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

  it(
    '[DH 155] option 121 beats 33 and the router; without it 33 and the router count; a route on the link has no gateway and scope link',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const options = ['--dhcp-option=33,192.168.5.0,10.7.0.2', '--dhcp-option-force=tag:new,121,10.9.0.0/16,10.7.0.3,10.8.4.0/22,0.0.0.0,0.0.0.0/0,10.7.0.4', '--dhcp-userclass=set:new,new']
      const { net, socket } = await place(node, { server: options })
      const old = await net.add(pod)
      assert.deepEqual(old['routes'], [
        { dst: '192.168.5.0/24', gw: '10.7.0.2' },
        { dst: '0.0.0.0/0', gw: LAN.node },
      ])
      const classless = network(node, leased(socket, { provide: [{ option: 'user-class', value: '\u0003new' }] }))
      const result = await classless.add(other)
      assert.deepEqual(result['routes'], [
        { dst: '10.9.0.0/16', gw: '10.7.0.3' },
        { dst: '10.8.4.0/22', scope: 253 },
        { dst: '0.0.0.0/0', gw: '10.7.0.4' },
      ])
      const [row] = await other.json('route', 'show', '10.8.4.0/22')
      assert.deepEqual([row?.['gateway'], row?.['scope']], [undefined, 'link'])
      await classless.check(other, result)
    }),
  )

  it(
    '[DH 156] priority is the metric of every route',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net } = await place(node, { ipam: { priority: 77 } })
      const result = await net.add(pod)
      assert.deepEqual(result['routes'], [{ dst: '0.0.0.0/0', gw: LAN.node, priority: 77 }])
      assert.equal((await pod.json('route', 'show', 'default'))[0]?.['metric'], 77)
      await net.check(pod, result)
    }),
  )

  it(
    '[DH 157] a lease is renewed at T1, at T2 by any server, and when it is over the link is switched off, CHECK says so, and DEL works',
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
    '[DH 157] a lease whose link is gone is forgotten, by the daemon itself',
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
    '[DH 158] DEL with the daemon down succeeds, gives the address back by itself, and again; with the namespace gone the node tells the server',
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
    '[DH 159] leases survive a restart: the daemon asks whether they stand, CHECK and DEL work, and what has lost its namespace meanwhile is given back',
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
    '[DH 160] DNS servers, domain and search list are in the result, and the MTU on its routes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const options = ['option:dns-server,10.7.0.53,10.7.0.54', 'option:domain-name,example.org', 'option:domain-search,a.example,b.a.example', 'option:mtu,1400'].map((one) => `--dhcp-option=${one}`)
      const { net } = await place(node, { server: options })
      const result = await net.add(pod)
      assert.deepEqual(result['dns'], { nameservers: ['10.7.0.53', '10.7.0.54'], domain: 'example.org', search: ['a.example', 'b.a.example'] })
      assert.deepEqual(result['routes'], [{ dst: '0.0.0.0/0', gw: LAN.node, mtu: 1400 }])
      assert.match(await pod.ip('route', 'show', 'default'), /mtu 1400/)
    }),
  )

  it(
    '[DH 161] CHECK ends in time: a daemon that is stopped, a lease that is gone, and another address than ADD gave are faults',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const { net, daemon } = await place(node)
      const result = await net.add(pod)
      const at = { netns: pod, containerId: containerId(pod), conf: { ...net.conf, prevResult: { ...result, ips: [{ address: '10.7.0.9/24', interface: 2 }] } } }
      const wrong = await plugin('dhcp', { command: 'CHECK', ...at }, node)
      assert.match(wrong.error.msg, /its lease is 10\.7\.0\.5\d\/24/)
      const none = await plugin('dhcp', { command: 'CHECK', ...at, netns: other, containerId: 'other' }, node)
      assert.deepEqual([none.error.code, /^Cannot find a lease/.test(none.error.msg)], [3, true])
      await daemon.stop('SIGSTOP')
      const began = performance.now()
      const error = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
      assert.deepEqual([error.code, /it is silent for 3 s$/.test(error.msg)], [11, true])
      assert.ok(performance.now() - began < 5000)
      await daemon.stop('SIGCONT')
      await net.check(pod, result)
    }),
  )

  it(
    '[DH 162] STATUS is 50 with the daemon down, and fine with it up',
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
    'a DEL, or the end of who asked, ends an ADD that waits for a server',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      await daemon(node, socket, '-resendtimeout', '60s')
      const net = network(node, leased(socket))
      const waiting = net.fails('ADD', pod)
      await until(async () => (await pod.json('link')).some(({ ifname, flags }) => ifname === 'eth0' && flags.includes('UP')))
      const { status } = await plugin('dhcp', { command: 'DEL', conf: net.conf, netns: pod, containerId: containerId(pod) }, node)
      assert.equal(status, 0)
      assert.match((await waiting).msg, /a DEL of the same attachment came/)
      const server = await dnsmasq(node)
      assert.match(addresses(await net.add(pod))[0] ?? '', /^10\.7\.0\.5\d$/)
      await until(() => server.leases().length === 1)
    }),
  )
})

/** The options that the last client has asked for. */
function asked(server: Server): number[] {
  const last = server.text().split('DHCPDISCOVER').at(-1) as string
  const [first = ''] = last.split('DHCPREQUEST')
  return [...first.matchAll(/requested options: (.*)/g)].flatMap(([, list = '']) => list.split(',').flatMap((one) => (/^\s*(\d+)/.exec(one) ? [Number(/\d+/.exec(one)?.[0])] : [])))
}

/** What stands in the one file of a daemon's leases. */
function bound(socket: string): Row {
  return JSON.parse(readFileSync(`${socket}.leases/${leaseFiles(socket)[0]}`, 'utf8')).bound[4]
}

function count(server: Server, pattern: RegExp): number {
  return server.text().match(pattern)?.length ?? 0
}
