// lane: netns
// Tests agent/firewall and agent/parts.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { type Namespace, until } from '../../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const store = (cluster: Cluster) => fileStore(cluster, CONF)
/** As many elements as one transaction of another program may well have. */
const LOAD = 50_000
/** More of them than the 32 MB that the kernel keeps at most for a listener of iproute2's or nft's kind. */
const ROUNDS = 16

describe('plumb agent beside programs with many nft elements', () => {
  it(
    'its table, deleted while the kernel had no room left for what it told, is back',
    inCluster(1, store, async ({ nodes: [one] }, test) => {
      test.timeout(120_000)
      const { node, agent } = started(one)
      await agent.ready(30_000)
      const table = await tableOf(node)
      await node.ns.exec(['nft', 'add table ip other; add map ip other many { type ipv4_addr : mark; }'])
      const family = [agent.pid, ...childrenOf(agent.pid)]
      for (const pid of family) process.kill(pid, 'SIGSTOP')
      try {
        for (let round = 0; round < ROUNDS; round++) await load(node.ns, round)
        assert.equal((await node.ns.exec(['nft', 'delete', 'table', 'inet', table])).status, 0)
      } finally {
        for (const pid of family) process.kill(pid, 'SIGCONT')
      }
      await until(() => isThere(node.ns, table), 20_000)
      await until(async () => (await agent.readyz()) === '200 ready\n', 20_000)
      // It goes on listening.
      await node.ns.exec(['nft', 'delete', 'table', 'inet', table])
      await until(() => isThere(node.ns, table), 20_000)
    }),
  )

  it(
    'its memory does not grow with the elements of other programs, nor when they change',
    inCluster(1, store, async ({ nodes: [one] }, test) => {
      test.timeout(120_000)
      const first = started(one)
      await first.agent.ready(30_000)
      const before = memoryOf(first.agent)
      await first.agent.stop()
      await first.node.ns.exec(['nft', 'add table ip other; add map ip other many { type ipv4_addr : mark; }'])
      await load(first.node.ns, 0)
      const { node, agent } = started(one)
      await agent.ready(30_000)
      await load(node.ns, 1)
      for (let i = 0; i < 20; i++) {
        await node.ns.exec(['nft', `add element ip other many { 11.0.0.${i} : 1 }`])
        await node.ns.exec(['nft', `delete element ip other many { 11.0.0.${i} }`])
      }
      // What it heard last is over.
      const table = await tableOf(node)
      await node.ns.exec(['nft', 'delete', 'table', 'inet', table])
      await until(() => isThere(node.ns, table), 20_000)
      await until(() => memoryOf(agent) < before + 40, 20_000).catch(() =>
        assert.fail(`${before} MB before, ${memoryOf(agent)} MB after`),
      )
    }),
  )
})

function started(one: Node | undefined): { node: Node; agent: Agent } {
  const node = one as Node
  return { node, agent: node.agent() }
}

async function load(ns: Namespace, round: number): Promise<void> {
  const elements = Array.from({ length: LOAD }, (_, i) => `10.${round}.${i >> 8}.${i & 255} : ${i}`)
  const { status, stderr } = await ns.exec(['nft', '-f', '-'], {
    stdin: `add element ip other many { ${elements.join(', ')} }\n`,
  })
  assert.equal(status, 0, stderr)
}

async function isThere(ns: Namespace, table: string): Promise<boolean> {
  return (await ns.exec(['nft', 'list', 'table', 'inet', table])).status === 0
}

async function tableOf({ ns }: Node): Promise<string> {
  const { stdout } = await ns.exec(['nft', 'list', 'tables'])
  return /^table inet (plumb_agent\S*)$/m.exec(stdout)?.[1] ?? assert.fail(`no table of the agent among ${stdout}`)
}

function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .filter((one) => /^\d+$/.test(one) && statusOf(one, 'PPid') === pid)
    .map(Number)
}

/** Megabytes of an agent and all that it started. */
function memoryOf({ pid }: Agent): number {
  return [pid, ...childrenOf(pid)].reduce((sum, one) => sum + (statusOf(String(one), 'VmRSS') ?? 0), 0) / 1024
}

function statusOf(pid: string, field: string): number | undefined {
  try {
    const found = new RegExp(`^${field}:\\s*(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
    return found ? Number(found[1]) : undefined
  } catch {
    // It has ended meanwhile.
    return undefined
  }
}
