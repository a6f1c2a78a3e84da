import type { Run } from '../../../lib/os/run.ts'
import { ExecError } from '../../../lib/text/errors.ts'

/** Runs a tool that prints JSON. Nothing printed is an empty list. Throws Error when it fails. */
export async function jsonOf(run: Run, argv: readonly string[]): Promise<unknown> {
  const { status, stdout, stderr } = await run(argv, '')
  if (status !== 0) throw new ExecError(argv, undefined, stderr.split('\n', 1)[0] ?? '')
  return stdout.trim() === '' ? [] : JSON.parse(stdout)
}
