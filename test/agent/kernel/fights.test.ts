// lane: quick
// Tests agent/kernel/fights.ts.
import assert from 'node:assert/strict'
import { watchFights } from '../../../agent/kernel/fights.ts'

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
