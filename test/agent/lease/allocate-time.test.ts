// lane: timed
// Tests agent/lease/allocate.ts: what it costs.
import assert from 'node:assert/strict'
import { allocate, fits } from '../../../agent/lease/allocate.ts'
import type { Both } from '../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { type Cidr, parseCidr } from '../../../lib/text/ip.ts'

const both = (v4?: string, v6?: string): Both<Cidr> => ({
  ...(v4 && { v4: parseCidr(v4) }),
  ...(v6 && { v6: parseCidr(v6) }),
})

describe('the time of allocate()', () => {
  it('chooses among 2^64 subnets, and beside 20,000 leases', () => {
    const wide = parseNetworkConf('{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fc00::/8","IPv6SubnetLen":80}')
    assert.ok(fits(wide, allocate(wide, []) ?? {}))
    const many = parseNetworkConf('{"Network":"10.0.0.0/8","SubnetLen":28}')
    const taken = Array.from({ length: 20_000 }, (_, i) => both(`10.${i >> 12}.${(i >> 4) & 255}.${(i & 15) << 4}/28`))
    const started = performance.now()
    assert.ok(fits(many, allocate(many, taken) ?? {}))
    assert.ok(performance.now() - started < 10_000)
  })
})
