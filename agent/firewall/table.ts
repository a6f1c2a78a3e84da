import { generation as kernelGeneration } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'

/** The wanted table. `over` updates an earlier table of the agent without effect on packets. `whole` replaces any table. */
export interface Wanted {
  readonly over: string
  readonly whole: string
  /** The names of all objects in the table, such as `set own4` or `chain forward`. */
  readonly parts: readonly string[]
}
/**
 * An nft table that belongs to the agent alone. One transaction loads it. It is loaded again after a foreign change.
 */
export interface Table {
  /** Makes the kernel's table equal to the wanted table. True when it was loaded. Throws ExecError. */
  ensure(wanted: Wanted, run: Run): Promise<boolean>
  /** Notes that another program touched the table. The next `ensure` checks it. */
  invalidate(): void
}

/** Keeps the table of this name. `generation` reads the counter of all rule changes. */
export function keepTable(name: string, generation = kernelGeneration): Table {
  let loaded: { text: string; shown: string } | undefined
  let isStale = true
  return {
    invalidate() {
      isStale = true
    },
    async ensure(wanted, run) {
      const text = wanted.whole
      if (loaded?.text === text && !isStale) return false
      // Clears the mark before the first query. A change from now on sets it again.
      isStale = false
      try {
        // nft prints rules in a form of its own. The output after the load is the reference for later checks.
        if (loaded?.text === text && (await shown(name, run)) === loaded.shown) return false
        for (let tries = 1; ; tries++) {
          const before = generation()
          const { printed, changes } = await load(name, wanted, run)
          if (loaded?.text === text) return true
          // When no other program changed rules in between, the output shows the loaded table.
          if (before === undefined || generation() === before + changes || tries === TRIES) {
            // Another program has removed the table already. The next `ensure` must load it.
            loaded = printed === undefined ? undefined : { text, shown: printed }
            return true
          }
        }
      } catch (cause) {
        isStale = true
        throw cause
      }
    },
  }
}

// The number of attempts to load the table while no other program commits a transaction.
const TRIES = 5

// Loads the table and gives nft's output of it, and the number of transactions. The output is undefined when the table
// was removed already.
async function load(
  name: string,
  { over, whole, parts }: Wanted,
  run: Run,
): Promise<{ printed: string | undefined; changes: number }> {
  const argv = ['nft', '-f', '-']
  let changes = 1
  if ((await run(argv, over)).status === 0) {
    const printed = await shown(name, run)
    if (printed === undefined || hasOnly(printed, parts)) return { printed, changes }
    changes++
  }
  const { status, stderr } = await run(argv, whole)
  if (status !== 0)
    throw new ExecError(argv, `table inet ${name}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
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
