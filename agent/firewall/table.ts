import { generation as kernelGeneration } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'

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

/** Keeps a table by name; `generation` counts the changes of all rules. */
export function keepTable(name: string, generation = kernelGeneration): Table {
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
        for (let tries = 1; ; tries++) {
          const before = generation()
          const { printed, changes } = await load(name, wanted, run)
          if (loaded?.text === text) return true
          // Nobody else changed anything in between, so that what was printed is what was loaded.
          if (before === undefined || generation() === before + changes || tries === TRIES) {
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

// What nft then prints of it, undefined when it was removed again already, and how many changes that took.
async function load(name: string, { over, anew, parts }: Wanted, run: Run): Promise<{ printed: string | undefined; changes: number }> {
  const argv = ['nft', '-f', '-']
  let changes = 1
  if ((await run(argv, over)).status === 0) {
    const printed = await shown(name, run)
    if (printed === undefined || hasOnly(printed, parts)) return { printed, changes }
    changes++
  }
  const { status, stderr } = await run(argv, anew)
  if (status !== 0) throw new ExecError(argv, `table inet ${name}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
  return { printed: await shown(name, run), changes }
}

function hasOnly(text: string, parts: readonly string[]): boolean {
  const found = [...text.matchAll(/^\t(\w+ [^\s{]+) ?\{/gm)].map(([, part]) => part)
  return found.length === parts.length && found.every((part) => parts.includes(part as string))
}

async function shown(name: string, run: Run): Promise<string | undefined> {
  const { status, stdout } = await run(['nft', 'list', 'table', 'inet', name], '')
  return status === 0 ? stdout : undefined
}
