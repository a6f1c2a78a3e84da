// What somebody looks at, and what a key changes. Pure.
import type { Choice } from './table.ts'

/** The views, in the order of the keys 1 to 4. */
export const VIEWS = ['nodes', 'pairs', 'pods', 'drops'] as const
/** The name of a view. */
export type View = (typeof VIEWS)[number]

/** What is on the screen. */
export interface State extends Choice {
  readonly view: View
  /** The key of the row where the cursor is, and its place when the row is gone. */
  readonly key: string | undefined
  readonly place: number
  /** The key of the row that is shown alone. */
  readonly open: string | undefined
  /** The first line that is shown of it, or of the help. */
  readonly scroll: number
  readonly isHelp: boolean
  readonly isPaused: boolean
  /** What is typed: a search (`/`) or a command (`:`). */
  readonly input: { readonly sign: '/' | ':'; readonly text: string } | undefined
  readonly message: string
  readonly isOver: boolean
}
/** What a key needs to know of the screen. */
export interface ScreenState {
  /** The keys of the rows that are shown, in their order. */
  readonly keys: readonly string[]
  readonly columns: number
  /** The number of rows that fit on the screen. */
  readonly page: number
  /** The first line that is shown at the end of what is open. */
  readonly lastScroll: number
}

/** The state at the start. */
export function initialState(view: View): State {
  return {
    view,
    search: '',
    isProblemsOnly: false,
    column: undefined,
    isDown: false,
    key: undefined,
    place: 0,
    open: undefined,
    scroll: 0,
    isHelp: false,
    isPaused: false,
    input: undefined,
    message: '',
    isOver: false,
  }
}

/** The keys, for the help. */
export const KEYS: readonly (readonly [keys: string, about: string])[] = [
  [':nodes :pairs :pods :drops', 'another view; 1 2 3 4 are the same'],
  ['/', 'search: words are all wanted, !word is not, state:silent looks in one column'],
  ['j k, arrows', 'a row down or up; g and G for the first and the last, PageUp and PageDown for a page'],
  ['Enter', 'everything about a row'],
  ['Esc', 'back: closes what is open, then ends the search'],
  ['!', 'problems only, or all again'],
  ['s S', 'sort by the next column; the other way round'],
  ['Space', 'pause, and go on'],
  ['?', 'this help'],
  ['q, Ctrl-C', 'quit'],
]

/** The state after a key. Keys are characters, or names such as `Enter`, `Escape`, `Up`, `PageDown`. */
export function pressed(state: State, key: string, seen: ScreenState): State {
  const calm = { ...state, message: '' }
  if (key === 'Ctrl-C') return { ...calm, isOver: true }
  if (state.input) return typed(calm, state.input, key)
  if (state.isHelp || state.open !== undefined) {
    if (['Escape', 'Enter', '?', 'q'].includes(key)) return { ...calm, isHelp: false, open: undefined, scroll: 0 }
    const step = stepOf(key, seen.page)
    return step === undefined ? calm : { ...calm, scroll: Math.max(0, Math.min(seen.lastScroll, calm.scroll + step)) }
  }
  const step = stepOf(key, seen.page)
  if (step !== undefined) return moved(calm, step, seen)
  const number = /^[1-4]$/.test(key) ? VIEWS[Number(key) - 1] : undefined
  if (number !== undefined) return inView(calm, number)
  switch (key) {
    case 'q':
      return { ...calm, isOver: true }
    case '?':
      return { ...calm, isHelp: true, scroll: 0 }
    case '/':
      return { ...calm, input: { sign: '/', text: calm.search } }
    case ':':
      return { ...calm, input: { sign: ':', text: '' } }
    case '!':
      return { ...calm, isProblemsOnly: !calm.isProblemsOnly }
    case ' ':
      return { ...calm, isPaused: !calm.isPaused }
    case 's':
      return { ...calm, column: nextColumn(calm.column, seen.columns) }
    case 'S':
      return { ...calm, isDown: !calm.isDown }
    case 'Enter': {
      const open = placeOf(calm, seen.keys).key
      return open === undefined ? calm : { ...calm, open, key: open, scroll: 0 }
    }
    case 'Escape':
      return calm.search === '' ? { ...calm, isProblemsOnly: false } : { ...calm, search: '' }
    default:
      return calm
  }
}

function nextColumn(column: number | undefined, columns: number): number | undefined {
  if (column === undefined) return 0
  return column + 1 < columns ? column + 1 : undefined
}

/** Where the cursor is among these rows: at its row, else at its former place. */
export function placeOf(
  { key, place }: Pick<State, 'key' | 'place'>,
  keys: readonly string[],
): { readonly place: number; readonly key: string | undefined } {
  const found = key === undefined ? -1 : keys.indexOf(key)
  const now = found >= 0 ? found : Math.max(0, Math.min(place, keys.length - 1))
  return { place: now, key: keys[now] }
}

function moved(state: State, step: number, { keys }: ScreenState): State {
  const { place } = placeOf(state, keys)
  const next = Math.max(0, Math.min(keys.length - 1, place + step))
  return { ...state, place: next, key: keys[next] }
}

function stepOf(key: string, page: number): number | undefined {
  const all = Number.MAX_SAFE_INTEGER
  const steps: Readonly<Record<string, number>> = {
    j: 1,
    Down: 1,
    k: -1,
    Up: -1,
    PageDown: page,
    PageUp: -page,
    G: all,
    End: all,
    g: -all,
    Home: -all,
  }
  return steps[key]
}

function typed(state: State, { sign, text }: NonNullable<State['input']>, key: string): State {
  const isSearch = sign === '/'
  if (key === 'Escape') return { ...state, input: undefined, ...(isSearch && { search: '' }) }
  if (key === 'Enter') return isSearch ? { ...state, input: undefined } : commanded(state, text.trim())
  const next = key === 'Backspace' ? text.slice(0, -1) : [...key].length === 1 ? text + key : text
  return { ...state, input: { sign, text: next }, ...(isSearch && { search: next }) }
}

function commanded(state: State, text: string): State {
  const done = { ...state, input: undefined }
  if (text === '') return done
  if (/^(q|quit|q!)$/.test(text)) return { ...done, isOver: true }
  const found = VIEWS.filter((view) => view.startsWith(text.toLowerCase()))
  const [only] = found
  if (found.length === 1 && only) return inView(done, only)
  return { ...done, message: `there is no view "${text}": want one of ${VIEWS.join(', ')}` }
}

function inView(state: State, view: View): State {
  return { ...state, view, key: undefined, place: 0, column: undefined, isDown: false, open: undefined }
}

const SEQUENCES: Readonly<Record<string, string>> = {
  A: 'Up',
  B: 'Down',
  H: 'Home',
  F: 'End',
  '5~': 'PageUp',
  '6~': 'PageDown',
  '1~': 'Home',
  '4~': 'End',
}
const CONTROLS: Readonly<Record<string, string>> = {
  '\r': 'Enter',
  '\n': 'Enter',
  '\x7f': 'Backspace',
  '\b': 'Backspace',
  '\x03': 'Ctrl-C',
  '\x04': 'Ctrl-C',
  '\x1b': 'Escape',
}
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal sends for keys
const KEY = /\x1b[[O]([0-9;]*[A-Za-z~])|./gsu
// biome-ignore lint/suspicious/noControlCharactersInRegex: the same, not yet whole
const BEGUN = /\x1b(?:[[O][0-9;]*)?$/

/** The keys in what a terminal has sent. `rest` may be the beginning of a key whose other characters come later. */
export function keysOf(sent: string): { readonly keys: readonly string[]; readonly rest: string } {
  const rest = BEGUN.exec(sent)?.[0] ?? ''
  return { keys: wholeKeys(sent.slice(0, sent.length - rest.length)), rest }
}

/** The keys in what a terminal has sent, when nothing more comes: a lone Escape is a key. */
export function wholeKeys(sent: string): string[] {
  return [...sent.matchAll(KEY)].flatMap(([whole, sequence]) => {
    if (sequence !== undefined) return SEQUENCES[sequence] ?? []
    const control = CONTROLS[whole]
    return control ?? (whole < ' ' ? [] : whole)
  })
}
