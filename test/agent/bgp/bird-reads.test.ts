// lane: netns
// needs: bird
// Tests agent/bgp/bird-conf.ts: BIRD's own reader.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { birdConf } from '../../../agent/bgp/bird-conf.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { situation } from '../../support/bgp-situation.ts'
import fc from '../../support/properties.ts'

describe('bird.conf, read by BIRD', () => {
  const near = ['172.30.0.0/24' as Cidr]
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
