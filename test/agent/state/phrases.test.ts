// lane: quick
// Tests agent/state/phrases.ts.
import assert from 'node:assert/strict'
import { durationWords, span, storeWords } from '../../../agent/state/phrases.ts'
import { scripted } from '../../support/scripted.ts'

const MIN = 60_000
const HOUR = 60 * MIN

describe('what the agent tells', () => {
  it('span() gives the two largest units', () => {
    const found = [-5, 0, 1499, 59_000, MIN, 59 * MIN, HOUR, 3 * HOUR + 12 * MIN, 24 * HOUR, 52 * HOUR].map(span)
    assert.deepEqual(found, ['0 s', '0 s', '1 s', '59 s', '1 min', '59 min', '1 h', '3 h 12 min', '1 d', '2 d 4 h'])
  })
  it('storeWords() says how long a store is away, and why', () => {
    const words = (store: object) =>
      storeWords({ started: 0, store: { name: 'etcd', connected: false, ...store } }, 90_000)
    assert.deepEqual(
      [
        words({ connected: true, heard: 1 }),
        words({}),
        words({ heard: 60_000 }),
        words({ heard: 60_000, error: 'connection refused' }),
      ],
      ['connected', 'never heard of in 1 min', 'not heard of for 30 s', 'not heard of for 30 s: connection refused'],
    )
  })
  it('durationWords() reads half and 99 % off the buckets', () => {
    const { steps } = scripted().status()
    assert.equal(durationWords(steps), 'half within 2.5 ms, 99 % within 50 ms')
    assert.equal(
      durationWords({ count: 1, sum: 9, buckets: steps.buckets.map(() => 0) }),
      'half within more than 5 s, 99 % within more than 5 s',
    )
    assert.equal(durationWords({ count: 0, sum: 0, buckets: [] }), '')
  })
})
