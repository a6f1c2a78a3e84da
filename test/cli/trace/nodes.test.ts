// lane: longer
// Tests cli/trace and cli/trace.ts between two nodes: a tunnel, and the half of the other node.
import assert from 'node:assert/strict'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { podOn } from '../../support/flows.ts'
import { type Namespace, ping, until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { arrives, isLostAt, isNothingLeft, linesOf, live, PLUMB, type Said, sh, traced } from '../../support/traces.ts'

interface Fixture {
  readonly node: Node
  readonly other: Node
  readonly hub: Namespace
  readonly pods: readonly [Namespace, Namespace]
  readonly ips: readonly [string, string]
  /** A trace with the half of the other node, and one without. */
  far(...words: string[]): Promise<Said>
  near(...words: string[]): Promise<Said>
  /** The same for the next packet of a program. */
  farLive(send: () => Promise<unknown>, ...words: string[]): Promise<Said>
}

const NEAR = ['sender', 'link', 'route', 'source', 'exit', 'tunnel']
const FAR = ['far link', 'far route', 'far exit', 'receiver', 'answer']

function betweenNodes(Type: string, work: (fixture: Fixture) => Promise<void>) {
  const conf = { Network: '10.244.0.0/16', Backend: { Type } }
  return inCluster(
    4,
    (cluster) => fileStore(cluster, conf),
    async ({ nodes, hub }, test) => {
      test.timeout(240_000)
      const [node, other, { ns: one }, { ns: two }] = nodes as [Node, Node, Node, Node]
      await Promise.all([node.agent(), other.agent()].map((agent) => agent.ready(30_000)))
      for (const pod of [one, two]) await pod.exec(['ip', 'link', 'del', 'eth0'])
      const ips = [await podOn(node, one), await podOn(other, two)] as const
      await until(() => ping(one, ips[1]), 30_000)
      const placesOf = ({ dir }: Node) => [
        '--socket',
        join(dir, 'agent.sock'),
        '--subnet-file',
        join(dir, 'subnet.env'),
      ]
      // As a user has ssh: a command that becomes plumb on the other node.
      const remote = join(other.dir, 'remote')
      writeFileSync(
        remote,
        `#!/bin/sh\nexec nsenter --net=${other.ns.path} -- ${PLUMB} "$@" ${placesOf(other).join(' ')}\n`,
      )
      chmodSync(remote, 0o755)
      const near = (...words: string[]) => traced(node.ns, ...words, ...placesOf(node))
      const far = (...words: string[]) => near(...words, '--far', remote)
      const farLive = (send: () => Promise<unknown>, ...words: string[]) =>
        live(node.ns, [...words, ...placesOf(node), '--far', remote], send)
      await work({ node, other, hub, pods: [one, two], ips, near, far, farLive })
      await isNothingLeft(node.ns, other.ns, one, two)
    },
  )
}

describe('plumb trace between two nodes', () => {
  it(
    'by VXLAN: the tunnel, and with --far all hops of the other node, also where a rule there drops it',
    betweenNodes('vxlan', async ({ node, other, hub, ips, near, far }) => {
      const alone = await near(...ips)
      arrives(alone)
      assert.deepEqual(
        linesOf(alone),
        [...NEAR, 'receiver', 'answer'].map((hop) => `ok ${hop}`),
      )
      const tunnel = alone.hops.find(({ hop }) => hop === 'tunnel')
      assert.match(
        tunnel?.seen?.says ?? '',
        new RegExp(`^UDP ${UNDERLAY.v4(1)} → ${UNDERLAY.v4(2)} port 8472 by eth0$`),
      )
      assert.equal(tunnel?.expected?.says, 'to node n2')
      arrives(await near(ips[0], 'n2'))
      const both = await far(...ips)
      arrives(both)
      assert.deepEqual(
        linesOf(both),
        [...NEAR, ...FAR].map((hop) => `ok ${hop}`),
      )
      assert.deepEqual(
        both.hops.filter(({ hop }) => hop.startsWith('far')).map(({ seen }) => seen?.says),
        ['by flannel.1', 'by veth' + 'n4', 'by veth' + 'n4'],
      )
      isLostAt(await far(...ips, '80'), 'receiver', /no program listens on TCP port 80/, /RST from TCP port 80/)
      // A firewall of the other node.
      await sh(other.ns, 'iptables -I INPUT -p udp --dport 8472 -j DROP')
      const blocked = await far(...ips)
      assert.deepEqual([blocked.status, blocked.differsAt, blocked.lostAt], [3, 'far link', 'far link'])
      assert.match(blocked.conclusion, /the chain ip filter INPUT drops it: .*udp dport 8472 .*drop/)
      // Rules of the old iptables there, which nft does not show: the far half tells the reason of its kernel.
      await sh(other.ns, 'iptables -F INPUT; iptables-legacy -I INPUT -p udp --dport 8472 -j DROP')
      const old = await far(...ips)
      assert.deepEqual([old.differsAt ?? old.lostAt, old.lostAt], ['far link', 'far link'], JSON.stringify(old))
      assert.match(old.conclusion, /does not give it out: a rule outside of nft drops it \(NETFILTER_DROP in /)
      await sh(other.ns, 'iptables-legacy -F INPUT')
      const strict = 'nft add table ip strict; nft add chain ip strict wall'
      await sh(
        other.ns,
        `iptables -F INPUT; ${strict} "{ type filter hook forward priority 0; }"; nft add rule ip strict wall ip daddr 10.244.0.0/16 drop`,
      )
      isLostAt(
        await far(...ips),
        'far rules',
        /the chain ip strict wall drops it/,
        /the chain ip strict wall drops it: ip daddr 10\.244\.0\.0\/16 drop/,
      )
      await sh(other.ns, 'nft delete table ip strict')
      // A firewall between the nodes [DR17].
      await sh(
        hub,
        'nft add table bridge m; nft add chain bridge m f "{ type filter hook forward priority 0; }"; nft add rule bridge m f udp dport 8472 drop',
      )
      const between = await far(...ips)
      assert.equal(between.lostAt, 'far link', JSON.stringify(between))
      assert.match(between.conclusion, /it did not arrive at the node/)
      assert.equal((await near(...ips)).lostAt, 'answer')
      await sh(hub, 'nft delete table bridge m')
      // This node's own firewall.
      await sh(node.ns, 'iptables -I OUTPUT -p udp --dport 8472 -j DROP')
      const out = await near(...ips)
      assert.equal(out.lostAt, 'tunnel', JSON.stringify(out))
      assert.match(out.conclusion, /the chain ip filter OUTPUT drops it/)
    }),
  )
  it(
    'by VXLAN: a packet of a program on both nodes, and a path that loses large packets [DR19]',
    betweenNodes('vxlan', async ({ hub, pods, ips, near, far, farLive }) => {
      const passing = await farLive(() => pods[0].exec(['ping', '-c1', '-W2', ips[1]]), ...ips)
      arrives(passing)
      assert.deepEqual(
        linesOf(passing),
        [...NEAR, ...FAR].map((hop) => `ok ${hop}`),
      )
      // A link between the nodes takes smaller packets, and nobody says so [DR19].
      arrives(await far(...ips, '--size', '1450'))
      const ports = (mtu: number) =>
        `for one in $(ip -o link | grep -o 'port[0-9]*' | sort -u); do ip link set $one mtu ${mtu}; done`
      await sh(hub, ports(1400))
      const large = await far(...ips, '--size', '1450')
      assert.equal(large.lostAt, 'far link', JSON.stringify(large))
      assert.match(large.conclusion, /the path loses packets of 1450 bytes and does not say so; small ones arrive/)
      assert.match(
        (await near(...ips, '--size', '1450')).conclusion,
        /at answer: .*the path loses packets of 1450 bytes/,
      )
      await sh(hub, ports(1500))
    }),
  )
  it(
    'by host-gw: without a tunnel, and a foreign route that leads elsewhere [DR32], a foreign masquerade [DR14]',
    betweenNodes('host-gw', async ({ node, other, ips, far, near }) => {
      const both = await far(...ips)
      arrives(both)
      assert.deepEqual(
        linesOf(both),
        [...NEAR.filter((hop) => hop !== 'tunnel'), ...FAR].map((hop) => `ok ${hop}`),
      )
      // Answers would leave the other node by another link.
      const detour = `ip link add vpn0 type veth peer name vpn1; ip link set vpn0 up; ip link set vpn1 up; ip route add ${ips[0]} dev vpn0`
      await sh(other.ns, `${detour}; sysctl -qw net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.all.rp_filter=1`)
      const filtered = await far(...ips)
      assert.equal(filtered.lostAt, 'far route', JSON.stringify(filtered))
      assert.match(filtered.hops.at(-1)?.seen?.says ?? '', /reverse path filter drops it \(IP_RPFILTER in /)
      await sh(other.ns, 'ip link del vpn0; sysctl -qw net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.all.rp_filter=0')
      await sh(node.ns, 'iptables -t nat -I POSTROUTING -d 10.244.0.0/16 -j MASQUERADE')
      const masqueraded = await near(...ips)
      assert.deepEqual([masqueraded.status, masqueraded.differsAt], [3, 'source'], JSON.stringify(masqueraded))
      assert.match(masqueraded.conclusion, new RegExp(`expected kept, seen ${UNDERLAY.v4(1)}`))
      await sh(node.ns, 'iptables -t nat -F')
      await sh(
        node.ns,
        'ip link add vpn0 type veth peer name vpn1; ip link set vpn0 up; ip link set vpn1 up; ip addr add 10.99.0.1/24 dev vpn0; ip route add 10.244.0.0/16 dev vpn0 table 52; ip rule add priority 5270 lookup 52',
      )
      const away = await near(...ips)
      assert.deepEqual([away.status, away.differsAt], [3, 'route'], JSON.stringify(away))
      assert.match(
        away.conclusion,
        /expected by eth0: the leases say so, and the kernel's route leads to vpn0, seen by vpn0/,
      )
    }),
  )
  it(
    'says why the other node cannot be asked',
    betweenNodes('host-gw', async ({ node, ips }) => {
      for (const [command, says] of [
        ['false', /Cannot follow the packet by false: it ended/],
        ['echo hello', /Cannot follow the packet by echo hello: it is no plumb that traces/],
      ] as const) {
        const { status, stderr } = await node.ns.exec([PLUMB, 'trace', ...ips, '--far', command])
        assert.equal(status, 1)
        assert.match(stderr, says)
      }
    }),
  )
})
