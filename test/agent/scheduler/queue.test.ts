// lane: quick
// Tests agent/scheduler/queue.ts.
import assert from 'node:assert/strict'
import { makeQueue } from '../../../agent/scheduler/queue.ts'
import { patient } from '../../support/patience.ts'

describe('makeWakes()', () => {
  it('folds any number of wakes before it looks into one, each reason once', async () => {
    const queue = makeQueue(new AbortController().signal)
    for (const why of ['a', 'b', 'a', 'c']) queue.add(why)
    assert.deepEqual(await queue.next(0), ['a', 'b', 'c'])
  })
  it('waits for the first, and takes what comes within quietMs with it', async () => {
    const queue = makeQueue(new AbortController().signal)
    const next = queue.next(30)
    queue.add('a')
    setTimeout(() => queue.add('b'), 5)
    assert.deepEqual(await next, ['a', 'b'])
  })
  it('keeps a later one for later, and the earlier of two times counts', async () => {
    const queue = makeQueue(new AbortController().signal)
    queue.add('later', 60_000)
    queue.add('soon', 5000)
    queue.add('soon', 10)
    const started = performance.now()
    assert.deepEqual(await queue.next(0), ['soon'])
    assert.ok(performance.now() - started < patient(4000))
  })
  it('waits for one that is months away without looking at the clock all the time', async () => {
    const end = new AbortController()
    const queue = makeQueue(end.signal)
    queue.add('renewal', 2 ** 33)
    const real = globalThis.setTimeout
    let timers = 0
    const counting = (...args: Parameters<typeof real>) => {
      timers++
      return real(...args)
    }
    globalThis.setTimeout = Object.assign(counting, real) as typeof real
    try {
      const next = queue.next(0)
      await Bun.sleep(30)
      end.abort()
      assert.deepEqual(await next, [])
      assert.equal(timers, 1)
    } finally {
      globalThis.setTimeout = real
    }
  })
  it('ends with the signal, while it waits and at once', async () => {
    const end = new AbortController()
    const queue = makeQueue(end.signal)
    const next = queue.next(0)
    end.abort()
    assert.deepEqual(await next, [])
    queue.add('a')
    assert.deepEqual(await queue.next(0), [])
  })
})
