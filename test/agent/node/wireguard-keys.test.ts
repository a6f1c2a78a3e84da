// lane: quick
// Tests agent/node/wireguard-keys.ts.
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { inspect } from 'node:util'
import { WireguardKeys, wireguardKeyPath } from '../../../agent/node/wireguard-keys.ts'

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
