import { fs } from './fs.ts'

/** The text of a file. Undefined when there is no such file. */
export function readText(path: string): string | undefined {
  try {
    return fs.readFileSync(path)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw cause
  }
}

/**
 * The text of a regular file that a configuration names. Throws Error for devices and pipes, whose reading may not end.
 */
export function readRegular(path: string): string | undefined {
  const found = fs.statSync(path)
  if (found && found.kind !== 'file') throw new Error('it is no regular file')
  return found && readText(path)
}

/** The names in a folder. Empty when the folder does not exist. */
export function listFiles(dir: string): string[] {
  try {
    return fs.readdirSync(dir)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw cause
  }
}
