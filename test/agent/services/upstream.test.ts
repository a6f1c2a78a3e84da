// lane: kubernetes
// Tests agent/services with upstream's own end-to-end tests of Services, in real clusters of Kubernetes without
// kube-proxy.
import assert from 'node:assert/strict'
import type { Cluster } from '../../../tools/k8s/lab.ts'
import { skip } from '../../support/skip.ts'
import { missingUpstream, passesUpstream, upWithPlumb, type WithPlumb } from '../../support/upstream.ts'

/** PLUMB_E2E names other tests, as a pattern. */
const GIVEN = process.env['PLUMB_E2E']
const FOCUS =
  '\\[sig-network\\] (Services|EndpointSlice|EndpointSliceMirroring|Conntrack|Networking Granular Checks: Services|Topology Hints) |\\[sig-network\\].*session affinity|\\[Feature:IPv6DualStack\\]'
/**
 * Every feature but dual stack needs what the lab has not: SCTP in the kernel, a cloud's load balancers. Disruptive
 * tests restart programs by ssh.
 */
const SKIP = '\\[Feature:([^I]|I[^P])|\\[Disruptive\\]|\\[Flaky\\]'
/**
 * Wants to see the address of a node that asks a pod of another node. Under VXLAN a node asks with the tunnel's
 * address, because the answer has to come through the tunnel. The test fails with kube-proxy in the same way.
 */
const BY_ROUTES = 'should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes'
const IN_ZONES = '\\[sig-network\\] Traffic Distribution'
/** Tests that ran with Kubernetes 1.37.2. */
const [LEAST, LEAST_BY_ROUTES] = [102, 7]

/** Makes the cluster for the tests of a describe. */
function inCluster(what: WithPlumb): () => Cluster {
  let cluster: Cluster
  before(async function () {
    this.timeout(600_000)
    const why = missingUpstream()
    if (why !== undefined) skip(this as unknown as Mocha.Context, why)
    cluster = await upWithPlumb({
      ...what,
      hasKubeProxy: false,
      values: [...(what.values ?? []), 'serviceProxy=true', 'apiServer.host=10.78.0.254'],
    })
  })
  after(async function () {
    this.timeout(120_000)
    await cluster?.down()
  })
  return () => cluster
}

describe('upstream tests of Services without kube-proxy', function () {
  this.timeout(3_600_000)

  describe('VXLAN, both families', () => {
    const cluster = inCluster({ nodes: ['n1', 'n2', 'n3'], isDual: true, values: ['network.ipv6=fd44::/48'] })

    it('the agents serve Services, and no node has rules of kube-proxy', async () => {
      for (const node of cluster().nodes) {
        const { stdout, stderr } = await node.exec(['nft', 'list', 'tables'])
        assert.match(stdout, /plumb_services/, `${node.name}: ${stderr}`)
        assert.doesNotMatch(stdout, /kube-proxy/, node.name)
      }
    })

    it('Services, EndpointSlice, Conntrack and session affinity pass', () =>
      passesUpstream(cluster(), {
        focus: GIVEN ?? FOCUS,
        skip: `${SKIP}|${BY_ROUTES}`,
        procs: 6,
        least: GIVEN === undefined ? LEAST : 1,
      }))
  })

  // Two nodes in each of three zones.
  describe('routes, six nodes', () => {
    const cluster = inCluster({ nodes: ['n1', 'n2', 'n3', 'n4', 'n5', 'n6'], values: ['network.backend.Type=host-gw'] })

    it('traffic distribution and health checks pass', () =>
      passesUpstream(cluster(), { focus: `${IN_ZONES}|${BY_ROUTES}`, skip: SKIP, procs: 3, least: LEAST_BY_ROUTES }))
  })
})
