import { remove } from './files.ts'
import { fs } from './fs.ts'
import { listFiles } from './reading.ts'
import type { Element } from './state.ts'

// A folder per element, in it a symbolic link per attachment that has it, to the record of that: as volatile as the elements.
const DIR = '/run/cni/plumb/held'

/** Notes that their owners have these elements, which others may have, too. */
export function hold(elements: readonly Element[]): void {
  for (const element of elements) if (element.record !== undefined) note(folderOf(element), element.record)
}

/** Takes those notes away, and gives the elements that somebody else still has: they must stay. */
export function letGo(elements: readonly Element[]): Element[] {
  return elements.filter((element) => {
    if (element.record === undefined) return false
    try {
      remove(`${folderOf(element)}/${nameOf(element.record)}`)
    } catch (cause) {
      // The note stays on a read-only disk, the element must not.
      if ((cause as NodeJS.ErrnoException).code === 'EROFS') return isHeld(element, [element.record])
      throw cause
    }
    return !isEmptied(folderOf(element))
  })
}

/** Whether an attachment has the element; these records do not count. */
export function isHeld(element: Element, but: readonly string[] = []): boolean {
  const own = but.map(nameOf)
  return listFiles(folderOf(element)).some((name) => !own.includes(name))
}

/** The elements of a set of subnets that attachments have, with whose they are: `<type of record>:<network>:<container id>:<interface>`, briefly. */
export function heldKeys(set: string): { readonly key: string; readonly owners: readonly string[] }[] {
  return listFiles(DIR).flatMap((name) => (name.startsWith(`${set} `) ? [{ key: name.slice(set.length + 1).replaceAll('_', '/'), owners: listFiles(`${DIR}/${name}`) }] : []))
}

/** Puts a symbolic link to a record into a folder, which is made where it is not there. */
export function note(folder: string, record: string, name = nameOf(record)): void {
  // The last one that had it may take the folder with it between the two.
  for (let tries = 0; ; tries++) {
    try {
      fs.mkdirSync(folder, 0o755)
      fs.symlinkSync(record, `${folder}/${name}`)
      return
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException
      if (code === 'EEXIST') return
      if (code !== 'ENOENT' || tries === 100) throw cause
    }
  }
}

/** Removes a folder with nothing in it, and says whether it is gone. One with something in it cannot be removed: the kernel decides who was the last. */
export function isEmptied(folder: string): boolean {
  try {
    fs.rmdirSync(folder)
    return true
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'ENOENT'
  }
}

// A subnet has a slash.
function folderOf({ set, key }: Pick<Element, 'set' | 'key'>): string {
  return `${DIR}/${set} ${key.replaceAll('/', '_')}`
}

/** The name of a link to a record, `<type>:<attachment>`: an attachment has a record of each plugin that made something for it. */
export function nameOf(record: string): string {
  const file = record.lastIndexOf('/')
  return `${record.slice(record.lastIndexOf('/', file - 1) + 1, file)}:${record.slice(file + 1)}`
}
