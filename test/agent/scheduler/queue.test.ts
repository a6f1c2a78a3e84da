// lane: quick
// Tests agent/scheduler.
import assert from 'node:assert/strict'
import { watchFights } from '../../../agent/kernel/fights.ts'
import { makeNotification } from '../../../agent/scheduler/pause.ts'
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

describe('watchFights()', () => {
  const [is, isNot] = [() => true, () => false]
  it('takes little that is put right for no fight, and many things once for none', () => {
    const fights = watchFights()
    for (let i = 0; i < 19; i++) assert.equal(fights.note([thing('a')], i * 100), 0)
    for (let i = 0; i < 100; i++) assert.equal(fights.note([thing(`${i}`)], 1000), 0)
    assert.deepEqual([fights.current(1000, is), fights.held(2000).size], [[], 0])
  })
  it('holds back what comes again and again, longer and longer up to 30 s, and nothing else; names it, and forgets it once it is over', () => {
    const fights = watchFights()
    let now = 0
    const pauses = new Set<number>()
    for (let i = 0; i < 40; i++) {
      const pause = fights.note([thing('a')], now)
      fights.note([thing('b')], now)
      assert.deepEqual([...fights.held(now)], pause > 0 ? ['a', 'b'] : [])
      assert.deepEqual([...fights.held(now + pause)], [])
      pauses.add(pause)
      now += Math.max(pause, 10)
    }
    assert.deepEqual([...pauses], [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000])
    fights.note([thing('c')], now)
    assert.deepEqual([...fights.held(now)], [])
    assert.match(
      fights.current(now, is).join(),
      /^route a is changed by another program again and again; it is put right every 30 s,route b/,
    )
    // What stays right for ten seconds is fought over no more.
    assert.deepEqual(fights.current(now, isNot), [])
    assert.deepEqual(fights.current(now + 120_000, is), [])
    assert.equal(fights.note([thing('a')], now + 120_000), 0)
  })
})

function thing(key: string) {
  return { key, title: `route ${key}` }
}

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
