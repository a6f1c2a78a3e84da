// lane: long
// Tests agent/cluster/served.ts: kinds of CustomResourceDefinitions, whose versions come and go.
import { administered, allowing, kubeServer } from '../../support/kube-server.ts'
import { testServedVersions } from '../../support/suites/testServedVersions.ts'

describe('kinds that the API may serve in several versions', () => {
  testServedVersions('a server of this process', async () => {
    const server = await kubeServer()
    const administrator = administered(server)
    return {
      ...administrator,
      // The administrator's requests are no Bun client's of the agent.
      async grant(rules) {
        const refuse = allowing(rules, 'plumb')
        server.fault = (asked) =>
          asked.headers.get('User-Agent')?.startsWith('plumb-agent') ? refuse(asked) : undefined
      },
    }
  })
})
