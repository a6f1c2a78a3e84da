// The terminal while `plumb top` has it. Whatever ends the program, the terminal is as before.
import { write } from '../output.ts'
import { difference, type Size } from './draw.ts'
import { keysOf, wholeKeys } from './state.ts'

// The other screen, which leaves what was on this one alone, and no cursor.
const [ENTER, LEAVE] = ['\x1b[?1049h\x1b[?25l\x1b[2J', '\x1b[?2026l\x1b[0m\x1b[?25h\x1b[?1049l']
const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const
/** A lone Escape is a key of its own when nothing follows it for so long. Milliseconds. */
const ESCAPE_MS = 30

/** What a terminal tells. */
export interface Listener {
  key(key: string): void
  resized(): void
}
/** A terminal that is in use. */
export interface Terminal {
  readonly size: Size
  /** Shows these lines. Sends only those that differ from what is there. */
  show(lines: readonly string[]): void
  /** Gives the terminal back. */
  close(): void
}

/** Takes the terminal of this process. It is given back by `close`, by a signal, and when the process ends. */
export function openTerminal(listener: Listener): Terminal {
  const { stdin, stdout } = process
  let shown: readonly string[] = []
  let isOpen = true
  let rest = ''
  let timer: Timer | undefined
  const decoder = new TextDecoder()
  const heard = (keys: readonly string[]) => {
    for (const key of keys) if (isOpen) listener.key(key)
  }
  const read = (bytes: Buffer) => {
    clearTimeout(timer)
    // Over a slow line, the rest of a sequence comes later.
    const { keys, rest: begun } = keysOf(rest + decoder.decode(bytes, { stream: true }))
    rest = begun
    heard(keys)
    if (rest !== '')
      timer = setTimeout(() => {
        const late = rest
        rest = ''
        heard(wholeKeys(late))
      }, ESCAPE_MS)
  }
  const resized = () => {
    shown = []
    if (isOpen) write('\x1b[2J')
    listener.resized()
  }
  const close = () => {
    if (!isOpen) return
    isOpen = false
    clearTimeout(timer)
    stdin.off('data', read)
    stdout.off('resize', resized)
    for (const name of Object.keys(SIGNALS)) process.off(name, ended)
    process.off('exit', close)
    stdin.setRawMode(false)
    stdin.pause()
    try {
      write(LEAVE)
    } catch {
      // The terminal itself is gone.
    }
  }
  const ended = (name: NodeJS.Signals) => {
    close()
    process.exit(128 + SIGNALS[name as keyof typeof SIGNALS])
  }
  process.on('exit', close)
  for (const name of Object.keys(SIGNALS)) process.on(name, ended)
  stdin.setRawMode(true)
  stdin.on('data', read)
  stdout.on('resize', resized)
  write(ENTER)
  return {
    get size() {
      return { columns: stdout.columns || 80, rows: stdout.rows || 24 }
    },
    show(lines) {
      if (!isOpen) return
      const changes = difference(shown, lines)
      if (changes !== '') write(changes)
      shown = lines
    },
    close,
  }
}
