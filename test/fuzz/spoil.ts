import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { text, tree } from './json.ts'
import { type Dice, mutate, mutateBytes, mutateWords, STRINGS } from './mutate.ts'

/**
 * Changes one of the files in these folders (addresses, records, marks, what configurations name) as a disk or a hand
 * may. Gives its path and its new words. Undefined when there is no file.
 */
export function spoil(
  dirs: readonly string[],
  roll: Dice,
): { readonly path: string; readonly words: readonly string[] } | undefined {
  const files = dirs
    .flatMap((dir) => (existsSync(dir) ? readdirSync(dir, { recursive: true, withFileTypes: true }) : []))
    .filter((one) => one.isFile())
  const found = files.map(({ parentPath, name }) => `${parentPath}/${name}`).sort()
  if (found.length === 0) return undefined
  const path = roll.pick(found)
  const now = spoiled(readFileSync(path), roll)
  rmSync(path)
  if (now) writeFileSync(path, now)
  else mkdirSync(path)
  const words = now ? [...new Set([...now.toString().split(/["\r\n,\s]+/), ...strings(now.toString())])] : []
  return { path, words }
}

// Undefined for a folder in the file's place.
function spoiled(bytes: Buffer, roll: Dice): Buffer | undefined {
  const kind = roll.below(12)
  if (kind === 0) return undefined
  if (kind === 1) return Buffer.of()
  if (kind === 2) return Buffer.from(roll.pick(STRINGS))
  if (kind < 5) return mutateBytes(bytes, roll)
  try {
    const node = tree(JSON.parse(bytes.toString()))
    mutate(node, [node], roll)
    return Buffer.from(text(node))
  } catch {
    return Buffer.from(mutateWords(bytes.toString(), roll))
  }
}

function strings(json: string): string[] {
  const all: string[] = []
  try {
    JSON.parse(json, (_, value) => {
      if (typeof value === 'string') all.push(value)
    })
  } catch {
    // The words have to do.
  }
  return all
}
