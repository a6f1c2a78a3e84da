// lane: quick
// Tests agent/bgp: the configuration, the text of bird.conf, and the answers of BIRD.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { birdConf, type Situation } from '../../../agent/bgp/bird-conf.ts'
import { askBird, makeReader, type ReplyLine, sessionsOf } from '../../../agent/bgp/birdc.ts'
import { parseBgp } from '../../../agent/bgp/configuration.ts'
import { readSource } from '../../../agent/bgp/source.ts'
import type { Lease } from '../../../agent/lease/lease.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { until } from '../../support/harness.ts'
import fc from '../../support/properties.ts'

const FILE = '/etc/plumb/bgp.yaml'
const refusal = (text: string): string => {
  try {
    parseBgp(FILE, text)
  } catch (cause) {
    assert.ok(cause instanceof ValueError, String(cause))
    return cause.message
  }
  return 'nothing is wrong'
}

describe('the configuration of BGP', () => {
  it('an empty file is a mesh that announces the subnets of the nodes', () => {
    const usual = {
      asn: 64_512,
      mesh: true,
      programs: 'agent',
      peers: [],
      announce: { nodeSubnet: true, clusterIPs: [], externalIPs: [], loadBalancerIPs: [] },
      confirmSeconds: 60,
    }
    for (const text of ['', '# nothing\n', '{}', 'null']) assert.deepEqual(parseBgp(FILE, text), usual)
  })

  it('every key is read', () => {
    const text = `
asn: 4200000000
mesh: false
programs: bird
routeReflectors:
  nodes: [a, b.example]
  nodeSelector: { matchLabels: { bgp: reflector }, matchExpressions: [{ key: old, operator: DoesNotExist }] }
  clusterId: 10.0.0.1
announce: { nodeSubnet: false, clusterIPs: [10.96.0.0/12], externalIPs: [192.0.2.5/24], loadBalancerIPs: [fd00:96::/112] }
confirmSeconds: 5
peers:
  - { name: tor-1, address: 192.0.2.1, asn: 65000, localAsn: 64513, port: 1179, passwordFile: /etc/secret, multihop: 3,
      gracefulRestart: 60, holdTime: 9, import: [0.0.0.0/0, 10.0.0.0/8 le 24], importLimit: 5,
      communities: [64512:100, "64512:1:2"], prepend: 2, source: 192.0.2.9, nodes: [a] }
  - { address: "fd00::1", asn: 65000, ttlSecurity: true, bfd: true, import: ["::/0"], subnets: true,
      nodeSelector: { matchExpressions: [{ key: rack, operator: In, values: [a, b] }] } }
`
    assert.deepEqual(parseBgp(FILE, text), {
      asn: 4_200_000_000,
      mesh: false,
      programs: 'bird',
      routeReflectors: {
        nodes: ['a', 'b.example'],
        nodeSelector: [
          { key: 'bgp', operator: 'In', values: ['reflector'] },
          { key: 'old', operator: 'DoesNotExist', values: [] },
        ],
        clusterId: '10.0.0.1',
      },
      announce: {
        nodeSubnet: false,
        clusterIPs: ['10.96.0.0/12'],
        externalIPs: ['192.0.2.0/24'],
        loadBalancerIPs: ['fd00:96::/112'],
      },
      confirmSeconds: 5,
      peers: [
        {
          name: 'tor-1',
          address: '192.0.2.1',
          asn: 65_000,
          localAsn: 64_513,
          port: 1179,
          passwordFile: '/etc/secret',
          multihop: 3,
          ttlSecurity: false,
          bfd: false,
          gracefulRestart: 60,
          holdTime: 9,
          import: [
            { network: '0.0.0.0/0', longest: 0 },
            { network: '10.0.0.0/8', longest: 24 },
          ],
          importLimit: 5,
          communities: ['64512:100', '64512:1:2'],
          prepend: 2,
          source: '192.0.2.9',
          subnets: false,
          nodes: ['a'],
        },
        {
          address: 'fd00::1',
          asn: 65_000,
          port: 179,
          ttlSecurity: true,
          bfd: true,
          gracefulRestart: 0,
          holdTime: 90,
          import: [{ network: '::/0', longest: 0 }],
          importLimit: 1000,
          communities: [],
          prepend: 0,
          subnets: true,
          nodeSelector: [{ key: 'rack', operator: 'In', values: ['a', 'b'] }],
        },
      ],
    })
  })

  const peer = (more: string) => `peers: [{ address: 192.0.2.1, asn: 65000, ${more} }]`
  const wrong: readonly (readonly [string, string])[] = [
    ['peer: []', 'Cannot read it: unknown key "peer", did you mean "peers"?'],
    [peer('holdtimer: 3'), 'Cannot read it: unknown key "peers[0].holdtimer", did you mean "holdTime"?'],
    ['asn: 0', 'Cannot read asn 0: want a whole number, 1 to 4294967295'],
    ['asn: "64512"', 'Cannot read asn "64512": want a whole number, 1 to 4294967295'],
    ['mesh: on', 'Cannot read mesh "on": want true or false'],
    ['[1]', 'Cannot read the configuration [1]: want an object'],
    ['peers: {}', 'Cannot read peers {}: want an array'],
    ['peers: [{ asn: 1 }]', 'Cannot read peers[0].address: it is missing'],
    ['peers: [{ address: 192.0.2.1 }]', 'Cannot read peers[0].asn: it is missing'],
    [
      'peers: [{ address: 224.0.0.5, asn: 1 }]',
      'Cannot read peers[0].address "224.0.0.5": want a unicast address that is neither loopback nor link-local',
    ],
    [
      peer('import: [10.0.0.0/8 le 7]'),
      'Cannot read peers[0].import[0] "10.0.0.0/8 le 7": want a network such as 0.0.0.0/0, or with its parts such as 10.0.0.0/8 le 24',
    ],
    [
      peer('import: [10.0.0.1/8]'),
      'Cannot read peers[0].import[0] "10.0.0.1/8": want 10.0.0.0/8, whose host bits are zero',
    ],
    [peer('import: ["::/0"]'), 'Cannot read peers[0].import "::/0": want networks of the family of 192.0.2.1'],
    [
      peer('communities: [no-export]'),
      'Cannot read peers[0].communities[0] "no-export": want a community such as "64512:100", or a large one such as "64512:1:2"',
    ],
    [
      peer('multihop: 2, ttlSecurity: true'),
      'Cannot read peers[0].ttlSecurity true: want multihop or ttlSecurity, as ttlSecurity is for peers on the link',
    ],
    [
      peer('bfd: true, gracefulRestart: 60'),
      'Cannot read peers[0].gracefulRestart 60: want bfd or gracefulRestart, as BFD ends the session that would wait',
    ],
    [peer('source: "fd00::1"'), 'Cannot read peers[0].source "fd00::1": want an address of the family of 192.0.2.1'],
    [peer('holdTime: 2'), 'Cannot read peers[0].holdTime 2: want a whole number, 3 to 65535'],
    [
      peer('passwordFile: secret'),
      'Cannot read peers[0].passwordFile "secret": want the path of a file, which begins with "/"',
    ],
    [
      peer('name: "a\\nb"'),
      'Cannot read peers[0].name "a\\nb": want a name of letters, digits, "_", "." or "-", 64 at most',
    ],
    [
      'peers: [{ address: 192.0.2.1, asn: 1 }, { address: 192.0.2.1, asn: 1, nodes: [a] }]',
      'Cannot read peers[1].address "192.0.2.1": want each address once on a node',
    ],
    [
      'routeReflectors: { nodes: [a, a], clusterId: 1.1.1.1 }',
      'Cannot read routeReflectors.nodes ["a","a"]: want two nodes at least, as one may die',
    ],
    [
      'routeReflectors: { clusterId: 1.1.1.1 }',
      'Cannot read routeReflectors.nodes []: want two nodes at least, as one may die',
    ],
    ['programs: kernel', 'Cannot read programs "kernel": want one of agent, bird'],
    [peer('subnets: true'), 'Cannot read peers[0].subnets true: want programs bird, else BIRD writes no such route'],
    [peer('nodeSelector: { rack: a }'), 'Cannot read it: unknown key "peers[0].nodeSelector.rack"'],
    [
      peer('nodeSelector: { matchLabels: { rack: 1 } }'),
      'Cannot read peers[0].nodeSelector.matchLabels ["rack"] 1: want a text: "1"',
    ],
    [
      peer('nodeSelector: { matchLabels: rack }'),
      'Cannot read peers[0].nodeSelector.matchLabels "rack": want labels such as {"rack": "a"}',
    ],
    [
      peer('nodeSelector: { matchExpressions: [{ key: rack, operator: in }] }'),
      'Cannot read peers[0].nodeSelector.matchExpressions[0].operator "in": want one of In, NotIn, Exists, DoesNotExist',
    ],
    [
      peer('nodeSelector: { matchExpressions: [{ key: rack, operator: In }] }'),
      'Cannot read peers[0].nodeSelector.matchExpressions[0].values: want at least one with In',
    ],
    [
      'routeReflectors: { nodes: [a, b], clusterId: "fd00::1" }',
      'Cannot read routeReflectors.clusterId "fd00::1": want a number such as 10.0.0.1',
    ],
    ['asn: 1\n---\nasn: 2', 'line 2, column 1: Source contains multiple documents'],
    ['a: [', 'line 1, column 5: Flow sequence in block collection must be sufficiently indented and end with a ]'],
  ]
  for (const [text, says] of wrong)
    it(`refuses ${text}`, () => assert.equal(refusal(text), `Cannot use ${FILE}: ${says}`))

  const lined: readonly (readonly [text: string, says: string])[] = [
    ['asn: 64512\npeers:\n  - address: 192.0.2.1\n    asn: many\n', 'line 4: Cannot read peers[0].asn "many": want'],
    ['asn: 64512\npeers:\n  - address: 192.0.2.1\n', 'line 3: Cannot read peers[0].asn: it is missing'],
    ['asn: 64512\nannounce:\n  nodesubnet: yes please\n', 'line 3: Cannot read announce.nodeSubnet "yes please": '],
    ['asn: 64512\n\nmehs: true\n', 'line 3: Cannot read it: unknown key "mehs", did you mean "mesh"?'],
    ['a: 1\nb: [\n', 'line 3, column 1: '],
    ['asn: 64512\npeers: [{ address: 1.2.3.4, asn: 1 }', 'line 2, column '],
  ]
  for (const [text, says] of lined)
    it(`names the line of ${JSON.stringify(text)}`, () =>
      assert.ok(refusal(text).startsWith(`Cannot use ${FILE}: ${says}`), refusal(text)))

  it('nonsense is read or refused with a sentence, and nothing else happens', function () {
    this.timeout(300_000)
    const check = (text: string) => {
      const said = refusal(text)
      assert.ok(said === 'nothing is wrong' || said.startsWith(`Cannot use ${FILE}: `), said)
      assert.ok(said.length < 1000)
    }
    fc.assert(fc.property(fc.string(), check), { numRuns: 500 })
    fc.assert(fc.property(fc.string({ unit: fc.constantFrom(...'[]{}:,-&*!|>"\'\n #a1') }), check), { numRuns: 1000 })
    const leaf = fc.oneof(fc.anything(), fc.integer(), fc.ipV4(), fc.ipV6(), fc.constantFrom('0.0.0.0/0', true, [], {}))
    const keys = ['address', 'asn', 'import', 'nodes', 'communities', 'holdTime', 'bfd', 'multihop', 'source', 'port']
    const one = fc.dictionary(fc.constantFrom(...keys), leaf)
    const all = fc.record(
      { peers: fc.oneof(leaf, fc.array(one)), asn: leaf, announce: leaf, routeReflectors: leaf },
      { requiredKeys: [] },
    )
    const json = (value: unknown) => JSON.stringify(value, (_, one) => (typeof one === 'bigint' ? `${one}` : one)) ?? ''
    fc.assert(
      fc.property(all, (value) => check(json(value))),
      { numRuns: 1000 },
    )
    check('['.repeat(100_000))
    check('x'.repeat(300_000))
    check(
      `a: &a [x, x]\n${Array.from({ length: 40 }, (_, i) => `k${i}: &k${i} [*${i === 0 ? 'a' : `k${i - 1}`}, *${i === 0 ? 'a' : `k${i - 1}`}]`).join('\n')}\n`,
    )
  })

  it('a password is the first line of its file, and no message shows it', () => {
    const dir = mkdtempSync(join(tmpdir(), 'bgp-'))
    try {
      const [file, secret] = [join(dir, 'bgp.yaml'), join(dir, 'secret')]
      writeFileSync(file, `peers: [{ address: 192.0.2.1, asn: 1, passwordFile: ${secret} }]`)
      assert.throws(() => readSource(file), { message: `Cannot use ${file}: ${secret}: there is no such file` })
      writeFileSync(secret, 'abc\r\nsecond\n')
      const first = readSource(file)
      assert.deepEqual([...first.passwords], [[secret, 'abc']])
      writeFileSync(secret, 'abd\n')
      assert.notEqual(readSource(file).id, first.id)
      for (const text of ['', '\n', 'hush"hush', 'h'.repeat(81), Buffer.from('hush\xe9', 'latin1')]) {
        writeFileSync(secret, text)
        assert.throws(
          () => readSource(file),
          (cause: Error) =>
            cause instanceof ValueError &&
            /want a first line in UTF-8, of 1 to 80 bytes/.test(cause.message) &&
            !/hush|hhh/.test(cause.message),
        )
      }
      writeFileSync(secret, 'x\n'.repeat(1_000_000))
      assert.throws(() => readSource(file), {
        message: `Cannot use ${file}: ${secret}: it has 2000000 bytes; want 1048576 at most`,
      })
      assert.throws(() => readSource(dir), { message: `Cannot use ${dir}: it is no regular file` })
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})

const lease = (n: number, more: Partial<Lease> = {}): Lease => ({
  node: `n${n}`,
  subnets: { v4: `10.244.${n}.0/24` as Cidr },
  ips: { v4: `172.30.0.${n}` as Ip },
  backend: 'host-gw',
  data: {},
  ...more,
})
const situation = (yaml: string, more: Partial<Situation> = {}): Situation => ({
  conf: parseBgp(FILE, yaml),
  node: 'n2',
  subnets: { v4: '10.244.2.0/24' as Cidr },
  ips: { v4: '172.30.0.2' as Ip },
  seenAs: {},
  others: [lease(1), lease(2), lease(3)],
  networks: ['10.244.0.0/16' as Cidr],
  isOnLink: () => true,
  labelsOf: () => undefined,
  addresses: [],
  passwords: new Map(),
  logFile: '/run/plumb/bird/bird.log',
  ...more,
})
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

  it('BIRD itself reads what comes from any configuration', () => {
    const dir = mkdtempSync(join(tmpdir(), 'bird-'))
    const number = fc.integer({ min: 1, max: 2 ** 32 - 1 })
    const oneOf = fc.record(
      {
        localAsn: number,
        port: fc.integer({ min: 1, max: 65_535 }),
        bfd: fc.boolean(),
        holdTime: fc.integer({ min: 3, max: 65_535 }),
        import: fc.subarray(['0.0.0.0/0', '10.0.0.0/8 le 32', '203.0.113.0/24', '192.0.2.1/32']),
        importLimit: fc.integer({ min: 1, max: 1_000_000 }),
        communities: fc.subarray(['64512:1', '0:0', '4294967295:1:2']),
        prepend: fc.integer({ min: 0, max: 16 }),
        source: fc.constant('172.30.0.2'),
        subnets: fc.boolean(),
        passwordFile: fc.constantFrom('/a', '/b'),
      },
      { requiredKeys: [] },
    )
    const way = fc.constantFrom({}, { multihop: 2 }, { multihop: 255 }, { ttlSecurity: true })
    const peers = fc
      .array(fc.tuple(oneOf, way, number), { maxLength: 4 })
      .map((all) => all.map(([one, how, asn], i) => ({ address: `192.0.2.${i + 1}`, asn, ...one, ...how })))
    const conf = fc.record(
      {
        asn: number,
        mesh: fc.boolean(),
        programs: fc.constant('bird'),
        peers,
        routeReflectors: fc.constant({ nodes: ['n1', 'n2'], clusterId: '1.2.3.4' }),
        announce: fc.record({ nodeSubnet: fc.boolean() }),
      },
      { requiredKeys: ['peers', 'programs'] },
    )
    const ways = fc.constantFrom(
      {},
      { ways: { onLink: near } },
      { ways: { onLink: [], device: 'lo' } },
      { ways: { onLink: [...near, 'fd00:30::/64' as Cidr], device: 'lo', isAlways: false } },
      { ways: { onLink: near, device: 'lo', isAlways: true } },
    )
    try {
      fc.assert(
        fc.property(conf, fc.boolean(), ways, (value, isOnLink, how) => {
          const passwords = new Map([
            ['/a', 'a'],
            ['/b', 'é'.repeat(40)],
          ])
          const { text } = birdConf(
            situation(JSON.stringify(value), {
              passwords,
              isOnLink: () => isOnLink,
              addresses: ['192.0.2.10' as Ip],
              ...how,
            }),
          )
          writeFileSync(join(dir, 'bird.conf'), text.replaceAll('/run/plumb/bird', dir))
          const { exitCode, stderr } = Bun.spawnSync(['bird', '-p', '-c', join(dir, 'bird.conf')])
          assert.equal(exitCode, 0, `${stderr}\n${text}`)
        }),
        { numRuns: 60 },
      )
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})

type Asker = { write(text: string): number; end(): void }
const BLANKS = ' '.repeat(65_536)
function flood(asker: Asker): void {
  while (asker.write(BLANKS) === BLANKS.length);
}

const ANSWER = `0001 BIRD 2.0.12 ready.
2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     2026-11-28 01:02:03  
1006-
1002-own_v4     Static     master4    up     2026-11-28 01:02:03  
1006-  Channel ipv4
     State:          UP
     Routes:         1 imported, 0 exported, 1 preferred
1002-node_v4_172_30_0_1 BGP        ---        up     2026-11-28 01:02:05  Established   
1006-  BGP state:          Established
     Neighbor address: 172.30.0.1
   Channel ipv4
     State:          UP
     Routes:         3 imported, 2 filtered, 1 exported, 0 preferred
1002-peer_v4_172_30_0_254 BGP        ---        start  2026-11-28 01:02:04  Active        Socket: Connection refused
1006-  BGP state:          Active
     Last error:       Socket: Connection refused
1002-peer_v4_172_30_0_253 BGP        ---        start  2026-11-28 01:02:04  Idle          
1006-  BGP state:          Idle
     Last error:       Received: Bad peer AS
1006-
0000 
`

describe('the answers of BIRD', () => {
  const [, lines] = makeReader()(ANSWER) as [unknown, readonly ReplyLine[]]
  const at = (time: string) => Date.parse(`2026-11-28T${time}Z`)

  it('show protocols all gives the sessions with state, time, prefixes and reason', () => {
    assert.deepEqual(sessionsOf(lines), [
      { protocol: 'node_v4_172_30_0_1', state: 'Established', since: at('01:02:05'), received: 3, sent: 1 },
      {
        protocol: 'peer_v4_172_30_0_254',
        state: 'Active',
        since: at('01:02:04'),
        received: 0,
        sent: 0,
        reason: 'Socket: Connection refused',
      },
      {
        protocol: 'peer_v4_172_30_0_253',
        state: 'Idle',
        since: at('01:02:04'),
        received: 0,
        sent: 0,
        reason: 'Received: Bad peer AS',
      },
    ])
  })

  it('in pieces of any size it is the same', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1 }), (sizes) => {
        const reader = makeReader()
        const found: (readonly ReplyLine[])[] = []
        for (let [from, i] = [0, 0]; from < ANSWER.length; i++) {
          const size = sizes[i % sizes.length] as number
          found.push(...reader(ANSWER.slice(from, from + size)))
          from += size
        }
        assert.deepEqual(found[1], lines)
      }),
    )
  })

  const behaviours: readonly (readonly [string, (asker: Asker) => void, RegExp])[] = [
    ['says nothing', () => {}, /^BIRD has not answered for 0\.3 s$/],
    ['closes', (asker) => asker.end(), /^BIRD has closed the connection$/],
    ['says nonsense', (asker) => void asker.write('220 mail ready\n'), /^BIRD answers "220 mail ready", which is no/],
    [
      'never ends its answer',
      (asker) => void asker.write('0001 ready.\n1002-row'),
      /^BIRD answers more than 16777216 bytes$/,
    ],
    ['refuses', (asker) => void asker.write('0001 ready.\n8002 /x:1:1 syntax error\n'), /^\/x:1:1 syntax error$/],
  ]
  for (const [what, answer, says] of behaviours)
    it(`a socket that ${what} is an error with a sentence, and the connection is closed`, async () => {
      const dir = mkdtempSync(join(tmpdir(), 'birdc-'))
      const socket = join(dir, 'ctl')
      let isClosed = false
      const listener = Bun.listen({
        unix: socket,
        socket: {
          open: answer,
          data(asker) {
            if (what.startsWith('never')) flood(asker)
          },
          drain(asker) {
            if (what.startsWith('never')) flood(asker)
          },
          close() {
            isClosed = true
          },
        },
      })
      try {
        await assert.rejects(askBird(socket, 'show status', what === 'says nothing' ? 300 : 10_000), { message: says })
        await until(() => isClosed)
      } finally {
        listener.stop(true)
        rmSync(dir, { recursive: true })
      }
    })

  it('a socket that is not there is an error that names it', () =>
    assert.rejects(askBird('/nowhere/bird.ctl', 'show status'), {
      message: /^BIRD does not answer at \/nowhere\/bird\.ctl: /,
    }))

  it('nonsense is refused or read, never more', () => {
    const check = (text: string) => {
      try {
        for (const answer of makeReader()(text)) sessionsOf(answer)
      } catch (cause) {
        assert.match((cause as Error).message, /^BIRD answers .*, which is no answer of BIRD 2$/)
      }
    }
    fc.assert(fc.property(fc.string(), check))
    const piece = fc.constantFrom(
      '1002-',
      '1006-',
      '0000 ',
      ' ',
      '+',
      'BGP',
      '2026-11-28 01:02:03',
      '\n',
      'Routes: 1 imported, 2 exported',
      'x',
    )
    fc.assert(fc.property(fc.array(piece), (all) => check(all.join(''))))
  })
})
