// lane: quick
// Tests agent/scheduler/pause.ts.
import assert from 'node:assert/strict'
import { makeNotification } from '../../../agent/scheduler/pause.ts'

describe('bell()', () => {
  it('leaves no listener at the signal, however often it rings', async () => {
    const { signal } = new AbortController()
    let listeners = 0
    const counting = (method: 'addEventListener' | 'removeEventListener', by: number) =>
      function counted(this: AbortSignal, ...args: Parameters<AbortSignal['addEventListener']>) {
        listeners += by
        EventTarget.prototype[method].apply(signal, args)
      }
    const counted = Object.assign(signal, {
      addEventListener: counting('addEventListener', 1),
      removeEventListener: counting('removeEventListener', -1),
    })
    const one = makeNotification()
    for (let i = 0; i < 100; i++) {
      const heard = one.notified(counted)
      one.notify()
      await heard
    }
    assert.equal(listeners, 0)
  })
})
