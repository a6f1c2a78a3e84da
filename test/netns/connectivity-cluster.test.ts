// Tests agent/connectivity with the Kubernetes API: Services, DNS and NetworkPolicy on two nodes, and what is left there.
import assert from 'node:assert/strict'
import { failures, type InCluster, inKubernetes, type Member } from '../support/connectivity.ts'
import { until } from '../support/harness.ts'
import { refusal } from '../support/kube-server.ts'

const WAYS = [
  'pod → itself by Service',
  'pod → Service, same node',
  'pod → Service, other node',
  'node → Service, same node',
  'node → Service, other node',
  'pod → node port, same node',
  'pod → node port, other node',
  'node → node port, other node',
  'pod → DNS of the cluster',
  'policy allows, same node',
  'policy allows, other node',
  'policy denies, same node',
  'policy denies, other node',
]

describe('plumb connectivity with the Kubernetes API', () => {
  it(
    '[DG10] [DG12] Services, node ports, DNS and policy are tested, and nothing is left, also after a kill',
    inKubernetes(2, async ({ members, words, server, connectivity, objects }: InCluster) => {
      const [near] = members as [Member]
      const healthy = await connectivity()
      assert.deepEqual([failures(healthy), healthy.status], [[], 0])
      const ways = new Set(healthy.cases.map(({ way }) => way))
      assert.deepEqual(
        WAYS.filter((way) => !ways.has(way)),
        [],
      )
      assert.deepEqual(
        healthy.notMade.map(({ what }) => what),
        ['addresses outside'],
      )
      assert.deepEqual(objects(), [])

      const killed = Bun.spawn(['nsenter', `--net=${near.node.ns.path}`, '--', ...words], {
        stdout: 'ignore',
        stderr: 'ignore',
      })
      await until(async () => objects().some((name) => name.endsWith('/echo-2')), 20_000)
      killed.kill('SIGKILL')
      await killed.exited
      assert.ok(objects().length > 0)
      const next = await connectivity('--quick')
      assert.deepEqual([failures(next), next.status], [[], 0])
      assert.deepEqual(objects(), [])

      const stopped = Bun.spawn(['nsenter', `--net=${near.node.ns.path}`, '--', ...words], {
        stdout: 'ignore',
        stderr: 'ignore',
      })
      await until(async () => objects().some((name) => name.endsWith('/echo-2')), 20_000)
      stopped.kill('SIGTERM')
      assert.equal(await stopped.exited, 143)
      assert.deepEqual(objects(), [])

      server.fault = ({ method }) =>
        method === 'POST' ? refusal(403, 'Forbidden', 'namespaces is forbidden') : undefined
      const { status, stderr } = await near.node.ns.exec([...words])
      assert.equal(status, 1)
      assert.match(stderr, /^error 5: Cannot make objects for the test in the Kubernetes API\n.* refused POST .*: 403/s)
    }),
  )
})
