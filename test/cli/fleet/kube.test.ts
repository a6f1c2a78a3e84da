// lane: peers
// Tests cli/fleet with a real kube-apiserver, and with no more than the role of the docs.
import { type ApiServer, apiServer, missingApiServer } from '../../support/kube-apiserver.ts'
import { skip } from '../../support/skip.ts'
import { testFleet } from '../../support/suites/testFleet.ts'

let server: ApiServer | undefined

after(() => server?.end())

describe('a fleet of agents, by the API server', () => {
  testFleet('kube-apiserver', async (test) => {
    const why = missingApiServer()
    if (why !== undefined) skip(test, why)
    server = await apiServer()
    const { ask, grant, kubeconfigs } = server
    await ask('POST', '/api/v1/namespaces', { metadata: { name: 'plumb' } })
    await ask('POST', '/api/v1/namespaces/plumb/serviceaccounts', { metadata: { name: 'default' } })
    return {
      kubeconfig: kubeconfigs.jane,
      user: 'system:serviceaccount:team:jane',
      grant: (rules) => grant('jane', rules),
      async post(path, { status, ...object }) {
        await ask('POST', path, object)
        await ask('PATCH', `${path}/${object.metadata.name}/status`, { status })
      },
    }
  })
})
