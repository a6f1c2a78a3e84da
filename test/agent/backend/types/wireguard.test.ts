// lane: quick
// Tests agent/node/wireguard-keys.ts, lib/text/secret.ts and agent/kernel/wireguard.ts.
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { inspect } from 'node:util'
import wireguard from '../../../../agent/backend/types/wireguard.ts'
import { listWireguard, performWireguard } from '../../../../agent/kernel/wireguard.ts'
import type { Lease } from '../../../../agent/lease/lease.ts'
import { WireguardKeys, wireguardKeyPath } from '../../../../agent/node/wireguard-keys.ts'
import type { Cidr, Ip } from '../../../../lib/text/ip.ts'
import { Secret } from '../../../../lib/text/secret.ts'
import { parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'

/** A pair of wg(8). */
const [KEY, PUBLIC] = [
  'EM5t/elqZEoY4mZozHRxpkhiB3r6KVUpNKsKS/dFxn4=',
  'V+3SFLo9300vS+XVBE79/IL8qwmqpCxbTxeaa0W0NkU=',
] as const

describe('WireguardKeys', () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(`${tmpdir()}/keys-`)
  })
  afterEach(() => rmSync(dir, { recursive: true }))
  const none = '/nonexistent/wgkey'

  it('makes a key for a node once, in a file for root alone, and another one for a copy of the disk', () => {
    const first = WireguardKeys.open(dir, 'n1', none)
    const path = wireguardKeyPath(dir, 'n1')
    assert.equal(statSync(path).mode & 0o777, 0o400)
    chmodSync(path, 0o644)
    assert.equal(WireguardKeys.open(dir, 'n1', none).publicKey, first.publicKey)
    assert.equal(statSync(path).mode & 0o777, 0o400)
    assert.notEqual(WireguardKeys.open(dir, 'n2', none).publicKey, first.publicKey)
    for (const text of [JSON.stringify(first), inspect(first), String(first)])
      assert.ok(!text.includes(readFileSync(path, 'utf8').trim()), text)
  })

  it('takes over flannel’s key, and its own file counts from then on', () => {
    writeFileSync(`${dir}/wgkey`, KEY)
    const keys = WireguardKeys.open(dir, 'n1', `${dir}/wgkey`)
    assert.deepEqual([keys.publicKey, keys.pairOf(undefined).privateKey.reveal()], [PUBLIC, KEY])
    rmSync(`${dir}/wgkey`)
    assert.equal(WireguardKeys.open(dir, 'n1', `${dir}/wgkey`).publicKey, keys.publicKey)
  })

  it('rotates: the former key serves as long as the store has it', () => {
    const keys = WireguardKeys.open(dir, 'n1', none)
    const former = keys.publicKey
    const made = keys.rotate(former)
    assert.notEqual(made, former)
    // Also after a start before the store has the new key.
    for (const one of [keys, WireguardKeys.open(dir, 'n1', none)])
      assert.deepEqual([one.publicKey, one.pairOf(former).publicKey, one.pairOf(made).publicKey], [made, former, made])
    assert.equal(statSync(wireguardKeyPath(dir, 'n1')).mode & 0o777, 0o400)
  })

  it('refuses a second rotation while the store has the former key, because peers use only that', () => {
    for (const isRestarted of [false, true]) {
      const first = WireguardKeys.open(dir, `n${isRestarted}`, none)
      const former = first.publicKey
      const made = first.rotate(former)
      const keys = isRestarted ? WireguardKeys.open(dir, `n${isRestarted}`, none) : first
      assert.throws(() => keys.rotate(former), {
        message: `Cannot give this node another key: the store does not have the key of the last rotation yet, ${made}; want the store to answer first (see: plumb status)`,
      })
      assert.deepEqual([keys.publicKey, keys.pairOf(former).publicKey], [made, former])
      assert.notEqual(keys.rotate(made), made)
      assert.equal(keys.pairOf(made).publicKey, made)
    }
  })

  it('refuses a file without a key, and does not show it', () => {
    for (const text of [
      '',
      'secret',
      `${KEY}${KEY}`,
      `${KEY}\nx`,
      `${KEY}\n${KEY}\n${KEY}\n`,
      `${'A'.repeat(43)}=`,
      KEY.slice(1),
    ]) {
      writeFileSync(wireguardKeyPath(dir, 'n1'), text)
      assert.throws(() => WireguardKeys.open(dir, 'n1', none), {
        name: 'ValueError',
        message: `Cannot read ${dir}/wireguard-n1.key: want a WireGuard key, 44 characters in base64`,
      })
    }
  })
})

describe('Secret', () => {
  it('shows its text nowhere, and tells equal ones apart from others', () => {
    const secret = new Secret('hush')
    for (const text of [JSON.stringify({ secret }), `${secret}`, inspect(secret), inspect({ a: [secret] })])
      assert.doesNotMatch(text, /hush/)
    assert.equal(new Secret('hush').id, secret.id)
    assert.notEqual(new Secret('hash').id, secret.id)
  })
})

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

describe('performWireguard()', () => {
  it('what wg says of its input shows no secret', async () => {
    const [key, psk] = [new Secret(KEY), new Secret(PUBLIC)]
    const dev = parse.ifname('wg0')
    const failed = await performWireguard(
      [
        { kind: 'wgdevice', ns: 'host', dev, port: 1, publicKey: PUBLIC, privateKey: key },
        { kind: 'wgpeer', ns: 'host', dev, publicKey: KEY.replace('E', 'F'), allowed: [], keepalive: 0, psk },
      ],
      [],
      async (_, stdin) => ({ status: 1, stdout: '', stderr: `Key is not the correct length or format: \`${stdin}'\n` }),
    )
    assert.equal(failed.size, 2)
    for (const text of failed.values()) assert.ok(!text.includes(KEY) && !text.includes(PUBLIC), text)
  })
})

describe('listWireguard()', () => {
  it('a peer with a handshake in the future has no connection: the clock was set back', async () => {
    const now = Math.floor(Date.now() / 1000)
    const dump = (at: number) =>
      `k\t${PUBLIC}\t51820\toff\n${PUBLIC}\t(none)\t192.0.2.9:1\t10.0.0.0/24\t${at}\t0\t0\toff\n`
    const endpoint = async (at: number) => {
      const run = async () => ({ status: 0, stdout: dump(at), stderr: '' })
      const [, peer] = await listWireguard([parse.ifname('wg0')], run)
      return peer?.kind === 'wgpeer' ? peer.endpoint : assert.fail()
    }
    assert.deepEqual(
      [await endpoint(now - 10), await endpoint(now - 200), await endpoint(now + 4000), await endpoint(0)],
      [undefined, '192.0.2.9:1', '192.0.2.9:1', '192.0.2.9:1'],
    )
  })

  it('reads any output without an error, and no device from what is none; another failure of wg is no answer', async () => {
    const read = (stdout: string, status = 0, stderr = '') =>
      listWireguard([parse.ifname('wg0')], async () => ({ status, stdout, stderr }))
    for (const said of ['No such device', 'Operation not supported'])
      assert.deepEqual(await read('', 1, `Unable to access interface: ${said}\n`), [])
    await assert.rejects(read('', 1, 'Unable to access interface: Cannot allocate memory\n'), /^ExecError: wg show wg0/)
    for (const text of ['', '\n\n', 'x', 'a\tb\tc\td\nz', '\t\t\t\t\n\t\t\t\t\t\t\t\t'])
      for (const one of await read(text)) assert.equal(one.kind === 'wgdevice' || one.kind === 'wgpeer', true)
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
