import { fs } from './fs.ts'

/** The text of a file, undefined when there is none. */
export function readText(path: string): string | undefined {
  try {
    return fs.readFileSync(path)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
}

/** The same of a file that a configuration names: a device or a pipe, which may never end, is refused. Throws Error. */
export function readRegular(path: string): string | undefined {
  const found = fs.statSync(path)
  if (found && found.kind !== 'file') throw new Error('it is no regular file')
  return found && readText(path)
}

/** The names in a folder; none when it is not there. */
export function listFiles(dir: string): string[] {
  try {
    return fs.readdirSync(dir)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
