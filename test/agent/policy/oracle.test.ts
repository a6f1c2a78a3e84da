// lane: quick
// Tests agent/policy/oracle.ts. What it decides stands in test/scenarios/policy and in second-reading.test.ts.
import assert from 'node:assert/strict'
import { namespaceOf, type Pod, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { type Attempt, decide } from '../../../agent/policy/oracle.ts'
import { parseIp } from '../../../lib/text/ip.ts'

describe('the oracle of NetworkPolicy', () => {
  it('counts only the directions that are asked for', () => {
    const [from, to] = ['10.1.0.3', '10.1.0.1'].map((ip, i) =>
      podOf({ metadata: { namespace: i === 0 ? 'y' : 'x', name: 'a' }, status: { podIP: ip } }),
    ) as [Pod, Pod]
    const [source, destination] = [parseIp('10.1.0.3'), parseIp('10.1.0.1')]
    const attempt: Attempt = { from, to, source, destination, protocol: 'TCP', port: 80 }
    const policies = [policyOf({ metadata: { namespace: 'x', name: 'deny' }, spec: { podSelector: {} } })]
    const namespaces = ['x', 'y'].map((name) => namespaceOf({ metadata: { name } }))
    const passes = (...sides: ('egress' | 'ingress')[]) =>
      decide({ pods: [from, to], namespaces, policies }, attempt, sides).passes
    assert.deepEqual([passes('egress', 'ingress'), passes('egress'), passes('ingress')], [false, true, false])
  })
})
