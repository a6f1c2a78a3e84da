import assert from 'node:assert/strict'
import { type ClusterApi, failures, type InCluster, inKubernetes, type Member, wordsOf } from '../connectivity.ts'
import { until } from '../harness.ts'

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
/** A namespace goes away in the background. */
const GONE_MS = 30_000

/** What `plumb connectivity` does with an API server: `name` says which, `serve` gives it. */
export function testConnectivity(name: string, serve: (test: Mocha.Context) => Promise<ClusterApi>): void {
  it(
    `${name}: Services, node ports, DNS and policy are tested, and nothing is left, also after a kill`,
    inKubernetes(2, serve, async ({ members, words, kube, connectivity, objects }: InCluster) => {
      const [near] = members as [Member]
      const areGone = () => until(async () => assert.deepEqual(await objects(), []) ?? true, GONE_MS)
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
      await areGone()

      const started = async () => {
        const child = Bun.spawn(['nsenter', `--net=${near.node.ns.path}`, '--', ...words], {
          stdout: 'ignore',
          stderr: 'ignore',
        })
        await until(async () => (await objects()).some((name) => name.endsWith('/echo-2')), 30_000)
        return child
      }
      const killed = await started()
      killed.kill('SIGKILL')
      await killed.exited
      assert.ok((await objects()).length > 0)
      const next = await connectivity('--quick')
      assert.deepEqual([failures(next), next.status], [[], 0])
      await areGone()

      const stopped = await started()
      stopped.kill('SIGTERM')
      assert.equal(await stopped.exited, 143)
      await areGone()

      const alone = await near.node.ns.exec(wordsOf(members))
      assert.equal(alone.status, 1)
      assert.match(
        alone.stderr,
        /^error \d+: Cannot make test pods: the network enforces NetworkPolicy, so each pod needs an object in the Kubernetes API\n {2}Cannot find the Kubernetes API: .*; see --kubeconfig-file; or leave pods out by --from nodes$/m,
      )

      await kube.refuse()
      const { status, stderr } = await near.node.ns.exec([...words])
      assert.equal(status, 1)
      assert.match(
        stderr,
        /^error 5: Cannot make objects for the test in the Kubernetes API\n.* refused POST \/api\/v1\/namespaces: 403 namespaces is forbidden/s,
      )
    }),
  )
}
