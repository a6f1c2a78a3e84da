import { closeSync, fstatSync } from 'node:fs'
import { contentOf } from '../../lib/os/exec.ts'
import { memory } from '../../lib/os/libc.ts'
import { killGroup } from '../../lib/runtime/invoke.ts'
import { shown } from '../../lib/text/errors.ts'

const LIMIT_MS = 30_000
/** A command that writes more is ended, because its output is kept in memory. */
const MOST_BYTES = 1 << 20
const LOOK_MS = 50

/** What a command wrote, both streams together and trimmed, and a clause with the reason when it failed. */
export interface Ran {
  readonly output: string
  readonly failure?: string
}

/**
 * The words of a command: the text is split at blanks, and then `$NAME` and `${NAME}` in each word become the value of
 * that variable, or nothing. No shell reads them, so quotes, `;` and `|` have no meaning. The rules are those of Go's
 * strings.Fields and os.Expand, which flannel uses.
 */
export function wordsOf(command: string, env: Readonly<Record<string, string | undefined>>): string[] {
  const words = command.split(/[\s\u0085]+/u).filter(Boolean)
  return words.map((word) => word.replace(VARIABLE, (_, braced, bare) => env[braced ?? bare ?? ''] ?? ''))
}

// `${` without its end, and `${}`, go. A `$` before another sign stays.
const VARIABLE = /\$(?:\{([^}]*)\}|\{|([*#$@!?\-0-9]|[A-Za-z0-9_]+))/g

/**
 * Runs a command with the environment of this process and `more`, and `input` with a line end on its standard input.
 * It has `limitMs`, then it and all programs that it started are killed. The end of `signal` kills them, too. Never
 * throws.
 */
export async function runCommand(
  command: string,
  more: Readonly<Record<string, string>>,
  input: string,
  { limitMs = LIMIT_MS, signal }: { readonly limitMs?: number; readonly signal?: AbortSignal } = {},
): Promise<Ran> {
  const env = { ...process.env, ...more }
  const [name = '', ...args] = wordsOf(command, env)
  const file = Bun.which(name, { PATH: env['PATH'] ?? '' })
  if (file === null) return { output: '', failure: `there is no program ${shown(name)} in PATH` }
  const files: number[] = []
  const noted = (fd: number): number => files[files.push(fd) - 1] as number
  try {
    const [stdin, out] = [noted(memory(`${input}\n`)), noted(memory())]
    // A group of its own, so that the programs that it started can be ended with it.
    const child = Bun.spawn([file, ...args], { stdin, stdout: out, stderr: out, env, detached: true, argv0: name })
    const why = await ended(child, out, limitMs, signal)
    const output = contentOf(out).trim()
    return why === undefined ? { output } : { output, failure: why }
  } catch (cause) {
    return { output: '', failure: `it cannot be started: ${(cause as Error).message}` }
  } finally {
    for (const fd of files) closeSync(fd)
  }
}

async function ended(
  child: Bun.Subprocess,
  out: number,
  limitMs: number,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const until = performance.now() + limitMs
  let why: string | undefined
  const looking = setInterval(() => {
    if (signal?.aborted) why ??= 'it was killed, as the agent ends'
    else if (performance.now() >= until) why ??= `it was killed after ${limitMs / 1000} s`
    else if (fstatSync(out).size > MOST_BYTES)
      why ??= `it was killed after it had written more than ${MOST_BYTES} bytes`
    if (why !== undefined) killGroup(child.pid)
  }, LOOK_MS)
  try {
    const status = await child.exited
    if (why !== undefined) return why
    if (child.signalCode !== null) return `signal ${child.signalCode} ended it`
    return status === 0 ? undefined : `it ended with status ${status}`
  } finally {
    clearInterval(looking)
  }
}
