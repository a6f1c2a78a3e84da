import type { Attachment } from '../cni/plugin.ts'
import { remove, withLock, writeAtomic, writeUnnamed } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { log } from '../os/log.ts'
import { type Identity, identityOf, isAt } from '../os/netns.ts'
import { listFiles, readText } from '../os/reading.ts'
import { occupy, takeTurn } from '../os/turns.ts'
import type { Resource } from '../state/resource.ts'
import { digest } from '../text/digest.ts'
import { CniError, CODE } from '../text/errors.ts'
import { type Cidr, split } from '../text/ip.ts'
import { fileName, type Owner, type PartName } from '../text/owner.ts'
import { brief, type NetnsPath, type NetworkName } from '../text/values.ts'
import { ENTRIES, holdersOf, release, share } from './shared.ts'

/** What plumb remembers of an attachment: one file, written before the kernel is touched and removed last (docs/journal.md). */
export interface Entry {
  readonly owner: Owner
  /** An ADD or a DEL of the interface plugin is under way, or was killed. */
  readonly unfinished?: true
  /** The addresses of the attachment. */
  readonly ips: readonly string[]
  /** What each plugin made, by its type. `LINK` is the interface plugin's, whatever its type. */
  readonly parts: Readonly<Record<string, Part>>
}

/** What one plugin made for an attachment, and in which pod. The path may lead to another namespace by now: inode and cookie tell. */
export interface Part extends Partial<Identity> {
  readonly netns?: NetnsPath
  readonly own: readonly Resource[]
}

/** A part together with whose it is. */
export interface Note extends Part {
  readonly owner: Owner
  readonly ips: readonly string[]
}

/** The part of the interface plugin. */
export const LINK = 'link'

// On a file system that a reboot empties, as it empties the kernel.
const DIR = '/run/cni/plumb'

/** The name of a plugin's part of an attachment. */
export function partName(type: string, owner: Owner): PartName {
  return `${type}:${fileName(owner)}`
}

/** What an ADD finds: nothing, an attachment that stands, or what is left of a call that was killed, which has to go first. */
export type Found = 'nothing' | 'attached' | 'unfinished'

/** Opens the entry of an attachment for an ADD, after every other call for it has ended. `link` is what removes the link, when that is known: it is noted where nothing stands yet. Throws CniError 11 when an earlier call does not end in time. */
export function begin(at: Attachment, link?: readonly Resource[]): Found {
  takeTurn(partName(LINK, at), `an earlier call for ${at.ifname} of container ${at.containerId}`)
  let found: Found = 'nothing'
  change(at, (entry) => {
    const { [LINK]: before, ...others } = entry.parts
    found = entry.unfinished ? 'unfinished' : before && isThere(before) ? 'attached' : 'nothing'
    if (found !== 'nothing' || !link) return { ...entry, unfinished: true }
    return { ...entry, unfinished: true, parts: { [LINK]: { ...whereOf(at), own: link }, ...others } }
  })
  return found
}

/** Notes that a removal is under way: an ADD that finds it unfinished finishes it first. Cannot fail: nothing must keep a DEL from removing. */
export function beginRemoval(owner: Owner): void {
  try {
    if (occupy(partName(LINK, owner))) change(owner, (entry) => ({ ...entry, unfinished: true }))
  } catch {
    // A full or read-only /run: then an ADD after a killed DEL is refused, and another DEL helps.
  }
}

/** Notes what plugins make for an attachment, by their types, before it is made: DEL then needs neither configuration nor result. `ips` are the attachment's addresses: whoever gets one of them next finds the entry. */
export function note(at: Attachment, made: Readonly<Record<string, readonly Resource[]>>, ips?: readonly { readonly address: Cidr }[]): void {
  const where = whereOf(at)
  const parts = Object.fromEntries(Object.entries(made).map(([type, own]): [string, Part] => [type, { ...where, own }]))
  change(at, (entry) => ({ ...entry, parts: { ...entry.parts, ...parts }, ips: ips?.map(({ address }) => split(address).ip) ?? entry.ips }))
}

function whereOf({ netns }: Attachment): Omit<Part, 'own'> {
  return netns === undefined ? {} : { netns, ...identityOf(netns) }
}

/** Notes that the ADD is at its end. */
export function complete(owner: Owner): void {
  change(owner, ({ unfinished: _, ...entry }) => entry)
}

/** Notes that the link is gone and the call at its end; what chained plugins noted stays until their own DEL. */
export function close(owner: Owner): void {
  forgetting(owner, ({ unfinished: _, parts: { [LINK]: __, ...parts }, ...entry }) => ({ ...entry, parts }))
}

/** Undoes what a part tells of and forgets it, one process at a time, after the tools of one that was killed: a second process, which waited, finds nothing and touches nothing that is somebody else's by then. False when nothing was noted. */
export async function forget(part: PartName, undo: (note: Note) => Promise<void>): Promise<boolean> {
  if (!readPart(part)) return false
  if (!occupy(part)) log(`plumb: Cannot wait any longer for an earlier call that is at work on ${part}: what it made is removed meanwhile`)
  const found = readPart(part)
  if (!found) return false
  await undo(found)
  drop(part, found.owner)
  return true
}

/** Forgets a part, when what it tells of is gone. */
export function drop(part: PartName, owner: Owner): void {
  const [type] = splitName(part)
  forgetting(owner, ({ parts: { [type]: _, ...parts }, ...entry }) => ({ ...entry, parts }))
}

// DEL must free the address all the same. Who gets that next removes the entry.
function forgetting(owner: Owner, to: (before: Entry) => Entry): void {
  try {
    change(owner, to)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EROFS') throw cause
    log(`plumb: Cannot change ${ENTRIES}/${fileName(owner)}: the file system is read-only; what it tells of is gone`)
  }
}

/** Throws CniError 50 when nothing can be noted: no ADD would work. */
export function ready(): void {
  try {
    // It makes the folder. The file has no name: a call that is killed leaves none.
    withLock(`${DIR}/lock`, () => writeUnnamed(DIR, 'x'))
  } catch (cause) {
    throw new CniError(CODE.notReady, `Cannot write to ${DIR}: no pod can be attached`, (cause as Error).message, { cause })
  }
}

/** The entry of an attachment; undefined when there is none. */
export function readEntry(owner: Owner): Entry | undefined {
  return read(fileName(owner))
}

/** A part of an entry; undefined when nothing was noted. */
export function readPart(part: PartName): Note | undefined {
  const [type, name] = splitName(part)
  const entry = read(name)
  const found = entry?.parts[type]
  return entry && found && { ...found, owner: entry.owner, ips: entry.ips }
}

/** Whether the attachment of a part has an entry, which not everybody may read. */
export function hasEntry(part: PartName): boolean {
  return fs.existsSync(`${ENTRIES}/${splitName(part)[1]}`)
}

/** All entries, or those of a network but these attachments'. */
export function entries(network?: NetworkName, but: readonly Owner[] = []): Entry[] {
  const keep = new Set(but.map(fileName))
  const isMeant = (name: string) => network === undefined || (name.startsWith(`${brief(network)}:`) && !keep.has(name))
  return listFiles(ENTRIES).flatMap((name) => (isMeant(name) ? (read(name) ?? []) : []))
}

/** The parts of an entry by name. */
export function partsOf({ owner, ips, parts }: Entry): [PartName, Note][] {
  return Object.entries(parts).map(([type, part]) => [partName(type, owner), { ...part, owner, ips }])
}

/** The parts of a container's other attachments, for one that a plugin of the same type made. */
export function siblings(part: PartName): PartName[] {
  const [type, name] = splitName(part)
  const container = `:${name.split(':')[1]}:`
  return listFiles(ENTRIES).flatMap((other): PartName[] => (other !== name && other.includes(container) ? [`${type}:${other}`] : []))
}

/** Whether two parts are of the same container. */
export function isSameContainer(part: PartName, other: PartName): boolean {
  return part.split(':')[2] === other.split(':')[2]
}

/** The attachments that have an address, or had it when they were noted. */
export function attachmentsWith(ip: string): Entry[] {
  return holdersOf(`addresses/${ip}`).flatMap((part) => {
    const entry = read(splitName(part)[1])
    if (entry?.ips.includes(ip)) return [entry]
    release(`addresses/${ip}`, part)
    return []
  })
}

/** Whether the namespace that a part tells of is still there: the path may be another pod's by now. */
export function isThere({ netns, inode, cookie }: Part): boolean {
  return netns !== undefined && inode !== undefined && isAt(netns, { inode, cookie })
}

// One process at a time, and one draft for all: a call that is killed there leaves that one, which the next takes the place of.
function change(owner: Owner, to: (before: Entry) => Entry): void {
  const { network, containerId, ifname } = owner
  const name = fileName(owner)
  withLock(`${DIR}/lock`, () => {
    const before = read(name)
    const after = to(before ?? { owner: { network, containerId, ifname }, ips: [], parts: {} })
    const isEmpty = !after.unfinished && Object.keys(after.parts).length === 0
    const ips = isEmpty ? [] : after.ips
    const holder: PartName = `${LINK}:${name}`
    // The index is never more than the entry says: a call that is killed here leaves the entry, and its removal the rest.
    if (!isEmpty) writeAtomic(`${ENTRIES}/${name}`, signed(after), { durable: false, by: `${DIR}/draft` })
    for (const ip of ips) if (!before?.ips.includes(ip)) share(`addresses/${ip}`, holder)
    for (const ip of before?.ips ?? []) if (!ips.includes(ip)) release(`addresses/${ip}`, holder)
    if (isEmpty) remove(`${ENTRIES}/${name}`)
  })
}

// Lines for tools are made of what stands in an entry: a text that is not as it was written counts for nothing.
function read(name: string): Entry | undefined {
  const path = `${ENTRIES}/${name}`
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { sum, ...entry } = JSON.parse(text)
    if (sum === digest(JSON.stringify(entry))) return entry as Entry
  } catch {
    // Said below, as for any other text.
  }
  log(`plumb: Cannot read ${path}, which somebody else wrote: what it told of is left as it is`)
  return undefined
}

// As JSON, with the sum of it as one more key.
function signed(entry: Entry): string {
  const text = JSON.stringify(entry)
  return `${text.slice(0, -1)},"sum":"${digest(text)}"}`
}

function splitName(part: PartName): [type: string, name: string] {
  const colon = part.indexOf(':')
  return [part.slice(0, colon), part.slice(colon + 1)]
}
