import { readdirSync, readFileSync, statSync } from 'node:fs'

/** The text of a file, undefined when there is none. */
export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
}

/** The same of a file that a configuration names: a device or a pipe, which may never end, is refused. Throws Error. */
export function readRegular(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false })
  if (found && !found.isFile()) throw new Error('it is no regular file')
  return found && readText(path)
}

/** The names in a folder; none when it is not there. */
export function listFiles(dir: string): string[] {
  try {
    return readdirSync(dir)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
