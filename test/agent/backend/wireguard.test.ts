// lane: vm
// Tests agent/backend/types/wireguard.ts and agent/kernel/wireguard.ts.
import assert from 'node:assert/strict'
import wireguard from '../../../agent/backend/types/wireguard.ts'
import { answers, assertReached, cluster, type Member, type Wiring } from '../../support/cluster.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { testBackend } from '../../support/suites/testBackend.ts'

const WIRING: Wiring = { backend: wireguard }
const PSK = ['I7v3vyxdQeYv1Bq1XGZUNqPfTNvhLAIAzMkEEyJHzQY=', 'cJ5VPRlgFHNSpYv5zHDGXe4fxpzu6kUIZCQwC0XTIGs=']

// Packets for pods that leave by the uplink.
const IN_CLEAR = `table ip clear {
  chain out {
    type filter hook postrouting priority 0
    oifname "eth0" ip daddr 10.244.0.0/16 counter
  }
}
`

testBackend(wireguard, true)

describe('wireguard', () => {
  for (const Mode of ['auto', 'ipv4', 'ipv6'])
    it(
      `Mode ${Mode}: one device has both families, and packets of full size pass`,
      inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
        const nodes = await cluster(ns, { ...WIRING, options: { Mode } })
        for (const one of nodes) assert.deepEqual((await one.reach(nodes)).failed, [])
        for (const one of nodes)
          await assertReached(
            one,
            nodes.filter((other) => other !== one),
            { v4: 1420, v6: 1420 },
          )
        const [a] = nodes
        const outer = Mode === 'ipv6' ? /endpoint: \[2001:db8::2\]:51820/ : /endpoint: 192\.0\.2\.2:51820/
        assert.match((await a.ns.exec(['wg', 'show', 'flannel-wg'])).stdout, outer)
        assert.equal((await a.ns.exec(['ip', 'link', 'show', 'flannel-wg-v6'])).status, 1)
      }),
    )

  it(
    'Mode auto with IPv4 alone does not touch the default route',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { ...WIRING, options: { Mode: 'auto' }, families: ['v4'] })
      await a.ns.ip('route', 'add', 'default', 'via', '192.0.2.254')
      const before = await a.ns.ip('route', 'show', 'default')
      for (const one of [a, b]) assert.deepEqual((await one.reach([a, b])).failed, [])
      await assertReached(a, [b], { v4: 1420 })
      assert.equal(await a.ns.ip('route', 'show', 'default'), before)
      assert.equal(await a.ns.ip('-6', 'route', 'show', 'default'), '')
    }),
  )

  it(
    'nodes with different ports reach each other',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      const other = b.restarted({ options: { ListenPort: 40000, ListenPortV6: 40001 } })
      for (const one of [a, other]) assert.deepEqual((await one.reach([a, other])).failed, [])
      await assertReached(a, [other], { v4: 1420, v6: 1420 })
      await assertReached(other, [a], { v4: 1420, v6: 1420 })
      assert.match((await a.ns.exec(['wg', 'show', 'flannel-wg-v6'])).stdout, /endpoint: \[2001:db8::2\]:40001/)
    }),
  )

  it(
    'with the same second key packets pass, with another one none, and a change of it passes again; the reason is no handshake',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { ...WIRING, options: { PSK: PSK[0] } })
      for (const one of [a, b]) assert.deepEqual((await one.reach([a, b])).failed, [])
      await assertReached(a, [b], { v4: 1420, v6: 1420 })
      const changed = b.restarted({ options: { PSK: PSK[1] } })
      await drop(changed)
      assert.deepEqual((await changed.reach([a, b])).failed, [])
      assert.equal(await answers(changed, a), false)
      changed.converger.invalidate('wgpeer')
      await changed.reach([a, b])
      const why = wireguard.whySilent?.(a.lease, changed.converger.handshakes(), wireguard.conf({}))
      assert.equal(why, 'no WireGuard handshake yet: want the same PSK on both nodes, and its UDP port open')
      const back = changed.restarted({ options: { PSK: PSK[0] } })
      const { changed: count, failed } = await back.reach([a, b])
      assert.deepEqual([count, failed], [2, []])
      await until(() => answers(back, a), 30_000)
    }),
  )

  it(
    'without the device no packet for pods leaves in clear',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      await a.ns.ip('route', 'add', 'default', 'via', '192.0.2.254')
      for (const one of [a, b]) assert.deepEqual((await one.reach([a, b])).failed, [])
      await assertReached(a, [b], { v4: 1420 })
      await a.ns.exec(['nft', '-f', '-'], { stdin: IN_CLEAR })
      await a.ns.ip('link', 'delete', 'flannel-wg')
      assert.equal(await answers(a, b), false)
      const { stdout, stderr } = await a.ns.exec(['ping', '-n', '-c', '1', '-w', '1', '10.244.2.1'])
      assert.match(stdout + stderr, /unreachable|No route to host/i)
      assert.match((await a.ns.exec(['nft', 'list', 'table', 'ip', 'clear'])).stdout, /counter packets 0 bytes 0/)
      assert.deepEqual((await a.restarted().reach([a, b])).failed, [])
      await until(() => answers(a, b), 30_000)
    }),
  )

  it(
    'a peer whose address changes in the store is sent to the new one, also while its connection lasts',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      for (const one of [a, b]) await one.reach([a, b])
      await assertReached(a, [b], { v4: 1420 })
      // What the kernel shows of a connected peer may have another address.
      a.converger.invalidate()
      assert.equal((await a.reach([a, b])).changed, 0)
      await b.ns.ip('address', 'delete', '192.0.2.2/24', 'dev', 'eth0')
      await b.ns.ip('address', 'add', '192.0.2.77/24', 'dev', 'eth0')
      const moved = { ...b, lease: { ...b.lease, ips: { ...b.lease.ips, v4: '192.0.2.77' as never } } }
      assert.equal((await a.reach([a, moved])).changed, 1)
      await until(() => answers(a, b), 30_000)
    }),
  )

  it(
    'two peers that swap their keys keep their own subnets; one that changes key, port, address, subnet and families at once is programmed anew',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, WIRING)
      for (const one of [a, b, c]) await one.reach([a, b, c])
      const keyOf = ({ lease }: Member) => (lease.data.v4 as { readonly PublicKey: string }).PublicKey
      const shown = async (dev: string, what: string) =>
        (await a.ns.exec(['wg', 'show', dev, what])).stdout.trim().split('\n').sort()
      const swapped = [
        { ...b, lease: { ...b.lease, data: c.lease.data } },
        { ...c, lease: { ...c.lease, data: b.lease.data } },
      ]
      assert.deepEqual((await a.reach([a, ...swapped])).failed, [])
      const [ofB, ofC] = [b, c].map(({ lease }) => lease.subnets.v4)
      assert.deepEqual(await shown('flannel-wg', 'allowed-ips'), [`${keyOf(b)}\t${ofC}`, `${keyOf(c)}\t${ofB}`].sort())
      a.converger.invalidate()
      assert.equal((await a.reach([a, ...swapped])).changed, 0)
      assert.deepEqual((await a.reach([a, b, c])).failed, [])
      await assertReached(a, [b, c], { v4: 1420, v6: 1420 })
      const [PublicKey] = PSK
      const lease = {
        ...b.lease,
        subnets: { v4: '10.244.77.0/24' as never },
        ips: { v4: '192.0.2.77' as never },
        data: { v4: { PublicKey, Port: 40000 } },
      }
      assert.deepEqual((await a.reach([a, { ...b, lease }, c])).failed, [])
      assert.deepEqual(
        await shown('flannel-wg', 'allowed-ips'),
        [`${PublicKey}\t10.244.77.0/24`, `${keyOf(c)}\t${ofC}`].sort(),
      )
      const endpoints = await shown('flannel-wg', 'endpoints')
      assert.ok(endpoints.includes(`${PublicKey}\t192.0.2.77:40000`), endpoints.join(', '))
      assert.deepEqual(await shown('flannel-wg-v6', 'allowed-ips'), [`${keyOf(c)}\t${c.lease.subnets.v6}`])
    }),
  )

  it(
    'a peer that comes from another address, as behind a NAT, stays reachable, and a later look changes nothing',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      for (const one of [a, b]) await one.reach([a, b])
      await assertReached(a, [b], { v4: 1420 })
      await b.ns.exec(['wg', 'set', 'flannel-wg', 'listen-port', '41000'])
      await until(() => answers(b, a), 30_000)
      assert.match((await a.ns.exec(['wg', 'show', 'flannel-wg'])).stdout, /endpoint: 192\.0\.2\.2:41000/)
      a.converger.invalidate()
      assert.equal((await a.reach([a, b])).changed, 0)
      assert.ok(await answers(a, b))
    }),
  )

  it(
    'two nodes with one key: each says so, and names the other',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, WIRING)
      const copy = { ...b, lease: { ...b.lease, data: a.lease.data } }
      const [[, why = ''] = []] = a.want([a, copy]).problems
      assert.match(
        why,
        /^it has this node's own key .{44}: one node is a copy of the other; give this one another key: plumb wireguard rotate$/,
      )
      assert.deepEqual((await a.reach([a, copy])).failed, [])
    }),
  )

  it(
    'two other nodes with one key: one of them is programmed, and the other one named',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns) => {
      const [a, b, c] = await cluster(ns, WIRING)
      const copy = { ...c, lease: { ...c.lease, data: b.lease.data } }
      const { problems } = a.want([a, b, copy])
      assert.deepEqual(
        [...problems.values()].map((text) => text.replace(/key \S+=/, 'key K')),
        ['it announces the key K, as the node with 192.0.2.2:51820 does'],
      )
      assert.deepEqual((await a.reach([a, b, copy])).failed, [])
      assert.deepEqual((await b.reach([a, b])).failed, [])
      await assertReached(a, [b], { v4: 1420 })
    }),
  )

  it(
    'two leases of one node, an old and a new subnet, are one peer with both',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const [a, b] = await cluster(ns, { ...WIRING, families: ['v4'] })
      const later = { ...b, lease: { ...b.lease, subnets: { v4: '10.244.99.0/24' as never } } }
      assert.deepEqual((await a.reach([a, b, later])).failed, [])
      assert.match(
        (await a.ns.exec(['wg', 'show', 'flannel-wg', 'allowed-ips'])).stdout,
        /\t10\.244\.2\.0\/24 10\.244\.99\.0\/24\n$|\t10\.244\.99\.0\/24 10\.244\.2\.0\/24\n$/,
      )
      assert.deepEqual((await a.reach([a, later])).failed, [])
      assert.match((await a.ns.exec(['wg', 'show', 'flannel-wg', 'allowed-ips'])).stdout, /\t10\.244\.99\.0\/24\n$/)
    }),
  )
})

async function drop({ ns }: Member): Promise<void> {
  for (const dev of ['flannel-wg', 'flannel-wg-v6']) await ns.ip('link', 'delete', dev)
}
