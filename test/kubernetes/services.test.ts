// Tests agent/services with upstream's own end-to-end tests of Services, in a real Kubernetes without kube-proxy.
import assert from 'node:assert/strict'
import type { Cluster } from '../../tools/k8s/lab.ts'
import { skip } from '../support/skip.ts'
import { missingUpstream, passesUpstream, upWithPlumb } from '../support/upstream.ts'

/** PLUMB_E2E names other tests, as a pattern. */
const GIVEN = process.env['PLUMB_E2E']
const FOCUS = '\\[sig-network\\] (Services|EndpointSlice|EndpointSliceMirroring|Conntrack|Networking Granular Checks: Services|Traffic Distribution|Topology Hints) |\\[sig-network\\].*session affinity|\\[Feature:IPv6DualStack\\]'
/** Every feature but dual stack needs what the lab has not: SCTP in the kernel, a cloud's load balancers. Disruptive tests restart programs by ssh. */
const SKIP = '\\[Feature:([^I]|I[^P])|\\[Disruptive\\]|\\[Flaky\\]'
/** Tests that ran with Kubernetes 1.37.2. */
const LEAST = 102
/** One for each of three zones, which the tests of Traffic Distribution want. */
const NODES = ['n1', 'n2', 'n3']

let cluster: Cluster
before(async function () {
  this.timeout(600_000)
  const why = missingUpstream()
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await upWithPlumb({ nodes: NODES, hasKubeProxy: false, isDual: true, values: ['network.ipv6=fd44::/48', 'serviceProxy=true', 'apiServer.host=10.78.0.254'] })
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

describe('upstream tests of Services without kube-proxy', function () {
  this.timeout(3_600_000)

  it('the agents serve Services, and no node has rules of kube-proxy', async () => {
    for (const node of cluster.nodes) {
      const { stdout, stderr } = await node.exec(['nft', 'list', 'tables'])
      assert.match(stdout, /plumb_services/, `${node.name}: ${stderr}`)
      assert.doesNotMatch(stdout, /kube-proxy/, node.name)
    }
  })

  it('Services, EndpointSlice, Conntrack and session affinity pass', () => passesUpstream(cluster, { focus: GIVEN ?? FOCUS, skip: SKIP, procs: 6, least: GIVEN === undefined ? LEAST : 1 }))
})
