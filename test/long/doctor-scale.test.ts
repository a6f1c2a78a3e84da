// Tests agent/doctor: the time and the memory of the doctor on a large node.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodeValue } from '../../agent/lease/lease.ts'
import { parseIp } from '../../lib/text/ip.ts'
import { DIST, makeNetwork } from '../support/doctor.ts'
import { type Namespace, plugin, until } from '../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../support/nodes.ts'

const [PODS, PEERS, AT_ONCE] = [250, 1000, 4]
/** The limits of the doctor, in milliseconds and kB. A busy machine gets twice the time. */
const [MOST_MS, MOST_KB] = [6000, 80 * 1024]
const LOOK_MS = 5
const NETWORK = { Network: '10.0.0.0/9', Backend: { Type: 'vxlan' } }

function leases(dir: string): void {
  const folder = join(dir, 'store', 'subnets')
  mkdirSync(folder, { recursive: true })
  for (let n = 1; n <= PEERS; n++) {
    const [high, low] = [n >> 8, n & 255]
    const mac = `02:00:00:00:${[high, low].map((one) => one.toString(16).padStart(2, '0')).join(':')}`
    const value = encodeValue({
      ips: { v4: parseIp(`10.200.${high}.${low}`) },
      backend: 'vxlan',
      data: { v4: { VNI: 1, VtepMAC: mac } },
    })
    writeFileSync(join(folder, `10.${high}.${low}.0-24`), value)
  }
}

/** The most memory that a process held until its end, in kB. The kernel's maxrss counts the memory of its parent. */
async function peakOf(child: Bun.Subprocess): Promise<number> {
  let peak = 0
  while (child.exitCode === null) {
    const [, seen] = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? []
    peak = Math.max(peak, Number(seen ?? 0))
    await Bun.sleep(LOOK_MS)
  }
  return peak
}

describe('plumb doctor on a large node', () => {
  it(
    `[DG4] with ${PODS} pods and ${PEERS} peers it takes at most 3 s at rest, and less than 80 MB`,
    inCluster(
      1,
      (cluster: Cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=0'],
      async ({ nodes, dir }, test) => {
        test.timeout(300_000)
        const [node] = nodes as [Node]
        leases(dir)
        const agent = node.agent()
        await agent.ready(60_000)
        await until(async () => (await agent.status())?.peers.length === PEERS, 60_000)
        const { bin, lists, conf } = makeNetwork(node)
        const names = Array.from({ length: PODS }, (_, i) => `scale-${process.pid}-${i}`)
        const call = (command: string, name: string) =>
          plugin(
            'flannel',
            {
              command,
              conf: { cniVersion: '1.0.0', name: 'cbr0', ...conf },
              containerId: name,
              netns: { path: `/run/netns/${name}` } as Namespace,
              path: bin,
            },
            node.ns,
          )
        const each = async (work: (name: string) => Promise<void>) => {
          const rest = [...names]
          const worker = async () => {
            for (let name = rest.pop(); name !== undefined; name = rest.pop()) await work(name)
          }
          await Promise.all(Array.from({ length: AT_ONCE }, worker))
        }
        try {
          await each(async (name) => {
            await node.ns.exec(['ip', 'netns', 'add', name])
            const { status, stdout } = await call('ADD', name)
            assert.equal(status, 0, stdout)
          })
          const places = ['--subnet-file', join(node.dir, 'subnet.env'), '--conf-dir', lists, '--bin-dir', bin]
          const argv = [join(DIST, 'plumb'), 'doctor', '--json', '--socket', join(node.dir, 'agent.sock'), ...places]
          const began = performance.now()
          const child = Bun.spawn(['nsenter', `--net=${node.ns.path}`, '--', ...argv], { stdout: 'pipe' })
          const said = new Response(child.stdout).text()
          const kilobytes = await peakOf(child)
          const ms = performance.now() - began
          const report = JSON.parse(await said)
          // The pool of 253 addresses is nearly full.
          assert.deepEqual(
            report.findings.map(({ code }: { code: string }) => code),
            ['DR30'],
            JSON.stringify(report.findings),
          )
          assert.deepEqual(report.notMade, [])
          assert.ok(ms <= MOST_MS, `${Math.round(ms)} ms`)
          assert.ok(kilobytes <= MOST_KB, `${kilobytes} kB`)
        } finally {
          await each(async (name) => {
            await call('DEL', name)
            await node.ns.exec(['ip', 'netns', 'del', name])
          })
        }
      },
    ),
  )
})
