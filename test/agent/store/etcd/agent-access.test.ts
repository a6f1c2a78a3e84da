// lane: peers
// Tests agent/store/etcd, with a real etcd.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Cluster as Etcd, startEtcd } from '../../../support/etcd.ts'
import { assertReach, joinEtcd } from '../../../support/etcd-networks.ts'
import { until } from '../../../support/harness.ts'
import { type Agent, inCluster, type Node } from '../../../support/nodes.ts'

const PASSWORD = 'battery-staple-42'
const CONFIG = '/coreos.com/network/config'

describe('plumb agent with three members of etcd, TLS, a user and a password', () => {
  let etcd: Etcd
  before(async () => {
    etcd = await startEtcd({ members: 3, tls: true, password: PASSWORD })
    await etcd.put(CONFIG, '{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}')
  })
  after(() => etcd.stop())
  afterEach(() => etcd.del('/coreos.com/network/subnets/', true))
  const options = () => {
    const { caFile = '', certFile = '', keyFile = '' } = etcd.files
    return [
      '--etcd-endpoints',
      etcd.endpoints.join(','),
      '--etcd-cafile',
      caFile,
      '--etcd-certfile',
      certFile,
      '--etcd-keyfile',
      keyFile,
      '--etcd-username',
      'flannel',
    ]
  }

  it(
    'the password comes from the environment or a file: pods are reached, with a member that is killed, too, and no secret is in log, ps, status, metrics or files',
    inCluster(2, options, async (cluster, test) => {
      test.timeout(180_000)
      await joinEtcd(cluster, etcd)
      const [one, two] = cluster.nodes as [Node, Node]
      const file = join(two.dir, 'agent.yaml')
      writeFileSync(file, `etcd-password: ${PASSWORD}\n`, { mode: 0o600 })
      const agents = [one.agentBy(['env', `FLANNELD_ETCD_PASSWORD=${PASSWORD}`]), two.agent('--config', file)] as const
      await Promise.all(agents.map((agent) => agent.ready(20_000)))
      await assertReach(cluster.nodes, { v4: 1450 })
      await etcd.kill(0)
      await etcd.put(
        '/coreos.com/network/subnets/10.5.200.0-24',
        '{"PublicIP":"172.30.0.99","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:99"}}',
      )
      // The two members that are left choose a leader first. Attempts in the meantime fail, each later than the last by
      // up to 4 s.
      for (const agent of agents)
        await until(async () => (await agent.status())?.peers.some(({ ips }) => ips.v4 === '172.30.0.99'), 60_000)
      for (const [i, node] of [one, two].entries()) {
        const seen = await told(node, agents[i] as Agent)
        assert.match(seen, /etcd/)
        assert.doesNotMatch(seen, /battery|PRIVATE KEY/)
      }
      await etcd.start(0)
    }),
  )

  it(
    'a wrong password is a reason in the status and a line in the log, without a secret; the agent goes on asking, and starts when the password is right',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      await joinEtcd(cluster, etcd)
      const [one] = cluster.nodes as [Node]
      const wrong = one.agentBy(['env', 'FLANNELD_ETCD_PASSWORD=wrong-secret-1'])
      await until(() => /etcd.*(authentication failed|invalid user)/i.test(wrong.log()), 15_000).catch(() =>
        assert.fail(`the log says nothing: ${wrong.log()}`),
      )
      assert.doesNotMatch(wrong.log(), /wrong-secret|battery/)
      await wrong.stop()
      await one.agentBy(['env', `FLANNELD_ETCD_PASSWORD=${PASSWORD}`]).ready(20_000)
    }),
  )
})

// Everything that others can read of it.
async function told({ ns, dir }: Node, agent: Agent): Promise<string> {
  const metrics = await ns.exec([
    process.execPath,
    '-e',
    "process.stdout.write(await (await fetch('http://127.0.0.1:9469/metrics')).text())",
  ])
  assert.match(metrics.stdout, /plumb_/)
  const processes = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
      } catch {
        return []
      }
    })
  const files = await ns.exec(['find', dir, '-type', 'f', '-not', '-name', 'agent.yaml', '-exec', 'cat', '{}', ';'])
  return [agent.log(), JSON.stringify(await agent.status()), metrics.stdout, ...processes, files.stdout].join('\n')
}
