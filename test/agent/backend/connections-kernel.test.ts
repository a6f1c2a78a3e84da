// lane: vmlong
// Tests agent with the backends whose devices other kernels lack.
import { testConnections } from '../../support/suites/testConnections.ts'

describe('connections of pods', () => {
  testConnections('ipip', 1480)
  testConnections('wireguard', 1420)
  testConnections('udp', 1472)
})
