import { ExecError, shown } from '../text/errors.ts'

/** The messages of a batch tool by line number. After the message of line N iproute2 prints `Command failed -:N`. */
export function failures(stderr: string): { byLine: Map<number, string>; rest: string } {
  const byLine = new Map<number, string>()
  if (stderr === '') return { byLine, rest: '' }
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

/**
 * The JSON arrays that a batch tool printed, one for each show command. Each array stands on its own line. Throws
 * ExecError for text that is not JSON.
 */
export function rows(stdout: string, tool = 'ip'): unknown[][] {
  return stdout
    .split('\n')
    .filter((text) => text.startsWith('['))
    .map((text) =>
      parsed(text, tool).filter((row) => typeof row === 'object' && row !== null && Object.keys(row).length > 0),
    )
}

function parsed(text: string, tool: string): unknown[] {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new ExecError([tool, '-j'], undefined, `its answer is no JSON: ${shown(text)}`, { cause })
  }
}
