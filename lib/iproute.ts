import { ExecError, shown } from './errors.ts'
import type { Run } from './plugin.ts'
import type { Netns } from './state.ts'

/** The argv of a batch that only sets. */
export const BLIND: readonly string[] = ['ip', '-batch', '-']
/** The argv of a batch that also shows. */
export const SHOWING: readonly string[] = ['ip', '-d', '-j', '-batch', '-']

/** The argv of a batch that only shows, and goes on where there is nothing to show. */
export function asking(tool: readonly string[]): string[] {
  return [...tool, '-d', '-j', '-force', '-batch', '-']
}

/** What a batch tool said, by line number; iproute2 prints `Command failed -:N` after the message of line N. */
export function failures(stderr: string): { byLine: Map<number, string>; rest: string } {
  const byLine = new Map<number, string>()
  let said: string[] = []
  for (const text of stderr.split('\n')) {
    const number = /^Command failed .*:(\d+)$/.exec(text)?.[1]
    if (number === undefined) said.push(text)
    else {
      byLine.set(
        Number(number),
        said
          .join(' ')
          .replace(/^RTNETLINK answers: |^Error: /, '')
          .trim() || 'failed',
      )
      said = []
    }
  }
  return { byLine, rest: said.join(' ').trim() }
}

/** What commands of a batch tool show, in one process: the rows of each, none for one that failed (there is no such link). Throws ExecError. */
export async function show(tool: readonly string[], asks: readonly string[], run: Run, ns: Netns = 'host'): Promise<readonly (readonly unknown[])[]> {
  const argv = [...tool, '-j', '-force', '-batch', '-']
  const { status, stdout, stderr } = await run(argv, `${asks.join('\n')}\n`, ns)
  const failed = failures(stderr)
  if (status !== 0 && failed.byLine.size === 0) throw new ExecError(argv, undefined, failed.rest || `ended with status ${status}`)
  const arrays = rows(stdout, tool[0])
  return asks.map((_, i) => (failed.byLine.has(i + 1) ? [] : (arrays.shift() ?? [])))
}

/** The JSON arrays that a batch tool printed, one per asking line; each stands on lines of its own. Throws ExecError for what is no JSON. */
export function rows(stdout: string, tool = 'ip'): unknown[][] {
  return stdout
    .split('\n')
    .filter((text) => text.startsWith('['))
    .map((text) => parsed(text, tool).filter((row) => typeof row === 'object' && row !== null && Object.keys(row).length > 0))
}

function parsed(text: string, tool: string): unknown[] {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new ExecError([tool, '-j'], undefined, `its answer is no JSON: ${shown(text)}`, { cause })
  }
}
