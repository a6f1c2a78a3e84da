// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { openStore } from '../../../../agent/store/open.ts'
import { StoreError, type SubnetStore } from '../../../../agent/store/store.ts'
import { parseCidr } from '../../../../lib/text/ip.ts'
import { type Cluster, startEtcd } from '../../../support/etcd.ts'
import { until } from '../../../support/harness.ts'
import { patient } from '../../../support/patience.ts'
import { draft, SMALL, signal, watch } from '../../../support/suites/leases.ts'

const WIDE = '{"Network":"10.5.0.0/16"}'
const PREFIX = '/coreos.com/network'
const conf = parseNetworkConf(WIDE)
const key = (n: number) => `${PREFIX}/subnets/10.5.${n}.0-24`
const value = (n: number) => encodeValue(draft('', n))
/** Chosen by chance it would now and then be one that a test gives to another. */
const A = draft('a', 2, { before: { v4: parseCidr('10.5.200.0/24') } })
/** A dead peer is noticed after this: the interval of PINGs, and the time to answer one. */
const NOTICED_MS = 15_000

/** A store of each test, on a fresh cluster's only or first member. */
function onEtcd(members: 1 | 3): {
  etcd(): Cluster
  open(options?: object): Promise<SubnetStore>
  closing(end: () => Promise<void>): void
} {
  let cluster: Cluster
  const ending: (() => Promise<void>)[] = []
  before(async () => {
    cluster = await startEtcd({ members })
  })
  after(() => cluster.stop())
  afterEach(async () => {
    for (const end of ending.splice(0).reverse()) await end()
    await cluster.ready()
    await cluster.del('/', true)
  })
  return {
    etcd: () => cluster,
    closing: (end) => void ending.push(end),
    async open(options = {}) {
      const store = await openStore({ store: 'etcd', endpoints: cluster.endpoints, ...options })
      ending.push(() => store.close())
      return store
    },
  }
}

describe('the etcd store, when its one etcd fails', () => {
  const { etcd, open, closing } = onEtcd(1)
  /** A store with one foreign lease and its own, whose snapshots are taken. */
  async function started() {
    const store = await open()
    await etcd().put(key(1), value(1))
    const own = await store.claim(A, conf, signal)
    const seen = watch(store)
    closing(seen.end)
    await seen.until(({ leases }) => leases.length === 2)
    const holdsOwn = () =>
      seen.all.every(({ leases }) => leases.some(({ node, subnets }) => node === 'a' && subnets.v4 === own.subnets.v4))
    return { store, seen, own, holdsOwn }
  }

  it('killed for 30 s: what is known stays, less than 1 % of a core, back within 5 s with what changed', async () => {
    const { store, seen, own } = await started()
    await etcd().kill()
    await until(() => !store.state().connected)
    const [before, snapshots] = [process.cpuUsage(), seen.all.length]
    await Bun.sleep(30_000)
    const { user, system } = process.cpuUsage(before)
    assert.ok(user + system < 300_000, `${(user + system) / 1000} ms of CPU in 30 s`)
    assert.equal(seen.all.length, snapshots)
    assert.match(store.state().error ?? '', /^etcd at http:\/\/[\d.]+:2379: /)
    await assert.rejects(store.claim(draft('a', 3), conf, AbortSignal.timeout(1000)), StoreError)
    await etcd().start()
    await etcd().ready()
    const back = Date.now()
    await etcd().put(key(2), value(2))
    await seen.until(({ leases }) => leases.length === 3, 10_000)
    assert.ok(Date.now() - back < patient(5000), `${Date.now() - back} ms`)
    assert.equal(store.state().error, undefined)
    // Renewal was due meanwhile: it is made up for.
    assert.deepEqual(
      (await store.claim(draft('a', 3, { before: own.subnets, fixed: true }), conf, signal)).subnets,
      own.subnets,
    )
  }).timeout(60_000)

  it('claim() while it is away says so after ten seconds, or with its signal', async () => {
    const store = await open()
    await etcd().kill()
    const started = Date.now()
    await assert.rejects(
      store.claim(draft('a', 2), conf, signal),
      (cause) => cause instanceof StoreError && /refused|failed|ECONN/i.test(cause.message),
    )
    assert.ok(Date.now() - started < patient(16_000))
    await etcd().start()
  })

  for (const [what, fail, mend] of [
    ['stopped (SIGSTOP)', async () => etcd().freeze(), async () => etcd().thaw()],
    ['cut off by dropped packets', () => etcd().cut(), () => etcd().heal()],
  ] as const)
    it(`${what}: noticed within 15 s, and back within 5 s with what changed`, async () => {
      const { store, seen } = await started()
      const failed = Date.now()
      await fail()
      await until(() => !store.state().connected, NOTICED_MS)
      assert.ok(Date.now() - failed < NOTICED_MS)
      await mend()
      await etcd().ready()
      const back = Date.now()
      await etcd().del(key(1))
      await seen.until(({ leases }) => leases.length === 1, 10_000)
      assert.ok(Date.now() - back < patient(5000), `${Date.now() - back} ms`)
    })

  it('compacted while cut off, after an addition, a change and a removal: all there within 2 s of the first answer, the own lease never gone', async () => {
    const { store, seen, own, holdsOwn } = await started()
    await etcd().put(key(3), value(3))
    await seen.until(({ leases }) => leases.length === 3)
    await etcd().cut()
    await until(() => !store.state().connected, NOTICED_MS)
    const admin = etcd().within()
    await admin.put(key(4), value(4))
    await admin.put(key(1), value(9))
    await admin.del(key(3))
    await admin.compact()
    await etcd().heal()
    await until(() => store.state().connected, 10_000)
    await seen.until(
      ({ leases }) =>
        leases
          .map(({ ips }) => ips.v4)
          .sort()
          .join() === '172.30.0.2,172.30.0.4,172.30.0.9',
      2000,
    )
    assert.ok(holdsOwn())
    assert.equal(store.state().error, undefined)
    // And on from there.
    await etcd().put(key(5), value(5))
    await seen.until(({ leases }) => leases.length === 4)
    assert.deepEqual((await store.claim(draft('a', 2), conf, signal)).subnets, own.subnets)
  })

  it('emptied, and started again under the same address: the node takes its subnet again, and hears of the others', async () => {
    const { store, seen, own } = await started()
    for (let n = 20; n < 40; n++) await etcd().put(key(n), value(n))
    await seen.until(({ leases }) => leases.length === 22)
    await etcd().kill()
    await etcd().start(0, true)
    await etcd().ready()
    await seen.until(({ leases }) => leases.length === 0, 10_000)
    const again = await store.claim(draft('a', 2, { before: own.subnets, fixed: true }), conf, signal)
    assert.deepEqual(again.subnets, own.subnets)
    await etcd().put(key(3), value(3))
    await seen.until(({ leases }) => leases.length === 2, 10_000)
  })
})

describe('the etcd store, with three members', () => {
  const { etcd, open, closing } = onEtcd(3)

  async function started() {
    await etcd().put(`${PREFIX}/config`, SMALL)
    const store = await open()
    await store.claim(A, conf, signal)
    const seen = watch(store)
    closing(seen.end)
    await seen.until(({ leases }) => leases.length === 1)
    return { store, seen }
  }

  // The store begins with the first of its endpoints.
  for (const [what, fail, mend, ms] of [
    ['killed', () => etcd().kill(0), () => etcd().start(0), 5000],
    ['stopped (SIGSTOP)', async () => etcd().freeze(0), async () => etcd().thaw(0), NOTICED_MS],
    ['cut off by dropped packets', () => etcd().cut(0), () => etcd().heal(0), NOTICED_MS],
    ['cut off from the other members alone', () => etcd().cut(0, 'members'), () => etcd().heal(0), NOTICED_MS],
  ] as const)
    it(`its member ${what}: goes on with another`, async () => {
      const { store, seen } = await started()
      const failed = Date.now()
      await fail()
      closing(async () => void (await mend()))
      await until(
        () =>
          etcd()
            .put(key(7), value(7))
            .then(() => true),
        20_000,
      )
      await seen.until(({ leases }) => leases.length === 2, 20_000)
      assert.ok(Date.now() - failed < ms + 3000, `${Date.now() - failed} ms`)
      await store.claim(draft('a', 3), conf, signal)
      await seen.until(({ leases }) => leases.some(({ ips }) => ips.v4 === '172.30.0.3'))
    })

  it('all members restarted: goes on, with what changed since', async () => {
    const { store, seen } = await started()
    for (const i of [0, 1, 2]) await etcd().kill(i)
    await until(() => !store.state().connected)
    for (const i of [0, 1, 2]) await etcd().start(i)
    await etcd().ready()
    await etcd().put(key(8), value(8))
    await seen.until(({ leases }) => leases.length === 2, 10_000)
    await store.claim(draft('a', 3), conf, signal)
  })
})
