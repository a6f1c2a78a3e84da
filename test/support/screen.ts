// A terminal of the test: a pseudo terminal, and what would be seen on it.

/** A program in a terminal. */
export interface Screen {
  /** The lines that are seen, without blanks at their end. */
  readonly lines: readonly string[]
  /** All that is seen. */
  readonly text: string
  /** Everything that came, with all escapes. */
  readonly raw: string
  /** The screen of programs like this one is shown, and not that of the shell. */
  readonly isOther: boolean
  readonly isCursorShown: boolean
  readonly process: Bun.Subprocess
  /** Types keys. */
  type(keys: string): void
  resize(columns: number, rows: number): void
  /** The flags of the terminal, as `stty -a` prints them. */
  flags(): Promise<string>
  close(): void
}

interface Pty {
  write(text: string): void
  resize(columns: number, rows: number): void
  close(): void
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: what programs send to a terminal
const SEQUENCE = /\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+/g

/** Starts a program in a terminal of this size. A shell waits for it, so that the terminal outlives the program. */
export function inTerminal(
  argv: readonly string[],
  { columns = 100, rows = 20, env = {} as Readonly<Record<string, string>> } = {},
): Screen {
  let [raw, rest, isOther, isCursorShown] = ['', '', false, true]
  let size = { columns, rows }
  let cells: string[][] = blank(rows)
  let [row, column] = [0, 0]
  const decoder = new TextDecoder()
  const take = (text: string) => {
    // A sequence may be cut between two reads.
    const all = rest + text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the same
    rest = /\x1b(?:\[[?0-9;]*)?$/.exec(all)?.[0] ?? ''
    for (const [whole, args = '', letter] of all.slice(0, all.length - rest.length).matchAll(SEQUENCE)) {
      const numbers = args.split(';').map(Number)
      if (letter === 'H') [row, column] = [(numbers[0] || 1) - 1, (numbers[1] || 1) - 1]
      else if (letter === 'K') cells[row]?.splice(column)
      else if (letter === 'J') cells = blank(size.rows)
      else if (args === '?1049') {
        isOther = letter === 'h'
        cells = blank(size.rows)
      } else if (args === '?25') isCursorShown = letter === 'h'
      else if (letter !== undefined) continue
      else if (whole === '\r') column = 0
      else if (whole === '\n') row++
      else
        for (const sign of whole) {
          const line = cells[row]
          if (line) {
            while (line.length < column) line.push(' ')
            line[column] = sign
          }
          column++
        }
    }
  }
  const spawned = Bun.spawn([...argv], {
    env: { PATH: process.env['PATH'] ?? '', TERM: 'xterm-256color', ...env },
    terminal: {
      cols: columns,
      rows,
      data(_: unknown, bytes: Uint8Array) {
        const text = decoder.decode(bytes, { stream: true })
        raw += text
        take(text)
      },
    },
  } as unknown as Bun.SpawnOptions.OptionsObject<'ignore', 'ignore', 'ignore'>)
  const pty = (spawned as unknown as { readonly terminal: Pty }).terminal
  return {
    get lines() {
      return cells.map((line) => line.join('').trimEnd())
    },
    get text() {
      return cells.map((line) => line.join('').trimEnd()).join('\n')
    },
    get raw() {
      return raw
    },
    get isOther() {
      return isOther
    },
    get isCursorShown() {
      return isCursorShown
    },
    process: spawned,
    type: (keys) => pty.write(keys),
    resize(width, height) {
      size = { columns: width, rows: height }
      cells = blank(height)
      pty.resize(width, height)
    },
    async flags() {
      const stty = Bun.spawn(['stty', '-a', '-F', `/proc/${spawned.pid}/fd/0`], { stdout: 'pipe', stderr: 'ignore' })
      return new Response(stty.stdout).text()
    },
    close() {
      spawned.kill('SIGKILL')
      pty.close()
    },
  }
}

function blank(rows: number): string[][] {
  return Array.from({ length: rows }, () => [])
}
