// lane: quick
// Tests cli/doctor/explain.ts.
import assert from 'node:assert/strict'
import type { Path } from '../../../agent/doctor/promise/paths.ts'
import { causeOf, type Loss, lossText, representatives } from '../../../cli/doctor/explain.ts'
import type { TraceReport } from '../../../cli/trace.ts'
import type { Ip } from '../../../lib/text/ip.ts'

const NODE = { name: 'this node', ip: '172.30.0.1' as Ip, ns: 'host' as const }
const POD = { name: 'pod x/a', ip: '10.244.1.2' as Ip, ns: '/run/netns/a' as never }
const OTHER = { name: 'pod x/b', ip: '10.244.1.3' as Ip, ns: '/run/netns/b' as never }
const FAR = { name: 'node n2', ip: '10.244.2.0' as Ip }
const path = (kind: Path['kind'], from: Path['from'], to: Path['to'], bytes = 0): Path => ({ kind, from, to, bytes })
const TRACE = {
  hops: [{ hop: 'rules', seen: { passes: false, says: 'the chain inet t c drops it: drop' }, differs: false }],
  lostAt: 'rules',
} as unknown as TraceReport

describe('the explanation of lost packets', () => {
  it('follows the simplest of those that share an end, and one of the others', () => {
    const lost = [
      path('pod → other node', POD, FAR, 1450),
      path('pod → other node', POD, FAR),
      path('node → pod', NODE, POD),
      path('pod → pod', POD, OTHER),
      path('node → other node', NODE, FAR),
    ]
    assert.deepEqual(representatives(lost), [lost[2], lost[4]])
  })

  it('says what is lost, where, and what stands on the way; few suspects come with their commands', () => {
    const one = path('node → pod', NODE, POD)
    const suspects = [{ text: 'the link va is down', undo: 'ip link set dev va up' }]
    assert.deepEqual(lossText({ path: one, paths: [one, one], trace: TRACE, back: undefined, suspects }), {
      what: 'A packet from this node (172.30.0.1) to pod x/a (10.244.1.2) does not arrive (and 1 more of IPv4); it is lost at the rules: the chain inet t c drops it: drop. On its way: the link va is down',
      commands: ['ip link set dev va up'],
    })
    const many = Array.from({ length: 8 }, (_, i) => ({ text: `suspect ${i}`, undo: `undo ${i}` }))
    const told = lossText({ path: one, paths: [one], trace: 'nft is not installed', back: undefined, suspects: many })
    assert.match(told.what, /; it could not be followed: nft is not installed\./)
    assert.deepEqual(told.commands, [], 'nobody knows which one it is')
    assert.match(told.what, /suspect 5 and 2 more$/)
  })

  it('a known fault explains a loss that nothing on the way explains, of its kind of path alone', () => {
    const loss = (one: Path, suspects: Loss['suspects'] = []) => ({
      path: one,
      paths: [one],
      trace: TRACE,
      back: undefined,
      suspects,
    })
    const [cut, narrow, off, clock] = ['DR24', 'DR19', 'DR1', 'DR36'].map((code) => ({ code }))
    const all = [clock, narrow, cut] as { code: string }[]
    assert.equal(causeOf(loss(path('node → other node', NODE, FAR)), all), 'DR24')
    assert.equal(causeOf(loss(path('node → other node', NODE, FAR, 1450)), all), 'DR19')
    assert.equal(causeOf(loss(path('node → pod', NODE, POD)), all), undefined)
    assert.equal(causeOf(loss(path('pod → pod', POD, OTHER)), [off as { code: string }]), 'DR1')
    const suspects = [{ text: 'the link va is down' }]
    assert.equal(causeOf(loss(path('node → other node', NODE, FAR), suspects), all), undefined)
  })
})
