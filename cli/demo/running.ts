import { start, type Way } from './exec.ts'

/** A program that runs, and all that it has said so far. */
export interface Spoken {
  readonly child: Bun.Subprocess
  said(): string
}

/** Starts a program that goes on, and listens to it. */
export function speak(argv: readonly string[], way: Way = {}): Spoken {
  const child = start(argv, way)
  let text = ''
  for (const pipe of [child.stdout, child.stderr])
    void (async () => {
      for await (const more of pipe.pipeThrough(new TextDecoderStream())) text += more
    })()
  return { child, said: () => text }
}

/** Polls until `look` gives something, and gives that. Throws Error with what `late` says when it has not after so many milliseconds. */
export async function until<T>(look: () => Promise<T | undefined>, ms: number, late: () => string): Promise<T> {
  for (const end = performance.now() + ms; ; await Bun.sleep(20)) {
    const found = await look()
    if (found !== undefined) return found
    if (performance.now() >= end) throw new Error(`waited ${ms / 1000} s: ${late()}`)
  }
}
