// lane: netns
// Tests cli/connectivity with the Kubernetes API: Services, DNS and NetworkPolicy on two nodes, and what is left there.
import { servedCluster } from '../../support/connectivity.ts'
import { testConnectivity } from '../../support/suites/testConnectivity.ts'

describe('plumb connectivity with the Kubernetes API', () => {
  testConnectivity('a server of the test', servedCluster)
})
