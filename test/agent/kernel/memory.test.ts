// lane: quick
// Tests agent/kernel/memory.ts.
import assert from 'node:assert/strict'
import { face } from '../../../agent/kernel/diff.ts'
import { bridgeEvent, type Event, ipEvent } from '../../../agent/kernel/events.ts'
import { KernelState, KINDS } from '../../../agent/kernel/memory.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { IfName, Mac, NetworkName } from '../../../lib/text/values.ts'

describe('KernelState', () => {
  const DEV = 'flannel.1' as IfName
  const link: Resource = {
    kind: 'link',
    ns: 'host',
    name: DEV,
    type: 'vxlan',
    mtu: 1450,
    up: true,
    mac: '02:00:00:00:00:09' as Mac,
  }
  const tunnel: Resource = {
    kind: 'tunnel',
    ns: 'host',
    dev: DEV,
    mac: '02:00:00:00:00:02' as Mac,
    dst: '192.0.2.2' as Ip,
  }
  const told = (mtu: number, flags = 'UP,') =>
    ipEvent(
      `3: flannel.1: <BROADCAST,${flags}MULTICAST> mtu ${mtu} qdisc noqueue state UNKNOWN \\    link/ether 02:00:00:00:00:09 brd ff:ff:ff:ff:ff:ff`,
    ) as Event
  const deleted = bridgeEvent('Deleted 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent') as Event
  const empty = async () => ({ status: 0, stdout: '', stderr: '' })
  // The agent has just made its link and a peer's tunnel entry, and has listed everything before.
  async function made(): Promise<KernelState> {
    const state = new KernelState({ instance: 'default' as NetworkName, links: [DEV], networks: [] })
    await state.look(empty, KINDS)
    for (const one of [link, tunnel]) state.of(one.kind).set(face(one).key, face(one))
    state.uses(link)
    state.making(DEV)
    return state
  }

  it('an entry that another program deletes before the own link is confirmed is work as soon as the link is confirmed', async () => {
    const state = await made()
    const later = state.note(deleted)
    assert.ok(later !== undefined && later > 0 && later <= 2000, `${later} ms`)
    assert.equal(state.note(told(1450)), 0)
    const looked = await state.look(empty, KINDS)
    assert.deepEqual([...looked], ['tunnel'])
    assert.deepEqual([...state.takeDrift()], [face(tunnel).key])
  })
  it('a link that another program changes before it is confirmed is work after the time limit', async () => {
    const state = await made()
    const later = state.note(told(1300))
    assert.ok(later !== undefined && later > 0 && later <= 2000, `${later} ms`)
  })
  it('the steps in which the own link is made are no work once it is confirmed', async () => {
    const state = await made()
    state.note(told(1450, ''))
    assert.equal(state.note(told(1450)), undefined)
    assert.equal(state.note(told(1450)), undefined)
    assert.deepEqual([...(await state.look(empty, KINDS))], [])
  })
})
