// lane: quick
// Tests lib/cni.
import assert from 'node:assert/strict'
import type { Result } from '../../../lib/cni/result.ts'
import { supported } from '../../../lib/cni/spec.ts'
import { compare, decode, encode, gate } from '../../../lib/cni/versions.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { results, withoutDetails } from '../../support/cni-results.ts'
import fc from '../../support/properties.ts'

const full: Result = {
  interfaces: [
    { name: 'br0', mac: '02:00:00:00:00:01', mtu: 1400 },
    { name: 'eth0', sandbox: '/run/netns/a', pciID: '0000:01:02.3', socketPath: '/run/s' },
  ],
  ips: [
    { interface: 0, address: '10.1.0.2/24' as Cidr, gateway: '10.1.0.1' as Ip },
    { address: 'fd00::2/64' as Cidr },
    { address: '10.1.0.3/24' as Cidr },
  ],
  routes: [
    { dst: '0.0.0.0/0' as Cidr },
    { dst: 'fd01::/64' as Cidr, gw: 'fd00::1' as Ip, mtu: 1400, advmss: 1300, priority: 5, table: 7, scope: 0 },
  ],
  dns: { nameservers: ['10.1.0.1'], domain: 'x.example', search: ['a<b&c.example'] },
}

describe('encode()', () => {
  it('shows 0.2.0 as ip4 and ip6 with the routes of each family', () => {
    assert.equal(
      encode(full, '0.2.0').replaceAll(/\n */g, ''),
      '{"cniVersion": "0.2.0","ip4": {"ip": "10.1.0.2/24","gateway": "10.1.0.1","routes": [{"dst": "0.0.0.0/0"}]},"ip6": {"ip": "fd00::2/64","routes": [{"dst": "fd01::/64","gw": "fd00::1"}]},"dns": {"nameservers": ["10.1.0.1"],"domain": "x.example","search": ["a\\u003cb\\u0026c.example"]}}',
    )
  })
  it('shows 0.4.0 in the order of the spec, with the family of each address, index 0 kept and no index where none was', () => {
    const { ips, interfaces } = JSON.parse(encode(full, '0.4.0'))
    assert.deepEqual(Object.keys(JSON.parse(encode(full, '0.4.0'))), [
      'cniVersion',
      'interfaces',
      'ips',
      'routes',
      'dns',
    ])
    assert.deepEqual(ips[0], { version: '4', interface: 0, address: '10.1.0.2/24', gateway: '10.1.0.1' })
    assert.deepEqual(ips[1], { version: '6', address: 'fd00::2/64' })
    assert.deepEqual(interfaces[0], { name: 'br0', mac: '02:00:00:00:00:01' })
  })
  it('shows mtu, socketPath and pciID from 1.1.0 on, sorted', () => {
    assert.deepEqual(Object.keys(JSON.parse(encode(full, '1.1.0')).interfaces[0]), ['mac', 'mtu', 'name'])
    assert.deepEqual(JSON.parse(encode(full, '1.0.0')).interfaces[1], { name: 'eth0', sandbox: '/run/netns/a' })
    assert.deepEqual(Object.keys(JSON.parse(encode(full, '1.1.0'))), [
      'cniVersion',
      'dns',
      'interfaces',
      'ips',
      'routes',
    ])
  })
  it('keeps an empty dns up to 0.4.0 and drops it from 1.0.0', () => {
    assert.equal(encode({}, '0.3.1'), '{\n    "cniVersion": "0.3.1",\n    "dns": {}\n}')
    assert.equal(encode({ dns: { search: [] } }, '1.0.0'), '{\n    "cniVersion": "1.0.0"\n}')
  })
  it('refuses 0.1.0 and 0.2.0 without an address', () => {
    for (const version of ['0.1.0', '0.2.0'])
      assert.throws(() => encode({ interfaces: full.interfaces ?? [] }, version), {
        name: 'CniError',
        code: 7,
        message: /has no address/,
      })
  })
  it('refuses an unknown version, naming both sides', () => {
    assert.throws(() => encode(full, '1.2.0'), {
      code: 1,
      details: 'config is "1.2.0", plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]',
    })
  })
})

describe('decode()', () => {
  it('reads a result without cniVersion as the config has it, and refuses an unknown one', () => {
    const old = { ip4: { ip: '10.0.0.2/24', gateway: '10.0.0.1', routes: [{ dst: '10.2.0.0/16' }] } }
    assert.deepEqual(decode(old, '0.2.0'), {
      ips: [{ address: '10.0.0.2/24', gateway: '10.0.0.1' }],
      routes: [{ dst: '10.2.0.0/16' }],
    })
    assert.deepEqual(decode({ ...old, cniVersion: '0.2.0' }, '1.1.0').ips, [
      { address: '10.0.0.2/24', gateway: '10.0.0.1' },
    ])
    assert.deepEqual(decode(old, '1.0.0'), {})
    assert.throws(() => decode({ cniVersion: '2.0.0' }, '1.1.0'), {
      name: 'ValueError',
      message: /prevResult\.cniVersion "2\.0\.0": want one of 0\.1\.0/,
    })
  })
  it('takes keys in any case, null for absent, and an empty gateway', () => {
    assert.deepEqual(
      decode(
        { CNIVersion: '1.0.0', IPs: [{ Address: '10.0.0.2/24', gateway: '', interface: null }], routes: null },
        '1.1.0',
      ),
      { ips: [{ address: '10.0.0.2/24' }] },
    )
  })
  const bad: [unknown, RegExp][] = [
    [7, /^Cannot read prevResult 7: want an object$/],
    [{ ips: {} }, /^Cannot read prevResult\.ips \{\}: want an array$/],
    [{ ips: [null] }, /^Cannot read prevResult\.ips\[0\] null/],
    [{ ips: [{}] }, /^Cannot read prevResult\.ips\[0\]\.address: it is missing$/],
    [{ ips: [{ address: '10.0.0.2' }] }, /^Cannot read prevResult\.ips\[0\]\.address "10\.0\.0\.2": want/],
    [{ ips: [{ address: '10.0.0.2/24', interface: -1 }] }, /ips\[0\]\.interface -1: want a whole number/],
    [
      { ips: [{ address: '10.0.0.2/24', gateway: '10.0.0.1\nlink del eth0' }] },
      /ips\[0\]\.gateway "10\.0\.0\.1\\nlink/,
    ],
    [{ routes: [{ dst: 'default' }] }, /routes\[0\]\.dst "default": want/],
    [{ routes: [{ dst: '::/0', mtu: '9' }] }, /routes\[0\]\.mtu "9": want/],
    [{ interfaces: [{ name: 5 }] }, /interfaces\[0\]\.name 5: want a string/],
    [{ interfaces: [{ name: 'a', mac: 'zz' }] }, /interfaces\[0\]\.mac "zz": want/],
    [{ dns: { search: 'x' } }, /dns\.search "x": want an array/],
  ]
  for (const [raw, message] of bad)
    it(`names path and value of ${JSON.stringify(raw)}`, () =>
      assert.throws(() => decode(raw, '1.0.0'), { name: 'ValueError', message }))
  it('names the pool when the result is a pool’s', () =>
    assert.throws(() => decode(7, '1.0.0', 'the result of host-local'), /Cannot read the result of host-local 7/))
})

describe('gate()', () => {
  it('refuses CHECK below 0.4.0, GC and STATUS below 1.1.0, and nothing else', () => {
    const refused = ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS'].map((command) =>
      supported.filter((version) => fails(() => gate(command, version))),
    )
    assert.deepEqual(refused, [[], [], supported.slice(0, 4), supported.slice(0, 6), supported.slice(0, 6)])
    assert.throws(() => gate('GC', '1.0.0'), {
      code: 1,
      message: 'config version does not allow GC',
      details: 'config is "1.0.0", GC needs 1.1.0 or later',
    })
  })
  it('knows 0.1.0, and refuses what is not in the list with code 1', () => {
    gate('ADD', '0.1.0')
    for (const version of ['', '1', '1.1', '1.1.0 ', 'v1.1.0', '9.9.9', 'toString', '__proto__'])
      assert.throws(() => gate('ADD', version), { code: 1 })
  })
})

describe('compare()', () => {
  it('orders by number, not by text', () => {
    assert.ok(compare('0.10.0', '0.9.9') > 0)
    assert.ok(compare('0.3.1', '1.0.0') < 0)
    assert.equal(compare('1.1.0', '1.1.0'), 0)
    for (const text of ['', '1.0', '1.0.0-rc1', 'a.b.c'])
      assert.throws(() => compare(text, '1.0.0'), { name: 'ValueError' })
  })
})

describe('versions, any result', () => {
  it('decode(encode(r)) is r in every version that can hold it', () => {
    fc.assert(
      fc.property(results, fc.constantFrom(...supported.slice(2)), (result, version) => {
        assert.deepEqual(
          decode(JSON.parse(encode(result, version)), '0.1.0'),
          version === '1.1.0' ? result : withoutDetails(result),
        )
      }),
    )
  })
  it('0.1.0 and 0.2.0 keep the first address and the routes of each family present', () => {
    fc.assert(
      fc.property(results, fc.constantFrom('0.1.0', '0.2.0'), (result, version) => {
        fc.pre((result.ips ?? []).length > 0)
        const back = decode(JSON.parse(encode(result, version)), version)
        const first = [4, 6].flatMap((family) => result.ips?.find(({ address }) => familyOf(address) === family) ?? [])
        assert.deepEqual(
          back.ips,
          first.map(({ interface: _, ...one }) => one),
        )
        const routes = first.flatMap(({ address }) =>
          (result.routes ?? []).filter(({ dst }) => familyOf(dst) === familyOf(address)),
        )
        assert.deepEqual(
          back.routes ?? [],
          routes.map(({ dst, gw }) => ({ dst, ...(gw && { gw }) })),
        )
      }),
    )
  })
  it('any JSON decodes or is a ValueError', () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom(...supported),
        (raw, version) => fails(() => decode(raw, version)) !== 'other',
      ),
      { numRuns: 2000 },
    )
  })
})

function fails(work: () => unknown): string | false {
  try {
    work()
    return false
  } catch (cause) {
    const { name } = cause as Error
    return name === 'ValueError' || name === 'CniError' ? name : 'other'
  }
}

function familyOf(cidr: string): 4 | 6 {
  return cidr.includes(':') ? 6 : 4
}
