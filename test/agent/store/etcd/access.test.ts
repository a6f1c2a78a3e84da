// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { openStore } from '../../../../agent/store/open.ts'
import { StoreError, type SubnetStore } from '../../../../agent/store/store.ts'
import { certificates } from '../../../support/certificates.ts'
import { type Cluster, startEtcd } from '../../../support/etcd.ts'
import { until } from '../../../support/harness.ts'
import { draft, SMALL, signal, watch } from '../../../support/suites/leases.ts'

const PASSWORD = 'correct horse battery staple'
const conf = parseNetworkConf(SMALL)

describe('the etcd store over TLS, with a password', () => {
  let etcd: Cluster
  const opened: SubnetStore[] = []
  before(async () => {
    etcd = await startEtcd({ tls: true, password: PASSWORD })
    await etcd.put('/coreos.com/network/config', SMALL)
  })
  after(() => etcd.stop())
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((store) => store.close()))
    await etcd.del('/coreos.com/network/subnets/', true)
  })
  async function open(options: object = {}): Promise<SubnetStore> {
    const store = await openStore({
      store: 'etcd',
      endpoints: etcd.endpoints,
      ...etcd.files,
      username: 'flannel',
      password: PASSWORD,
      ...options,
    })
    opened.push(store)
    return store
  }
  /** What is told of a call that has to fail, to its reader: with its causes, as a log shows them. */
  async function told(store: SubnetStore, work: Promise<unknown>): Promise<string> {
    const cause = await work.then(
      () => assert.fail('It was to fail'),
      (error) => error,
    )
    assert.ok(cause instanceof StoreError, String(cause))
    const text = `${Bun.inspect(cause)}${Bun.inspect(store)}${JSON.stringify(store.state())}`
    assert.doesNotMatch(text, /battery|wrong-secret|PRIVATE/)
    return cause.message
  }

  it('claims, lists and gives back at an address, with a certificate and a user', async () => {
    const store = await open()
    assert.deepEqual((await store.config(signal)).v4, conf.v4)
    const { subnets } = await store.claim(draft('a', 2), conf, signal)
    const seen = watch(store)
    await seen.until(({ leases }) => leases[0]?.node === 'a' && leases[0].subnets.v4 === subnets.v4)
    await store.release('a')
    await seen.until(({ leases }) => leases.length === 0)
    await seen.end()
  })

  it('goes on when etcd has restarted and knows its tokens no more', async () => {
    const store = await open()
    await store.claim(draft('a', 2), conf, signal)
    const seen = watch(store)
    await seen.until(({ leases }) => leases.length === 1)
    await etcd.kill()
    await etcd.start()
    await etcd.login()
    await store.claim(draft('a', 3), conf, signal)
    await seen.until(({ leases }) => leases[0]?.ips.v4 === '172.30.0.3', 10_000)
    await etcd.del('/coreos.com/network/subnets/', true)
    await seen.until(({ leases }) => leases.length === 0, 10_000)
    await seen.end()
  })

  it('goes on when users and roles were changed', async () => {
    const store = await open()
    await store.claim(draft('a', 2), conf, signal)
    await etcd.addUser('another')
    await store.claim(draft('a', 3), conf, signal)
  })

  it('names etcd’s answer to a wrong password, and no secret, in error and state', async () => {
    const store = await open({ password: 'wrong-secret' })
    assert.match(
      await told(store, store.claim(draft('a', 2), conf, signal)),
      /^etcd at https:\/\/[\d.]+:2379: authentication failed, invalid user ID or password$/,
    )
    assert.match(store.state().error ?? '', /authentication failed/)
  })

  it('names what a user may not', async () => {
    const store = await open({ prefix: '/elsewhere' })
    assert.match(await told(store, store.claim(draft('a', 2), conf, signal)), /: permission denied$/)
  })

  it('asks no faster when it is refused: leases() of what the user may not read costs next to nothing', async () => {
    const store = await open({ prefix: '/elsewhere' })
    const seen = watch(store)
    await until(() => /permission denied/.test(store.state().error ?? ''))
    const before = process.cpuUsage()
    await Bun.sleep(3000)
    const { user, system } = process.cpuUsage(before)
    assert.ok(user + system < 300_000, `${(user + system) / 1000} ms of CPU in 3 s`)
    assert.equal(seen.all.length, 0)
    await seen.end()
  })

  it('refuses who gives no name', async () => {
    const store = await open({ username: undefined, password: undefined })
    assert.match(await told(store, store.claim(draft('a', 2), conf, signal)), /: permission denied$/)
  })

  it('refuses an etcd of another authority, and a client without a certificate is refused', async () => {
    const other = await certificates(mkdtempSync('/run/other-'), [])
    for (const [options, wanted] of [
      [{ caFile: other.caFile }, /certificate/],
      [{ certFile: undefined, keyFile: undefined }, /./],
    ] as const) {
      const store = await open(options)
      assert.match(await told(store, store.claim(draft('a', 2), conf, AbortSignal.timeout(3000))), wanted)
      assert.equal(store.state().connected, false)
    }
  })
})
