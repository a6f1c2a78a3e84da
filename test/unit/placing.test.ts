import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sendAway } from '../../lib/placing.ts'
import { skip } from '../skip.ts'

const SOURCE = join(import.meta.dirname, '../../lib/placing.ts')

describe('sendAway()', () => {
  it('moves a process that wants this CPU to another, and leaves it all that it might run on', async function () {
    const all = allowed('self')
    const [here, ...others] = all
    if (others.length === 0) skip(this, 'this machine has one CPU')
    // Else an idle CPU takes the process by itself.
    const busy = others.map((cpu) => Bun.spawn(['taskset', '--cpu-list', `${cpu}`, 'sh', '-c', 'while :; do :; done']))
    const script = `
      import { execFileSync } from 'node:child_process'
      import { readFileSync } from 'node:fs'
      import { sendAway } from '${SOURCE}'
      const child = Bun.spawn(['sh', '-c', 'while :; do :; done'])
      execFileSync('taskset', ['--cpu-list', '--pid', '${all.join()}', String(child.pid)])
      sendAway(child.pid)
      console.log(readFileSync('/proc/' + child.pid + '/stat', 'utf8').split(' ')[38])
      console.log(readFileSync('/proc/' + child.pid + '/status', 'utf8').match(/Cpus_allowed_list:\\t(.*)/)[1])
      child.kill('SIGKILL')`
    try {
      for (let i = 0; i < 5; i++) {
        const { stdout, stderr } = spawnSync('taskset', ['--cpu-list', `${here}`, process.execPath, '-e', script], { encoding: 'utf8' })
        const [its, may = ''] = stdout.split('\n')
        assert.equal(stderr, '')
        assert.deepEqual(listed(may), all)
        assert.notEqual(Number(its), here)
      }
    } finally {
      for (const one of busy) one.kill('SIGKILL')
    }
  })
  it('leaves one where it is that may run on one CPU alone, and does nothing to one that is gone', async () => {
    const [here] = allowed('self')
    const child = Bun.spawn(['taskset', '--cpu-list', `${here}`, 'sleep', '60'])
    while (readFileSync(`/proc/${child.pid}/comm`, 'utf8') !== 'sleep\n') await Bun.sleep(1)
    sendAway(child.pid)
    assert.deepEqual(allowed(child.pid), [here])
    child.kill('SIGKILL')
    await child.exited
    sendAway(child.pid)
  })
})

function allowed(pid: number | 'self'): number[] {
  return listed(/^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '')
}

// proc(5): Cpus_allowed_list, such as 0-1,3.
function listed(text: string): number[] {
  return text.split(',').flatMap((part) => {
    const [from = 0, to = from] = part.split('-').map(Number)
    return Array.from({ length: to - from + 1 }, (_, i) => from + i)
  })
}
