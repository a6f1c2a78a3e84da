import { print } from '../output.ts'
import { fetchMany } from './page.ts'
import { expect, step } from './screen.ts'

/** How many connections `spread` makes. */
export const CONNECTIONS = 60
const BAR = 40

/**
 * Fetches a page often, each time by a connection of its own, and draws how many connections each server got. `names`
 * are the servers that have to answer, and no other. Throws StepError.
 */
export async function spread(title: string, from: string, url: string, names: readonly string[]): Promise<void> {
  let found: Readonly<Record<string, number>> = {}
  await step(title, async () => {
    found = await fetchMany(from, url, CONNECTIONS)
    expect('the pods that answered', Object.keys(found).sort(), [...names].sort())
    return `${names.length} pods answered`
  })
  const most = Math.max(...Object.values(found))
  for (const name of names)
    print(
      `      ${name.padEnd(7)} ${'#'.repeat(Math.round(((found[name] ?? 0) * BAR) / most)).padEnd(BAR)} ${found[name]}`,
    )
}
