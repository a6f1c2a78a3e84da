// lane: quick
// Tests lib/pools/addresses.ts: foresee().
import assert from 'node:assert/strict'
import { readdirSync, writeFileSync } from 'node:fs'
import { parseIp } from '../../../lib/text/ip.ts'
import { freshPool, owner, sets, take } from '../../support/address-store.ts'

const FREE = 'free now; the pool decides when it is asked'

describe('addressStore().foresee()', () => {
  let pool: ReturnType<typeof freshPool>
  beforeEach(() => {
    pool = freshPool()
  })
  afterEach(() => pool.remove())

  const foresee = (
    who: string,
    from: ReturnType<typeof sets>,
    wanted: readonly string[] = [],
    { cooldown = 0, isFreed = false } = {},
  ) => {
    const { ips, why } = pool.store(cooldown).foresee(owner(who), from, wanted.map(parseIp), isFreed)
    return [...ips.map(({ address }) => address), why]
  }

  it('gives what take() then gives, in every state of the pool, and leaves the disk as it is', () => {
    const from = sets('10.1.0.0/29', 'fd00:1::/64')
    assert.deepEqual(foresee('c0', from), ['10.1.0.2/29', 'fd00:1::2/64', FREE])
    assert.deepEqual(readdirSync(pool.dataDir), [])
    pool.foreign('10.1.0.4', 'other\r\neth0')
    for (let i = 0; i < 9; i++) {
      const before = [pool.files(), readdirSync(pool.dir)]
      const told = foresee(`c${i}`, from)
      assert.deepEqual([pool.files(), readdirSync(pool.dir)], before)
      assert.deepEqual(
        take(pool.store(), owner(`c${i}`), from).map((ip, n) => `${ip}/${n === 0 ? 29 : 64}`),
        told.slice(0, 2),
      )
      if (i > 1) pool.store().release(owner(`c${i - 1}`))
    }
  })
  it('tells an owner its own addresses, and what it would get once they are free', () => {
    const from = sets('10.1.0.0/24')
    take(pool.store(), owner('c1'), from)
    assert.deepEqual(foresee('c1', from), ['10.1.0.2/24', 'held by this attachment already'])
    assert.deepEqual(foresee('c1', from, [], { isFreed: true }), ['10.1.0.3/24', FREE])
    const pair = sets('10.2.0.0/30')
    take(pool.store(), owner('c2'), pair)
    assert.deepEqual(foresee('c2', pair, [], { isFreed: true }), ['10.2.0.2/30', FREE])
    // It rests as any.
    assert.throws(() => foresee('c2', pair, [], { isFreed: true, cooldown: 60 }), { code: 11 })
  })
  it('passes over addresses that rest', () => {
    const from = sets('10.1.0.0/30+10.2.0.0/30')
    assert.deepEqual(take(pool.store(60), owner('c1'), from), ['10.1.0.2'])
    pool.store(60).release(owner('c1'))
    assert.deepEqual(foresee('c2', from, [], { cooldown: 60 }), ['10.2.0.2/30', FREE])
  })
  it('refuses as take(): an address that is another’s or the gateway, an exhausted set', () => {
    const from = sets('10.1.0.0/30')
    assert.deepEqual(foresee('c1', from, ['10.1.0.2']), ['10.1.0.2/30', 'asked for'])
    assert.throws(() => foresee('c1', from, ['10.1.0.1']), { code: 7, message: /gateway/ })
    take(pool.store(), owner('c2'), from)
    assert.throws(() => foresee('c1', from, ['10.1.0.2']), { code: 7, message: /not available/ })
    assert.throws(() => foresee('c1', from), { code: 11, message: /^no IP addresses available/ })
  })
  it('gives the first address as an example where the directory cannot be read', () => {
    writeFileSync(pool.dir, 'no directory')
    assert.deepEqual(foresee('c1', sets('10.1.0.0/24')), [
      '10.1.0.2/24',
      `an example: ${pool.dir} cannot be read, the pool decides when it is asked`,
    ])
  })
})
