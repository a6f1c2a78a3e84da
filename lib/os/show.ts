import { ExecError } from '../text/errors.ts'
import type { Netns } from '../text/values.ts'
import { failures, rows } from './iproute2.ts'
import type { Run } from './run.ts'

/** What commands of a batch tool show, in one process: the rows of each, none for one that failed (there is no such link). Throws ExecError. */
export async function show(tool: readonly string[], asks: readonly string[], run: Run, ns: Netns = 'host'): Promise<readonly (readonly unknown[])[]> {
  // bridge(8) of iproute2 6.1 aborts at a second `vlan show` in JSON (json_writer.c).
  if (asks.filter((ask) => ask.startsWith('vlan ')).length > 1) {
    const found: (readonly unknown[])[] = []
    for (const ask of asks) found.push(...(await show(tool, [ask], run, ns)))
    return found
  }
  const argv = [...tool, '-j', '-force', '-batch', '-']
  const { status, stdout, stderr } = await run(argv, `${asks.join('\n')}\n`, ns)
  const failed = failures(stderr)
  if (status !== 0 && failed.byLine.size === 0) throw new ExecError(argv, undefined, failed.rest || `ended with status ${status}`)
  const arrays = rows(stdout, tool[0])
  return asks.map((_, i) => (failed.byLine.has(i + 1) ? [] : (arrays.shift() ?? [])))
}
