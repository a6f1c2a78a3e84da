import { address, unaddress } from './addressees.ts'
import { fileName } from './alias.ts'
import { occupy } from './busy.ts'
import { digest } from './digest.ts'
import { remove, withLock, writeAtomic } from './files.ts'
import { fs } from './fs.ts'
import { type Cidr, split } from './ip.ts'
import { log } from './log.ts'
import { type Identity, identityOf, isAt } from './netns.ts'
import type { Attachment } from './plugin.ts'
import { listFiles, readText } from './reading.ts'
import type { Owner, Resource } from './state.ts'
import { brief, type NetnsPath, type NetworkName } from './values.ts'

/** What a chained plugin made for an attachment. */
export interface Note extends Partial<Identity> {
  readonly owner: Owner
  /** It may be another's by now: `inode` and `cookie` tell. */
  readonly netns?: NetnsPath
  /** The addresses of the attachment, where elements name them. */
  readonly ips?: readonly string[]
  readonly own: readonly Resource[]
}

// As volatile as the kernel state that they tell of.
const DIR = '/run/cni/plumb'

/** Notes what chained plugins make for an attachment, each at its path, before it is made: DEL then needs neither configuration nor result. `ips` are the attachment's addresses: whoever gets one of them next finds the record. */
export function record(parts: readonly { readonly path: string; readonly own: readonly Resource[] }[], { network, containerId, ifname, netns }: Attachment, ips: readonly { readonly address: Cidr }[] = []): void {
  const whose = { owner: { network, containerId, ifname }, ...(netns === undefined ? {} : { netns, ...identityOf(netns) }) }
  // One draft for all: a call that is killed there leaves that one, which the next takes the place of.
  withLock(`${DIR}/records.lock`, () => {
    for (const { path, own } of parts) {
      const named = own.some(({ kind }) => kind === 'element') ? ips.map(({ address: cidr }) => split(cidr).ip) : []
      writeAtomic(path, signed({ ...whose, ...(named.length > 0 && { ips: named }), own }), { durable: false, by: `${DIR}/records.draft` })
      address(path, named)
    }
  })
}

// As JSON, with the sum of it as one more key.
function signed(note: Note): string {
  const text = JSON.stringify(note)
  return `${text.slice(0, -1)},"sum":"${digest(text)}"}`
}

/** What was noted, undefined when nothing was, and for a text that is not as it was written: lines are made of what stands in it. */
export function readRecord(path: string): Note | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { sum, ...note } = JSON.parse(text)
    if (sum === digest(JSON.stringify(note))) return note as Note
  } catch {
    // Said below, as for any other text.
  }
  log(`plumb: Cannot read ${path}, which somebody else wrote: what it told of is left as it is`)
  return undefined
}

/** Undoes what was noted and forgets it, one process at a time, and after the tools of one that was killed: a second one, which waited, finds nothing and touches nothing that is somebody else's by then. False when nothing was noted. */
export async function unrecord(path: string, undo: (note: Note | undefined) => Promise<void>): Promise<boolean> {
  if (!fs.existsSync(path)) return false
  if (!occupy(path)) log(`plumb: Cannot wait any longer for an earlier call that is at work on ${path}: what it made is removed meanwhile`)
  if (!fs.existsSync(path)) return false
  const note = readRecord(path)
  await undo(note)
  try {
    unaddress(path, note?.ips ?? [])
    remove(path)
  } catch (cause) {
    // DEL must free the address all the same. Who gets that next removes the record.
    if ((cause as NodeJS.ErrnoException).code !== 'EROFS') throw cause
    log(`plumb: Cannot remove ${path}: the file system is read-only; what it told of is gone`)
  }
  return true
}

/** Whether the namespace that a note tells of is still there: the path may be another pod's by now. */
export function isThere({ netns, inode, cookie }: Note): boolean {
  return netns !== undefined && inode !== undefined && isAt(netns, { inode, cookie })
}

/** The records of a network's attachments, but of these. */
export function recordsOf(type: string, network: NetworkName, but: readonly Owner[] = []): string[] {
  const [dir, keep] = [`${DIR}/${type}`, new Set(but.map(fileName))]
  return listFiles(dir).flatMap((name) => (name.startsWith(`${brief(network)}:`) && !keep.has(name) ? [`${dir}/${name}`] : []))
}

/** The records of an attachment, of all types. */
export function recordsFor(owner: Owner): string[] {
  return types().flatMap((type) => (fs.existsSync(recordPath(type, owner)) ? [recordPath(type, owner)] : []))
}

/** All records, or those of some types. */
export function allRecords(of: readonly string[] = types()): string[] {
  return of.flatMap((type) => listFiles(`${DIR}/${type}`).map((name) => `${DIR}/${type}/${name}`))
}

// What else has a folder there.
const OTHER = new Set(['addresses', 'held', 'holders', 'pending', 'ports'])

function types(): string[] {
  return listFiles(DIR).filter((name) => !OTHER.has(name) && fs.statSync(`${DIR}/${name}`)?.kind === 'folder')
}

/** Where the record of an attachment lies. */
export function recordPath(type: string, owner: Owner): string {
  return `${DIR}/${type}/${fileName(owner)}`
}
