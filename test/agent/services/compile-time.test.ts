// lane: timed
// Tests agent/services/compile.ts: what it costs.
import assert from 'node:assert/strict'
import { type Service, serviceOf } from '../../../agent/cluster/services.ts'
import { compile } from '../../../agent/services/compile.ts'
import type { NodeFacts } from '../../../agent/services/endpoints.ts'

const NODE: NodeFacts = { name: 'n1', zone: 'a' }
const service = (spec: object, status: object = {}) =>
  serviceOf({
    metadata: { namespace: 'x', name: 's' },
    spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }], ...spec },
    status,
  }) as Service

describe('the time of a Service with many source ranges', () => {
  it('tens of thousands of source ranges take no time that anybody notices, and those within others are left out', () => {
    const many = Array.from({ length: 40_000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`)
    const balanced = service(
      { type: 'LoadBalancer', loadBalancerSourceRanges: ['10.1.0.0/16', '10.1.2.3/32', '9.0.0.0/8', ...many] },
      { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } },
    )
    const began = performance.now()
    const [ranges = []] = [...compile(balanced, [], NODE).restricted.values()]
    // All with all would be 800 million comparisons.
    assert.ok(performance.now() - began < 5000, `${performance.now() - began} ms`)
    assert.deepEqual(ranges.slice(0, 2), ['9.0.0.0/8', '10.0.0.0/24'])
    assert.equal(ranges.filter((one) => one.startsWith('10.1.')).join(), '10.1.0.0/16')
    assert.equal(ranges.length, 40_000 - 256 + 2)
  })
})
