// lane: long
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { ping, until } from '../support/harness.ts'
import { complete, DRIFT, inventory, PASS, VXLAN, withEach } from '../support/missing-tools.ts'
import { type Agent, fileStore, inCluster, type Node } from '../support/nodes.ts'
import { patient } from '../support/patience.ts'
import { type Shimmed, shimmed, without } from '../support/tool-shims.ts'

/** How many parts of the agent run a tool at a start. Each says once that it is missing. */
const PARTS = { ip: 1, bridge: 1, nft: 3 } as const

describe('plumb agent without its tools', () => {
  it(
    'a tool that hangs is killed after 30 s, with the reason in /readyz; what had to be put right is right within 5 s of its return; the status answers all the time',
    withEach(150_000, async (tool, node, peer) => {
      // A wish on a file: the tool hangs as long as it is there.
      const shim = shimmed('plumb', {
        [tool]: `[ -e "$dir/hang" ] && case "$*" in *monitor*) ;; *) exec sleep 1000;; esac\n${PASS}`,
      })
      const agent = node.agentAs(shim.file)
      await complete(agent)
      const right = await inventory(node)
      writeFileSync(join(shim.dir, 'hang'), '')
      assert.equal((await DRIFT[tool](node, peer)).status, 0)
      await until(
        async () => new RegExp(`^503 .*\\b${tool} .*was killed after 30 s`, 's').test(await agent.readyz()),
        60_000,
      ).catch(async () => {
        assert.fail(
          `${tool}: ${await agent.readyz()} ${agent.log()}${JSON.stringify(await agent.status())}\n${await processes(agent)}\n${await inventory(node)}`,
        )
      })
      rmSync(join(shim.dir, 'hang'))
      // The one that hangs by now may have just begun.
      await until(async () => (await inventory(node)) === right, 36_000).catch(() =>
        assert.fail(`${tool}: ${agent.log()}`),
      )
      await agent.ready(5000)
      // What it was about to do, and what it looked at after that: each is told of once.
      const killed = agent.log().match(/^.*was killed.*$/gm) ?? []
      assert.ok(killed.length <= 2 && new Set(killed).size === killed.length, agent.log())
    }),
  )

  it(
    'a tool that hangs holds back only the part that needs it: a node that joins while nft hangs is reached at once',
    inCluster(
      2,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes: [node, other] }, test) => {
        test.timeout(60_000)
        const shim = shimmed('plumb', { nft: `[ -e "$dir/hang" ] && exec sleep 1000\n${PASS}` })
        const agent = (node as Node).agentAs(shim.file)
        await agent.ready(30_000)
        writeFileSync(join(shim.dir, 'hang'), '')
        const { status } = await DRIFT.nft(node as Node, '')
        assert.equal(status, 0)
        // It hangs by now, and is killed after 30 s.
        await until(async () => (await processes(agent)).includes('sleep 1000'))
        const began = Date.now()
        await (other as Node).agent().ready(30_000)
        await until(async () => (await agent.status())?.kinds['route']?.programmed === 2, 15_000)
        assert.ok(Date.now() - began < patient(20_000) && (await processes(agent)).includes('sleep 1000'), agent.log())
        rmSync(join(shim.dir, 'hang'))
      },
    ),
  )

  it(
    'a tool that is removed is named in /readyz at once, and once in the log by each part that needs it, the rest goes on; what had to be put right is right within 5 s of its return',
    withEach(60_000, async (tool, node, peer) => {
      const shim = shimmed(
        'plumb',
        { [tool]: PASS },
        `${without(tool)}\nmkdir -p /usr/sbin\ncp $(dirname "$0")/tools/${tool} /usr/sbin/${tool}`,
      )
      const agent = node.agentAs(shim.file)
      await complete(agent)
      const right = await inventory(node)
      await within(agent, `rm /usr/sbin/${tool}`)
      await DRIFT[tool](node, peer)
      await until(async () =>
        new RegExp(`^503 .*Cannot run ${tool}: it is not installed`, 's').test(await agent.readyz()),
      )
      await loops(agent, 3)
      const lines = agent.log().match(/^.*is not installed.*$/gm) ?? []
      assert.ok(lines.length <= 2 && new Set(lines).size === lines.length, agent.log())
      await back(agent, shim, tool)
      await until(async () => (await inventory(node)) === right)
      await agent.ready(5000)
    }),
  )

  it(
    'a start without a tool waits for it and says so; without nft peers are reached all the same',
    withEach(60_000, async (tool, node, peer) => {
      const shim = shimmed('plumb', { [tool]: PASS }, without(tool))
      const agent = node.agentAs(shim.file)
      await until(
        async () => new RegExp(`^503 .*Cannot run ${tool}: it is not installed`, 's').test(await agent.readyz()),
        15_000,
      )
      if (tool === 'nft') await until(() => ping(node.ns, peer), 10_000)
      // A monitor that cannot be started is told of once, too.
      const [wanted, missing] = [PARTS[tool], /^(?!.*starting it again).*is not installed/m]
      await until(() => told(agent, missing) >= wanted, 10_000)
      assert.equal(told(agent, missing), wanted, agent.log())
      assert.ok(told(agent, /starting it again/) <= 3, agent.log())
      await back(agent, shim, tool)
      await agent.ready(10_000)
      await until(() => ping(node.ns, peer))
      // It hears again, without a resync.
      await complete(agent)
      const right = await inventory(node)
      await DRIFT[tool](node, peer)
      await until(async () => (await inventory(node)) === right, 15_000).catch(() =>
        assert.fail(`${tool}: ${agent.log()}`),
      )
    }),
  )
})

// Nothing is known to the agent that was not listed, so a mount of its own is where a tool comes and goes.
async function within({ pid }: Agent, script: string): Promise<void> {
  await execa('nsenter', ['-t', `${pid}`, '-m', 'sh', '-ec', script])
}

/** What it has started, and where each of its threads is in the kernel. */
async function processes({ pid }: Agent): Promise<string> {
  const { stdout } = await execa('sh', [
    '-c',
    `ps -eo pid,ppid,etimes,stat,args --forest; for task in /proc/${pid}/task/*; do cat $task/comm $task/wchan; echo; done`,
  ])
  return stdout
}

async function back(agent: Agent, { dir }: Shimmed, tool: string): Promise<void> {
  await within(agent, `cp ${dir}/tools/${tool} /usr/sbin/.${tool}; mv /usr/sbin/.${tool} /usr/sbin/${tool}`)
}

async function loops(agent: Agent, times: number): Promise<void> {
  const before = (await agent.status())?.steps.count ?? 0
  await until(async () => ((await agent.status())?.steps.count ?? 0) >= before + times, 10_000)
}

function told(agent: Agent, what: RegExp): number {
  return agent
    .log()
    .split('\n')
    .filter((line) => what.test(line)).length
}
