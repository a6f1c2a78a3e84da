import { ExecError } from '../lib/errors.ts'
import { generation as kernelGeneration } from '../lib/netfilter.ts'
import type { Run } from '../lib/plugin.ts'

/** A whole nft table that is ours alone: loaded in one transaction, and again when somebody changed it. */
export interface Table {
  /** Makes it what the text says; true when it was loaded, for the first time or again. */
  ensure(text: string, run: Run): Promise<boolean>
  /** Somebody touched it: the next `ensure` looks. */
  doubt(): void
}

/** Keeps a table by name; `generation` counts the changes of all rules. */
export function keepTable(name: string, generation = kernelGeneration): Table {
  let loaded: { text: string; shown: string } | undefined
  let doubted = true
  return {
    doubt() {
      doubted = true
    },
    async ensure(text, run) {
      if (loaded?.text === text && !doubted) return false
      // Before anything is asked: what changes from now on is doubtful again.
      doubted = false
      try {
        // nft prints rules in words of its own: what it printed after we loaded them is what it has to print.
        if (loaded?.text === text && (await shown(name, run)) === loaded.shown) return false
        for (let tries = 1; ; tries++) {
          const before = generation()
          await load(name, text, run)
          if (loaded?.text === text) return true
          const printed = await shown(name, run)
          // Nobody else changed anything in between, so that what was printed is what was loaded.
          if (before === undefined || generation() === before + 1 || tries === TRIES) {
            // Removed again already: the next `ensure` has to load it.
            loaded = printed === undefined ? undefined : { text, shown: printed }
            return true
          }
        }
      } catch (cause) {
        doubted = true
        throw cause
      }
    },
  }
}

// Where others change rules all the time, one of these meets a quiet moment.
const TRIES = 5

async function load(name: string, text: string, run: Run): Promise<void> {
  const argv = ['nft', '-f', '-']
  const { status, stderr } = await run(argv, text)
  if (status !== 0) throw new ExecError(argv, `table inet ${name}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
}

async function shown(name: string, run: Run): Promise<string | undefined> {
  const { status, stdout } = await run(['nft', 'list', 'table', 'inet', name], '')
  return status === 0 ? stdout : undefined
}
