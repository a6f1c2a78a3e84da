import { ExecError } from '../text/errors.ts'
import type { Netns } from '../text/values.ts'
import { failures, rows } from './iproute2.ts'
import type { Output, Run } from './run.ts'

// How tools say that the thing to show does not exist, or that the kernel knows no such things. After any other message
// the thing may exist.
const ABSENT = /No such|does not exist|doesn't exist|[Cc]annot find|not supported|[Uu]nsupported|disabled/
// The first is iproute2's, when the kernel's list changed while it was read. The exit status is 0, and the list may lack
// objects. The second is nft's, when another program changed the ruleset while nft asked for an element.
const INTERRUPTED = /Dump was interrupted|Interrupted system call/
/** How often a question that was interrupted is asked. */
const TRIES = 20

/**
 * What a tool lists, as text. Empty when the tool says that there is no such thing. Throws ExecError when the tool fails
 * otherwise, or when its list never comes whole.
 */
export async function listed(argv: readonly string[], run: Run, ns: Netns = 'host', stdin = ''): Promise<string> {
  const { status, stdout, stderr } = await whole(argv, stdin, run, ns)
  if (status === 0) return stdout
  if (ABSENT.test(stderr)) return ''
  throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}

/**
 * Runs several show commands of a batch tool in one process. Returns the rows of each command. A command has no rows
 * when the tool says that the thing, such as the link, does not exist. Throws ExecError when a command fails otherwise.
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
  const { status, stdout, stderr } = await whole(argv, `${asks.join('\n')}\n`, run, ns)
  const failed = failures(stderr)
  if (status !== 0 && failed.byLine.size === 0)
    throw new ExecError(argv, undefined, failed.rest || `ended with status ${status}`)
  for (const [line, said] of failed.byLine) if (!ABSENT.test(said)) throw new ExecError(argv, asks[line - 1], said)
  const arrays = rows(stdout, tool[0])
  return asks.map((_, i) => (failed.byLine.has(i + 1) ? [] : (arrays.shift() ?? [])))
}

/**
 * The answer of a tool to a question, which is asked again when a change by another program interrupted it. Throws
 * ExecError when it is interrupted each time.
 */
export async function whole(argv: readonly string[], stdin: string, run: Run, ns: Netns): Promise<Output> {
  for (let tries = 1; ; tries++) {
    const output = await run(argv, stdin, ns)
    if (!INTERRUPTED.test(output.stderr)) return output
    if (tries === TRIES) throw new ExecError(argv, undefined, `its list changed while it was read, ${TRIES} times`)
  }
}
