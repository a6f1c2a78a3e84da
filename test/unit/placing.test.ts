import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sendAway } from '../../lib/placing.ts'
import { skip } from '../skip.ts'

const SOURCE = join(import.meta.dirname, '../../lib/placing.ts')

// Of five: the kernel may move anything at any time.
const MOST = 4
const all = allowed('self')
const [here = 0, ...others] = all

describe('sendAway()', () => {
  it('moves a process that wants this CPU to another, and leaves it all that it might run on', async function () {
    const moved = await fromOneCpu(this, "const child = Bun.spawn(['sh', '-c', 'while :; do :; done']); free(child.pid); sendAway(child.pid)")
    assert.ok(moved.filter((its) => its !== here).length >= MOST, `${moved}`)
  })
  it('leaves one where it is that may run on one CPU alone, and does nothing to one that is gone', async () => {
    const child = Bun.spawn(['taskset', '--cpu-list', `${here}`, 'sleep', '60'])
    while (readFileSync(`/proc/${child.pid}/comm`, 'utf8') !== 'sleep\n') await Bun.sleep(1)
    sendAway(child.pid)
    assert.deepEqual(allowed(child.pid), [here])
    child.kill('SIGKILL')
    await child.exited
    sendAway(child.pid)
  })
})

describe('wake()', () => {
  const reader = "const child = Bun.spawn(['sh', '-c', 'read line; while :; do :; done'], { stdin: 'pipe' }); free(child.pid); await Bun.sleep(50);"
  const line = "() => { child.stdin.write('go\\n'); child.stdin.flush() }"
  it('has what it wakes run beside this thread, while another is at work', async function () {
    const woken = await fromOneCpu(this, `${reader} wake(child.pid, 1, false, ${line})`)
    assert.ok(woken.filter((its) => its !== here).length >= MOST, `${woken}`)
  })
  it('gives it the CPU of this thread, which waits next, where all others have something to do', async function () {
    const woken = await fromOneCpu(this, `${reader} wake(child.pid, ${others.length}, true, ${line})`)
    assert.ok(woken.filter((its) => its === here).length >= MOST, `${woken}`)
  })
})

/** The CPU that `child` of a script is on at its end, five times; the script has one CPU, the child (`free`) all, and each of the others is busy, or an idle one would take the child by itself. */
async function fromOneCpu(test: Mocha.Context, script: string): Promise<number[]> {
  if (others.length === 0) skip(test, 'this machine has one CPU')
  const busy = others.map((cpu) => Bun.spawn(['taskset', '--cpu-list', `${cpu}`, 'sh', '-c', 'while :; do :; done']))
  const whole = `
    import { execFileSync } from 'node:child_process'
    import { readFileSync } from 'node:fs'
    import { sendAway, wake } from '${SOURCE}'
    const free = (pid) => execFileSync('taskset', ['--cpu-list', '--pid', '${all.join()}', String(pid)])
    ${script}
    console.log(readFileSync('/proc/' + child.pid + '/stat', 'utf8').split(' ')[38])
    console.log(readFileSync('/proc/' + child.pid + '/status', 'utf8').match(/Cpus_allowed_list:\\t(.*)/)[1])
    child.kill('SIGKILL')`
  try {
    return Array.from({ length: 5 }, () => {
      const { stdout, stderr } = spawnSync('taskset', ['--cpu-list', `${here}`, process.execPath, '-e', whole], { encoding: 'utf8' })
      const [its, may = ''] = stdout.split('\n')
      assert.equal(stderr, '')
      assert.deepEqual(listed(may), all)
      return Number(its)
    })
  } finally {
    for (const one of busy) one.kill('SIGKILL')
  }
}

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
