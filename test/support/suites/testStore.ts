import assert from 'node:assert/strict'
import { parseNetworkConf } from '../../../agent/lease/network-configuration.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import { patient } from '../patience.ts'
import { draft, type Given, given, type Held, signal } from './leases.ts'
import { testClaim } from './testClaim.ts'
import { testSnapshots } from './testSnapshots.ts'

const WIDE = '{"network":"10.5.0.0/16","backend":{"type":"VXLAN"}}'

/** Defines the tests that every store has to pass. `held` makes a fresh, empty network. */
export function testStore(name: string, held: () => Promise<Held>): void {
  const store = given(name, held)
  testConfig(store)
  testClaim(store)
  testSnapshots(store)
}

function testConfig({ name, bare, network }: Given): void {
  it(`${name}.config() waits for a configuration, and reads it when it comes`, async () => {
    const { open, configure } = await bare()
    const store = await open()
    const reading = store.config(signal)
    assert.equal(await Promise.race([reading, Bun.sleep(1100)]), undefined)
    await configure(WIDE)
    const wanted = Date.now()
    assert.deepEqual({ ...(await reading), notes: undefined }, { ...parseNetworkConf(WIDE), notes: undefined })
    assert.ok(Date.now() - wanted < patient(5000))
  })

  it(`${name}.config() throws ValueError for a configuration that is wrong, and ends with its signal`, async () => {
    const { open, configure } = await bare()
    const store = await open()
    await assert.rejects(store.config(AbortSignal.timeout(50)), { name: 'StoreError' })
    await configure('{"Network":"10.5.0.0/29"}')
    await assert.rejects(store.config(signal), ValueError)
  })

  it(`${name}.state() tells that the store answers, and since when`, async () => {
    const { open, claim } = await network()
    const store = await open()
    assert.equal(store.state().connected, false)
    await claim(draft('a', 2))
    await store.config(signal)
    const { connected, error, heard = 0 } = store.state()
    assert.deepEqual({ connected, error }, { connected: true, error: undefined })
    assert.ok(Date.now() - heard < patient(5000))
  })
}
