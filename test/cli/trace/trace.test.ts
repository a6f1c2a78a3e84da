// lane: netns
// Tests cli/trace and cli/trace.ts on one node: real packets, and faults of the node.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'
import {
  arrives,
  isLostAt,
  linesOf,
  listening,
  loadElements,
  onNodeWithPods as onNode,
  PLUMB,
  sh,
  TCP,
  traced,
} from '../../support/traces.ts'

const [A, B, OUT] = ['10.1.0.2', '10.1.0.3', '192.0.2.9'] as const

const UDP = "const s = require('node:dgram').createSocket('udp6'); s.bind(53, '::', () => console.log('ready'))"

describe('plumb trace on one node', () => {
  it(
    'a packet between pods of a bridge arrives, and the answer comes back',
    onNode(async ({ node, a, b }) => {
      const echo = await traced(node, a.path, b.path)
      arrives(echo)
      assert.deepEqual(
        linesOf(echo),
        ['sender', 'link', 'route', 'source', 'exit', 'receiver', 'answer'].map((hop) => `ok ${hop}`),
      )
      assert.deepEqual(
        echo.hops.map(({ seen }) => seen?.says),
        ['by eth0', 'va', 'across the bridge to vb', 'kept', 'by vb', 'it answers', `from ${B}`],
      )
      isLostAt(await traced(node, A, B, '80'), 'receiver', /no program listens on TCP port 80/, /RST from TCP port 80/)
      isLostAt(await traced(node, A, B, '53/udp'), 'receiver', /no program listens on UDP/, /refuses UDP port 53/)
      const ends = [await listening(b, TCP), await listening(b, UDP)]
      try {
        arrives(await traced(node, A, B, '80'))
        const datagram = await traced(node, A, B, '53/udp')
        assert.deepEqual([datagram.status, datagram.hops.at(-1)?.seen?.says], [0, 'it arrives'])
      } finally {
        for (const end of ends) end()
      }
    }),
  )
  it(
    'a packet to the node, from the node, and to the outside arrives',
    onNode(async ({ node }) => {
      for (const [from, to] of [
        [A, '10.1.0.1'],
        [A, 'node'],
        ['node', B],
        ['node', OUT],
        [A, OUT],
      ] as const)
        arrives(await traced(node, from, to))
      isLostAt(await traced(node, A, '10.1.0.1', '99'), 'receiver', /no program listens/, /RST/)
      const { hops } = await traced(node, A, OUT)
      assert.deepEqual(hops.find(({ hop }) => hop === 'exit')?.seen?.says, 'by up0')
    }),
  )
  it(
    'forwarding is off, there is no route, the reverse path filter drops: hop and reason',
    onNode(async ({ node, a, outside }) => {
      await sh(node, 'sysctl -qw net.ipv4.ip_forward=0')
      isLostAt(await traced(node, A, OUT), 'route', /does not forward: net\.ipv4\.ip_forward is 0/, /IP_INADDRERRORS/)
      await sh(node, 'sysctl -qw net.ipv4.ip_forward=1')
      isLostAt(await traced(node, A, '203.0.113.1'), 'route', /no route to 203\.0\.113\.1/, /no route|ICMP/)
      // Answers to the pod would leave by the other link.
      await sh(node, 'sysctl -qw net.ipv4.conf.br0.rp_filter=1; ip route add 10.1.0.2/32 via 192.0.2.9')
      isLostAt(await traced(node, A, OUT), 'route', /reverse path filter of br0 drops it/, /IP_RPFILTER/)
      await sh(node, 'ip route del 10.1.0.2/32')
      arrives(await traced(node, A, OUT))
      await outside.ip('link', 'set', 'eth0', 'down')
      const down = await traced(node, A, OUT)
      assert.equal(down.lostAt, 'exit', JSON.stringify(down))
      await sh(node, 'ip addr del 10.1.0.1/24 dev br0')
      await a.ip('neigh', 'flush', 'dev', 'eth0')
      const gone = await traced(node, A, OUT)
      assert.match(gone.conclusion, /at link: .*nobody answers for 10\.1\.0\.1 on eth0 of the pod/)
    }),
  )
  it(
    "another program's chain drops or rejects: the chain and the rule",
    onNode(async ({ node, a, b }) => {
      await sh(node, 'iptables -P FORWARD DROP')
      isLostAt(
        await traced(node, A, OUT),
        'rules',
        /the chain ip filter FORWARD drops it \(policy drop\)/,
        /chain ip filter FORWARD drops it: policy drop/,
      )
      await sh(node, 'iptables -P FORWARD ACCEPT')
      await sh(
        node,
        'nft add table ip strict; nft add chain ip strict in "{ type filter hook input priority 0; }"; nft add rule ip strict in tcp dport 99 ip saddr 10.1.0.2 counter reject',
      )
      const rejected = await traced(node, A, '10.1.0.1', '99')
      assert.equal(rejected.lostAt, 'rules', JSON.stringify(rejected))
      assert.match(
        rejected.hops.at(-1)?.seen?.says ?? '',
        /the chain ip strict in drops it: .*tcp dport 99 .*[\d"] reject/,
      )
      // The old iptables, whose rules nft does not show [DR12].
      await sh(node, 'iptables-legacy -I FORWARD -s 10.1.0.2 -j DROP')
      const old = await traced(node, A, OUT)
      assert.equal(old.lostAt, 'exit', JSON.stringify(old))
      assert.match(old.conclusion, /a rule outside of nft drops it \(NETFILTER_DROP/)
      await sh(node, 'iptables-legacy -F FORWARD')
      // A rule in the pod itself.
      await sh(
        a,
        'nft add table ip own; nft add chain ip own out "{ type filter hook output priority 0; policy drop; }"',
      )
      const own = await traced(node, a.path, b.path)
      assert.match(own.conclusion, /at sender: .*in the pod: the chain ip own out drops it: policy drop/)
    }),
  )
  it(
    'the answer is dropped: the trace says so',
    onNode(async ({ node }) => {
      await sh(
        node,
        'nft add table ip strict; nft add chain ip strict through "{ type filter hook forward priority 0; }"; nft add rule ip strict through ip saddr 192.0.2.9 drop',
      )
      const said = await traced(node, A, OUT)
      assert.equal(said.lostAt, 'answer', JSON.stringify(said))
      assert.match(
        said.hops.at(-1)?.seen?.says ?? '',
        /the chain ip strict through drops it: ip saddr 192\.0\.2\.9 drop/,
      )
      assert.equal(said.status, 3)
    }),
  )
  it(
    'IPv6 on a bridge and to the outside',
    onNode(async ({ node }) => {
      for (const to of ['fd01::3', 'fd01::1', '2001:db8:9::9']) arrives(await traced(node, 'fd01::2', to))
      isLostAt(await traced(node, 'fd01::2', 'fd01::3', '80'), 'receiver', /no program listens/, /RST/)
      await sh(node, 'sysctl -qw net.ipv6.conf.all.forwarding=0')
      const said = await traced(node, 'fd01::2', '2001:db8:9::9')
      assert.match(said.hops.at(-1)?.expected?.says ?? '', /net\.ipv6\.conf\.all\.forwarding is 0/)
      assert.equal(said.lostAt, 'route')
    }),
  )
  it(
    'pods on links of their own, as ptp makes them, both families; the answer as a part of its connection',
    onNode(async ({ node, a, b }) => {
      const own = [
        ['a', 2],
        ['b', 3],
      ] as const
      await sh(
        node,
        [
          'ip link del br0',
          'sysctl -qw net.ipv6.conf.all.forwarding=1',
          ...own.flatMap(([name, n]) => [
            `ip addr add 10.1.0.1/32 dev v${name}; ip addr add fd01::1/128 dev v${name} nodad; ip link set v${name} up`,
            `ip route add 10.1.0.${n}/32 dev v${name}; ip route add fd01::${n}/128 dev v${name}`,
          ]),
        ].join('\n'),
      )
      for (const [pod, n] of [
        [a, 2],
        [b, 3],
      ] as const)
        await sh(
          pod,
          `ip addr flush dev eth0 scope global
           ip addr add 10.1.0.${n}/32 dev eth0; ip route add 10.1.0.1 dev eth0; ip route add default via 10.1.0.1
           ip addr add fd01::${n}/128 dev eth0 nodad; ip route replace fd01::1 dev eth0; ip route replace default via fd01::1`,
        )
      // Only connections that a has begun pass.
      await sh(
        node,
        'nft add table inet strict; nft add chain inet strict through "{ type filter hook forward priority 0; policy drop; }"; nft add rule inet strict through ct state established accept; nft add rule inet strict through iifname va accept',
      )
      for (const [from, to] of [
        [A, B],
        ['fd01::2', 'fd01::3'],
      ] as const) {
        const said = await traced(node, from, to)
        arrives(said)
        assert.deepEqual(
          said.hops.map(({ hop, seen }) => [hop, seen?.says]).filter(([hop]) => hop !== 'rules'),
          [
            ['sender', 'by eth0'],
            ['link', 'va'],
            ['route', 'by vb'],
            ['source', 'kept'],
            ['exit', 'by vb'],
            ['receiver', 'it answers'],
            ['answer', `from ${to}`],
          ],
        )
        isLostAt(await traced(node, to, from), 'rules', /inet strict through drops it \(policy drop\)/, /policy drop/)
      }
    }),
  )
  it(
    'what a killed trace leaves is removed by the next one; two traces at once do not disturb each other',
    onNode(async ({ node, a, b }) => {
      const [one, other] = await Promise.all([traced(node, A, B), traced(node, B, A)])
      arrives(one)
      arrives(other)
      // A trace that waits for an answer is killed while its tables are there.
      await sh(
        b,
        'nft add table ip own; nft add chain ip own in "{ type filter hook input priority 300; }"; nft add rule ip own in tcp dport 80 drop',
      )
      const child = Bun.spawn(['nsenter', `--net=${node.path}`, '--', PLUMB, 'trace', A, OUT, '81'], {
        stdout: 'ignore',
      })
      await until(async () => (await a.exec(['nft', 'list', 'tables'])).stdout.includes('plumb_trace'))
      child.kill('SIGKILL')
      await child.exited
      assert.match((await a.exec(['nft', 'list', 'tables'])).stdout, /plumb_trace/)
      arrives(await traced(node, B, A))
    }),
  )
  it(
    'beside a map of 50,000 elements a trace takes at most 2 seconds',
    onNode(async ({ node }) => {
      await loadElements(node, B)
      const started = performance.now()
      const said = await traced(node, A, '10.96.1.1', '80')
      const ms = performance.now() - started
      // Another program has translated the packet.
      assert.equal(said.hops.find(({ hop }) => hop === 'service')?.seen?.says, `→ ${B}:80 by the chain inet many nat`)
      assert.deepEqual([said.lostAt, said.differsAt], ['receiver', undefined])
      assert.ok(ms < patient(2000), `${Math.round(ms)} ms`)
    }),
  )
  it(
    'says what it cannot find, and changes nothing then',
    onNode(async ({ node }) => {
      for (const [words, says] of [
        [['x/a', B], /Cannot find "x\/a": want node, a pod as NAMESPACE\/NAME/],
        [[A, 'x/b'], /Cannot find "x\/b": want node, a pod or a Service/],
        [['192.0.2.77', B], /192\.0\.2\.77 is not on this node: want a pod of this node, or node/],
        [[A, B, 'http'], /Cannot read the port "http": want a number from 1 to 65535/],
        [['/etc/passwd', B], /"\/etc\/passwd" is no network namespace: want the path of one/],
        [[A, '224.0.0.1'], /224\.0\.0\.1 is no address of one machine/],
        [[A, 'b\nc'], /Cannot find "b\\nc"/],
        [[A], /plumb trace takes FROM TO \[PORT\[\/PROTOCOL\]\]/],
        [[A, '2001:db8::1'], /10\.1\.0\.2 and 2001:db8::1 have no addresses of one family/],
      ] as const) {
        const { status, stderr } = await node.exec([PLUMB, 'trace', ...words])
        assert.equal(status, 2, stderr)
        assert.match(stderr, says)
      }
    }),
  )
})
