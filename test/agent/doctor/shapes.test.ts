// lane: long
// Tests agent/doctor on healthy nodes of other shapes.
import assert from 'node:assert/strict'
import { doctor, isClean, withShape } from '../../support/doctor.ts'

const SIX = { EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const SHAPES: Readonly<Record<string, Parameters<typeof withShape>[0]>> = {
  'pods by ptp': { delegate: { type: 'ptp' } },
  'IPv6 alone': { network: SIX },
  'host-gw with IPv4 alone': { network: { Network: '10.244.0.0/16', Backend: { Type: 'host-gw' } } },
}

describe('plumb doctor on healthy nodes', () => {
  for (const [what, shape] of Object.entries(SHAPES))
    it(
      `${what}: finds nothing with the agent and without, and makes every check`,
      withShape(shape, async (fixture) => {
        await isClean(fixture)
        assert.deepEqual((await doctor(fixture)).notMade, [])
        await fixture.agent.stop()
        await isClean(fixture)
      }),
    )
})
