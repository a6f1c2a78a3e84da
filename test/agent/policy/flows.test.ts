// lane: quick
// Tests agent/policy/flows.ts: whether a connection that the kernel knows may go on.
import assert from 'node:assert/strict'
import { clusterNodeOf, namespaceOf, type Pod, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { livesBy } from '../../../agent/policy/flows.ts'
import { compile } from '../../../agent/policy/state.ts'
import { parseIp } from '../../../lib/text/ip.ts'

const [NODE, OUTSIDE, HERE, THERE] = ['172.30.0.1', '203.0.113.5', '10.1.1.2', '10.1.2.2'].map(parseIp)

function pod(name: string, nodeName: string, podIP: unknown): [string, Pod] {
  const metadata = { namespace: 'x', name, labels: { app: name } }
  return [`x/${name}`, podOf({ metadata, spec: { nodeName }, status: { podIP } }) as Pod]
}

describe('livesBy()', () => {
  it('leaves to the node of the other pod what its policies say: that node sees clients of a NodePort with the address of this one', () => {
    const only = (name: string, cidr: unknown) =>
      policyOf({
        metadata: { namespace: 'x', name },
        spec: {
          podSelector: { matchLabels: { app: name } },
          policyTypes: ['Ingress'],
          ingress: [{ from: [{ ipBlock: { cidr } }] }],
        },
      })
    const cluster = {
      pods: new Map([pod('here', 'n1', HERE), pod('there', 'n2', THERE)]),
      namespaces: new Map([['x', namespaceOf({ metadata: { name: 'x' } })]]),
      policies: new Map(['here', 'there'].map((name) => [`x/${name}`, only(name, `${NODE}/32`)])),
      clusterPolicies: new Map(),
      nodes: new Map(['n1', 'n2'].map((name) => [name, clusterNodeOf({ metadata: { name } })])),
    }
    const lives = livesBy(compile(cluster, 'n1'), cluster, new Set())
    const flow = (source: unknown, destination: unknown) =>
      lives({ source, destination, protocol: 'TCP', port: 80 } as Parameters<typeof lives>[0])
    assert.equal(flow(OUTSIDE, THERE), true)
    assert.equal(flow(HERE, THERE), true)
    assert.equal(flow(OUTSIDE, HERE), false)
    assert.equal(flow(THERE, HERE), false)
  })
})
