// Tests agent/bgp: the configuration, the text of bird.conf, and the answers of BIRD.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { birdConf, type Situation } from '../../agent/bgp/bird-conf.ts'
import { askBird, makeReader, type ReplyLine, sessionsOf } from '../../agent/bgp/birdc.ts'
import { parseBgp } from '../../agent/bgp/configuration.ts'
import { readSource } from '../../agent/bgp/source.ts'
import type { Lease } from '../../agent/lease/lease.ts'
import { ValueError } from '../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { until } from '../support/harness.ts'

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

  it('a password that is no UTF-8, or in a file too large, is refused; one that changes makes another configuration', () => {
    const dir = mkdtempSync(join(tmpdir(), 'bgp-'))
    try {
      const [file, secret] = [join(dir, 'bgp.yaml'), join(dir, 'secret')]
      writeFileSync(file, `peers: [{ address: 192.0.2.1, asn: 1, passwordFile: ${secret} }]`)
      writeFileSync(secret, 'abc\r\nsecond\n')
      const first = readSource(file)
      assert.deepEqual([...first.passwords], [[secret, 'abc']])
      writeFileSync(secret, 'abd\n')
      assert.notEqual(readSource(file).id, first.id)
      for (const text of ['', '\n', Buffer.from('hush\xe9', 'latin1')]) {
        writeFileSync(secret, text)
        assert.throws(() => readSource(file), /^(?!.*hush).*want a first line in UTF-8, of 1 to 80 bytes/)
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

describe('bird.conf', () => {
  const near = ['172.30.0.0/24' as Cidr]

  it('labels of nodes that are not known select nothing', () => {
    const selecting = (key: string) =>
      `${key}: { nodeSelector: { matchExpressions: [{ key: a, operator: DoesNotExist }] }`
    const made = birdConf(situation(`${selecting('routeReflectors')}, clusterId: 10.0.0.9 }`))
    const none = 'none of the nodes is a route reflector; want two at least, as one may die'
    assert.deepEqual([made.sessions, made.problems], [[], [none]])
  })

  it('reflectors count by their addresses where leases have no names, as in the store etcd', () => {
    const others = [1, 3].map((n) => {
      const { node: _, ...rest } = lease(n)
      return rest
    })
    const yaml = 'routeReflectors: { clusterId: 10.0.0.9, nodes: [172.30.0.1, n2, "fd00:30::3"] }'
    const names = (more: Partial<Situation>) =>
      birdConf(situation(yaml, { others, ...more })).sessions.map(({ name }) => name)
    assert.deepEqual(names({}), ['172.30.0.1', '172.30.0.3'])
    const fourth = { node: 'n4', ips: { v4: '172.30.0.4' as Ip }, subnets: { v4: '10.244.4.0/24' as Cidr } }
    assert.deepEqual(names(fourth), ['172.30.0.1'])
    assert.deepEqual(birdConf(situation(yaml, { others, ...fourth })).problems, [
      '172.30.0.1 is the only route reflector; want two at least, as one may die',
    ])
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

  it('a password that could end its quotes is refused', () => {
    const yaml = 'peers: [{ address: 192.0.2.1, asn: 65000, passwordFile: /p }]'
    for (const bad of ['a"b', 'a\nb'])
      assert.throws(() => birdConf(situation(yaml, { passwords: new Map([['/p', bad]]) })), ValueError)
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
