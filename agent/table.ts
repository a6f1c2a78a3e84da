import { ExecError } from '../lib/errors.ts'
import type { Run } from '../lib/plugin.ts'

/** A whole nft table that is ours alone: loaded in one transaction, and again when somebody changed it. */
export interface Table {
  /** Makes it what the text says; true when it was loaded, for the first time or again. */
  ensure(text: string, run: Run): Promise<boolean>
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
    async ensure(text, run) {
      if (loaded?.text === text && !doubted) return false
      doubted = false
      // nft prints rules in words of its own: what it printed after we loaded them is what it has to print.
      if (loaded?.text === text && (await shown(name, run)) === loaded.shown) return false
      const argv = ['nft', '-f', '-']
      const { status, stderr } = await run(argv, text)
      if (status !== 0) {
        doubted = true
        throw new ExecError(argv, `table inet ${name}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
      }
      const now = await shown(name, run)
      // Somebody may have changed it since: nothing is like it then, and the event of that leads here again. Twice in a row it is nft's way to print it.
      loaded = { text, shown: partsOf(now) === partsOf(text) || loaded?.shown === '' ? now : '' }
      return true
    },
  }
}

async function shown(name: string, run: Run): Promise<string> {
  return (await run(['nft', 'list', 'table', 'inet', name], '')).stdout
}

// How many rules it has, and sets with something in them: each is a line, in our words and in nft's.
function partsOf(text: string): number {
  return text.match(/\b(return|accept|masquerade)\b.*$|\belements =/gm)?.length ?? 0
}
