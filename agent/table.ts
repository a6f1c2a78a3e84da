import { ExecError } from '../lib/errors.ts'
import type { Run } from '../lib/plugin.ts'

/** What a table is to be: `over` loads it over an earlier one of ours, which no packet notices; `anew` in the place of whatever there is. */
export interface Wanted {
  readonly over: string
  readonly anew: string
  /** All that stands in it: `set own4`, `chain forward`. */
  readonly parts: readonly string[]
}
/** A whole nft table that is ours alone: loaded in one transaction, and again when somebody changed it. */
export interface Table {
  /** Makes it so; true when it was loaded, for the first time or again. Throws ExecError. */
  ensure(wanted: Wanted, run: Run): Promise<boolean>
  /** Somebody touched it: the next `ensure` looks. */
  doubt(): void
}

/** Keeps a table by name. */
export function keepTable(name: string): Table {
  let loaded: { text: string; shown: string } | undefined
  let doubted = true
  return {
    doubt() {
      doubted = true
    },
    async ensure(wanted, run) {
      const text = wanted.anew
      if (loaded?.text === text && !doubted) return false
      // Before anything is asked: what changes from now on is doubtful again.
      doubted = false
      try {
        // nft prints rules in words of its own: what it printed after we loaded them is what it has to print.
        if (loaded?.text === text && (await shown(name, run)) === loaded.shown) return false
        const now = await load(name, wanted, run)
        // Removed again already: the next `ensure` has to load it.
        loaded = now === undefined ? undefined : { text, shown: now }
        return true
      } catch (cause) {
        doubted = true
        throw cause
      }
    },
  }
}

// What nft then prints of it; undefined when it was removed again already.
async function load(name: string, { over, anew, parts }: Wanted, run: Run): Promise<string | undefined> {
  const argv = ['nft', '-f', '-']
  if ((await run(argv, over)).status === 0) {
    const now = await shown(name, run)
    if (now === undefined || hasOnly(now, parts)) return now
  }
  const { status, stderr } = await run(argv, anew)
  if (status !== 0) throw new ExecError(argv, `table inet ${name}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
  return shown(name, run)
}

function hasOnly(text: string, parts: readonly string[]): boolean {
  const found = [...text.matchAll(/^\t(\w+ [^\s{]+) ?\{/gm)].map(([, part]) => part)
  return found.length === parts.length && found.every((part) => parts.includes(part as string))
}

async function shown(name: string, run: Run): Promise<string | undefined> {
  const { status, stdout } = await run(['nft', 'list', 'table', 'inet', name], '')
  return status === 0 ? stdout : undefined
}
