// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { encodeValue, type Lease } from '../../../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { claim } from '../../../../agent/store/etcd/claim.ts'
import { Connection } from '../../../../agent/store/etcd/connection.ts'
import { keysBelow } from '../../../../agent/store/etcd/keys.ts'
import { View } from '../../../../agent/store/etcd/view.ts'
import { openStore } from '../../../../agent/store/open.ts'
import type { SubnetStore } from '../../../../agent/store/store.ts'
import { parseIp } from '../../../../lib/text/ip.ts'
import { type Cluster, startEtcd } from '../../../support/etcd.ts'
import { until } from '../../../support/harness.ts'
import { DUAL, draft, dualDraft, type Held, SMALL, signal, watch } from '../../../support/suites/leases.ts'
import { testStore } from '../../../support/suites/testStore.ts'

const opened: SubnetStore[] = []
let etcd: Cluster
let serial = 0
before(async () => {
  etcd = await startEtcd()
})
after(() => etcd.stop())
afterEach(async () => void (await Promise.all(opened.splice(0).map((store) => store.close()))))

/** A network below a prefix of its own. */
function network(options: object = {}): Held & { readonly prefix: string } {
  const prefix = `/net${++serial}`
  return {
    prefix,
    async open() {
      const store = await openStore({ store: 'etcd', endpoints: etcd.endpoints, prefix, ...options })
      opened.push(store)
      return store
    },
    configure: (text) => etcd.put(`${prefix}/config`, text),
    put: (key, value) => etcd.put(`${prefix}/subnets/${key}`, value),
    del: (key) => etcd.del(`${prefix}/subnets/${key}`),
    async list() {
      const start = `${prefix}/subnets/`
      return Object.fromEntries((await etcd.list(start)).map(({ key, value }) => [key.slice(start.length), value]))
    },
  }
}

describe('the etcd store', () => {
  testStore('etcd', async () => network())
})

describe('the etcd store, with leases that end', () => {
  const conf = parseNetworkConf(SMALL)

  it('what another agent of the same node claims between two looks is the node’s own: a full network is no reason to fail', async () => {
    const { open, prefix } = network()
    const store = await open()
    for (const i of [0, 2]) await store.claim(draft(`n${i}`, i + 2), conf, signal)
    const [link, keys] = [new Connection({ endpoints: etcd.endpoints, prefix }), keysBelow(prefix)]
    let others: Promise<Lease> | undefined
    // After its look at the node, and before that at the leases.
    const interrupted: Pick<Connection, 'call'> = {
      async call(ask, until) {
        const answer = await link.call(ask, until)
        others ??= store.claim(draft('n1', 3), conf, signal)
        await others
        return answer
      },
    }
    const { subnets } = await claim(
      { etcd: interrupted as Connection, keys, view: new View(keys), ttlSeconds: 100 },
      draft('n1', 3),
      conf,
      signal,
    )
    assert.deepEqual(subnets, (await others)?.subnets)
    link.close()
  })

  it('a renewal puts the lease on a new etcd lease of the full time, and ends the old one', async () => {
    const { open, prefix } = network({ ttlSeconds: 100 })
    const store = await open()
    const others = new Set(await etcd.leases())
    const own = async () => (await etcd.leases()).filter((one) => !others.has(one))
    for (let i = 0, before = ''; i < 3; i++) {
      const { expires = 0 } = await store.claim(draft('a', 2), conf, signal)
      assert.ok(Math.abs(expires - Date.now() - 100_000) < 3000)
      const [kept] = await etcd.list(`${prefix}/subnets/`)
      assert.deepEqual(await own(), [kept?.lease])
      assert.notEqual(kept?.lease, before)
      before = kept?.lease ?? ''
      assert.ok((await etcd.left(before)) > 90)
    }
    await store.release('a')
    assert.deepEqual([await own(), await etcd.list(prefix)], [[], []])
  })

  it('lasts a day unless told otherwise, as flannel’s', async () => {
    const { open, prefix } = network()
    await (await open()).claim(draft('a', 2), conf, signal)
    const [kept] = await etcd.list(`${prefix}/subnets/`)
    assert.ok(Math.abs((await etcd.left(kept?.lease ?? '')) - 86_400) < 5)
  })

  it('a conflict, and a claim that finds no subnet, leave no etcd lease behind', async () => {
    const { open } = network()
    const before = (await etcd.leases()).length
    const stores = await Promise.all(Array.from({ length: 8 }, open))
    const outcomes = await Promise.allSettled(
      stores.map((store, i) => store.claim(draft(`n${i}`, i + 2), conf, signal)),
    )
    assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 3)
    assert.equal((await etcd.leases()).length - before, 3)
  })

  it('an etcd lease that other keys live by is left alone', async () => {
    const { open, prefix } = network()
    await etcd.put(`${prefix}/subnets/10.5.2.0-24`, encodeValue(draft('', 2)), 500)
    const [{ lease } = assert.fail()] = await etcd.list(`${prefix}/subnets/`)
    await etcd.putBy(`${prefix}/other`, 'x', lease)
    await (await open()).claim(draft('a', 2), conf, signal)
    assert.equal((await etcd.list(`${prefix}/other`)).length, 1)
    assert.notEqual((await etcd.list(`${prefix}/subnets/`))[0]?.lease, lease)
  })

  it('a lease that somebody made again under the node’s key is not the node’s', async () => {
    const { open, put, del, list } = network()
    const store = await open()
    await store.claim(draft('a', 2, { before: { v4: '10.5.1.0/24' as never } }), conf, signal)
    await del('10.5.1.0-24')
    await put('10.5.1.0-24', encodeValue(draft('', 9)))
    assert.match((await store.claim(draft('a', 2), conf, signal)).subnets.v4 ?? '', /^10\.5\.[23]\.0\/24$/)
    assert.equal((await list())['10.5.1.0-24'], encodeValue(draft('', 9)))
    const seen = watch(store)
    await seen.until(({ leases }) => leases.some(({ node, ips }) => node === undefined && ips.v4 === '172.30.0.9'))
    await seen.end()
  })

  it('an IPv6 subnet whose lease was removed by hand is free, whatever is left of its claim', async () => {
    const { open, del, list } = network()
    const store = await open()
    const dual = parseNetworkConf(DUAL)
    for (const [i, node] of ['a', 'b', 'c'].entries()) await store.claim(dualDraft(node, i + 2), dual, signal)
    const [gone = ''] = Object.keys(await list())
    await del(gone)
    await store.claim(dualDraft('d', 9), dual, signal)
    assert.ok(Object.keys(await list()).includes(gone))
  })
})

describe('the etcd store, beside 10,000 leases', () => {
  const conf = parseNetworkConf('{"Network":"10.0.0.0/8","SubnetLen":24}')

  it('claims and lists with one read of pages and one watch, and asks of no lease by itself', async () => {
    const { open, prefix } = network()
    const value = (n: number) => encodeValue({ ...draft('', 0), ips: { v4: parseIp(`172.31.${n >> 8}.${n & 255}`) } })
    await etcd.putMany(
      Array.from({ length: 10_000 }, (_, n) => [
        `${prefix}/subnets/10.${(n + 1) >> 8}.${(n + 1) & 255}.0-24`,
        value(n),
      ]),
    )
    const counts = async () =>
      Promise.all(['Range', 'Txn', 'Watch', 'LeaseGrant', 'LeaseTimeToLive'].map((method) => etcd.calls(method)))
    const before = await counts()
    const store = await open()
    const seen = watch(store)
    await seen.until(({ leases }) => leases.length === 10_000, 20_000)
    // Before the watch goes on from there, a claim has to read for itself.
    await until(async () => (await etcd.calls('Watch')) > (before[2] ?? 0))
    const { subnets } = await store.claim(draft('a', 2), conf, signal)
    await seen.until(({ leases }) => leases.length === 10_001)
    assert.match(subnets.v4 ?? '', /^10\./)
    const spent = (await counts()).map((count, i) => count - (before[i] ?? 0))
    // Five pages of 2,000, and the node's own record.
    assert.deepEqual(spent, [6, 1, 1, 1, 0])
    // A restart: the node knows its lease, and reads nothing else for it.
    await seen.end()
    const again = await open()
    const started = await counts()
    assert.deepEqual((await again.claim(draft('a', 2), conf, signal)).subnets, subnets)
    assert.deepEqual(
      (await counts()).map((count, i) => count - (started[i] ?? 0)),
      [2, 1, 0, 1, 1],
    )
  })

  it('claims first, then lists without a second read', async () => {
    const { open, put } = network()
    await put('10.0.9.0-24', encodeValue(draft('', 9)))
    const store = await open()
    const before = await etcd.calls('Range')
    await store.claim(draft('a', 2), conf, signal)
    const seen = watch(store)
    await seen.until(({ leases }) => leases.length === 2)
    assert.equal((await etcd.calls('Range')) - before, 2)
    await seen.end()
  })
})
