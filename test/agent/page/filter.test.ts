// lane: quick
// Tests agent/page/filter.ts.
import assert from 'node:assert/strict'
import { AGES, type Fields, readFilter } from '../../../agent/page/filter.ts'
import { fieldText, named, orderOf, peerFields } from '../../../agent/page/peer-fields.ts'
import { type Row, rowOf } from '../../../agent/state/rows.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { generator } from '../../support/random.ts'
import { peers } from '../../support/scripted.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 30)

/** Rows of peers. `since` is for those that are lost. */
function rows(count: number, change: (peer: Peer, i: number) => Partial<Peer> = () => ({}), since?: number): Row[] {
  return peers(count).map((peer, i) => {
    const made = { ...peer, ...change(peer, i) }
    return rowOf(i + 1, made, made.probe?.state === 'silent' || made.problem !== undefined ? since : undefined)
  })
}

const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const

describe('the search of the page', () => {
  const all = rows(
    20,
    (_, i) => ({
      zone: i < 4 ? 'b' : 'a',
      version: i === 7 ? '0.9.0' : '0.9.1',
      ...(i === 2 || i === 9 ? SILENT : { probe: { state: 'answers', sent: 10, lost: i === 5 ? 2 : 0, ms: i } }),
      ...(i === 12 && { problem: 'it announces VNI 2' }),
    }),
    NOW - 600_000,
  )
  const fields = peerFields(() => NOW)
  const found = (search: string) => {
    const filter = readFilter(search, fields, fieldText)
    return [all.filter(filter.matches).map(({ n }) => n), filter.mistakes] as const
  }

  it('finds by each key, by several words, by one of several values, and by what is not so', () => {
    for (const [search, numbers] of [
      ['state:silent', [3, 10]],
      ['state:bad', [3, 10, 13]],
      ['state:bad zone:b', [3]],
      ['state:silent,unreachable', [3, 10, 13]],
      ['zone:b', [1, 2, 3, 4]],
      ['!zone:a state:silent', [3]],
      ['version:0.9.0', [8]],
      ['version:0.*', all.map(({ n }) => n)],
      ['node:node-1 !node:node-1*', [1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]],
      ['loss>10', [3, 6, 10]],
      ['loss:20', [6]],
      ['loss>=20% loss<30', [6]],
      ['rtt>17', [19, 20]],
      ['rtt<=2ms !state:bad', [1, 2]],
      ['rtt>18000µs', [20]],
      ['since<11m', [3, 10, 13]],
      ['since>11min', []],
      ['ip:198.51.0.7', [7]],
      ['backend:vxlan zone:b', [1, 2, 3, 4]],
      ['VNI', [13]],
      ['"announces vni"', [13]],
      ['text:vni', [13]],
      ['fd00:64:5::', [5]],
      ['10.64.5.0', [5]],
      ['', all.map(({ n }) => n)],
      ['nobody', []],
    ] as const)
      assert.deepEqual(found(search), [numbers, []], search)
  })
  it('says what cannot be searched for, with the nearest key, and passes it over', () => {
    assert.deepEqual(found('stat:silent zone:b'), [[1, 2, 3, 4], ['“stat” cannot be searched for; do you mean state?']])
    assert.match(found('colour:red')[1][0] ?? '', /^“colour” cannot be searched for; there is node, state, zone, /)
    assert.deepEqual(found('rtt>fast')[1], ['“rtt>fast”: want a number, with ms, µs, us, s or nothing after it'])
    assert.deepEqual(found('rtt>5h')[1], ['“rtt>5h”: want a number, with ms, µs, us, s or nothing after it'])
    assert.deepEqual(found('zone>b')[1], ['“zone>b”: zone is no number; want zone:b'])
    assert.deepEqual(found('constructor:x')[1].length, 1)
  })
  it('reads any text without an error', () => {
    const random = generator(7)
    const parts = ['!', ':', '"', '<', '>=', ',', 'state', 'rtt', '5', 'ms', ' ', '%', '\\', '*', 'é', '\u202e']
    const fake: Fields<string> = {
      state: { kind: 'exact', of: (text) => text },
      rtt: { kind: 'number', units: AGES, of: () => 1 },
    }
    for (let i = 0; i < 5000; i++) {
      const search = Array.from({ length: 8 }, () => parts[Math.floor(random() * parts.length)]).join('')
      assert.equal(typeof readFilter(search, fake, (text) => text).matches('state'), 'boolean', search)
    }
  })
  it('finds among 5,000 peers within 50 ms, and sorts them', () => {
    const many = rows(5000, (_, i) => ({
      zone: `z${i % 3}`,
      probe: { state: 'answers', sent: 10, lost: i % 2, ms: i % 90 },
    }))
    const search = (text: string) =>
      named(many)
        .filter(readFilter(text, fields, fieldText).matches)
        .sort(orderOf('-rtt'))
    assert.equal(search('zone:z1 rtt>80').length, many.filter(({ zone, ms = 0 }) => zone === 'z1' && ms > 80).length)
    assert.equal(search('node-49').length, 111)
  })
})
