import { openStore, type SubnetStore } from '../../agent/store.ts'
import { type Cluster, startEtcd } from '../etcd.ts'
import type { Held } from '../suites/leases.ts'
import { testStore } from '../suites/testStore.ts'

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
