// lane: quick
// Tests agent/kernel/wireguard.ts.
import assert from 'node:assert/strict'
import { listWireguard, performWireguard } from '../../../agent/kernel/wireguard.ts'
import { Secret } from '../../../lib/text/secret.ts'
import { parse } from '../../../lib/text/values.ts'

/** A pair of wg(8). */
const [KEY, PUBLIC] = [
  'EM5t/elqZEoY4mZozHRxpkhiB3r6KVUpNKsKS/dFxn4=',
  'V+3SFLo9300vS+XVBE79/IL8qwmqpCxbTxeaa0W0NkU=',
] as const

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
