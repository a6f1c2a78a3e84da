// lane: netns
// Tests agent/firewall and agent/parts.
import assert from 'node:assert/strict'
import { removal, ruleset, TABLE } from '../../../agent/firewall/masquerade.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { multicastSeen, sourceSeen } from '../../support/packets.ts'

/**
 * A node with a pod of its own and two links. One leads to another node, on which a pod answers. One leads to the rest
 * of the world, which has routes to all.
 */
interface Places {
  readonly node: Namespace
  readonly pod: Namespace
  readonly remote: Namespace
  readonly world: Namespace
}
const NETWORKS = ['10.244.0.0/16', 'fd00:244::/48'] as Cidr[]
const OWN = ['10.244.1.0/24', 'fd00:244:0:1::/64'] as Cidr[]
const AT = {
  pod: ['10.244.1.2', 'fd00:244:0:1::2'],
  gateway: ['10.244.1.1', 'fd00:244:0:1::1'],
  remote: ['10.244.2.2', 'fd00:244:0:2::2'],
  underlay: ['192.0.2.1', '2001:db8::1'],
  peer: ['192.0.2.2', '2001:db8::2'],
  uplink: ['198.51.100.1', '2001:db8:1::1'],
  world: ['198.51.100.2', '2001:db8:1::2'],
} as const
const FULL = { networks: NETWORKS, own: OWN, masquerade: true, keep: [], random: true } as const

describe('the agent masquerades', () => {
  for (const [i, family] of ['IPv4', 'IPv6'].entries()) {
    const at = Object.fromEntries(Object.entries(AT).map(([name, both]) => [name, both[i]])) as Record<
      keyof typeof AT,
      string
    >
    const seen: readonly {
      readonly what: string
      readonly from: keyof Places
      readonly to: keyof Places
      readonly address: string
      readonly source: string
    }[] = [
      {
        what: 'a pod to a pod of another node keeps its address',
        from: 'pod',
        to: 'remote',
        address: at.remote,
        source: at.pod,
      },
      { what: 'a pod to its node keeps its address', from: 'pod', to: 'node', address: at.gateway, source: at.pod },
      {
        what: "a pod to another node has its node's",
        from: 'pod',
        to: 'remote',
        address: at.peer,
        source: at.underlay,
      },
      { what: "a pod to the world has its node's", from: 'pod', to: 'world', address: at.world, source: at.uplink },
      {
        what: 'the world to a pod of this node keeps its address',
        from: 'world',
        to: 'pod',
        address: at.pod,
        source: at.world,
      },
      {
        what: "the world to a pod of another node, through this one, has this node's",
        from: 'world',
        to: 'remote',
        address: at.remote,
        source: at.underlay,
      },
      {
        what: 'a pod of another node to a pod of this one keeps its address',
        from: 'remote',
        to: 'pod',
        address: at.pod,
        source: at.remote,
      },
    ]
    it(
      `${family}: ${seen.map(({ what }) => what).join('; ')}`,
      inNamespaces(['node', 'pod', 'remote', 'world'], async (places) => {
        await wire(places)
        await load(places.node, ruleset(TABLE, FULL))
        for (const { what, from, to, address, source } of seen)
          assert.equal(await sourceSeen(places[from], places[to], address), source, what)
      }),
    )
    it(
      `${family}: what kube-proxy has marked (0x4000, whatever other bits it has) is left to it`,
      inNamespaces(['node', 'pod', 'remote', 'world'], async (places) => {
        await wire(places)
        await load(
          places.node,
          `${ruleset(TABLE, FULL)}table inet proxy {\n\tchain marks { type filter hook prerouting priority mangle; iifname "pod0" meta mark set 0x4001; }\n}\n`,
        )
        assert.equal(await sourceSeen(places.pod, places.world, at.world), at.pod)
      }),
    )
    it(
      `${family}: towards nonMasqueradeCIDRs a pod keeps its address, elsewhere not`,
      inNamespaces(['node', 'pod', 'remote', 'world'], async (places) => {
        await wire(places)
        await load(places.node, ruleset(TABLE, { ...FULL, keep: ['198.51.100.0/24', '2001:db8:1::/64'] as Cidr[] }))
        assert.equal(await sourceSeen(places.pod, places.world, at.world), at.pod)
        assert.equal(await sourceSeen(places.pod, places.remote, at.peer), at.underlay)
      }),
    )
  }

  it(
    'multicast keeps its address',
    inNamespaces(['node', 'pod', 'remote', 'world'], async (places) => {
      await wire(places)
      await load(places.node, ruleset(TABLE, FULL))
      await places.node.ip('route', 'add', '239.0.0.0/8', 'dev', 'up0')
      assert.equal(
        await multicastSeen(places.node, places.world, {
          source: AT.gateway[0],
          out: AT.uplink[0],
          heard: AT.world[0],
        }),
        AT.gateway[0],
      )
    }),
  )

  it(
    'without --ip-masq nobody is masqueraded; loading again replaces the rules whole; removing them twice is no error',
    inNamespaces(['node', 'pod', 'remote', 'world'], async (places) => {
      await wire(places)
      await load(places.node, ruleset(TABLE, FULL))
      const full = (await places.node.exec(['nft', 'list', 'ruleset'])).stdout
      await load(places.node, ruleset(TABLE, { ...FULL, masquerade: false }))
      assert.equal(await sourceSeen(places.pod, places.world, AT.world[0]), AT.pod[0])
      await load(places.node, ruleset(TABLE, FULL))
      assert.equal((await places.node.exec(['nft', 'list', 'ruleset'])).stdout, full)
      for (let i = 0; i < 2; i++) await load(places.node, removal(TABLE))
      assert.equal((await places.node.exec(['nft', 'list', 'ruleset'])).stdout, '')
    }),
  )
})

async function load(node: Namespace, text: string): Promise<void> {
  const { status, stderr } = await node.exec(['nft', '-f', '-'], { stdin: text })
  assert.equal(status, 0, stderr)
}

async function wire({ node, pod, remote, world }: Places): Promise<void> {
  for (const ns of [node, pod, remote, world]) {
    await ns.exec([
      'sh',
      '-c',
      'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding',
    ])
    await ns.ip('link', 'set', 'lo', 'up')
  }
  const link = async (name: string, other: Namespace, own: readonly string[], theirs: readonly string[]) => {
    await node.ip('link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', other.path)
    for (const [ns, dev, addresses] of [
      [node, name, own],
      [other, 'eth0', theirs],
    ] as const) {
      for (const address of addresses)
        await ns.ip(
          'addr',
          'add',
          `${address}/${address.includes(':') ? 64 : 24}`,
          'dev',
          dev,
          ...(address.includes(':') ? ['nodad'] : []),
        )
      await ns.ip('link', 'set', dev, 'up')
    }
    for (const via of own) await other.ip('route', 'add', 'default', 'via', via)
  }
  await link('pod0', pod, AT.gateway, AT.pod)
  await link('tun0', remote, AT.underlay, AT.peer)
  await link('up0', world, AT.uplink, AT.world)
  for (const [i, address] of AT.remote.entries()) {
    await remote.ip('addr', 'add', address, 'dev', 'lo', ...(i === 1 ? ['nodad'] : []))
    // Its pod speaks to pods.
    await remote.ip(
      'route',
      'add',
      i === 1 ? 'fd00:244:0:1::/64' : '10.244.1.0/24',
      'via',
      AT.underlay[i] as string,
      'src',
      address,
    )
    await node.ip(
      'route',
      'add',
      i === 1 ? 'fd00:244:0:2::/64' : '10.244.2.0/24',
      'via',
      AT.peer[i] as string,
      'dev',
      'tun0',
    )
  }
}
