// lane: quick
// Tests lib/os/show.ts: what a tool lists, and when it does not tell.
import assert from 'node:assert/strict'
import type { Output, Run } from '../../../lib/os/run.ts'
import { listed, show } from '../../../lib/os/show.ts'

/** A tool that answers so, one answer after the other. The last one is repeated. */
function answering(...outputs: readonly Partial<Output>[]): { readonly run: Run; readonly calls: () => number } {
  let calls = 0
  const run = async () => ({ status: 0, stdout: '', stderr: '', ...outputs[Math.min(calls++, outputs.length - 1)] })
  return { run, calls: () => calls }
}

const LINK = '[{"ifname":"eth0"}]\n'
// As ip of iproute2 6.1 prints it.
const INTERRUPTED = { stdout: '[]\n', stderr: 'Dump was interrupted and may be inconsistent.\n' }

describe('what a tool lists', () => {
  it('a list that was interrupted is read again, and never taken for the whole list', async () => {
    const twice = answering(INTERRUPTED, INTERRUPTED, { stdout: LINK })
    assert.equal(await listed(['ip', '-j', 'link'], twice.run), LINK)
    assert.equal(twice.calls(), 3)
    assert.deepEqual(await show(['ip'], ['link show'], answering(INTERRUPTED, { stdout: LINK }).run), [
      [{ ifname: 'eth0' }],
    ])
    await assert.rejects(listed(['ip', '-j', 'link'], answering(INTERRUPTED).run), /ip -j link: its list changed/)
    await assert.rejects(show(['ip'], ['link show'], answering(INTERRUPTED).run), /its list changed/)
  })

  it('nothing is listed only when the tool says that there is no such thing', async () => {
    const device = { status: 1, stderr: 'Device "x" does not exist.\n' }
    assert.equal(await listed(['ip', 'addr', 'show', 'dev', 'x'], answering(device).run), '')
    const table = { status: 1, stderr: 'Error: No such file or directory\nlist table inet x\n' }
    assert.equal(await listed(['nft', 'list', 'table', 'inet', 'x'], answering(table).run), '')
    for (const stderr of ['Cannot allocate memory', 'netlink: Error: No buffer space available', ''])
      await assert.rejects(listed(['nft', 'list', 'ruleset'], answering({ status: 1, stderr }).run), /^ExecError: nft/)
  })

  it('a failed line of a batch has no rows only when its thing does not exist', async () => {
    const failing = (said: string) => ({ status: 1, stdout: LINK, stderr: `${said}\nCommand failed -:1\n` })
    const asks = ['addr show dev x', 'link show']
    assert.deepEqual(await show(['ip'], asks, answering(failing('Device "x" does not exist.')).run), [
      [],
      [{ ifname: 'eth0' }],
    ])
    await assert.rejects(
      show(['ip'], asks, answering(failing('RTNETLINK answers: Cannot allocate memory')).run),
      /addr show dev x: Cannot allocate memory/,
    )
  })

  it('JSON that ends early is no list', async () => {
    await assert.rejects(show(['ip'], ['link show'], answering({ stdout: '[{"ifname":"et' }).run), /no JSON/)
  })
})
