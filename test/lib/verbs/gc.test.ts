// lane: netns
// Tests lib/verbs: GC.
import assert from 'node:assert/strict'
import { readdirSync, writeFileSync } from 'node:fs'
import { execa } from 'execa'
import type { Cached } from '../../../lib/runtime/cache.ts'
import { addNetwork, gcNetwork, statusNetwork } from '../../../lib/runtime/runtime.ts'
import { parse } from '../../../lib/text/values.ts'
import { at, list, makeRoom, RECORDER, type Room } from '../../support/recorder-plugin.ts'

let room: Room
beforeEach(() => {
  room = makeRoom()
})
afterEach(() => room.remove())

describe('gcNetwork()', () => {
  const newest = { cniVersion: '1.1.0' }
  const attached = async () => {
    for (const id of ['a', 'b', 'c'])
      await addNetwork(list(newest), at({ containerId: parse.containerId(id) }), room.host)
    await addNetwork(list({ name: 'other' }), at(), room.host)
    room.forget()
  }
  const keyOf = (id: string) => ({ containerId: parse.containerId(id), ifname: parse.ifname('eth0') })
  const ids = (found: readonly Cached[]) => found.map(({ containerId }) => containerId)

  it('removes what is stale, leaves what is valid and what is of other networks, and tells the plugins', async () => {
    await attached()
    assert.deepEqual(ids(await gcNetwork(list(newest), [keyOf('b')], room.host)), ['a', 'c'])
    assert.deepEqual(room.calls('verbs'), ['DEL two', 'DEL one', 'DEL two', 'DEL one', 'GC one', 'GC two'])
    const valid = [{ containerID: 'b', ifname: 'eth0' }]
    assert.deepEqual(room.stdin('one', 'GC'), {
      type: 'one',
      key: 1,
      cniVersion: '1.1.0',
      name: 'net',
      'cni.dev/valid-attachments': valid,
      'cni.dev/attachments': valid,
    })
    assert.deepEqual(readdirSync(`${room.dir}/cache/results`).sort(), ['net-b-eth0', 'other-c1-eth0'])
  })
  it('goes on after failures and reports them together', async () => {
    await attached()
    room.answer('two', 'DEL', { code: 5, msg: 'busy' }, 1)
    room.answer('one', 'GC', { code: 11, msg: 'wait' }, 1)
    await assert.rejects(gcNetwork(list(newest), [keyOf('b'), keyOf('c')], room.host), {
      code: 5,
      details: 'plugin type="two" failed (del): busy\nplugin type="one" failed (gc): wait',
    })
    assert.deepEqual(room.calls('verbs'), ['DEL two', 'DEL one', 'GC one', 'GC two'])
  })
  it('asks no plugin below 1.1.0, does nothing with disableGC, and changes nothing when dry', async () => {
    await attached()
    assert.deepEqual(ids(await gcNetwork(list({ ...newest, disableGC: true }), [], room.host)), [])
    assert.deepEqual(ids(await gcNetwork(list(newest), [keyOf('a')], room.host, { dryRun: true })), ['b', 'c'])
    assert.deepEqual(room.calls(), [])
    await gcNetwork(list(), [keyOf('a'), keyOf('b')], room.host)
    assert.deepEqual(room.calls('verbs'), ['DEL two', 'DEL one'])
  })
  it('waits for ADD, and ADD waits for it', async () => {
    await execa('mkfifo', [`${room.dir}/gate`])
    room.put(
      'one',
      RECORDER.replace('cat >', `[ $CNI_COMMAND$CNI_CONTAINERID != ADDslow ] || cat ${room.dir}/gate\ncat >`),
    )
    await addNetwork(list(), at(), room.host)
    const slow = addNetwork(list(), at({ containerId: parse.containerId('slow') }), room.host)
    await assert.rejects(gcNetwork(list(), [], { ...room.host, timeoutMs: 100 }), {
      code: 11,
      message: /timed out after 0\.1 s$/,
    })
    await addNetwork(list(), at({ containerId: parse.containerId('quick') }), room.host)
    const gc = gcNetwork(list(), [], room.host)
    writeFileSync(`${room.dir}/gate`, '')
    await slow
    assert.deepEqual(ids(await gc), ['c1', 'quick', 'slow'])
  })
})

describe('statusNetwork()', () => {
  it('stops at the first plugin that is not ready, with its code', async () => {
    room.answer('one', 'STATUS', { code: 50, msg: 'full', details: 'all 253 in use' }, 1)
    await assert.rejects(statusNetwork(list({ cniVersion: '1.1.0' }), room.host), {
      code: 50,
      message: 'plugin type="one" failed (status): full',
      details: 'all 253 in use',
    })
    assert.deepEqual(room.calls('verbs'), ['STATUS one'])
    await statusNetwork(list({ cniVersion: '1.0.0' }), room.host)
    assert.deepEqual(room.calls('verbs'), ['STATUS one'])
  })
})
