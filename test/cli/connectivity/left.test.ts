// lane: netns
// Tests cli/connectivity and cli/connectivity.ts: what a run leaves that was killed or stopped, on its node and on others.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  areAttached,
  connectivity,
  failures,
  leftOn,
  type Member,
  onNodes,
  PLUMB,
  wordsOf,
} from '../../support/connectivity.ts'
import { until } from '../../support/harness.ts'

describe('plumb connectivity: what is left', () => {
  it(
    'a killed run ends its far end, a killed far end fails its cases, and the next run removes what is left',
    onNodes(2, async (members) => {
      const [near, far] = members as [Member, Member]
      const child = Bun.spawn(['nsenter', `--net=${near.node.ns.path}`, '--', ...wordsOf(members)], {
        stdout: 'ignore',
        stderr: 'ignore',
      })
      await areAttached(4)
      child.kill('SIGKILL')
      await child.exited
      await until(async () => (await leftOn(far)).length === 0, 20_000)
      assert.equal((await leftOn(near)).length, 2)
      assert.equal((await connectivity([near], '--quick')).status, 0)
      assert.deepEqual(await leftOn(near), [])

      const stopped = Bun.spawn(['nsenter', `--net=${near.node.ns.path}`, '--', ...wordsOf(members)], {
        stdout: 'ignore',
        stderr: 'ignore',
      })
      await areAttached(4)
      stopped.kill('SIGTERM')
      assert.equal(await stopped.exited, 143)
      assert.deepEqual([await leftOn(near), await leftOn(far)], [[], []])

      const pidFile = join(far.node.dir, 'pid')
      const [ns, env] = [far.node.ns.path, `env CNI_PATH=${far.bin} NETCONFPATH=${far.lists}`]
      const command = `sh -c 'echo $$ >${pidFile}; exec nsenter --net=${ns} ${env} ${PLUMB} "$@"' --`
      const torn = near.node.ns.exec(wordsOf([near], '--far', `n2=${command}`))
      await areAttached(4)
      process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL')
      const { status, stdout, stderr } = await torn
      assert.equal(status, 1)
      assert.match(`${stdout}${stderr}`, /Cannot test from n2: the command ended with status (SIGKILL|137)/)
      assert.deepEqual([(await leftOn(near)).length, (await leftOn(far)).length], [0, 2])
      assert.deepEqual(failures(await connectivity(members, '--quick')), [])
    }),
  )
})
