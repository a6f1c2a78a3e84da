// lane: peers
// Tests agent/store/kube and agent/cluster, with a real kube-apiserver and etcd.
import assert from 'node:assert/strict'
import { until } from '../../../support/harness.ts'
import { type ApiServer, apiServer, missingApiServer } from '../../../support/kube-apiserver.ts'
import { API, apiAddresses } from '../../../support/kube-nodes.ts'
import { patient } from '../../../support/patience.ts'
import { skip } from '../../../support/skip.ts'
import { followed, published, storeOf, testKube } from '../../../support/suites/testKube.ts'
import { testKubeAgent } from '../../../support/suites/testKubeAgent.ts'
import { testServedVersions } from '../../../support/suites/testServedVersions.ts'

const signal = AbortSignal.timeout(patient(600_000))
const why = missingApiServer()
let server: ApiServer | undefined

before(async function () {
  this.timeout(180_000)
  if (why !== undefined) return
  await apiAddresses()
  server = await apiServer(API.v6)
})
after(() => server?.end())

async function real(test: Mocha.Context): Promise<ApiServer> {
  if (!server) return skip(test, why ?? 'it did not start')
  return server
}

describe('the kube store, with kube-apiserver', () => {
  testKube('kube-apiserver', real)

  it('an API server that is killed and comes back, and changes that are compacted away meanwhile: what is known stays, and what changed is there within 5 s', async function () {
    this.timeout(180_000)
    const cluster = await real(this)
    await cluster.create('own-9', ['10.244.9.0/24'])
    await cluster.create('peer-9', ['10.244.19.0/24'], published(19))
    const store = storeOf(cluster.kubeconfig, 'own-9')
    await store.config(signal)
    const end = new AbortController()
    const seen = followed(store, end.signal)
    const peers = () => (seen.last()?.leases ?? []).map(({ node }) => node)
    await until(() => peers().includes('peer-9'), 15_000)
    await cluster.kill()
    await until(() => !store.state().connected, 15_000)
    assert.ok(peers().includes('peer-9'))
    await cluster.start()
    await cluster.create('peer-9b', ['10.244.29.0/24'], published(29))
    await cluster.remove('peer-9')
    await cluster.compact()
    await until(() => peers().includes('peer-9b') && !peers().includes('peer-9'), 5000)
    assert.equal(store.state().connected, true)
    end.abort()
  })

  it('a role that loses the verb watch: what is known stays, the state names the verb, and 5 s after it is given back what is new is there', async function () {
    this.timeout(180_000)
    const cluster = await real(this)
    await cluster.create('own-11', ['10.244.11.0/24'])
    await cluster.create('peer-11', ['10.244.111.0/24'], published(111))
    const store = storeOf(cluster.kubeconfig, 'own-11')
    await store.config(signal)
    const end = new AbortController()
    const seen = followed(store, end.signal)
    const peers = () => (seen.last()?.leases ?? []).map(({ node }) => node)
    await until(() => peers().includes('peer-11'), 15_000)
    await cluster.allow(['get', 'list'])
    // A watch that runs stays allowed.
    await cluster.kill()
    await cluster.start()
    await until(
      () =>
        /refused GET \/api\/v1\/nodes: 403 nodes is forbidden: User .*plumb.* cannot watch resource .*; want a role that allows it/.test(
          store.state().error ?? '',
        ),
      30_000,
    )
    // An answer to another request does not hide it.
    await store.config(signal)
    assert.equal(store.state().connected, false)
    assert.ok(peers().includes('peer-11'))
    await cluster.allow(['get', 'list', 'watch'])
    await cluster.create('peer-11b', ['10.244.112.0/24'], published(112))
    await until(() => store.state().connected && peers().includes('peer-11b'), 6000)
    end.abort()
  })

  it("the role that the agent has is no wider than flannel's, and enough", async function () {
    const cluster = await real(this)
    await cluster.create('own-10', ['10.244.10.0/24'])
    const store = storeOf(cluster.kubeconfig, 'own-10')
    await store.config(signal)
    await store.ready?.()
    assert.equal(
      (await cluster.get('own-10'))?.status?.conditions?.find(({ type }) => type === 'NetworkUnavailable')?.['reason'],
      'FlannelIsUp',
    )
  })
})

describe('plumb agent in a cluster, with kube-apiserver', () => {
  testKubeAgent('kube-apiserver', async (test) => {
    const cluster = await real(test)
    await cluster.clear()
    let isAway = false
    return {
      ...cluster,
      async away() {
        isAway = true
        await cluster.kill()
      },
      async back() {
        if (isAway) await cluster.start()
        isAway = false
      },
    }
  })
})

// This takes the agent's usual role away.
describe('kinds that the API may serve in several versions, with kube-apiserver', () => {
  testServedVersions('kube-apiserver', async (test) => {
    const cluster = await real(test)
    return { ...cluster, grant: (rules) => cluster.grant('plumb', rules) }
  })
})
