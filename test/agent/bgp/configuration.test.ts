// lane: quick
// Tests agent/bgp/configuration.ts and source.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseBgp } from '../../../agent/bgp/configuration.ts'
import { readSource } from '../../../agent/bgp/source.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { FILE } from '../../support/bgp-situation.ts'
import fc from '../../support/properties.ts'

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
