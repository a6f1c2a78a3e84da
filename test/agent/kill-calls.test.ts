// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodeValue } from '../../agent/lease/lease.ts'
import { STRACE, stand } from '../lib/verbs/crash/shots.ts'
import { type Flows, flows, podOn, unharmed } from '../support/flows.ts'
import { inNamespaces, until } from '../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'
import { skip } from '../support/skip.ts'
import { draft } from '../support/suites/leases.ts'
import { calls, killing } from '../support/tool-shims.ts'

const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.99.0', Backend: { Type: 'vxlan' } }
/** By which the agent changes files, takes its socket, and hands a tool its input. */
const CALLS = ['mkdir', 'rename', 'fsync', 'unlink', 'bind', 'memfd_create']

describe('SIGKILL of plumb agent at every child and change of files', () => {
  for (const when of ['before', 'after'] as const)
    it(
      `${when} each child of a start that has entries to make, change and remove: no flow is harmed, the next start goes on from there, and all is right in the end`,
      inScene(async ({ one, cluster, running }) => {
        let killed = 0
        for (let [at, last] = [1, false]; !last; at++) {
          await upset(cluster, one, at)
          const shim = killing('plumb', at, when)
          const agent = one.agentAs(shim.file)
          if (!(await readyOrKilled(agent))) killed++
          else {
            assert.deepEqual(await forwarding(one), wanted(at))
            // A monitor has no end to be killed after.
            last = calls(shim) < at
            await agent.stop('SIGKILL')
          }
        }
        assert.ok(killed > 10, `${killed} children`)
        unharmed(await running.end())
      }),
    )

  it('at each of its changes of files: no flow is harmed, the subnet stays the same, all is right in the end, no draft is left', async function () {
    if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which stops a program at a system call`)
    await inScene(async ({ one, cluster, running }) => {
      const had = subnetEnv(one)
      let killed = 0
      for (const call of CALLS)
        for (let [nth, isReady] = [1, false]; !isReady; nth++) {
          await upset(cluster, one, ++killed)
          // So that there is something to write: a node without /run, as after a boot, or without what it remembered,
          // but not without both.
          const [env, state] = [join(one.dir, 'subnet.env'), join(one.dir, 'state')]
          if (nth % 2 === 0 && existsSync(env)) rmSync(state, { recursive: true, force: true })
          else if (existsSync(state) && readdirSync(state).some((name) => name.startsWith('lease')))
            rmSync(env, { force: true })
          const agent = one.agentAs(stand('plumb', { name: call, nth }, true).file)
          isReady = await readyOrKilled(agent)
          if (isReady) {
            killed--
            assert.deepEqual(subnetEnv(one), had)
            await agent.stop('SIGKILL')
          }
          await until(async () => !(await isListening(join(one.dir, 'agent.sock'))))
        }
      assert.ok(killed > 10, `${killed} changes`)
      await upset(cluster, one, 0)
      await one.agent().ready(30_000)
      assert.deepEqual(await forwarding(one), wanted(0))
      assert.deepEqual(subnetEnv(one), had)
      assert.equal((await one.ns.exec(['find', one.dir, cluster.dir, '-name', '.*draft'])).stdout, '')
      unharmed(await running.end())
    }).call(this)
  })
})

interface Scene {
  readonly cluster: Cluster
  readonly one: Node
  readonly running: Flows
}

/** Two nodes that have been through a first start, and flows between their pods. */
function inScene(work: (scene: Scene) => Promise<void>) {
  return inCluster(
    2,
    (cluster) => fileStore(cluster, CONF),
    async (cluster, test) => {
      test.timeout(120_000)
      const [one, two] = cluster.nodes as [Node, Node]
      const [first] = [one.agent(), two.agent()]
      await first.ready(30_000)
      await until(async () => (await first.status())?.kinds['route']?.programmed === 1, 10_000)
      await first.stop('SIGKILL')
      await inNamespaces(['a', 'b'], async ({ a, b }) => {
        await work({ cluster, one, running: await flows(a, b, [await podOn(one, a), await podOn(two, b)]) })
      }).call(test)
    },
  )
}

// A lease that is another than before, one that is gone, and what has to go or come back.
async function upset({ dir }: Cluster, { ns }: Node, nth: number): Promise<void> {
  const folder = join(dir, 'store/subnets')
  writeFileSync(join(folder, `10.244.${110 + (nth % 2)}.0-24`), encodeValue(draft('', fake(nth))))
  rmSync(join(folder, `10.244.${110 + ((nth + 1) % 2)}.0-24`), { force: true })
  await ns.exec([
    'sh',
    '-c',
    'ip route add 10.244.200.0/24 via 172.30.0.2 proto 112; bridge fdb append 02:00:00:00:00:77 dev flannel.1 dst 172.30.0.77 self permanent; nft flush table inet $(nft list tables | grep -o "plumb_agent.*")',
  ])
}

function fake(nth: number): number {
  return 100 + (nth % 100)
}

function wanted(nth: number): string[] {
  return ['172.30.0.2', `172.30.0.${fake(nth)}`].sort()
}

async function readyOrKilled(agent: Agent): Promise<boolean> {
  const ready = agent.ready(20_000).then(
    () => undefined,
    (cause: Error) => cause,
  )
  const first = await Promise.race([ready, agent.ended])
  if (first === undefined) return true
  assert.ok(typeof first === 'number' ? first > 128 : /ended with/.test(first.message), `${first} ${agent.log()}`)
  return false
}

// A child that strace holds between fork and exec still has all that its parent had.
async function isListening(unix: string): Promise<boolean> {
  try {
    const socket = await Bun.connect({ unix, socket: { data() {} } })
    socket.terminate()
    return true
  } catch {
    return false
  }
}

async function forwarding({ ns }: Node): Promise<string[]> {
  const { stdout } = await ns.exec(['bridge', 'fdb', 'show', 'dev', 'flannel.1'])
  return [...stdout.matchAll(/dst (\S+) self permanent/g)].map(([, dst]) => dst as string).sort()
}
