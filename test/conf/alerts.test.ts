// lane: long
// Tests conf/monitoring/alerts.yaml with agents that have real faults, and a Prometheus that scrapes them.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Namespace, plugin, until } from '../support/harness.ts'
import {
  callFailing,
  type Fault,
  fireAndClear,
  monitored,
  NETWORK,
  nft,
  PROGRAM,
  startPrometheus,
} from '../support/monitoring.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'

describe('alerts by faults', () => {
  it(
    'faults of pods, of a node and of its daemons fire their alerts, and none is left when they are mended',
    inCluster(
      3,
      (cluster) => fileStore(cluster, NETWORK),
      async ({ nodes, hub, dir }, test) => {
        test.timeout(300_000)
        if (!existsSync(PROGRAM)) skip(test, 'Prometheus was not unpacked')
        const [one, two, { ns: pod }] = nodes as [Node, Node, Node]
        await pod.exec(['ip', 'link', 'del', 'eth0'])
        const agents = await monitored(one, two, dir)
        await agents.ready()
        await callFailing(one, two)
        const prepared = await policed(two, pod, agents.manifests)
        const prometheus = await startPrometheus(hub, dir, 2)
        const { ask } = prometheus
        try {
          await until(async () => Number((await ask('min(count_over_time(plumb_ready[1m]))'))[0] ?? 0) > 3, 60_000)
          await fireAndClear(prometheus, [
            // The certificate ends in two days.
            { alert: 'PlumbCertificateExpires', make() {}, mend: () => agents.api.renew(30) },
            ...ofPods(one, two, pod, agents.manifests),
            ...ofNodes(one, two),
            ...ofDaemons(two, agents),
          ])
          await agents.stop()
          await until(async () => (await prometheus.alerts()).includes('PlumbAbsent'), 60_000)
          await agents.again().ready(60_000)
          await until(async () => !(await prometheus.alerts()).includes('PlumbAbsent'), 60_000)
        } finally {
          prometheus.stop()
          await prepared.end()
        }
      },
    ),
  )
})

// A pod that NetworkPolicy knows.
async function policed({ ns, name: nodeName, dir }: Node, pod: Namespace, manifests: string) {
  const conf = {
    cniVersion: '1.1.0',
    name: 'policed',
    type: 'ptp',
    ipam: { type: 'host-local', dataDir: join(dir, 'networks'), ranges: [[{ subnet: '10.61.0.0/24' }]] },
    policy: { socket: join(dir, 'policy.sock') },
  }
  const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=b'
  const call = (command: string) => plugin('ptp', { command, conf, containerId: 'alerts', netns: pod, args }, ns)
  writeFileSync(join(manifests, 'b.yaml'), podOf(nodeName))
  const added = await call('ADD')
  assert.equal(added.status, 0, added.stdout)
  return { end: () => call('DEL') }
}

function podOf(nodeName: string): string {
  return JSON.stringify({
    kind: 'Pod',
    metadata: { namespace: 'x', name: 'b', labels: { app: 'b' } },
    spec: { nodeName, containers: [] },
    status: { phase: 'Pending' },
  })
}

function ofPods(one: Node, two: Node, pod: Namespace, manifests: string): Fault[] {
  // The file has the address of the gateway, the first one of the subnet.
  const subnet = subnetEnv(one)?.['FLANNEL_SUBNET']?.replace(/(\d+)\//, (_, first) => `${Number(first) - 1}/`)
  const conf = {
    cniVersion: '1.1.0',
    name: 'full',
    type: 'none',
    ipam: { type: 'host-local', ranges: [[{ subnet }]] },
  }
  const ids = Array.from({ length: 13 }, (_, i) => `full${i}`)
  const pool = (command: string) => async () => {
    for (const containerId of ids) {
      const done = await plugin('host-local', { command, conf, containerId, netns: pod }, one.ns)
      assert.equal(done.status, 0, done.stdout)
    }
  }
  const slice = (trigger: number) =>
    writeFileSync(
      join(manifests, 'slice.yaml'),
      JSON.stringify({
        kind: 'EndpointSlice',
        metadata: {
          namespace: 'x',
          name: 'web-1',
          labels: { 'kubernetes.io/service-name': 'web' },
          annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': new Date(trigger).toISOString() },
        },
        addressType: 'IPv4',
        endpoints: [{ addresses: [`10.64.9.${2 + (trigger % 200)}`], conditions: { ready: true } }],
        ports: [{ name: '', port: 80, protocol: 'TCP' }],
      }),
    )
  return [
    { alert: 'PlumbPoolFull', make: pool('ADD'), mend: pool('DEL') },
    {
      alert: 'PlumbPolicyClosed',
      make: () => rmSync(join(manifests, 'b.yaml')),
      mend: () => writeFileSync(join(manifests, 'b.yaml'), podOf(two.name)),
    },
    {
      alert: 'PlumbCniErrors',
      async make() {
        const wrong = { cniVersion: '1.0.0', name: 'x', type: 'bridge', ipam: { type: 'static' } }
        for (let i = 0; i < 8; i++)
          assert.equal((await plugin('bridge', { command: 'ADD', conf: wrong, netns: pod }, one.ns)).status, 1)
      },
    },
    {
      // What writes EndpointSlices is late.
      alert: 'PlumbProgrammingSlow',
      async make() {
        const metadata = { namespace: 'x', name: 'web' }
        const spec = { clusterIP: '10.96.0.10', clusterIPs: ['10.96.0.10'], ports: [{ port: 80, protocol: 'TCP' }] }
        writeFileSync(join(manifests, 'web.yaml'), JSON.stringify({ kind: 'Service', metadata, spec }))
        for (let i = 0; i < 4; i++) {
          slice(Date.now() - 8000)
          await Bun.sleep(1500)
        }
      },
    },
  ]
}

function ofNodes(one: Node, two: Node): Fault[] {
  const file = join(two.dir, 'subnet.env')
  let fight: { kill(): void } | undefined
  return [
    {
      alert: 'PlumbFinding',
      make: () => nft(two, 'table inet other { chain first { type filter hook forward priority 5; policy drop; }; }'),
      mend: () => nft(two, 'delete table inet other'),
    },
    {
      // Nobody can write this file.
      alert: 'PlumbNodeNotReady',
      make() {
        rmSync(file)
        mkdirSync(file)
      },
      mend: () => rmdirSync(file),
    },
    { alert: 'PlumbRepairs', make() {} },
    { alert: 'PlumbNodeDegraded', make() {} },
    {
      alert: 'PlumbFight',
      async make() {
        const [name] = /inet plumb_tunnels\w*/.exec((await one.ns.exec(['nft', 'list', 'tables'])).stdout) ?? []
        assert.ok(name)
        const loop = `while :; do nft delete table ${name}; sleep 0.1; done`
        fight = Bun.spawn(['nsenter', `--net=${one.ns.path}`, 'sh', '-c', loop], { stdout: 'ignore', stderr: 'ignore' })
      },
      mend: () => fight?.kill(),
    },
  ]
}

function ofDaemons(two: Node, { second }: Awaited<ReturnType<typeof monitored>>): Fault[] {
  return [
    {
      // No new session begins, and the present one ends.
      alert: 'PlumbBgpDown',
      async make() {
        const rules = ['input', 'output'].map(
          (hook) =>
            `add chain inet quiet ${hook} { type filter hook ${hook} priority -400; }; add rule inet quiet ${hook} tcp dport 179 tcp flags syn drop`,
        )
        await nft(two, `add table inet quiet; ${rules.join('; ')}`)
        process.kill((await second.status())?.bgp?.pid as number, 'SIGKILL')
      },
      mend: () => nft(two, 'delete table inet quiet'),
    },
  ]
}
