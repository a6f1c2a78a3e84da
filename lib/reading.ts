import { readdirSync, readFileSync } from 'node:fs'

/** The text of a file, undefined when there is none. */
export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
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
