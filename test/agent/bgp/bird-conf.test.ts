// lane: quick
// Tests agent/bgp/bird-conf.ts.
import assert from 'node:assert/strict'
import { birdConf, type Situation } from '../../../agent/bgp/bird-conf.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { lease, situation } from '../../support/bgp-situation.ts'

const part = (text: string, name: string) =>
  new RegExp(`^protocol \\w+ ${name} \\{\n[\\s\\S]*?^\\}$`, 'm').exec(text)?.[0]

describe('bird.conf', () => {
  it('of a node between two others, with a router', () => {
    const yaml =
      'peers: [{ name: tor, address: 172.30.0.254, asn: 65000, import: [0.0.0.0/0, 10.0.0.0/8 le 24], communities: [64512:7], prepend: 1 }]'
    const { text, sessions, announced } = birdConf(situation(yaml, { addresses: ['192.0.2.10' as Ip] }))
    assert.equal(
      text,
      `# The plumb agent writes this file. It depends on --bgp-config and on the leases of the nodes.
log "/run/plumb/bird/bird.log" 1000000 "/run/plumb/bird/bird.log.1" { info, remote, warning, error, auth, fatal, bug };
router id 172.30.0.2;
timeformat protocol iso long;
graceful restart wait 30;
protocol device { scan time 10; }
protocol static own_v4 {
  ipv4;
  route 10.244.2.0/24 blackhole;
  route 192.0.2.10/32 blackhole;
}
protocol kernel kernel_v4 {
  ipv4 {
    import none;
    export filter { if proto ~ "peer_v4_*" && dest != RTD_UNREACHABLE then accept; reject; };
  };
  merge paths on;
  scan time 10;
}
protocol bgp node_v4_172_30_0_1 {
  local 172.30.0.2 as 64512;
  neighbor 172.30.0.1 as 64512;
  direct;
  passive on;
  connect delay time 1;
  connect retry time 5;
  error wait time 1, 30;
  hold time 90;
  graceful restart on;
  graceful restart time 120;
  ipv4 {
    import filter { if net ~ [ 10.244.1.0/24 ] then accept; reject; };
    export filter { if (source = RTS_STATIC && net = 10.244.2.0/24) then accept; reject; };
  };
}
protocol bgp node_v4_172_30_0_3 {
  local 172.30.0.2 as 64512;
  neighbor 172.30.0.3 as 64512;
  direct;
  connect delay time 1;
  connect retry time 5;
  error wait time 1, 30;
  hold time 90;
  graceful restart on;
  graceful restart time 120;
  ipv4 {
    import filter { if net ~ [ 10.244.3.0/24 ] then accept; reject; };
    export filter { if (source = RTS_STATIC && net = 10.244.2.0/24) then accept; reject; };
  };
}
protocol bgp peer_v4_172_30_0_254 {
  local as 64512;
  neighbor 172.30.0.254 port 179 as 65000;
  direct;
  connect delay time 1;
  connect retry time 5;
  error wait time 1, 30;
  hold time 90;
  graceful restart on;
  graceful restart time 120;
  ipv4 {
    import filter {
      if net ~ [ 10.244.0.0/16+ ] then reject;
      if net ~ [ 0.0.0.0/0, 10.0.0.0/8{8,24} ] then accept;
      reject;
    };
    import limit 1000 action block;
    export filter {
      if source != RTS_STATIC then reject;
      bgp_community.add((64512, 7));
      bgp_path.prepend(64512);
      accept;
    };
  };
}
`,
    )
    assert.deepEqual(
      sessions.map(({ protocol, kind, name }) => [protocol, kind, name]),
      [
        ['node_v4_172_30_0_1', 'node', 'n1'],
        ['node_v4_172_30_0_3', 'node', 'n3'],
        ['peer_v4_172_30_0_254', 'peer', 'tor'],
      ],
    )
    assert.equal(announced, 2)
  })

  it('without peers that may announce something, BIRD has nothing to do with the kernel', () => {
    const { text } = birdConf(situation('peers: [{ address: 172.30.0.254, asn: 65000 }]'))
    assert.doesNotMatch(text, /protocol kernel/)
    assert.match(text, /import none;/)
  })

  it('a peer behind routers: multihop, and the kernel’s routes resolve its next hops', () => {
    const { text } = birdConf(
      situation('peers: [{ address: 192.0.2.1, asn: 65000, multihop: 3, import: [0.0.0.0/0] }]'),
    )
    assert.match(part(text, 'peer_v4_192_0_2_1') ?? '', /^ {2}multihop 3;$/m)
    assert.match(part(text, 'kernel_v4') ?? '', /import all;[\s\S]*learn;/)
  })

  it('reflectors pass on the routes of their clients, who have sessions with them alone', () => {
    const yaml = 'routeReflectors: { nodes: [n1, n2], clusterId: 10.0.0.9 }'
    const reflector = birdConf(situation(yaml)).text
    assert.doesNotMatch(part(reflector, 'node_v4_172_30_0_1') ?? '', /rr client/)
    assert.match(part(reflector, 'node_v4_172_30_0_3') ?? '', /rr client;\n {2}rr cluster id 10\.0\.0\.9;/)
    assert.match(part(reflector, 'node_v4_172_30_0_3') ?? '', /net ~ \[ 10\.244\.3\.0\/24 \]/)
    assert.match(part(reflector, 'node_v4_172_30_0_3') ?? '', /\|\| proto ~ "node_v4_\*"/)
    const client = birdConf(
      situation(yaml, { node: 'n4', subnets: { v4: '10.244.4.0/24' as Cidr }, ips: { v4: '172.30.0.4' as Ip } }),
    )
    assert.deepEqual(
      client.sessions.map(({ name }) => name),
      ['n1', 'n2'],
    )
    assert.match(
      part(client.text, 'node_v4_172_30_0_1') ?? '',
      /net ~ \[ 10\.244\.1\.0\/24, 10\.244\.2\.0\/24, 10\.244\.3\.0\/24 \]/,
    )
    assert.doesNotMatch(client.text, /rr /)
  })

  const rack = (name: string) => `nodeSelector: { matchLabels: { rack: ${name} } }`
  const RACKS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    n1: { rack: 'a', bgp: 'reflector' },
    n2: { rack: 'b' },
    n3: { rack: 'c', bgp: 'reflector' },
  }
  const labelsOf = (node: string) => RACKS[node]

  it('selectors decide by the labels of nodes who the reflectors are, and who has which router; unknown labels select nothing', () => {
    const reflected =
      'routeReflectors: { clusterId: 10.0.0.9, nodes: [n9], nodeSelector: { matchLabels: { bgp: reflector } } }'
    const names = (more: Partial<Situation>) => birdConf(situation(reflected, more)).sessions.map(({ name }) => name)
    assert.deepEqual(names({ labelsOf }), ['n1', 'n3'])
    assert.deepEqual(names({ labelsOf, others: [lease(1), lease(3), lease(9)] }), ['n1', 'n3', 'n9'])
    assert.deepEqual(names({}), [])
    const says = (more: Partial<Situation>) => birdConf(situation(reflected, more)).problems
    assert.deepEqual(says({ labelsOf }), [])
    assert.deepEqual(says({}), ['none of the nodes is a route reflector; want two at least, as one may die'])
    assert.deepEqual(says({ labelsOf, others: [lease(1)] }), [
      'n1 is the only route reflector; want two at least, as one may die',
    ])
    // The store etcd knows no names.
    const unnamed = [1, 3].map((n) => {
      const { node: _, ...rest } = lease(n)
      return rest
    })
    const byAddress = 'routeReflectors: { clusterId: 10.0.0.9, nodes: [172.30.0.1, n2, "fd00:30::3"] }'
    const made = (node: string) => birdConf(situation(byAddress, { node, others: unnamed }))
    assert.deepEqual(
      made('n2').sessions.map(({ name }) => name),
      ['172.30.0.1', '172.30.0.3'],
    )
    const fourth = { ips: { v4: '172.30.0.4' as Ip }, subnets: { v4: '10.244.4.0/24' as Cidr } }
    const client = birdConf(situation(byAddress, { node: 'n4', others: unnamed, ...fourth }))
    assert.deepEqual(
      [client.sessions.map(({ name }) => name), client.problems],
      [['172.30.0.1'], ['172.30.0.1 is the only route reflector; want two at least, as one may die']],
    )
    const tors = `peers: [{ address: 192.0.2.1, asn: 1, ${rack('a')} }, { address: 192.0.2.1, asn: 2, ${rack('b')} }, { address: 192.0.2.9, asn: 9, nodes: [n3], ${rack('b')} }]`
    const outer = (node: string) =>
      birdConf(situation(`mesh: false\n${tors}`, { node, labelsOf })).sessions.map(
        ({ address, asn }) => `${address} ${asn}`,
      )
    assert.deepEqual(
      [outer('n1'), outer('n2'), outer('n3'), outer('n4')],
      [['192.0.2.1 1'], ['192.0.2.1 2', '192.0.2.9 9'], ['192.0.2.9 9'], []],
    )
    const twice = `peers: [{ address: 192.0.2.1, asn: 1, ${rack('b')} }, { address: 192.0.2.1, asn: 2, nodes: [n2] }]`
    const both = birdConf(situation(`mesh: false\n${twice}`, { labelsOf }))
    assert.deepEqual(
      [both.sessions.map(({ asn }) => asn), both.problems],
      [
        [1],
        ['two peers of n2 have the address 192.0.2.1, the first one counts (AS 1); want each address once on a node'],
      ],
    )
  })

  const near = ['172.30.0.0/24' as Cidr]
  const BY_BIRD =
    'programs: bird\nmesh: true\npeers: [{ address: 172.30.0.254, asn: 65000, subnets: true, import: [0.0.0.0/0] }]'
  it('BIRD writes the routes to nodes: to next hops on the link directly, to others by the tunnel, and to none without one', () => {
    const of = (ways: Situation['ways']) => birdConf(situation(BY_BIRD, ways ? { ways } : {})).text
    const crossing = of({ onLink: near, device: 'flannel.ipip' })
    const direct = 'if bgp_next_hop ~ 172.30.0.0/24 then { gw = bgp_next_hop; accept; }'
    const tunnel = 'onlink = true; ifname = "flannel.ipip"; gw = bgp_next_hop;'
    assert.ok(
      part(crossing, 'node_v4_172_30_0_1')?.includes(`    import filter {
      if !(net ~ [ 10.244.1.0/24 ]) then reject;
      ${direct}
      ${tunnel}
      accept;
    };`),
      crossing,
    )
    assert.ok(
      part(crossing, 'peer_v4_172_30_0_254')?.includes(`    import filter {
      if net ~ [ 10.244.2.0/24+ ] then reject;
      if net ~ [ 10.244.0.0/16{24,24} ] then {
        ${direct}
        ${tunnel}
        accept;
      }
      if net ~ [ 10.244.0.0/16+ ] then reject;
      if net ~ [ 0.0.0.0/0 ] then accept;
      reject;
    };`),
      crossing,
    )
    assert.match(
      part(crossing, 'kernel_v4') ?? '',
      /if \(proto ~ "peer_v4_\*" \|\| proto ~ "node_v4_\*"\) && dest != RTD_UNREACHABLE[\s\S]*scan time 2;/,
    )
    const always = of({ onLink: near, device: 'flannel.ipip', isAlways: true })
    assert.ok(!always.includes(direct) && always.includes(tunnel))
    const never = of({ onLink: near })
    assert.ok(never.includes(`${direct}\n      reject;`) && !never.includes('onlink'))
    assert.ok(!of(undefined).includes('bgp_next_hop'))
  })

  it('a lease without a name, as flanneld writes it into etcd, is no reflector: it has sessions with reflectors alone', () => {
    const yaml = 'routeReflectors: { nodes: [n1, n2], clusterId: 10.0.0.9 }'
    const { node: _, ...nameless } = lease(1)
    const others = [nameless, lease(2), lease(3)]
    const names = (node: number) => {
      const own = { v4: `172.30.0.${node}` as Ip }
      const more = { node: `n${node}`, subnets: lease(node).subnets, ips: own, others }
      return birdConf(situation(yaml, more)).sessions.map(({ name }) => name)
    }
    // The reflector n2 passes the routes of all on. n3 does not know that 172.30.0.1 is n1.
    assert.deepEqual(names(2), ['172.30.0.1', 'n3'])
    assert.deepEqual(names(3), ['n2'])
  })

  it('each family has sessions of its own, and peers are of some nodes only', () => {
    const six = { v4: '10.244.1.0/24' as Cidr, v6: 'fd00:244:1::/64' as Cidr }
    const { text, sessions } = birdConf(
      situation(
        'peers: [{ address: 192.0.2.1, asn: 1, nodes: [n1] }, { address: "fd00:30::fe", asn: 2, nodes: [n2], import: ["::/0"] }]',
        {
          subnets: { v4: '10.244.2.0/24' as Cidr, v6: 'fd00:244:2::/64' as Cidr },
          ips: { v4: '172.30.0.2' as Ip, v6: 'fd00:30::2' as Ip },
          others: [lease(1, { subnets: six, ips: { v4: '172.30.0.1' as Ip, v6: 'fd00:30::1' as Ip } })],
          networks: ['10.244.0.0/16' as Cidr, 'fd00:244::/48' as Cidr],
          addresses: ['fd00:96::1' as Ip],
        },
      ),
    )
    assert.deepEqual(
      sessions.map(({ protocol }) => protocol),
      ['node_v4_172_30_0_1', 'node_v6_fd00_30__1', 'peer_v6_fd00_30__fe'],
    )
    assert.match(
      part(text, 'own_v6') ?? '',
      /ipv6;\n {2}route fd00:244:2::\/64 blackhole;\n {2}route fd00:96::1\/128 blackhole;/,
    )
    assert.match(part(text, 'peer_v6_fd00_30__fe') ?? '', /ipv6 \{[\s\S]*if net ~ \[ fd00:244::\/48\+ \] then reject;/)
  })

  it('a lease with an address that is none for a session, and one with that of a peer, give no session of nodes', () => {
    const both = (n: number, v6: string): Partial<Lease> => ({
      subnets: { v4: `10.244.${n}.0/24` as Cidr, v6: `fd00:244:${n}::/64` as Cidr },
      ips: { v4: `172.30.0.${n}` as Ip, v6: v6 as Ip },
    })
    const others = [lease(1, both(1, 'fe80::1')), lease(3, both(3, 'ff02::1')), lease(4, both(4, 'fd00:30::4'))]
    const own = { subnets: { v4: '10.244.2.0/24' as Cidr, v6: 'fd00:244:2::/64' as Cidr }, others }
    const of = (v6: string) =>
      birdConf(
        situation('peers: [{ address: 172.30.0.3, asn: 65000 }]', {
          ...own,
          ips: { v4: '172.30.0.2' as Ip, v6: v6 as Ip },
        }),
      ).sessions.map(({ protocol }) => protocol)
    const plain = ['node_v4_172_30_0_1', 'node_v4_172_30_0_4']
    assert.deepEqual(of('fd00:30::2'), [...plain, 'node_v6_fd00_30__4', 'peer_v4_172_30_0_3'])
    assert.deepEqual(of('fe80::2'), [...plain, 'peer_v4_172_30_0_3'])
  })

  it('of two nodes that others see at other addresses, one connects', () => {
    const of = (n: number, other: number) =>
      part(
        birdConf(
          situation('', {
            node: `n${n}`,
            subnets: { v4: `10.244.${n}.0/24` as Cidr },
            ips: { v4: `172.30.0.${n}` as Ip },
            seenAs: { v4: `10.9.0.${n}` as Ip },
            others: [lease(other, { ips: { v4: `10.9.0.${other}` as Ip } })],
          }),
        ).text,
        `node_v4_10_9_0_${other}`,
      ) ?? ''
    assert.deepEqual(
      [of(1, 2), of(2, 1)].map((text) => /passive on;/.test(text)),
      [false, true],
    )
    assert.match(of(1, 2), /^ {2}local as 64512;$/m)
  })

  it('a node without IPv4 has a router id that is its own', () => {
    const of = (v6: string) =>
      /router id (\S+);/.exec(birdConf(situation('', { ips: { v6: v6 as Ip }, subnets: {} })).text)?.[1]
    assert.notEqual(of('fd00::1'), of('fd00::2'))
    assert.equal(of('fd00::1'), of('fd00::1'))
  })

  it('a password stands in quotes, and one that could end them is refused', () => {
    const yaml = 'peers: [{ address: 192.0.2.1, asn: 65000, passwordFile: /p }]'
    const of = (password: string) => birdConf(situation(yaml, { passwords: new Map([['/p', password]]) })).text
    assert.match(of("it's # a; {secret}"), /^ {2}password "it's # a; \{secret\}";$/m)
    for (const bad of ['a"b', 'a\nb']) assert.throws(() => of(bad), ValueError)
  })
})
