// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { makeQueue } from '../../../../agent/scheduler/queue.ts'
import { Claiming } from '../../../../agent/store/claiming.ts'
import { openStore } from '../../../../agent/store/open.ts'
import type { SubnetStore } from '../../../../agent/store/store.ts'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { until } from '../../../support/harness.ts'
import { draft, SMALL } from '../../../support/suites/leases.ts'

// The agent's own claim, with leases that last 6 s: those that its settings allow last a day, and are renewed after a
// minute at the earliest.
const [TTL_S, MARGIN_MS] = [6, 4000]

describe('the agent renews its lease', () => {
  let etcd: Etcd
  let store: SubnetStore
  const ends = new AbortController()
  const said: string[] = []
  before(async () => {
    etcd = await startEtcd()
    store = await openStore({ store: 'etcd', endpoints: etcd.endpoints, ttlSeconds: TTL_S })
  })
  after(async () => {
    ends.abort()
    await store.close()
    await etcd.stop()
  })
  const kept = async () => (await etcd.list('/coreos.com/network/subnets/'))[0]

  it('in time before its end, on a new etcd lease, and ends the old one; etcd is away then: it tries again until it is back, and the subnet stays', async () => {
    const conf = parseNetworkConf(SMALL)
    const queue = makeQueue(ends.signal)
    const claiming = new Claiming(store, conf, queue, MARGIN_MS, (text) => said.push(text))
    // As the loop does: every wake asks for what is wanted.
    const loop = (async () => {
      queue.add('start')
      for (; !ends.signal.aborted; await queue.next(0)) {
        const { node, ips, backend, data } = draft('a', 2)
        claiming.want({ node, ips, backend, data }, undefined)
      }
    })()
    const first = await until(kept)
    const second = await until(async () => {
      const now = await kept()
      return now && now.lease !== first?.lease ? now : undefined
    }, TTL_S * 1000)
    assert.deepEqual([second?.key, second?.value, second?.create], [first?.key, first?.value, first?.create])
    await until(async () => (await etcd.left(first?.lease ?? '')) === -1)
    await etcd.kill()
    // It gives up on a call after ten seconds, and a pause more.
    await until(() => said.length > 0, 25_000)
    assert.match(said[0] ?? '', /^Cannot claim a subnet for node "a" \(10\.5\.\d\.0\/24\): etcd/)
    await etcd.start()
    await etcd.ready()
    await until(async () => {
      const now = await kept()
      return now !== undefined && now.lease !== second?.lease
    }, 15_000)
    assert.equal((await kept())?.key, first?.key)
    ends.abort()
    await loop
  })
})
