// lane: netns
// Tests agent/kernel/run.ts.
import assert from 'node:assert/strict'
import { hasNexthops } from '../../../agent/kernel/nexthops.ts'
import { run } from '../../../agent/kernel/run.ts'

describe('run() of the agent', () => {
  it('gives a tool its input and takes its answer, of any size, with nothing of our environment but a PATH', async () => {
    const big = 'x'.repeat(3_000_000)
    assert.deepEqual(await run(['cat'], big), { status: 0, stdout: big, stderr: '' })
    const { stdout } = await run(['env'], '')
    assert.deepEqual(
      stdout
        .split('\n')
        .map((line) => line.split('=')[0])
        .sort(),
      ['', 'LC_ALL', 'PATH'],
    )
  })
  it('tells how a tool ended and what it said', async () => {
    const { status, stderr } = await run(['ip', 'link', 'show', 'dev', 'nope'], '')
    assert.deepEqual({ status, stderr }, { status: 1, stderr: 'Device "nope" does not exist.\n' })
    assert.equal((await run(['sh', '-c', 'kill -9 $$'], '')).status, -1)
  })
  it('is not put out by a tool that does not read', async () => {
    assert.equal((await run(['true'], 'x'.repeat(3_000_000))).status, 0)
  })
  it('says what is not installed', async () => {
    await assert.rejects(run(['no-such-tool'], ''), /^CniError: Cannot run no-such-tool: it is not installed$/)
  })
  it('lets others go on meanwhile', async () => {
    let ticks = 0
    const timer = setInterval(() => ticks++, 10)
    await Promise.all([run(['sleep', '0.3'], ''), run(['sleep', '0.3'], '')])
    clearInterval(timer)
    assert.ok(ticks > 3, `${ticks}`)
  })
  it('knows which links there are', () => {
    assert.equal(run.link?.('lo', 'host'), true)
    assert.equal(run.link?.('nope', 'host'), false)
  })
})

describe('hasNexthops()', () => {
  it('is true where ip can list them, false where it or the kernel cannot', async () => {
    assert.equal(await hasNexthops(run), true)
    for (const answer of [
      { status: 2, stdout: '', stderr: 'RTNETLINK answers: Operation not supported\nDump terminated\n' },
      { status: 255, stdout: '', stderr: 'Object "nexthop" is unknown, try "ip help".\n' },
    ])
      assert.equal(await hasNexthops(async () => answer), false)
  })
})
