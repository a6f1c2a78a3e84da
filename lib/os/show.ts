import { ExecError } from '../text/errors.ts'
import type { Netns } from '../text/values.ts'
import { failures, rows } from './iproute2.ts'
import type { Run } from './run.ts'

/**
 * Runs several show commands of a batch tool in one process. Returns the rows of each command. A failed command has no
 * rows, for example when the link does not exist. Throws ExecError.
 */
export async function show(
  tool: readonly string[],
  asks: readonly string[],
  run: Run,
  ns: Netns = 'host',
): Promise<readonly (readonly unknown[])[]> {
  // bridge(8) of iproute2 6.1 aborts at a second `vlan show` in JSON (json_writer.c).
  if (asks.filter((ask) => ask.startsWith('vlan ')).length > 1) {
    const found: (readonly unknown[])[] = []
    for (const ask of asks) found.push(...(await show(tool, [ask], run, ns)))
    return found
  }
  const argv = [...tool, '-j', '-force', '-batch', '-']
  const { status, stdout, stderr } = await run(argv, `${asks.join('\n')}\n`, ns)
  const failed = failures(stderr)
  if (status !== 0 && failed.byLine.size === 0)
    throw new ExecError(argv, undefined, failed.rest || `ended with status ${status}`)
  const arrays = rows(stdout, tool[0])
  return asks.map((_, i) => (failed.byLine.has(i + 1) ? [] : (arrays.shift() ?? [])))
}
