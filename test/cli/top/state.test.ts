// lane: quick
// Tests cli/top/state.ts, cli/top/table.ts, cli/top/draw.ts and cli/top/node-view.ts.
import assert from 'node:assert/strict'
import { known } from '../../../agent/state/messages.ts'
import { columnsOf, rowOf } from '../../../agent/state/rows.ts'
import { difference, draw, type Watched } from '../../../cli/top/draw.ts'
import { watchedNode } from '../../../cli/top/node-view.ts'
import { initialState, keysOf, placeOf, pressed, type State, wholeKeys } from '../../../cli/top/state.ts'
import { cellText, chosen, type Line, type Table } from '../../../cli/top/table.ts'
import { patient } from '../../support/patience.ts'
import { generator } from '../../support/random.ts'
import { peers, scripted } from '../../support/scripted.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 0, 0)
const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[A-Za-z]`, 'g')

describe('the screen of plumb top', () => {
  const line = (name: string, value: number, tone: Line['tone'] = 'good'): Line => ({
    key: name,
    cells: [name, { text: `${value} ms`, value }, 'zone b'],
    tone,
    details: () => [name],
  })
  const table: Table = {
    headings: ['NODE', 'RTT', 'ZONE'],
    lines: [line('node-10', 0.15, 'error'), line('node-9', 12), line('node-2', 0.9)],
    empty: 'none',
  }
  const names = (change: Partial<State>) => chosen(table, { ...initialState('nodes'), ...change }).map(({ key }) => key)

  it('words are all wanted, ! negates, and a heading names its column', () => {
    assert.deepEqual(names({ search: 'NODE- zone' }), ['node-10', 'node-9', 'node-2'])
    assert.deepEqual(names({ search: 'node:9' }), ['node-9'])
    assert.deepEqual(names({ search: '!node:9 !node:10' }), ['node-2'])
    assert.deepEqual(names({ search: 'other:b' }), [])
    assert.deepEqual(names({ search: '!' }), ['node-10', 'node-9', 'node-2'])
    assert.deepEqual(names({ isProblemsOnly: true }), ['node-10'])
  })
  it('sorts numbers by their value, and numbers in names too', () => {
    assert.deepEqual(names({ column: 0 }), ['node-2', 'node-9', 'node-10'])
    assert.deepEqual(names({ column: 1 }), ['node-10', 'node-2', 'node-9'])
    assert.deepEqual(names({ column: 1, isDown: true }), ['node-9', 'node-2', 'node-10'])
  })
  it('reads keys, also when a sequence comes in two parts, and no other sequence is typed as text', () => {
    assert.deepEqual(keysOf('j\x1b[A\x1bOB\x1b[5~é\r\x7f\x03'), {
      keys: ['j', 'Up', 'Down', 'PageUp', 'é', 'Enter', 'Backspace', 'Ctrl-C'],
      rest: '',
    })
    assert.deepEqual(keysOf('a\x1b['), { keys: ['a'], rest: '\x1b[' })
    assert.deepEqual(keysOf('\x1b[A\x1b'), { keys: ['Up'], rest: '\x1b' })
    assert.deepEqual(wholeKeys('\x1b'), ['Escape'])
    assert.deepEqual(keysOf('\x1b[1;5C\x1b[200~\x01').keys, [])
  })
  it('the cursor stays at its row when rows come and go, and at its place when the row is gone', () => {
    const seen = (...keys: string[]) => ({ keys, columns: 3, page: 5, lastScroll: 3 })
    let state = pressed(pressed(initialState('nodes'), 'j', seen('a', 'b', 'c')), 'j', seen('a', 'b', 'c'))
    assert.deepEqual(placeOf(state, ['a', 'b', 'c']), { place: 2, key: 'c' })
    assert.deepEqual(placeOf(state, ['x', 'a', 'b', 'c', 'd']), { place: 3, key: 'c' })
    assert.deepEqual(placeOf(state, ['a', 'b']), { place: 1, key: 'b' })
    assert.deepEqual(placeOf(state, []), { place: 0, key: undefined })
    state = pressed(state, 'G', seen('a', 'b', 'c', 'd'))
    assert.equal(state.key, 'd')
    state = pressed(state, 'Enter', seen())
    assert.equal(state.open, undefined)
    state = ['?', 'G', 'k'].reduce((before, key) => pressed(before, key, seen('a')), state)
    assert.equal(state.scroll, 2)
  })
  it('while somebody types, keys are text; only Ctrl-C ends', () => {
    const seen = { keys: ['a'], columns: 3, page: 5, lastScroll: 3 }
    const type = (text: string) => [...text].reduce((state, key) => pressed(state, key, seen), initialState('nodes'))
    assert.equal(type('/q!? j').search, 'q!? j')
    assert.equal(type('/q!? j').isOver, false)
    assert.equal(pressed(type('/q'), 'Ctrl-C', seen).isOver, true)
    assert.equal(pressed(type('/q'), 'Escape', seen).search, '')
    assert.equal(pressed(type('/qx'), 'Backspace', seen).search, 'q')
    assert.equal(pressed(type(':q'), 'Enter', seen).isOver, true)
    assert.equal(pressed(type(':po'), 'Enter', seen).view, 'pods')
    assert.match(pressed(type(':p'), 'Enter', seen).message, /there is no view "p"/)
  })
  it('no line is longer than the terminal and none has a control character, whatever names there are', () => {
    const random = generator(7)
    const signs = ['a', 'é', '漢', '👩‍🚀', '\x1b[2J', '\u202e', '\n', '\t', ' ', 'x'.repeat(60)]
    const word = () => Array.from({ length: 12 }, () => signs[Math.floor(random() * signs.length)]).join('')
    for (let round = 0; round < 200; round++) {
      const lines = Array.from({ length: 30 }, (_, i) => ({
        ...line(word(), i, 'error'),
        details: () => [word(), word()],
      }))
      const one = { headings: ['NODE', 'RTT', 'ZONE'], lines, empty: 'none' }
      const tables = { nodes: one, pairs: one, pods: one, drops: one }
      const watched: Watched = { title: word(), sentence: word(), tone: 'error', tables, at: NOW }
      const size = { columns: 20 + Math.floor(random() * 100), rows: 6 + Math.floor(random() * 30) }
      const open = round % 3 === 0 ? lines[3]?.key : undefined
      const screen = draw({ ...initialState('nodes'), open, search: round % 5 === 0 ? 'x' : '' }, watched, size, true)
      assert.equal(screen.length, size.rows)
      for (const text of screen) {
        const plain = text.replace(ESCAPES, '')
        assert.ok(Bun.stringWidth(plain) <= size.columns, `${Bun.stringWidth(plain)} of ${size.columns}: ${plain}`)
        assert.doesNotMatch(plain, /[\p{Cc}\p{Bidi_Control}]/u)
      }
    }
  })
  it('sends the lines that differ only', () => {
    assert.equal(difference(['a', 'b'], ['a', 'b']), '')
    assert.equal(difference(['a', 'b'], ['a', 'c']), '\x1b[?2026h\x1b[2;1Hc\x1b[K\x1b[?2026l')
    assert.equal(difference([], ['a']), '\x1b[?2026h\x1b[1;1Ha\x1b[K\x1b[?2026l')
  })
  it('with 3, 100, 1,000 and 5,000 peers the two bad ones are in the sentence and in the first rows', () => {
    for (const count of [3, 100, 1000, 5000]) {
      const status = scripted({ peers: peers(count), degraded: ['no answer over the overlay from node-2 and node-3'] })
      const rows = status.status().peers.map((peer, i) => {
        const isBad = i === 1 || i === 2
        return rowOf(i + 1, isBad ? { ...peer, probe: { state: 'silent', sent: 10, lost: 10 } } : peer, undefined)
      })
      const { peers: _, repairs: __, ...base } = status.status()
      const state = known({ at: NOW, status: base, peers: columnsOf(rows), happenings: [] })
      const begun = performance.now()
      const watched = watchedNode({ state }, NOW)
      const screen = draw(initialState('nodes'), watched, { columns: 120, rows: 24 }, false)
      const ms = performance.now() - begun
      assert.match(watched.sentence, /from node-2 and node-3; \d+ peers, 2 with a problem$/)
      const shown = watched.tables.nodes.lines.slice(0, 3).map(({ cells }) => cellText(cells[0]))
      assert.deepEqual(shown, ['node-0', 'node-2', 'node-3'])
      assert.ok(screen.some((text) => text.includes('✕ node-2')))
      assert.ok(ms < patient(2000), `${ms} ms`)
    }
  })
})
