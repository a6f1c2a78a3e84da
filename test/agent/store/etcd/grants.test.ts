// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { openStore } from '../../../../agent/store/open.ts'
import { StoreError } from '../../../../agent/store/store.ts'
import { type Cluster, startEtcd } from '../../../support/etcd.ts'
import { draft, SMALL, signal } from '../../../support/suites/leases.ts'

describe('the etcd store, where claims fail', () => {
  let etcd: Cluster
  before(async () => {
    // A claim writes more than one key: this etcd refuses every one, after it has given the lease for it.
    etcd = await startEtcd({ options: ['--max-txn-ops=1'] })
    await etcd.put('/coreos.com/network/config', SMALL)
  })
  after(() => etcd.stop())

  it('leaves one etcd lease at most, however often a claim fails', async () => {
    const store = await openStore({ store: 'etcd', endpoints: etcd.endpoints })
    try {
      for (let i = 0; i < 5; i++)
        await assert.rejects(store.claim(draft('a', 2), parseNetworkConf(SMALL), signal), StoreError)
      assert.equal((await etcd.leases()).length, 1)
    } finally {
      await store.close()
    }
  })
})
