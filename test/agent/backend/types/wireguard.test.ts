// lane: quick
// Tests agent/backend/types/wireguard.ts.
import assert from 'node:assert/strict'
import wireguard from '../../../../agent/backend/types/wireguard.ts'
import type { Lease } from '../../../../agent/lease/lease.ts'
import type { Cidr, Ip } from '../../../../lib/text/ip.ts'
import { Secret } from '../../../../lib/text/secret.ts'
import { parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'

/** A pair of wg(8). */
const [KEY, PUBLIC] = [
  'EM5t/elqZEoY4mZozHRxpkhiB3r6KVUpNKsKS/dFxn4=',
  'V+3SFLo9300vS+XVBE79/IL8qwmqpCxbTxeaa0W0NkU=',
] as const

describe('wireguard, pure', () => {
  it('refuses what it cannot use with a sentence, and shows no second key', () => {
    for (const [options, message] of [
      [{ PSK: 'hush' }, 'Cannot read Backend.PSK (not shown): want 32 bytes in base64, as wg genpsk makes them'],
      [{ Mode: 'both' }, 'Cannot read Backend.Mode "both": want one of separate, auto, ipv4, ipv6'],
      [{ ListenPort: 51821 }, "Cannot use Backend.ListenPortV6 51821: want another one than ListenPort's"],
    ] as const)
      assert.throws(() => wireguard.conf(options), { name: 'ValueError', message })
    assert.doesNotThrow(() => wireguard.conf({ PSK: '', listenport: 1, MODE: 'auto' }))
  })
  it('reads what peers announce, or says why not', () => {
    const key = { PublicKey: KEY, Port: 51820 }
    assert.deepEqual(wireguard.data({ v4: key, v6: { PublicKey: KEY } }), { v4: key, v6: { PublicKey: KEY } })
    for (const [raw, message] of [
      [7, 'Cannot read BackendData 7: want an object with PublicKey'],
      [{}, 'Cannot read BackendData.PublicKey undefined: want 32 bytes in base64'],
      [{ PublicKey: `${KEY}\n` }, /^Cannot read BackendData\.PublicKey .*: want 32 bytes in base64$/],
      [{ ...key, Port: 65536 }, 'Cannot read BackendData.Port 65536: want a port, or 0'],
    ] as const)
      assert.throws(() => wireguard.data({ v4: raw }), { name: 'ValueError', message })
  })
})

describe('wireguard.want()', () => {
  it('a node that announces another address than its own keeps the way through the NAT open, unless the configuration says how', () => {
    const keepalive = (options: object, advertise: string) => {
      const conf = wireguard.conf({ ...options })
      const up = { ...uplink(1, ['v4']), advertise: { v4: advertise as Ip } }
      const facts = { nexthops: true, instance: parse.network('default'), networks: ['10.244.0.0/16' as Cidr] }
      const keys = { publicKey: PUBLIC, pairOf: () => ({ publicKey: PUBLIC, privateKey: new Secret(KEY) }) }
      const equipped = { ...(conf as object), keys } as never
      const [self, peer] = [{ PublicKey: PUBLIC }, { PublicKey: 'GtL7fZc/bLnqZldpVofMCD6hDjrK28SsdLxevJ+qtKU=' }].map(
        (data, i) => lease(i + 1, { v4: data }, 'wireguard', ['v4']),
      ) as [Lease, Lease]
      const { resources } = wireguard.want(self, [peer], up, equipped, facts)
      return resources.flatMap((one) => (one.kind === 'wgpeer' ? [one.keepalive] : []))
    }
    assert.deepEqual(keepalive({}, '192.0.2.1'), [0])
    assert.deepEqual(keepalive({}, '203.0.113.1'), [25])
    assert.deepEqual(keepalive({ PersistentKeepaliveInterval: 0 }, '203.0.113.1'), [0])
    assert.deepEqual(keepalive({ PersistentKeepaliveInterval: 10 }, '192.0.2.1'), [10])
  })
})
