// lane: peers
// Tests cli/connectivity with a real kube-apiserver and its controllers, and with no more than the roles of the docs.

import assert from 'node:assert/strict'
import { accessOf } from '../../../agent/cluster/access.ts'
import { Api } from '../../../agent/cluster/api.ts'
import type { EndFacts } from '../../../cli/connectivity/end.ts'
import { makeTestObjects } from '../../../cli/connectivity/test-objects.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import type { ClusterApi } from '../../support/connectivity.ts'
import { until } from '../../support/harness.ts'
import { type ApiServer, apiServer, missingApiServer, rulesOf } from '../../support/kube-apiserver.ts'
import { API } from '../../support/kube-nodes.ts'
import { patient } from '../../support/patience.ts'
import { skip } from '../../support/skip.ts'
import { testConnectivity } from '../../support/suites/testConnectivity.ts'

/** What the chart adds to the agent's role for Services. */
const SERVICES = [
  { apiGroups: [''], resources: ['services'], verbs: ['list', 'watch'] },
  { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
]
let server: ApiServer | undefined

after(() => server?.end())

async function real(test: Mocha.Context): Promise<ClusterApi> {
  const why = missingApiServer('controllers')
  if (why !== undefined) skip(test, why)
  server = await apiServer(API.v4, 'controllers')
  const { ask, grant, kubeconfigs } = server
  await grant('plumb', [...rulesOf('conf/kubernetes.yaml', 'plumb'), ...SERVICES])
  await grant('jane', rulesOf('docs/connectivity.md', 'plumb-connectivity'))
  return {
    ...server,
    userKubeconfig: kubeconfigs.jane,
    post: (path, object) => ask('POST', path, object),
    list: async (path) => ((await ask('GET', path)) as { items?: Awaited<ReturnType<ClusterApi['list']>> }).items ?? [],
    refuse: () => grant('jane', [{ apiGroups: [''], resources: ['namespaces'], verbs: ['list'] }]),
    away: () => undefined,
    back: () => undefined,
  }
}

/** Does with the API all that a test of one node does. */
async function makeAll(kubeconfig: string): Promise<void> {
  const objects = await makeTestObjects(new Api(accessOf({ kubeconfig }), 'plumb-connectivity'), 1)
  try {
    const [v4, v6] = [
      { ip: parseIp('10.244.1.2'), tcp: 1, udp: 1 },
      { ip: parseIp('fd00:244::2'), tcp: 1, udp: 1 },
    ]
    const places = { node: {}, 'pod 1': { v4, v6 }, 'pod 2': { v4, v6 } }
    const facts: EndFacts[] = [{ node: 'n1', mtu: 1450, hasPolicy: true, addresses: [], places }]
    await objects.tellAddresses(facts)
    const [service] = await objects.makeServices(facts)
    assert.match(service?.v4?.ip ?? '', /^10\.96\./)
    assert.match(service?.v6?.ip ?? '', /^fd00:96::/)
    assert.ok((service?.nodePorts.tcp ?? 0) >= 30_000 && (service?.nodePorts.udp ?? 0) >= 30_000)
    await objects.findDns('cluster.local')
    await objects.makePolicy()
  } finally {
    await objects.close()
  }
}

describe('plumb connectivity with the Kubernetes API, of kube-apiserver', () => {
  testConnectivity('kube-apiserver', real)

  it('the role of the docs is no wider than needed: without any of its verbs, one sentence names it at once', async function () {
    this.timeout(120_000)
    const { grant, kubeconfigs } = server ?? skip(this, missingApiServer('controllers') ?? 'it did not start')
    const rules = rulesOf('docs/connectivity.md', 'plumb-connectivity')
    await grant('jane', rules)
    await until(() => makeAll(kubeconfigs.jane).then(() => true), 20_000)
    for (const [i, rule] of rules.entries())
      for (const verb of rule.verbs) {
        const verbs = rule.verbs.filter((one) => one !== verb)
        await grant('jane', [...rules.slice(0, i), { ...rule, verbs }, ...rules.slice(i + 1)])
        const [resource = ''] = rule.resources
        const want = new RegExp(`403 .*is forbidden: User .*:team:jane.* cannot ${verb} resource .*${resource}`)
        const start = performance.now()
        await until(() => assert.rejects(makeAll(kubeconfigs.jane), want).then(() => true), 10_000)
        assert.ok(performance.now() - start < patient(10_000))
      }
  })
})
