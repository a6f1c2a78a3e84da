// lane: kubernetes
// Tests plugins and agent/store/kube with upstream's own end-to-end tests of the network, in a real Kubernetes.
import type { Cluster } from '../../tools/k8s/lab.ts'
import { skip } from '../support/skip.ts'
import { missingUpstream, passesUpstream, upWithPlumb } from '../support/upstream.ts'

/**
 * What every cluster has to pass: no optional features, and nothing that changes the cluster for others. PLUMB_E2E
 * names other tests, as a pattern.
 */
const GIVEN = process.env['PLUMB_E2E']
const SKIP = '\\[Feature|\\[Slow\\]|\\[Serial\\]|\\[Disruptive\\]|\\[Flaky\\]'
/** Tests that ran with Kubernetes 1.37.2: the others of this focus are for other providers. */
const LEAST = 116

let cluster: Cluster
before(async function () {
  this.timeout(600_000)
  const why = missingUpstream()
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await upWithPlumb()
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

describe('upstream end-to-end tests', function () {
  this.timeout(3_600_000)

  it('[sig-network] passes', () =>
    passesUpstream(cluster, {
      focus: GIVEN ?? '\\[sig-network\\]',
      skip: SKIP,
      procs: 6,
      least: GIVEN === undefined ? LEAST : 1,
    }))
})
