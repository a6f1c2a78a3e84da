// lane: quick
// Tests agent/kernel.
import assert from 'node:assert/strict'
import { follow } from '../../../agent/kernel/monitor.ts'
import { until } from '../../support/harness.ts'

describe('follow()', () => {
  const argv = ['sh', '-c', 'echo $$; exec sleep 1000']

  it('a monitor that a signal ended shortly before the agent’s own is no news', async () => {
    const [end, said, pids] = [new AbortController(), [] as string[], [] as number[]]
    const followed = follow({ argv, line: (text) => pids.push(Number(text)), lost() {} }, end.signal, (text) =>
      said.push(text),
    )
    await until(() => pids.length === 1)
    process.kill(pids[0] as number, 'SIGTERM')
    while (lives(pids[0] as number)) await Bun.sleep(1)
    await Bun.sleep(10)
    end.abort()
    await followed
    assert.deepEqual(said, [])
  })

  it('one that a signal ended while the agent goes on is told of, and started again', async () => {
    const [end, said, pids] = [new AbortController(), [] as string[], [] as number[]]
    const followed = follow({ argv, line: (text) => pids.push(Number(text)), lost() {} }, end.signal, (text) =>
      said.push(text),
    )
    await until(() => pids.length === 1)
    process.kill(pids[0] as number, 'SIGTERM')
    await until(() => pids.length === 2)
    end.abort()
    await followed
    assert.deepEqual(said, [`agent: ${argv.join(' ')} ended, starting it again until it goes on: signal SIGTERM`])
    assert.ok(pids.every((pid) => !lives(pid)))
  })
})

function lives(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
