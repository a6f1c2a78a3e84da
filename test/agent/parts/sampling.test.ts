// lane: long
// Tests agent/parts/sampling.ts.
import assert from 'node:assert/strict'
import type { Path } from '../../../agent/doctor/promise/paths.ts'
import { failuresOf } from '../../../agent/parts/sampling.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { sh, withFixture } from '../../support/doctor.ts'
import { until } from '../../support/harness.ts'

const LATE = 20_000

describe('the sampling of packets', () => {
  it(
    'a way that had answers and has none any more is in the status, with both ends, until the answers are back',
    withFixture(async ({ node, agent, added }) => {
      const [ip = ''] = (added as { ips: { address: string }[] }).ips.map(({ address }) => address.replace(/\/.*/, ''))
      await until(async () => /^200 ready/.test(await agent.readyz()), LATE)
      // No check of the agent looks at the way to the node itself.
      await sh(node.ns, `nft 'table inet odd { chain c { type filter hook input priority 0; ip saddr ${ip} drop; }; }'`)
      const said =
        /packets from (this node|pod \S+) \(\S+\) to (this node|pod \S+) \(\S+\) have no answer since 20\S+Z; plumb doctor says why/
      await until(async () => said.test(await agent.readyz()), LATE)
      assert.match(await agent.readyz(), /^200 degraded: /)
      await sh(node.ns, 'nft delete table inet odd')
      await until(async () => /^200 ready/.test(await agent.readyz()), LATE)
      assert.match(agent.log(), /agent: packets of pods arrive again/)
    }),
  )

  it('names three dead ways, and counts the others', () => {
    const path = (n: number): Path => ({
      kind: 'pod → pod',
      from: { name: 'pod a', ip: '10.1.0.2' as Ip, ns: 'host' },
      to: { name: `pod b${n}`, ip: `10.1.0.${n}` as Ip },
      bytes: n === 3 ? 1450 : 0,
    })
    const dead = [3, 4, 5, 6, 7].map((n) => ({ path: path(n), since: 0 }))
    const texts = failuresOf(dead).map(({ text }) => text)
    assert.equal(
      texts[0],
      'packets of 1450 bytes from pod a (10.1.0.2) to pod b3 (10.1.0.3) have no answer since 1970-01-01T00:00:00.000Z; plumb doctor says why',
    )
    assert.deepEqual([texts.length, texts[3]], [4, '2 more paths of packets have no answer'])
    assert.equal(failuresOf(dead.slice(0, 3)).length, 3)
  })
})
