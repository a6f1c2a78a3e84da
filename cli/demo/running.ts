import { start, type Way } from './exec.ts'

/** A running program, and its output so far. */
export interface Running {
  readonly child: Bun.Subprocess
  said(): string
}

/** Starts a program that keeps running, and collects its stdout and stderr. */
export function startLogged(argv: readonly string[], way: Way = {}): Running {
  const child = start(argv, way)
  let text = ''
  for (const pipe of [child.stdout, child.stderr])
    void (async () => {
      for await (const more of pipe.pipeThrough(new TextDecoderStream())) text += more
    })()
  return { child, said: () => text }
}

/**
 * Calls `look` every 20 ms until it returns a value, and returns that value. After `ms` milliseconds throws Error with
 * the text of `late`.
 */
export async function until<T>(look: () => Promise<T | undefined>, ms: number, late: () => string): Promise<T> {
  for (const end = performance.now() + ms; ; await Bun.sleep(20)) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() >= end) throw new Error(`waited ${ms / 1000} s: ${late()}`)
  }
}
