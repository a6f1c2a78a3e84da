import { remove } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { listFiles } from '../os/reading.ts'
import type { PartName } from '../text/owner.ts'

// Who needs a thing that several attachments may share: a folder for the thing, in it a symbolic link for each holder, named after its part,
// to the entry of the attachment. An index: all of it follows from the entries.
const DIR = '/run/cni/plumb/shared'

/** Where the entries of attachments lie. */
export const ENTRIES = '/run/cni/plumb/attachments'

/** Notes that a part needs a thing, `<sort>/<key>`: `addresses/10.1.0.2`, `elements/masq4 10.1.0.2`, `links/br0.5`, `ports/tcp-80`. What it needs of it may stand before the part's name, with a space between. False when that was noted already. */
export function share(thing: string, holder: string): boolean {
  const folder = `${DIR}/${thing}`
  const entry = `${ENTRIES}/${attachmentOf(holder)}`
  // The last one that had it may take the folder with it between the two.
  for (let tries = 0; ; tries++) {
    try {
      fs.mkdirSync(folder, 0o755)
      fs.symlinkSync(entry, `${folder}/${holder}`)
      return true
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException
      if (code === 'EEXIST') return false
      if (code !== 'ENOENT' || tries === 100) throw cause
    }
  }
}

/** Takes that note away. True when nobody needs the thing any more: the kernel decides who was the last, as only an empty folder can be removed. */
export function release(thing: string, holder: string): boolean {
  const folder = `${DIR}/${thing}`
  try {
    remove(`${folder}/${holder}`)
    fs.rmdirSync(folder)
    return true
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT') return true
    // The note stays on a read-only disk, the thing must not.
    if (code === 'EROFS') return holdersOf(thing).every((other) => other === holder)
    if (code === 'ENOTEMPTY' || code === 'EEXIST') return false
    throw cause
  }
}

/** The parts that need a thing. */
export function holdersOf(thing: string): PartName[] {
  return listFiles(`${DIR}/${thing}`) as PartName[]
}

/** The keys of the things of a sort that somebody needs. */
export function thingsOf(sort: string): string[] {
  return listFiles(`${DIR}/${sort}`)
}

/** Takes away the notes of attachments that have no entry. */
export function sweep(): void {
  const entries = new Set(listFiles(ENTRIES))
  for (const sort of listFiles(DIR)) for (const key of thingsOf(sort)) for (const holder of holdersOf(`${sort}/${key}`)) if (!entries.has(attachmentOf(holder))) release(`${sort}/${key}`, holder)
}

function attachmentOf(holder: string): string {
  const part = holder.slice(holder.indexOf(' ') + 1)
  return part.slice(part.indexOf(':') + 1)
}
