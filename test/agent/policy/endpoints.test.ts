// lane: quick
// Tests agent/policy/endpoints.ts, agent/policy/admission.ts and agent/scheduler/queue.ts: attachments that ADD told
// the agent.
import assert from 'node:assert/strict'
import type { Pod } from '../../../agent/cluster/objects.ts'
import { Waiting } from '../../../agent/policy/admission.ts'
import { type Endpoint, Endpoints } from '../../../agent/policy/endpoints.ts'
import { makeQueue } from '../../../agent/scheduler/queue.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { patient } from '../../support/patience.ts'

const endpoint = (container: string, pod: string, ...addresses: string[]): Endpoint => ({
  containerId: parse.containerId(container),
  ifname: parse.ifname('eth0'),
  namespace: 'x',
  pod,
  addresses: addresses as Ip[],
})
const pod = (name: string, ...ips: string[]): Pod => ({ namespace: 'x', name, labels: {}, ips: ips as Ip[], ports: [] })

function made() {
  const changed: string[] = []
  const objects = new Map<string, Pod>()
  const known = (one: Pod) => {
    objects.set(`x/${one.name}`, one)
    return one
  }
  const endpoints = new Endpoints(
    (key) => changed.push(key),
    (key) => objects.get(key),
  )
  return { changed, endpoints, objects, known }
}

describe('endpoints of pods', () => {
  it('a pod with two attachments keeps the other one’s addresses, and a new sandbox of the same pod has its own', () => {
    const { endpoints, known } = made()
    known(pod('a', '10.0.0.2'))
    endpoints.admit(endpoint('c1', 'a', '10.0.0.2'))
    endpoints.admit({ ...endpoint('c1', 'a', '10.9.0.2'), ifname: parse.ifname('net1') })
    endpoints.release(endpoint('c1', 'a'))
    assert.deepEqual(endpoints.addressesOf(pod('a', '10.0.0.2')), ['10.9.0.2'])
    endpoints.admit(endpoint('c2', 'a', '10.0.0.5'))
    assert.deepEqual([...endpoints.addressesOf(pod('a', '10.0.0.2'))].sort(), ['10.0.0.5', '10.9.0.2'])
    // The same container with another pod's name: the first pod has lost it.
    endpoints.admit(endpoint('c2', 'b', '10.0.0.5'))
    assert.deepEqual(endpoints.addressesOf(pod('a', '10.0.0.2')), ['10.9.0.2'])
  })
})

describe('endpoints of two pods of one name', () => {
  const of = (container: string, uid: string, ip: string) => ({ ...endpoint(container, 'a', ip), uid })

  it('without a UID, of the attachment or of the object, an object of the name is enough', () => {
    const { endpoints, known } = made()
    known(pod('a'))
    assert.equal(endpoints.isKnown(of('c1', 'u1', '10.0.0.2')), true)
    known({ ...pod('a'), uid: 'u2' })
    assert.equal(endpoints.isKnown(endpoint('c1', 'a', '10.0.0.2')), true)
  })
})

describe('questions that wait for a step', () => {
  const signal = new AbortController().signal

  it('one is answered by a step that began when it was ready, and ended well', async () => {
    const waiting = new Waiting()
    let isReady = false
    let isAnswered = false
    const answer = waiting.wait(
      () => isReady,
      5000,
      signal,
      () => 'never',
    )
    void answer.then(() => {
      isAnswered = true
    })
    const early = waiting.begin()
    isReady = true
    // This step began too early, and one that fails is never told to have ended.
    early()
    waiting.begin()
    await Promise.resolve()
    assert.deepEqual([isAnswered, waiting.isEmpty], [false, false])
    waiting.begin()()
    await answer
    assert.equal(waiting.isEmpty, true)
  })

  it('one that is not answered in time gets the reason, with code 11', async () => {
    const waiting = new Waiting()
    await assert.rejects(
      waiting.wait(
        () => false,
        1,
        signal,
        () => 'the API has no Pod x/a',
      ),
      { code: 11, message: 'Cannot apply network policy within 1 ms: the API has no Pod x/a' },
    )
    assert.equal(waiting.isEmpty, true)
  })

  it('a step that somebody waits for does not gather changes', async () => {
    const end = new AbortController()
    const queue = makeQueue(end.signal)
    const began = performance.now()
    queue.add('objects')
    const next = queue.next(5000)
    await Promise.resolve()
    queue.addUrgent('attachments')
    assert.deepEqual((await next).toSorted(), ['attachments', 'objects'])
    // One that comes before the wait counts, too.
    queue.addUrgent('again')
    assert.deepEqual(await queue.next(5000), ['again'])
    assert.ok(performance.now() - began < patient(4000))
    end.abort()
  })
})
