// lane: long
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Status } from '../../agent/state/status.ts'
import { type Namespace, ping, until } from '../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'

const VXLAN = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }
const SECOND = {
  Network: '10.245.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:245::/48',
  Backend: { Type: 'vxlan', VNI: 2 },
}
const PLUMB = join(import.meta.dir, '../../dist/plumb')

describe('plumb agent beside others', () => {
  for (const [what, undo, isThere] of [
    [
      'a route',
      (peer: string) => `ip route del ${peer}/24 proto 112`,
      (peer: string) => `ip route show ${peer}/24 proto 112`,
    ],
    [
      'the firewall table',
      () => 'nft delete table inet $(nft list tables | grep -o "plumb_agent.*")',
      () => 'nft list tables',
    ],
  ] as const)
    it(
      `a program that deletes ${what} every 50 ms: the agent puts it right ever less often, and says so; when it ends, all is right and the node ready`,
      inCluster(
        2,
        (cluster) => fileStore(cluster, VXLAN),
        async ({ nodes }, test) => {
          test.timeout(60_000)
          const [one, two] = nodes as [Node, Node]
          const [agent] = [one.agent(), two.agent()]
          await agent.ready(30_000)
          await until(async () => (await agent.status())?.kinds['route']?.programmed === 2, 10_000)
          const peer = subnetEnv(two)?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0') as string
          const fight = Bun.spawn(
            ['nsenter', `--net=${one.ns.path}`, '--', 'sh', '-c', `while :; do ${undo(peer)}; sleep 0.05; done`],
            { stdio: ['ignore', 'ignore', 'ignore'] },
          )
          try {
            await until(
              async () =>
                /^200 degraded: .* is changed by another program again and again; it is put right every [\d.]+ s/s.test(
                  await agent.readyz(),
                ),
              20_000,
            )
            // The pauses double, so that there are at most two more in two seconds.
            await until(async () => pauseOf(await known(agent)) >= 1.5, 20_000)
            const [before, cpu] = [repaired(await known(agent)), cpuMs(agent.pid)]
            await until(async () => repaired(await known(agent)) > before, 10_000)
            await Bun.sleep(2000)
            assert.ok(repaired(await known(agent)) <= before + 2, `${before} ${repaired(await known(agent))}`)
            assert.ok(cpuMs(agent.pid) - cpu < 1500, `${cpuMs(agent.pid) - cpu} ms of CPU`)
          } finally {
            fight.kill('SIGKILL')
            await fight.exited
          }
          await until(async () => (await known(agent)).state === 'ready', 40_000)
          await until(async () => (await one.ns.exec(['sh', '-c', isThere(peer)])).stdout !== '')
          await until(() => ping(one.ns, peer), 10_000)
          // Neither a flood of lines nor none.
          const lines = agent.log().match(/repaired changes of another program/g)?.length ?? 0
          assert.ok(lines > 5 && lines < 60, `${lines}`)
        },
      ),
    )

  it(
    'two agents on a node, two networks: each has its own device, table, chain and files, neither repairs the other’s doing, and each is cleaned up alone',
    inCluster(
      2,
      (cluster) => fileStore(cluster, VXLAN),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two] = cluster.nodes as [Node, Node]
        // As Docker leaves it.
        for (const { ns } of cluster.nodes)
          for (const tool of ['iptables', 'ip6tables'])
            assert.equal((await ns.exec([tool, '-P', 'FORWARD', 'DROP'])).status, 0)
        const bare = await inventory(one.ns)
        const agents: Agent[] = []
        for (const node of cluster.nodes) agents.push(node.agent())
        for (const agent of agents) await agent.ready(30_000)
        await until(async () => (await known(agents[0] as Agent)).kinds['route']?.programmed === 2, 10_000)
        const first = await inventory(one.ns)
        for (const node of cluster.nodes) agents.push(node.agent(...second(cluster, node)))
        for (const agent of agents) await agent.ready(30_000)
        for (const agent of agents)
          await until(async () => (await known(agent)).kinds['route']?.programmed === 2, 10_000)
        const [address, other] = [subnetEnv(two), subnetEnv({ ...two, dir: join(two.dir, 'second') })].map(
          (env) => env?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0') as string,
        )
        assert.ok((await ping(one.ns, address as string)) && (await ping(one.ns, other as string)))
        await quiet(agents)
        // The second one goes, and comes again; then the first.
        await agents[2]?.stop()
        assert.equal(
          (await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options, ...second(cluster, one)])).status,
          0,
        )
        assert.equal(await inventory(one.ns), first)
        const again = one.agent(...second(cluster, one))
        await again.ready(30_000)
        // With another subnet, since it gave that one back.
        await until(async () => (await known(again)).kinds['route']?.programmed === 2, 10_000)
        await quiet([agents[0] as Agent, again])
        await agents[0]?.stop()
        assert.equal((await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])).status, 0)
        await until(() => ping(one.ns, other as string))
        await again.stop()
        assert.equal(
          (await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options, ...second(cluster, one)])).status,
          0,
        )
        assert.equal(await inventory(one.ns), bare)
      },
    ),
  )

  it(
    'two agents on a node with one state directory: each remembers its own subnet, at a boot without its store too, and forgets that alone',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const shared = [...second(cluster, one), '--state-dir', join(one.dir, 'state')]
        const other = { ...one, dir: join(one.dir, 'second') }
        const agents = [one.agent(), one.agent(...shared)]
        for (const agent of agents) await agent.ready(30_000)
        const had = [subnetEnv(one), subnetEnv(other)]
        for (const agent of agents) await agent.stop('SIGKILL')
        // A boot: /run is empty, and no store answers.
        for (const { dir } of [one, other]) rmSync(join(dir, 'subnet.env'))
        const nowhere = ['--file-store-dir', join(one.dir, 'nowhere')]
        const again = [one.agent(...nowhere), one.agent(...shared, ...nowhere)]
        await until(() => subnetEnv(one) && subnetEnv(other))
        assert.deepEqual([subnetEnv(one), subnetEnv(other)], had)
        for (const agent of again) await agent.stop()
        assert.equal((await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])).status, 0)
        assert.deepEqual([subnetEnv(one), subnetEnv(other)], [undefined, had[1]])
        const last = one.agent(...shared)
        await last.ready(30_000)
        assert.deepEqual(subnetEnv(other), had[1])
      },
    ),
  )
})

/** What a second agent of a node is told. */
function second(cluster: Cluster, { dir }: Node): string[] {
  const own = join(dir, 'second')
  const store = fileStore({ ...cluster, dir: join(cluster.dir, 'second') }, SECOND)
  return [
    ...store,
    '--subnet-file',
    join(own, 'subnet.env'),
    '--state-dir',
    join(own, 'state'),
    '--socket',
    join(own, 'agent.sock'),
    '--status-address',
    'off',
  ]
}

// No agent has anything to do: nobody undoes what another does.
async function quiet(agents: readonly Agent[]): Promise<void> {
  const counts = async () => Promise.all(agents.map(async (agent) => (await known(agent)).steps.count))
  await until(async () => {
    const before = await counts()
    await Bun.sleep(1000)
    return JSON.stringify(before) === JSON.stringify(await counts())
  }, 8000)
  for (const agent of agents) assert.doesNotMatch(agent.log(), /put right/)
}

async function known(agent: Agent): Promise<Status> {
  const status = await agent.status()
  assert.ok(status, agent.log())
  return status
}

function repaired({ kinds }: Status): number {
  return Object.values(kinds).reduce((sum, kind) => sum + kind.repaired, 0)
}

function pauseOf({ degraded }: Status): number {
  return Math.max(0, ...degraded.map((reason) => Number(/put right every ([\d.]+) s/.exec(reason)?.[1] ?? 0)))
}

// The agent's own and its children's, in ticks of 10 ms (proc(5)).
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * 10, 0)
}

async function inventory(ns: Namespace): Promise<string> {
  const asked = [
    'ip -br link',
    'ip -br addr show scope global',
    'ip route',
    'ip -6 route show proto 112',
    'ip nexthop',
    'ip neigh show nud permanent',
    'bridge fdb show dev flannel.1',
    'bridge fdb show dev flannel.2',
    'nft --stateless list ruleset',
  ]
  // Counters and the order of what two agents made are nobody's.
  return (
    await Promise.all(
      asked.map(async (line) =>
        (
          await ns.exec(line.split(' '))
        ).stdout
          .replace(/counter packets \d+ bytes \d+/g, 'counter')
          .split('\n')
          .sort()
          .join('\n'),
      ),
    )
  ).join('\n---\n')
}
