// lane: quick
// Tests cli/top/draw.ts.
import assert from 'node:assert/strict'
import { difference, draw, type Watched } from '../../../cli/top/draw.ts'
import { initialState } from '../../../cli/top/state.ts'
import type { Line } from '../../../cli/top/table.ts'
import { generator } from '../../support/random.ts'

const NOW = Date.UTC(2026, 10, 1, 12, 0, 0)
const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[A-Za-z]`, 'g')

describe('the screen of plumb top', () => {
  const line = (name: string, value: number, tone: Line['tone'] = 'good'): Line => ({
    key: name,
    cells: [name, { text: `${value} ms`, value }, 'zone b'],
    tone,
    details: () => [name],
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
})
