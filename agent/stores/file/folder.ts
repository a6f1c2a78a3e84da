import { type BigIntStats, readdirSync, readFileSync, statSync } from 'node:fs'

/** The files of a folder, each read when it is another than before. */
export interface Folder<T> {
  /** What each file holds, by its name; of a folder that is not there, nothing. Throws Error for one that cannot be read. */
  look(): ReadonlyMap<string, T>
  /** Another text when anything in the folder was made, replaced, written or removed since. */
  stamp(): string
}

/** A folder whose files are read by `parse`, which throws nothing. Names that begin with a dot are drafts. */
export function folder<T>(dir: string, parse: (text: string, name: string) => T): Folder<T> {
  let known = new Map<string, { readonly stamp: string; readonly value: T }>()
  return {
    look() {
      const fresh: typeof known = new Map()
      for (const name of names(dir)) {
        const path = `${dir}/${name}`
        const stats = status(path)
        if (!stats) continue
        const stamp = stampOf(stats)
        const before = known.get(name)
        const text = before?.stamp === stamp ? '' : read(path)
        if (before?.stamp === stamp) fresh.set(name, before)
        else if (text !== undefined) fresh.set(name, { stamp, value: parse(text, name) })
      }
      known = fresh
      return new Map([...known].map(([name, { value }]) => [name, value]))
    },
    stamp: () => [...known].map(([name, { stamp }]) => `${name} ${stamp}`).join('\n'),
  }
}

/** What changes with a file, or with the names in a folder; undefined when there is none. */
export function status(path: string): BigIntStats | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

/** As text. */
export function stampOf({ ino, mtimeNs, size }: BigIntStats): string {
  return `${ino}-${mtimeNs}-${size}`
}

/** A file's text; undefined when there is none. */
export function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
}

function names(dir: string): readonly string[] {
  try {
    return readdirSync(dir).filter((name) => !name.startsWith('.'))
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
