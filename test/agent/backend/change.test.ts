// lane: netns
// Tests agent/serve.ts and agent/backend: another backend while the agent runs.
import { testBackendChange, WAYS } from '../../support/suites/testBackendChange.ts'

describe('another backend in the network configuration', () => {
  testBackendChange([WAYS.vxlan, WAYS['host-gw'], WAYS.vxlan])
})
