// lane: netns
// Tests agent/parts/commands.ts with agent/backend/types/extension.ts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { assertReach } from '../../support/etcd-networks.ts'
import { until } from '../../support/harness.ts'
import { type Cluster, fileStore, inCluster, type Node, subnetEnv, UNDERLAY } from '../../support/nodes.ts'
import { type Noted, notingCommand } from '../../support/noting-command.ts'

const NETWORK = '10.244.0.0/16'
const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('plumb agent with extension', () => {
  it(
    'commands get flannel’s variables and the peer’s data; packets pass; a peer that goes is removed',
    inCluster(2, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one, two] = cluster.nodes as [Node, Node]
      const { calls } = notingCommand(cluster.dir)
      const agents = [one.agent(), two.agent()]
      for (const agent of agents) await agent.ready(20_000)
      await assertReach(cluster.nodes, { v4: 1500 })
      const [own, other] = [one, two].map(subnetOf) as [string, string]
      assert.deepEqual(
        calls(one).map(({ words }) => words),
        ['data', 'start', 'add'],
      )
      const [data, start, add] = calls(one) as [Noted, Noted, Noted]
      assert.deepEqual({ env: data.env, input: data.input }, { env: {}, input: '\n' })
      const public1 = { PUBLIC_IP: UNDERLAY.v4(1), PUBLIC_IPV6: '' }
      assert.deepEqual(start, {
        words: 'start',
        env: { NETWORK, SUBNET: own, IPV6SUBNET: '', ...public1 },
        input: '\n',
      })
      assert.deepEqual(add, {
        words: 'add',
        env: { SUBNET: other, IPV6SUBNET: '', PUBLIC_IP: UNDERLAY.v4(2), PUBLIC_IPV6: '' },
        input: `<&"\n${UNDERLAY.v4(2)} \n\nsecond\n`,
      })
      const lease = readFileSync(join(cluster.dir, 'store/subnets', other.replace('/', '-')), 'utf8')
      assert.match(lease, /"BackendType":"extension","BackendData":"\\u003c\\u0026\\"\\n172\.30\.0\.2 \\n\\nsecond"\}/)
      assert.equal((await stat(one)).mode, '600')
      await agents[1]?.stop('SIGKILL')
      rmSync(join(cluster.dir, 'store/subnets', other.replace('/', '-')))
      await until(() => calls(one).length === 4, 20_000)
      assert.deepEqual(calls(one).at(-1), { ...add, words: 'remove' })
      await until(() => !existsSync(added(one)))
    }),
  )

  it(
    'after a restart each peer is added again; one that went meanwhile is removed; cleanup removes the rest',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one] = cluster.nodes as [Node]
      const { calls } = notingCommand(cluster.dir)
      const agent = one.agent()
      await agent.ready(20_000)
      for (const n of [7, 8, 9]) put(cluster, n)
      await until(() => calls(one).filter(({ words }) => words === 'add').length === 3, 20_000)
      await agent.stop()
      const before = calls(one).length
      assert.ok(!calls(one).some(({ words }) => words === 'remove'))
      rmSync(leaseFile(cluster, 8))
      const again = one.agent()
      await again.ready(20_000)
      await until(() => calls(one).length >= before + 5)
      const later = calls(one)
        .slice(before)
        .map(({ words, env }) => `${words} ${env.PUBLIC_IP ?? ''}`)
      const [head, tail] = [later.slice(0, 3), later.slice(3)]
      assert.deepEqual(head, ['data ', `start ${UNDERLAY.v4(1)}`, `remove ${UNDERLAY.v4(8)}`])
      assert.deepEqual(tail.sort(), [`add ${UNDERLAY.v4(7)}`, `add ${UNDERLAY.v4(9)}`])
      await again.stop()
      const { status, stdout, stderr } = await one.ns.exec([PLUMB, 'agent', 'cleanup', ...one.options])
      assert.equal(status, 0, stderr)
      assert.match(stdout, /ran SubnetRemoveCommand for 2 peers/)
      assert.doesNotMatch(await one.ns.ip('route'), /10\.244\./)
      assert.ok(!existsSync(added(one)))
    }),
  )

  it(
    'a command that fails is named in the status without what it wrote, is run again, and holds up no other peer',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one] = cluster.nodes as [Node]
      const { calls } = notingCommand(cluster.dir)
      const fail = join(cluster.dir, 'fail-add')
      const agent = one.agent()
      await agent.ready(20_000)
      writeFileSync(fail, '')
      put(cluster, 7)
      const said =
        'Cannot run SubnetAddCommand for 10.244.7.0/24 of node 172.30.0.7: it ended with status 3; the log has what it wrote'
      const status = await until(async () => {
        const seen = await agent.status()
        return seen?.degraded.includes(said) ? seen : undefined
      })
      assert.ok(status?.ready)
      assert.doesNotMatch(JSON.stringify(status), /secret/)
      assert.match(agent.log(), /ran SubnetAddCommand .* failed="it ended with status 3" output="secret of add"/)
      rmSync(fail)
      put(cluster, 8)
      await until(async () => (await agent.status())?.degraded.length === 0, 20_000)
      await until(() => calls(one).some(({ env }) => env.SUBNET === '10.244.8.0/24'))
      assert.ok(calls(one).filter(({ env }) => env.SUBNET === '10.244.7.0/24').length >= 2)
    }),
  )

  it(
    'a peer whose removal failed halfway and that comes back is added again',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one] = cluster.nodes as [Node]
      const { calls } = notingCommand(cluster.dir)
      const agent = one.agent()
      await agent.ready(20_000)
      const adds = () => calls(one).filter(({ words }) => words === 'add').length
      put(cluster, 7)
      await until(() => adds() === 1)
      writeFileSync(join(cluster.dir, 'fail-remove'), '')
      rmSync(leaseFile(cluster, 7))
      await until(() => calls(one).some(({ words }) => words === 'remove'))
      put(cluster, 7)
      await until(() => adds() === 2, 20_000)
      await until(async () => (await agent.status())?.degraded.length === 0, 20_000)
    }),
  )

  it(
    'PreStartupCommand and PostStartupCommand that fail keep the node from being ready, with the reason, until they succeed',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one] = cluster.nodes as [Node]
      notingCommand(cluster.dir)
      for (const word of ['data', 'start']) writeFileSync(join(cluster.dir, `fail-${word}`), '')
      const agent = one.agent()
      for (const [name, word] of [
        ['PreStartupCommand', 'data'],
        ['PostStartupCommand', 'start'],
      ] as const) {
        await until(async () => {
          const seen = await agent.status()
          return seen?.ready === false && seen.reasons.join().includes(`Cannot run ${name}`)
        }, 20_000)
        rmSync(join(cluster.dir, `fail-${word}`))
      }
      await agent.ready(20_000)
    }),
  )

  it(
    'another backend instead: the command to remove runs for each peer, where commands are allowed',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(60_000)
      const [one] = cluster.nodes as [Node]
      const { calls } = notingCommand(cluster.dir)
      const agent = one.agent()
      await agent.ready(20_000)
      put(cluster, 7)
      await until(() => calls(one).some(({ words }) => words === 'add'))
      await agent.stop()
      fileStore(cluster, { Network: NETWORK, Backend: { Type: 'host-gw' } })
      const barred = one.agent('--allow-extension=false')
      await barred.ready(20_000)
      assert.match(barred.log(), /Cannot run the SubnetRemoveCommand in \S+ without --allow-extension/)
      await barred.stop()
      assert.equal(calls(one).at(-1)?.words, 'add')
      await one.agent().ready(20_000)
      assert.equal(calls(one).at(-1)?.words, 'remove')
      assert.ok(!existsSync(added(one)))
    }),
  )

  it(
    'without --allow-extension the configuration is refused with the reason, and no command runs',
    inCluster(
      1,
      (cluster) => options(cluster).filter((word) => word !== '--allow-extension'),
      async (cluster) => {
        const [one] = cluster.nodes as [Node]
        const { calls } = notingCommand(cluster.dir)
        const agent = one.agent()
        assert.equal(await agent.ended, 1)
        assert.match(
          agent.log(),
          /Cannot use backend extension: the author of the network configuration can then run any command as root on every node; want --allow-extension/,
        )
        assert.deepEqual(calls(one), [])
        assert.equal(subnetEnv(one), undefined)
      },
    ),
  )
})

function options(cluster: Cluster): string[] {
  const command = (word: string) => `${join(cluster.dir, 'note')} ${word}`
  const Backend = {
    Type: 'extension',
    PreStartupCommand: command('data'),
    PostStartupCommand: command('start'),
    SubnetAddCommand: command('add'),
    SubnetRemoveCommand: command('remove'),
  }
  const path = join(cluster.dir, 'store/config')
  const given = existsSync(path) ? [] : fileStore(cluster, { Network: NETWORK, Backend })
  return [...given, '--store', 'file', '--file-store-dir', join(cluster.dir, 'store'), '--allow-extension']
}

function leaseFile({ dir }: Cluster, n: number): string {
  return join(dir, 'store/subnets', `10.244.${n}.0-24`)
}

function put(cluster: Cluster, n: number): void {
  writeFileSync(
    leaseFile(cluster, n),
    `{"PublicIP":"${UNDERLAY.v4(n)}","PublicIPv6":null,"BackendType":"extension","BackendData":"x"}`,
  )
}

function subnetOf(node: Node): string {
  return (subnetEnv(node)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0/24')
}

// The file of the agent's peers. The agents here have names of their own.
function added({ dir }: Node): string {
  const found = [...new Bun.Glob('commands*.json').scanSync({ cwd: join(dir, 'state') })]
  return join(dir, 'state', found[0] ?? 'none')
}

async function stat(node: Node): Promise<{ mode: string }> {
  return { mode: (await node.ns.exec(['stat', '-c', '%a', added(node)])).stdout.trim() }
}
