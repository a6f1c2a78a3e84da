// lane: vm
// Tests agent/backend/types/wireguard.ts beside flanneld.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach } from '../../support/etcd-networks.ts'
import { besideFlanneld } from '../../support/flanneld.ts'
import { until } from '../../support/harness.ts'
import { type Node, UNDERLAY } from '../../support/nodes.ts'

describe('wireguard in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  // flanneld wants it, and does not load it.
  before(() => execa('modprobe', ['br_netfilter']))

  const V4 = { Network: '10.5.0.0/16' }
  const V6 = { EnableIPv6: true, IPv6Network: 'fd66::/48' }
  // Not IPv6 alone: flanneld 0.28.9 takes each lease of etcd for one with IPv4, and adds no peer (wireguard_network.go).
  for (const [what, conf, mtu] of [
    ['IPv4', V4, { v4: 1420 }],
    ['both families', { ...V4, ...V6 }, { v4: 1420, v6: 1420 }],
  ] as const)
    it(
      `${what}: the lease, the devices, their addresses and routes are flanneld’s; packets of full size pass both ways`,
      network.on(2, { ...conf, Backend: { Type: 'wireguard' } }, async ([first, second], { nodes }) => {
        const theirs = await network.flannel(first)
        await second.agent().ready(60_000)
        await assertReach(nodes, mtu)
        const [own, other] = (await network.leases())
          .map(({ value }) => value.replaceAll(/"PublicKey":"[^"]{44}"/g, '"PublicKey":"K"'))
          .map((value) => value.replaceAll(/172\.30\.0\.\d|fd00:30::\d/g, 'P'))
        assert.equal(own, other)
        assert.match(own ?? '', /"BackendType":"wireguard","Backend(V6)?Data":\{"PublicKey":"K","Port":5182[01]\}/)
        assert.deepEqual(await shape(first), (await shape(second)).filter(isFlannels))
        assert.doesNotMatch(theirs.log(), /^E/m)
      }),
    )

  for (const Mode of ['auto', 'ipv4', 'ipv6'])
    it(
      `Mode ${Mode} beside flanneld: packets of both families pass both ways`,
      network.on(2, { ...V4, ...V6, Backend: { Type: 'wireguard', Mode } }, async ([first, second], { nodes }) => {
        await network.flannel(first)
        await second.agent().ready(60_000)
        await assertReach(nodes, { v4: 1420, v6: 1420 })
      }),
    )

  it(
    'from flanneld to plumb: its key, so that its peers have nothing to change',
    network.on(2, { ...V4, Backend: { Type: 'wireguard' } }, async ([first, second], { nodes }) => {
      const theirs = await network.flannel(first)
      await network.flannel(second)
      await assertReach(nodes, { v4: 1420 })
      const key = await publicKey(first)
      await theirs.stop()
      const file = join(first.dir, 'wgkey')
      assert.ok(existsSync(file))
      const agent = first.agentBy(['env', `WIREGUARD_KEY_FILE=${file}`])
      await agent.ready(60_000)
      assert.equal(await publicKey(first), key)
      assert.match(agent.log(), /took over the WireGuard key in .*wgkey, with public key /)
      await until(() => passes(first, second), 30_000)
      await assertReach(nodes, { v4: 1420 })
    }),
  )
})

async function publicKey({ ns }: Node): Promise<string> {
  return (await ns.exec(['wg', 'show', 'flannel-wg', 'public-key'])).stdout.trim()
}

async function subnetOf({ ns }: Node): Promise<string> {
  const [found] = await ns.json('-4', 'addr', 'show', 'dev', 'flannel-wg')
  return found?.['addr_info'][0].local
}

async function passes(from: Node, to: Node): Promise<boolean> {
  const address = await subnetOf(to)
  return (await from.ns.exec(['ping', '-n', '-q', '-c', '1', '-W', '1', address])).status === 0
}

// Only plumb has the routes that keep packets from leaving in clear.
function isFlannels(row: string): boolean {
  return !row.startsWith('unreachable ')
}

// What there is of the backend's, without what differs from node to node and from plumb to flannel.
async function shape({ ns, n }: Node): Promise<string[]> {
  const links = (await ns.json('-d', 'link'))
    .filter(({ ifname }) => ifname.startsWith('flannel-wg'))
    .map(({ ifname, mtu, flags }) => JSON.stringify([ifname, mtu, [...flags].sort()]))
  const lines = [
    'ip -o addr show dev flannel-wg scope global; ip -o addr show dev flannel-wg-v6 scope global',
    'ip -4 route; ip -6 route show dev flannel-wg; ip -6 route show dev flannel-wg-v6; ip -6 route show type unreachable',
    'for d in flannel-wg flannel-wg-v6; do for w in listen-port persistent-keepalive allowed-ips endpoints; do wg show $d $w 2>/dev/null; done; done',
  ]
  const texts = await Promise.all(lines.map(async (line) => (await ns.exec(['sh', '-c', line])).stdout.split('\n')))
  return [...links, ...texts.flat()]
    .map((row) =>
      row
        .replaceAll(UNDERLAY.v4(n), 'OWN')
        .replaceAll(UNDERLAY.v4(3 - n), 'OTHER')
        .replaceAll(UNDERLAY.v6(3 - n), 'OTHER')
        .replace(/ proto \S+|^\d+: | +$/g, '')
        .replace(/\S{43}=/, 'KEY')
        .replace(/10\.\d+\.\d+\.0\/24|10\.5\.\d+\.0\b(?!\/16)|fd66:[\da-f:]+\/64/g, 'SUBNET')
        .replace(/fd66:[\da-f:]+::(\/128)?(?= )/, 'ADDRESS')
        .replace(' nodad', '')
        .replace(/\s+/g, ' ')
        .trim(),
    )
    .filter((row) => row && !/fe80::|^default /.test(row))
    .sort()
}
