import type { Run } from '../../../lib/os/run.ts'
import { listed } from '../../../lib/os/show.ts'

/** Runs a tool that lists in JSON. Nothing printed is an empty list. Throws Error when it fails. */
export async function jsonOf(run: Run, argv: readonly string[]): Promise<unknown> {
  return JSON.parse((await listed(argv, run)).trim() || '[]')
}
