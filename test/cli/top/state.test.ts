// lane: quick
// Tests cli/top/state.ts.
import assert from 'node:assert/strict'
import { initialState, keysOf, placeOf, pressed, wholeKeys } from '../../../cli/top/state.ts'

describe('the keys of plumb top', () => {
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
})
