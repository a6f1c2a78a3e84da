// lane: quick
// Tests cli/policy.ts, and agent/policy/view.ts for the words about Services.
import assert from 'node:assert/strict'
import { namespaceOf, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { noObjects } from '../../agent/cluster/source.ts'
import { compile } from '../../agent/policy/state.ts'
import { decision } from '../../agent/policy/view.ts'
import { type Tested, testText } from '../../cli/policy.ts'
import { parseIp } from '../../lib/text/ip.ts'

const [A, B] = [parseIp('10.1.0.10'), parseIp('10.1.0.11')]

describe('plumb policy as text', () => {
  it('a test tells objects and kernel side by side, and when they differ', () => {
    const refused = { passes: false, reason: 'x/deny isolates x/b' }
    const tested: Tested = {
      from: 'x/a',
      to: 'x/b',
      protocol: 'TCP',
      asked: 80,
      port: 80,
      source: A,
      destination: B,
      verdict: refused,
      here: refused,
      kernel: { passes: true, reason: 'a packet passes' },
      isAudit: false,
      agree: false,
    }
    assert.equal(
      testText(tested),
      `TCP x/a (10.1.0.10) to x/b (10.1.0.11) port 80
  objects: is refused: x/deny isolates x/b
  kernel:  passes: a packet passes
  THEY DIFFER: the kernel does not do what the objects want. plumb status and the log of the agent may say why`,
    )
    const elsewhere = testText({ ...tested, here: { passes: true, reason: 'no policy' }, agree: true })
    assert.match(elsewhere, /of this node: passes: no policy; the other pod's node decides the rest/)
    assert.doesNotMatch(elsewhere, /DIFFER/)
  })
  it('a connection to a Service is decided for its endpoints, after translation; a port that the Service does not have is refused', () => {
    const objects = [
      podOf({
        metadata: { namespace: 'x', name: 'a' },
        spec: { nodeName: 'n' },
        status: { phase: 'Running', podIPs: [{ ip: '10.1.0.10' }] },
      }),
      podOf({
        metadata: { namespace: 'x', name: 'b', labels: { app: 'web' } },
        spec: { nodeName: 'n' },
        status: { phase: 'Running', podIPs: [{ ip: '10.1.0.11' }] },
      }),
    ].flatMap((one) => one ?? [])
    const guard = policyOf({
      metadata: { namespace: 'x', name: 'guard' },
      spec: { podSelector: { matchLabels: { app: 'web' } }, ingress: [{ ports: [{ port: 8080 }] }] },
    })
    const cluster = {
      ...noObjects(),
      pods: new Map(objects.map((one) => [`x/${one.name}`, one])),
      namespaces: new Map([['x', namespaceOf({ metadata: { name: 'x' } })]]),
      policies: new Map([['x/guard', guard]]),
    }
    const known = { cluster, state: compile(cluster, 'n'), subnets: [], isAudit: false }
    const [what, ip] = ['10.96.0.1', parseIp('10.96.0.1')]
    const asked = { from: 'x/a', to: what, protocol: 'TCP', port: 80 } as const
    const by = (...ports: readonly number[]) =>
      decision(known, asked, (to) =>
        to === ip ? { what, endpoints: ports.map((port) => ({ ip: B, port })) } : undefined,
      )
    assert.deepEqual(
      [by(8080).verdict.passes, by(8080).destination, by(8080).port, by(8080).service],
      [true, B, 8080, '10.96.0.1: 1 endpoint'],
    )
    assert.deepEqual(
      [by(8081).verdict.passes, by(8080, 8081).verdict.passes, by(8080, 8081).service],
      [false, false, '10.96.0.1: 2 endpoints, 1 of them refused'],
    )
    assert.deepEqual([by().verdict.passes, by().isRefusedByService, by().destination], [false, true, ip])
    // Without a Service it is an address of somebody.
    assert.equal(decision(known, asked).verdict.passes, true)
  })
})
