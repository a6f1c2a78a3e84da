// lane: longer
// Tests how soon the agent tells of a blocked tunnel, with the interval of probes that it has by itself.
import assert from 'node:assert/strict'
import { sh, withFixture } from '../../support/doctor.ts'
import { until } from '../../support/harness.ts'

/** docs/status.md: a lost peer is told within this time. A busy machine may need some more. */
const [TOLD_MS, BUSY_MS] = [45_000, 15_000]

describe('plumb agent and a blocked tunnel', () => {
  it(
    'is told within 45 s, in the status and in /readyz, and no longer when the tunnel is open again',
    withFixture(async ({ node, agent }) => {
      await sh(node.ns, 'iptables -A INPUT -p udp --dport 8472 -j DROP')
      const isTold = async () =>
        (await agent.status())?.degraded.some((text) => /^1 peer does not answer over the overlay: /.test(text))
      await until(isTold, TOLD_MS + BUSY_MS)
      assert.match(await agent.readyz(), /^(200 )?degraded: 1 peer does not answer over the overlay: .* of node "n2"$/m)
      await sh(node.ns, 'iptables -D INPUT -p udp --dport 8472 -j DROP')
      await until(async () => (await agent.status())?.state === 'ready', TOLD_MS + BUSY_MS)
    }, '--probe-interval=30'),
  )
})
