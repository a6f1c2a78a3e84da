// lane: quick
// Tests agent/lease.
import assert from 'node:assert/strict'
import { decodeKey, decodeLease, encodeKey, encodeValue, parseNode } from '../../../agent/lease/lease.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { bitsOf, type Cidr, format, parseIp, split } from '../../../lib/text/ip.ts'
import fc from '../../support/properties.ts'

/** What flanneld 0.28.9 wrote to etcd: vxlan with IPv4, both families, IPv6 alone; host-gw; alloc. */
const RECORDED: readonly (readonly [key: string, value: string])[] = [
  [
    '10.5.69.0-24',
    '{"PublicIP":"10.123.1.100","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"06:61:35:21:27:3f"}}',
  ],
  [
    '10.5.36.0-24&fd66:0:0:5f::-64',
    '{"PublicIP":"10.123.1.100","PublicIPv6":"fd7b:1::100","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"06:61:35:21:27:3f"},"BackendV6Data":{"VNI":1,"VtepMAC":"66:20:61:5f:bf:36"}}',
  ],
  [
    '0.0.0.0-0&fd66:0:0:57::-64',
    '{"PublicIP":"0.0.0.0","PublicIPv6":"fd7b:1::100","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"66:20:61:5f:bf:36"}}',
  ],
  ['10.5.21.0-24', '{"PublicIP":"10.123.1.100","PublicIPv6":null,"BackendType":"host-gw"}'],
  ['10.5.17.0-24&fd66:0:0:36::-64', '{"PublicIP":"10.123.1.100","PublicIPv6":"fd7b:1::100","BackendType":"host-gw"}'],
  ['10.5.71.0-24', '{"PublicIP":"10.123.1.100","PublicIPv6":null}'],
]

const network = (family: 4 | 6, width: number, most: number) =>
  fc.tuple(fc.bigInt(0n, (1n << BigInt(width)) - 1n), fc.integer({ min: 1, max: most })).map(([bits, length]) => {
    const { first } = split(`${format({ family, bits })}/${length}` as Cidr)
    return `${format({ family, bits: first })}/${length}` as Cidr
  })
// An IPv4-mapped address is its IPv4 address, in Go as here.
const v6 = network(6, 128, 127).filter((cidr) => bitsOf(cidr).family === 6)
const v4 = network(4, 32, 31)
const subnets = fc.oneof(
  v4.map((one) => ({ v4: one })),
  v6.map((one) => ({ v6: one })),
  fc.tuple(v4, v6).map(([one, other]) => ({ v4: one, v6: other })),
)

describe('decodeKey() and encodeKey()', () => {
  it('write what flannel writes, for one family or both', () => {
    for (const [key, expected] of [
      ['10.5.16.0-24', { v4: '10.5.16.0/24' }],
      ['10.6.46.0-24&fd66:0:0:7::-64', { v4: '10.6.46.0/24', v6: 'fd66:0:0:7::/64' }],
      ['0.0.0.0-0&fd55:0:0:14::-64', { v6: 'fd55:0:0:14::/64' }],
    ] as const) {
      assert.deepEqual(decodeKey(key), expected)
      assert.equal(encodeKey(expected as never), key)
    }
  })

  it('are each other’s inverse', () => {
    fc.assert(fc.property(subnets, (some) => assert.deepEqual(decodeKey(encodeKey(some)), some)))
  })

  for (const key of [
    '',
    'config',
    '10.5.16.0',
    '10.5.16.0/24',
    '10.5.16.0-32',
    '10.5.16.0-024',
    '010.5.16.0-24',
    '10.5.16.7-24',
    '10.5.256.0-24',
    '0.0.0.0-0',
    '10.5.16.0-24&',
    '10.5.16.0-24&fd00::-128',
    '10.5.16.0-24&fd00:0:0:0::-64',
    '10.5.16.0-24&FD00::-64',
    '10.5.16.0-24&fd00::1-64',
    '10.5.16.0-24&::ffff:10.1.0.0-120',
    'x10.5.16.0-24',
    '10.5.16.0-24\n',
    '10.5.16.0-24&fd00::-64&fd01::-64',
  ])
    it(`take ${JSON.stringify(key)} for no key, or not the way to write it`, () => {
      assert.throws(
        () => decodeKey(key),
        new ValueError(
          `${JSON.stringify(key)}: want a subnet's key such as 10.5.16.0-24 or 10.5.16.0-24&fd00:0:0:7::-64`,
        ),
      )
    })

  it('throw nothing but ValueError, whatever the text, and read only what they would write', () => {
    const near = fc.stringMatching(/^[0-9a-f.:&-]{0,40}$/)
    fc.assert(
      fc.property(fc.oneof(fc.string(), near), (text) => {
        try {
          assert.equal(encodeKey(decodeKey(text)), text)
        } catch (cause) {
          assert.ok(cause instanceof ValueError, String(cause))
        }
      }),
      { numRuns: 2000 },
    )
  })
})

describe('decodeLease() and encodeValue()', () => {
  for (const [key, value] of RECORDED)
    it(`read and write ${key} as flanneld wrote it, byte for byte`, () => {
      const lease = decodeLease(decodeKey(key), value)
      assert.equal(encodeValue(lease), value)
      assert.equal(encodeKey(lease.subnets), key)
    })

  it('read keys in any case, 0.0.0.0 and null as none, no BackendType as none', () => {
    const subnets = decodeKey('0.0.0.0-0&fd55:0:0:14::-64')
    assert.deepEqual(
      decodeLease(
        subnets,
        '{"publicip":"0.0.0.0","PUBLICIPV6":"fd30::2","backenddata":null,"backendV6data":{"a":1},"Reserved":true}',
      ),
      { subnets, ips: { v6: 'fd30::2' }, backend: '', data: { v6: { a: 1 } } },
    )
    assert.deepEqual(decodeLease({}, '{"PublicIP":"172.30.0.2"}'), {
      subnets: {},
      ips: { v4: '172.30.0.2' },
      backend: '',
      data: {},
    })
  })

  for (const [value, message] of [
    ['', 'Cannot read the lease "": want JSON such as {"PublicIP":"172.30.0.2",…}'],
    ['[]', 'Cannot read the lease "[]": want JSON such as {"PublicIP":"172.30.0.2",…}'],
    ['null', 'Cannot read the lease "null": want JSON such as {"PublicIP":"172.30.0.2",…}'],
    ['{}', 'Cannot read PublicIP: it is missing; want the address that peers send to'],
    [
      '{"PublicIP":"0.0.0.0","PublicIPv6":null}',
      'Cannot read PublicIP: it is missing; want the address that peers send to',
    ],
    ['{"PublicIP":"fd00::1"}', 'Cannot read PublicIP "fd00::1": want an IPv4 address'],
    [
      '{"PublicIP":"172.30.0.2","PublicIPv6":"172.30.0.2"}',
      'Cannot read PublicIPv6 "172.30.0.2": want an IPv6 address',
    ],
    ['{"PublicIP":7}', 'Cannot read PublicIP 7: want an IPv4 address'],
    ['{"PublicIP":"172.30.0.2","BackendType":["vxlan"]}', 'Cannot read BackendType ["vxlan"]: want a string'],
  ] as const)
    it(`say what is wrong with ${value || 'nothing'}`, () => {
      assert.throws(() => decodeLease({}, value), new ValueError(message))
    })

  it('escape what Go escapes', () => {
    assert.equal(
      encodeValue({ ips: { v4: parseIp('172.30.0.2') }, backend: 'a<b>&', data: { v4: { x: '\u2028' } } }),
      '{"PublicIP":"172.30.0.2","PublicIPv6":null,"BackendType":"a\\u003cb\\u003e\\u0026","BackendData":{"x":"\\u2028"}}',
    )
  })

  it('are each other’s inverse, whatever the backend’s data', () => {
    const ip4 = fc.ipV4().filter((ip) => ip !== '0.0.0.0')
    const lease = fc.record({
      v4: ip4,
      v6: fc.option(fc.ipV6().filter((ip) => bitsOf(parseIp(ip)).family === 6 && bitsOf(parseIp(ip)).bits !== 0n)),
      backend: fc.stringMatching(/^[!-~]{0,64}$/),
      data: fc.jsonValue({ maxDepth: 6 }).filter((value) => value !== null),
    })
    fc.assert(
      fc.property(lease, ({ v4: ip, v6: other, backend, data }) => {
        const given = {
          ips: { v4: parseIp(ip), ...(other !== null && { v6: parseIp(other) }) },
          backend,
          data: { v4: JSON.parse(JSON.stringify(data)), ...(other !== null && { v6: 1 }) },
        }
        assert.deepEqual(decodeLease({}, encodeValue(given)), { subnets: {}, ...given })
      }),
    )
  })

  it('throw nothing but ValueError, whatever the value', () => {
    const keys = fc.constantFrom(
      'PublicIP',
      'publicipv6',
      'BackendType',
      'BackendData',
      'BackendV6Data',
      '__proto__',
      'x',
    )
    const near = fc
      .dictionary(keys, fc.oneof(fc.jsonValue(), fc.ipV4(), fc.ipV6()))
      .map((value) => JSON.stringify(value))
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json(), near), (text) => {
        try {
          decodeLease({}, text)
        } catch (cause) {
          assert.ok(cause instanceof ValueError, String(cause))
        }
      }),
      { numRuns: 2000 },
    )
  })
})

describe('parseNode()', () => {
  it('takes the names of hosts and of Kubernetes nodes, and no path', () => {
    for (const name of ['a', 'node-1', 'ip-10-0-0-1.eu-west-1.compute.internal', 'x'.repeat(253)])
      assert.equal(parseNode(name), name)
    for (const name of ['', '.', '..', '-a', 'a/b', 'a b', 'ä', 'a\n', 'x'.repeat(254)])
      assert.throws(() => parseNode(name), ValueError, name)
  })
})
