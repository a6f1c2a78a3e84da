// lane: netns
// Tests agent/parts/policy.ts and agent/cluster/source.ts: an agent that enforces the manifests of a folder.
import assert from 'node:assert/strict'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const options = (cluster: Cluster) => [
  ...fileStore(cluster, CONF),
  `--network-policy=${join(cluster.dir, 'manifests')}`,
]
const pod = (name: string, ip: string, node: string) => ({
  kind: 'Pod',
  metadata: { namespace: 'x', name, labels: { app: name } },
  spec: { nodeName: node, containers: [] },
  status: { phase: 'Running', podIPs: [{ ip }] },
})
const policy = (name: string, spec: object) => ({ kind: 'NetworkPolicy', metadata: { namespace: 'x', name }, spec })

describe('plumb agent --network-policy=DIR', () => {
  it(
    'programs the manifests, follows their changes, repairs its table, names what it refuses, and leaves the table when it is killed; cleanup removes it',
    inCluster(1, options, async ({ nodes: [one], dir }, test) => {
      test.timeout(120_000)
      const { ns, name } = one as Node
      const write = (file: string, ...objects: object[]) =>
        writeFileSync(join(dir, 'manifests', file), objects.map((object) => JSON.stringify(object)).join('\n---\n'))
      const table = async () => (await ns.exec(['nft', 'list', 'table', 'inet', 'plumb_policy'])).stdout
      mkdirSync(join(dir, 'manifests'))
      write('pods.yaml', pod('a', '10.244.1.2', name), pod('b', '10.244.1.3', 'elsewhere'))
      write('deny.yaml', policy('deny', { podSelector: { matchLabels: { app: 'a' } } }))
      const agent = (one as Node).agent()
      await agent.ready(30_000)
      await until(async () => /map ingress4 \{[^}]*10\.244\.1\.2 : goto in_/s.test(await table()), 10_000)
      assert.doesNotMatch(await table(), /10\.244\.1\.3 : goto/)
      write(
        'allow.yml',
        policy('allow', { podSelector: {}, ingress: [{ from: [{ podSelector: { matchLabels: { app: 'b' } } }] }] }),
      )
      await until(
        async () => /ip saddr @pods4_\w+ counter name "?allow_in_\w+"? accept comment "x\/allow"/.test(await table()),
        10_000,
      )
      // Somebody removes the table.
      await ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_policy'])
      await until(async () => /10\.244\.1\.2 : goto in_/.test(await table()), 10_000)
      await until(() => /repaired changes of another program: .*nft table plumb_policy/.test(agent.log()), 10_000)
      // A wrong object is named, and the others count.
      write(
        'wrong.yaml',
        policy('wrong', { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: '10.0.0.300/8' } }] }] }),
        policy('b-two', { podSelector: {}, policyTypes: ['Egress'] }),
      )
      await until(async () => /map egress4 \{[^}]*10\.244\.1\.2 : goto out_/s.test(await table()), 10_000)
      await until(
        async () =>
          JSON.stringify(await agent.status()).includes('NetworkPolicy x/wrong: spec.ingress[0].from[0].ipBlock.cidr'),
        10_000,
      )
      // The table stays while nobody is there.
      const before = await table()
      await agent.stop('SIGKILL')
      assert.equal(await table(), before)
      rmSync(join(dir, 'manifests/allow.yml'))
      rmSync(join(dir, 'manifests/wrong.yaml'))
      const again = (one as Node).agent()
      await again.ready(30_000)
      await until(async () => !/x\/allow|goto out_/.test(await table()), 10_000)
      await again.stop()
      assert.match(await table(), /10\.244\.1\.2 : goto in_/)
      const { status } = await ns.exec([
        join(import.meta.dir, '../../../dist/plumb'),
        'agent',
        'cleanup',
        ...(one as Node).options,
      ])
      assert.deepEqual([status, await table()], [0, ''])
    }),
  )

  it(
    'a table that another program has switched off, or made to drop what meets no rule, is loaded again: of policies and of Services',
    inCluster(
      1,
      (cluster) => [...options(cluster), `--service-proxy=${join(cluster.dir, 'manifests')}`],
      async ({ nodes: [one], dir }, test) => {
        test.timeout(120_000)
        const { ns, name } = one as Node
        mkdirSync(join(dir, 'manifests'))
        writeFileSync(join(dir, 'manifests/pods.yaml'), JSON.stringify(pod('a', '10.244.1.2', name)))
        const agent = (one as Node).agent()
        await agent.ready(30_000)
        for (const table of ['plumb_policy', 'plumb_services']) {
          const shown = async () => (await ns.exec(['nft', '-t', 'list', 'table', 'inet', table])).stdout
          const base = /chain (\w+) \{\s+type filter hook/.exec(await until(shown))?.[1]
          for (const command of [
            `add table inet ${table} { flags dormant; }`,
            `add chain inet ${table} ${base} { policy drop; }`,
          ]) {
            const before = agent.log().length
            const { status, stderr } = await ns.exec(['nft', command])
            assert.equal(status, 0, stderr)
            await until(async () => !/flags dormant|policy drop/.test(await shown()), 20_000)
            await until(() => agent.log().slice(before).includes(`nft table ${table}`), 20_000)
          }
        }
      },
    ),
  )
})
