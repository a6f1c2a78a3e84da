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
