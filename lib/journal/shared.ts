import { remove, removeEmpty, withLock } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { listFiles } from '../os/reading.ts'
import type { PartName } from '../text/owner.ts'

// The index of things that several attachments may share. Each thing has a folder with one symbolic link per holder.
// The link has the name of the holder's part and points to the entry of the attachment. The index follows from the
// entries, except the holders of VLAN gateway links (see `reindex`).
const DIR = '/run/cni/plumb/shared'

/** The folder of the attachments' entries. */
export const ENTRIES = '/run/cni/plumb/attachments'
/** The lock for writing an entry. */
export const LOCK = '/run/cni/plumb/lock'

/**
 * Notes that a part needs a thing. `thing` is `<sort>/<key>`: `addresses/10.1.0.2`, `elements/masq4 10.1.0.2`,
 * `links/br0.5`, `ports/tcp-80`. `holder` is the part's name. A detail and a space may stand before it. Returns false
 * when the note exists already.
 */
export function share(thing: string, holder: string): boolean {
  const folder = `${DIR}/${thing}`
  const entry = `${ENTRIES}/${attachmentOf(holder)}`
  // Another process may remove the empty folder between the two calls. Then both calls are tried again.
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

/**
 * Removes the note of `share`. Returns true when no part needs the thing any more. The kernel decides which holder is
 * the last, because rmdir(2) removes only an empty folder.
 */
export function release(thing: string, holder: string): boolean {
  const folder = `${DIR}/${thing}`
  try {
    remove(`${folder}/${holder}`)
    fs.rmdirSync(folder)
    return true
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT') return true
    if (code === 'ENOTEMPTY' || code === 'EEXIST') return false
    if (code === undefined) throw cause
    // The disk refuses. The note or its folder stays, but the thing must still go with its last holder.
    return holdersOf(thing).every((other) => other === holder)
  }
}

/** The names of the parts that need a thing. */
export function holdersOf(thing: string): PartName[] {
  return listFiles(`${DIR}/${thing}`) as PartName[]
}

/** The keys of all things of one sort that a part needs. */
export function thingsOf(sort: string): string[] {
  return listFiles(`${DIR}/${sort}`)
}

/**
 * Removes the notes of attachments that have no entry, and folders without a note. An ADD may run meanwhile. It writes
 * its entry before its notes, and nobody writes an entry while this process holds the journal's lock.
 */
export function sweep(): void {
  const things = listFiles(DIR).flatMap((sort) => thingsOf(sort).map((key) => `${sort}/${key}`))
  for (const thing of things) {
    const lost = () => holdersOf(thing).filter((holder) => !fs.existsSync(`${ENTRIES}/${attachmentOf(holder)}`))
    if (lost().length > 0) withLock(LOCK, () => lost().map((holder) => release(thing, holder)))
    else if (holdersOf(thing).length === 0) removeEmpty(`${DIR}/${thing}`)
  }
}

function attachmentOf(holder: string): string {
  const part = holder.slice(holder.indexOf(' ') + 1)
  return part.slice(part.indexOf(':') + 1)
}
