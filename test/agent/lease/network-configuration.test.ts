// lane: quick
// Tests agent/lease.
import assert from 'node:assert/strict'
import { fits } from '../../../agent/lease/allocate.ts'
import { type NetworkConf, parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import fc from '../../support/properties.ts'

function parse(conf: object): NetworkConf {
  return parseNetworkConf(JSON.stringify(conf))
}
function refused(conf: object, message: string): void {
  assert.throws(() => parse(conf), new ValueError(message))
}
const v6 = (keys: object) => ({ EnableIPv4: false, EnableIPv6: true, ...keys })

describe('parseNetworkConf()', () => {
  it('fills in what flannel does: IPv4 on, a /24 of its own for each node but the first, vxlan', () => {
    assert.deepEqual(parse({ Network: '10.5.0.0/16' }), {
      v4: { network: '10.5.0.0/16', length: 24, min: '10.5.1.0', max: '10.5.255.0' },
      backend: { type: 'vxlan', options: {} },
      enableNFTables: false,
    })
  })

  it('no message shows a key of WireGuard, also not from a wrong place', () => {
    const key = 'I7v3vyxdQeYv1Bq1XGZUNqPfTNvhLAIAzMkEEyJHzQY='
    const Network = '10.5.0.0/16'
    refused({ Network, Backend: ['PSK', key] }, 'Cannot read Backend ["PSK","(not shown)"]: want an object')
    for (const conf of [
      { Network, Backend: `{"Type":"wireguard","Mode":"separate","PSK":"${key}"}` },
      { Network, Backend: { Type: { PSK: key } } },
      { Network: key },
      key,
    ])
      assert.throws(
        () => parseNetworkConf(JSON.stringify(conf)),
        (cause: Error) => cause instanceof ValueError && !cause.message.includes(key.slice(0, 20)),
      )
  })

  for (const [network, length, min, max] of [
    ['10.5.0.0/22', 24, '10.5.1.0', '10.5.3.0'],
    ['10.5.0.0/23', 25, '10.5.0.128', '10.5.1.128'],
    ['10.5.0.0/28', 30, '10.5.0.4', '10.5.0.12'],
    ['10.0.0.0/8', 24, '10.0.1.0', '10.255.255.0'],
    // Host bits are nothing to flannel.
    ['10.5.3.7/16', 24, '10.5.1.0', '10.5.255.0'],
  ] as const)
    it(`divides ${network} into /${length} as flannel does`, () => {
      const { v4 } = parse({ Network: network })
      assert.deepEqual([v4?.length, v4?.min, v4?.max], [length, min, max])
    })

  for (const [network, length, min, max] of [
    ['fd00:10::/48', 64, 'fd00:10:0:1::', 'fd00:10:0:ffff::'],
    ['fd00:10::/62', 64, 'fd00:10:0:1::', 'fd00:10:0:3::'],
    ['fd00:10::/63', 65, 'fd00:10:0:0:8000::', 'fd00:10:0:1:8000::'],
    ['fd00:10::/124', 126, 'fd00:10::4', 'fd00:10::c'],
  ] as const)
    it(`divides ${network} into /${length} as flannel does`, () => {
      const { v4, v6: pool } = parse(v6({ IPv6Network: network }))
      assert.deepEqual([v4, pool?.length, pool?.min, pool?.max], [undefined, length, min, max])
    })

  it('takes SubnetLen, SubnetMin and SubnetMax of both families, zero being none', () => {
    const { v4, v6: pool } = parse({
      Network: '10.0.0.0/8',
      SubnetLen: 20,
      SubnetMin: '10.10.0.0',
      SubnetMax: '10.99.0.0',
      EnableIPv6: true,
      IPv6Network: 'fd00::/40',
      IPv6SubnetLen: 56,
      IPv6SubnetMin: 'fd00:0:10::',
      IPv6SubnetMax: 'fd00:0:20::',
    })
    assert.deepEqual([v4?.length, v4?.min, v4?.max], [20, '10.10.0.0', '10.99.0.0'])
    assert.deepEqual([pool?.length, pool?.min, pool?.max], [56, 'fd00:0:10::', 'fd00:0:20::'])
    assert.deepEqual(
      parse({ Network: '10.5.0.0/16', SubnetLen: 0, SubnetMin: '0.0.0.0', SubnetMax: '0.0.0.0' }),
      parse({ Network: '10.5.0.0/16' }),
    )
  })

  it('reads keys in any case, null as absent, and Backend.Type in any case, with its other keys as they came', () => {
    const conf = parse({
      network: '10.5.0.0/16',
      SUBNETLEN: 25,
      subnetMin: null,
      backend: { type: 'Host-GW', Port: 8472, directrouting: true },
      enablenftables: true,
    })
    assert.equal(conf.v4?.length, 25)
    assert.deepEqual(conf.backend, { type: 'host-gw', options: { Port: 8472, directrouting: true } })
    assert.equal(conf.enableNFTables, true)
    for (const Backend of [{}, null, { Type: '' }])
      assert.deepEqual(parse({ Network: '10.5.0.0/16', Backend }).backend, { type: 'vxlan', options: {} })
  })

  it('notes keys that it does not know, and a network that is off, and reads on', () => {
    const { notes = [], v4 } = parse({ Network: '10.5.0.0/16', SubnetLenn: 25, Foo: 1, IPv6Network: 'fd00::/48' })
    assert.equal(v4?.length, 24)
    assert.deepEqual(notes, [
      'unknown key "SubnetLenn", did you mean "SubnetLen"?',
      'unknown key "Foo"',
      'key "IPv6Network" is not used: EnableIPv6 is false',
    ])
  })

  for (const [conf, message] of [
    [{}, 'Cannot read Network: it is missing; want a network such as 10.244.0.0/16, or "EnableIPv4": false'],
    [{ Network: '10.5.0.0' }, 'Cannot read Network "10.5.0.0": want an IPv4 network such as 10.244.0.0/16'],
    [{ Network: 'fd00::/48' }, 'Cannot read Network "fd00::/48": want an IPv4 network such as 10.244.0.0/16'],
    [
      { Network: '10.5.0.0/29' },
      'Cannot read Network "10.5.0.0/29": want /28 or shorter, room for four subnets of /30',
    ],
    [
      { Network: '10.5.0.0/29', SubnetLen: 30 },
      'Cannot read Network "10.5.0.0/29": want /28 or shorter, room for four subnets of /30',
    ],
    [
      { Network: '10.5.0.0/16', SubnetLen: 31 },
      'Cannot read SubnetLen 31: want 18 to 30, so that 10.5.0.0/16 has room for four subnets of two addresses and more',
    ],
    [
      { Network: '10.5.0.0/16', SubnetLen: 17 },
      'Cannot read SubnetLen 17: want 18 to 30, so that 10.5.0.0/16 has room for four subnets of two addresses and more',
    ],
    [{ Network: '10.5.0.0/16', SubnetLen: '24' }, 'Cannot read SubnetLen "24": want a whole number, 0 to 32'],
    [{ Network: '10.5.0.0/16', SubnetLen: -1 }, 'Cannot read SubnetLen -1: want a whole number, 0 to 32'],
    [
      { Network: '10.5.0.0/16', SubnetMin: '10.6.0.0' },
      'Cannot read SubnetMin "10.6.0.0": want an address in 10.5.0.0/16',
    ],
    [
      { Network: '10.5.0.0/16', SubnetMin: '10.5.9.1' },
      'Cannot read SubnetMin "10.5.9.1": want the first address of a /24, here 10.5.9.0',
    ],
    [{ Network: '10.5.0.0/16', SubnetMin: 'fd00::' }, 'Cannot read SubnetMin "fd00::": want an IPv4 address'],
    [
      { Network: '10.5.0.0/16', SubnetMax: '10.4.255.0' },
      'Cannot read SubnetMax "10.4.255.0": want an address in 10.5.0.0/16',
    ],
    [
      { Network: '10.5.0.0/16', SubnetMax: '10.5.255.255' },
      'Cannot read SubnetMax "10.5.255.255": want the first address of a /24, here 10.5.255.0',
    ],
    [
      { Network: '10.5.0.0/16', SubnetMin: '10.5.9.0', SubnetMax: '10.5.8.0' },
      'Cannot read SubnetMax "10.5.8.0": want an address not before SubnetMin, 10.5.9.0',
    ],
    [{ EnableIPv4: false }, 'Cannot read EnableIPv4 and EnableIPv6: both are false; want true for one of them'],
    [
      { Network: '10.5.0.0/16', EnableIPv6: true },
      'Cannot read IPv6Network: it is missing; want a network such as fd00:10:244::/48, or "EnableIPv6": false',
    ],
    [{ Network: '10.5.0.0/16', EnableIPv4: 'yes' }, 'Cannot read EnableIPv4 "yes": want true or false'],
    [
      v6({ IPv6Network: 'fd00::/125' }),
      'Cannot read IPv6Network "fd00::/125": want /124 or shorter, room for four subnets of /126',
    ],
    [
      v6({ IPv6Network: 'fd00::/48', IPv6SubnetLen: 127 }),
      'Cannot read IPv6SubnetLen 127: want 50 to 126, so that fd00::/48 has room for four subnets of two addresses and more',
    ],
    [
      v6({ IPv6Network: 'fd00::/48', IPv6SubnetMin: 'fd01::' }),
      'Cannot read IPv6SubnetMin "fd01::": want an address in fd00::/48',
    ],
    [
      v6({ IPv6Network: 'fd00::/48', IPv6SubnetMax: 'fd00::1' }),
      'Cannot read IPv6SubnetMax "fd00::1": want the first address of a /64, here fd00::',
    ],
    [{ Network: '10.5.0.0/16', Backend: 'vxlan' }, 'Cannot read Backend "vxlan": want an object'],
    [{ Network: '10.5.0.0/16', Backend: { Type: 7 } }, 'Cannot read Backend.Type 7: want a string'],
  ] as const)
    it(`refuses ${JSON.stringify(conf)} with key, value and what would be right`, () => {
      refused(conf, message)
    })

  it('says of what is no JSON what is wanted, and shows nothing of it: a backend may have a password in it', () => {
    assert.throws(
      () => parseNetworkConf('{"Network":"10.5.0.0/16","Backend":{"PSK":"hush'),
      (cause) =>
        cause instanceof ValueError &&
        /^Cannot read the network's configuration: want JSON such as/.test(cause.message) &&
        !cause.message.includes('hush'),
    )
    assert.throws(() => parseNetworkConf('[]'), ValueError)
  })

  it('gives a pool of at least three subnets whose bounds are subnets of it, or throws ValueError, for any network and length', () => {
    fc.assert(
      fc.property(fc.ipV4(), fc.nat(40), fc.option(fc.nat(33), { nil: undefined }), (ip, bits, SubnetLen) => {
        try {
          const conf = parse({ Network: `${ip}/${bits}`, SubnetLen })
          const pool = conf.v4 ?? assert.fail()
          for (const first of [pool.min, pool.max])
            assert.ok(
              fits(conf, { v4: `${first}/${pool.length}` as never }),
              `${first}/${pool.length} of ${pool.network}`,
            )
          assert.ok(pool.length >= bits + 2 && pool.length <= 30)
        } catch (cause) {
          if (!(cause instanceof ValueError)) throw cause
          assert.ok(bits > 28 || (SubnetLen && (SubnetLen < bits + 2 || SubnetLen > 30)), cause.message)
        }
      }),
    )
  })
})
