// lane: netns
// Tests agent: one or several agents on nodes of their own.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { execa } from 'execa'
import { until } from '../support/harness.ts'
import { complete, DRIFT, inventory, PASS, withEach } from '../support/missing-tools.ts'
import { shimmed } from '../support/tool-shims.ts'

/** What a tool does as long as the fault lasts, and what the agent says of it, if it has to notice. */
const FAULTS: Readonly<Record<string, readonly [script: string, said?: RegExp]>> = {
  'fails at every second call': [
    '[ $((n % 2)) = 1 ] || { echo "Error: Out of memory" >&2; case "$real" in *nft) ;; *) echo "Command failed -:1" >&2;; esac; exit 2; }',
  ],
  'prints garbage and fails': ['head -c 10000 /dev/urandom; head -c 3000 /dev/urandom >&2; exit 3', /./],
  'is killed': ['kill -KILL $$', /./],
  'is ten years old': [
    'case "$0" in *nft) echo "/dev/stdin:1:1-3: Error: syntax error, unexpected string" >&2; exit 1;; esac; echo \'Option "-force" is unknown, try "ip -help".\' >&2; exit 255',
    /syntax error|is unknown/,
  ],
}

describe('plumb agent with tools that do not work', () => {
  for (const [what, [script, said]] of Object.entries(FAULTS))
    it(
      `a tool that ${what}: the agent goes on, says so in /readyz, and puts all right when it works again`,
      withEach(120_000, async (tool, node, peer) => {
        const shim = shimmed('plumb', {
          [tool]: `if [ -e "$dir/fault" ]; then case "$*" in *monitor*) ;; *) ${script};; esac; fi\n${PASS}`,
        })
        const agent = node.agentAs(shim.file)
        await complete(agent)
        const right = await inventory(node)
        writeFileSync(join(shim.dir, 'fault'), '')
        await DRIFT[tool](node, peer)
        if (said) {
          await until(async () => /^503 /.test(await agent.readyz()), 20_000).catch(() =>
            assert.fail(`${tool}: ${agent.log()}`),
          )
          assert.match(await agent.readyz(), said)
        }
        rmSync(join(shim.dir, 'fault'))
        await until(async () => (await inventory(node)) === right, 10_000).catch(() =>
          assert.fail(`${tool}: ${agent.log()}`),
        )
        await agent.ready(10_000)
      }),
    )

  it(
    'no file left that it may open: the agent goes on, and puts all right when there are some again',
    withEach(120_000, async (tool, node, peer) => {
      const agent = node.agent()
      await complete(agent)
      const right = await inventory(node)
      await execa('prlimit', ['--pid', String(agent.pid), `--nofile=${await firstFree(agent.pid)}:1024`])
      await DRIFT[tool](node, peer)
      // Its own server may be without a file for an answer, too.
      await until(() => /EMFILE|cannot be started|too many open files/i.test(agent.log()), 20_000).catch(() =>
        assert.fail(`${tool}: ${agent.log()}`),
      )
      assert.ok(existsSync(`/proc/${agent.pid}`))
      await execa('prlimit', ['--pid', String(agent.pid), '--nofile=1024:1024'])
      await until(async () => (await inventory(node)) === right, 15_000).catch(() =>
        assert.fail(`${tool}: ${agent.log()}`),
      )
      await agent.ready(10_000)
    }),
  )
})

/**
 * The lowest number that none of a process's open files has, of some looks: one that it has for a moment frees its own.
 */
async function firstFree(pid: number): Promise<number> {
  let lowest = Number.POSITIVE_INFINITY
  for (let look = 0; look < 20; look++, await sleep(10)) {
    const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number))
    for (let fd = 0; fd < lowest; fd++) if (!open.has(fd)) lowest = fd
  }
  return lowest
}
