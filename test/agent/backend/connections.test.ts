// lane: netns
// Tests agent with agent/backend/types/vxlan.ts and host-gw.ts.
import { testConnections } from '../../support/suites/testConnections.ts'

describe('connections of pods', () => {
  testConnections('vxlan', 1450)
  testConnections('host-gw', 1500)
})
