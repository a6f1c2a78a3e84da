import { existsSync, readFileSync } from 'node:fs'
import { join, normalize } from 'node:path'
import { CODE } from '../../lib/text/errors.ts'

const ROOT = join(import.meta.dir, '../..')
/** This file serves every plugin. So the codes in the file and in its imports are the same for all plugins. */
const SERVING = 'lib/verbs/serve.ts'

/**
 * The CNI error codes that a plugin answers with by itself, in ascending order. They are in the plugin's file and in
 * its imports. Codes of the files that serve every plugin are left out.
 */
export function codesOf(type: string): number[] {
  const shared = reached(SERVING)
  return named([...reached(`plugins/${type}.ts`)].filter((file) => !shared.has(file)))
}

/** The CNI error codes that every plugin can answer with, in ascending order. */
export function commonCodes(): number[] {
  return named([...reached(SERVING)])
}

function named(files: readonly string[]): number[] {
  const names = new Set(
    files.flatMap((file) => [...read(file).matchAll(/\bCODE\.(\w+)/g)].map(([, name]) => name as keyof typeof CODE)),
  )
  return [...names].map((name) => CODE[name]).sort((a, b) => a - b)
}

function reached(start: string, seen = new Set<string>()): Set<string> {
  if (seen.has(start)) return seen
  seen.add(start)
  // What a call reads only when it needs it counts too.
  for (const [, at = '', late = ''] of read(start).matchAll(
    /^import (?!type\b)[^']* from '(\.[^']+\.ts)'|\bimport\('(\.[^']+\.ts)'\)/gm,
  ))
    reached(normalize(join(start, '..', at || late)), seen)
  return seen
}

function read(file: string): string {
  const path = join(ROOT, file)
  return existsSync(path) ? readFileSync(path, 'utf8') : ''
}
