// lane: quick
// Tests agent/store.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Lease } from '../../../agent/lease/lease.ts'
import { formatNetworkConf, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { conditionOf, initialState } from '../../../agent/state/condition.ts'
import { type LastKnown, openCheckpoint, readCheckpoint, whyUncertain } from '../../../agent/store/last-known.ts'
import type { Cidr } from '../../../lib/text/ip.ts'
import { draft } from '../../support/suites/leases.ts'

const CONF = parseNetworkConf(
  '{"Network":"10.0.0.0/8","SubnetLen":24,"PeerNetworks":["11.0.0.0/8"],"Backend":{"Type":"vxlan","VNI":7}}',
)
const HOUR = 3_600_000

describe('what was known of the network last', () => {
  let dir = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-known-'))
  })
  afterEach(() => rmSync(dir, { recursive: true, force: true }))
  const place = () => ({ path: join(dir, 'network.json'), node: 'n0', store: 'etcd http://a /net' })
  const known = (count: number): Omit<LastKnown, 'at'> => ({
    conf: CONF,
    lease: { ...lease(0), expires: Date.now() + HOUR },
    leases: Array.from({ length: count }, (_, i) => lease(i)),
  })

  it('is read back as it was, by the same node and of the same store alone', () => {
    const checkpoint = openCheckpoint(place(), assert.ifError)
    const all = known(3)
    checkpoint.save(all)
    checkpoint.flush()
    const { at, ...found } = readCheckpoint(place()) as LastKnown
    assert.deepEqual(found, all)
    assert.ok(Math.abs(Date.now() - at) < 60_000)
    assert.equal(readCheckpoint({ ...place(), node: 'n1' }), undefined)
    assert.equal(readCheckpoint({ ...place(), store: 'etcd http://a /other' }), undefined)
    for (const text of [
      '',
      '{}',
      'no JSON',
      readFileSync(place().path, 'utf8').replace('10.0.1.0-24', '10.0.1.7-24'),
    ]) {
      writeFileSync(place().path, text)
      assert.equal(readCheckpoint(place()), undefined)
    }
    rmSync(place().path)
    assert.equal(readCheckpoint(place()), undefined)
  })
  it('is not written for each change of ten thousand leases, nor when they say what they said; a disk that fails is told, and tried again', () => {
    let why: string | undefined
    const checkpoint = openCheckpoint(place(), (text) => {
      why = text
    })
    const all = known(10_000)
    for (let i = 0; i < 100; i++) checkpoint.save({ ...all, leases: [...all.leases] })
    assert.throws(() => statSync(place().path), /ENOENT/)
    checkpoint.flush()
    const { ino } = statSync(place().path)
    checkpoint.save({ ...all, leases: all.leases.map((one) => ({ ...one, expires: Date.now() })) })
    checkpoint.flush()
    assert.equal(statSync(place().path).ino, ino)
    rmSync(dir, { recursive: true })
    writeFileSync(dir, 'a file in its place')
    checkpoint.save({ ...all, leases: all.leases.slice(1) })
    checkpoint.flush()
    assert.match(why ?? '', /^Cannot write .*network\.json: ENOTDIR/)
    rmSync(dir)
    checkpoint.flush()
    assert.equal(why, undefined)
    assert.equal(readCheckpoint(place())?.leases.length, 9999)
  })
  it('a lease that has ended, or whose end a clock that is set back cannot tell, is uncertain; one without an end never', () => {
    const of = (at: number, expires?: number): string | undefined =>
      whyUncertain({ ...known(0), at, lease: { ...lease(1), ...(expires !== undefined && { expires }) } })
    const now = Date.now()
    assert.equal(of(now - HOUR, now + HOUR), undefined)
    assert.equal(of(now + HOUR), undefined)
    assert.match(
      of(now - 2 * HOUR, now - HOUR) ?? '',
      /^this node's lease of 10\.0\.1\.0\/24 ended at .*: another node may have it by now$/,
    )
    assert.match(of(now + HOUR, now + 2 * HOUR) ?? '', /cannot be told: the clock shows/)
  })
  it('when the lease of a node that goes by it ends, the node is not ready', () => {
    const store = { state: () => ({ name: 'etcd', connected: false, error: 'etcd: refused' }) } as never
    const of = (expires: number) => {
      const state = {
        ...initialState(),
        choice: {} as never,
        isSynced: true,
        stale: Date.now() - HOUR,
        lease: { ...lease(0), expires },
        snapshot: { leases: [], unreadable: [] },
      }
      return conditionOf({ store, failures: { all: () => [] } }, state)
    }
    assert.equal(of(Date.now() + HOUR).state, 'degraded')
    assert.match(of(Date.now() - 1).reasons.join(), /^this node's lease of 10\.0\.0\.0\/24 ended at/)
  })
  it('a configuration reads as the same again from its own text', () => {
    const texts = [
      '{"Network":"10.1.0.0/16"}',
      '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"host-gw"}}',
      '{"Network":"10.1.0.0/16","SubnetLen":26,"SubnetMin":"10.1.4.0","SubnetMax":"10.1.9.64","EnableNFTables":true}',
    ]
    for (const conf of [CONF, ...texts.map(parseNetworkConf)])
      assert.deepEqual(parseNetworkConf(formatNetworkConf(conf)), conf)
  })
})

function lease(n: number): Lease {
  const { node, ips, backend, data } = draft(`n${n}`, 1 + (n % 200))
  return { node, subnets: { v4: `10.${n >> 8}.${n & 255}.0/24` as Cidr }, ips, backend, data }
}
