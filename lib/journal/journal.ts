// This folder records what plumb makes for each attachment, so that DEL needs neither configuration nor result (docs/journal.md). Begin
// with `Entry`, `begin` and `note` in this file. The other files index things that several attachments share.
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

/** The record of one attachment. It is one file. plumb writes it before it changes the kernel, and removes it last (docs/journal.md). */
export interface Entry {
  readonly owner: Owner
  /** An ADD or a DEL of the interface plugin is running or was killed. */
  readonly unfinished?: true
  /** The addresses of the attachment. */
  readonly ips: readonly string[]
  /** The resources that each plugin made, by plugin type. The interface plugin always uses the key `LINK`. */
  readonly parts: Readonly<Record<string, Part>>
}

/**
 * The resources that one plugin made for an attachment, and the pod's namespace. `netns` may lead to another namespace later. The inode
 * and the cookie show that.
 */
export interface Part extends Partial<Identity> {
  readonly netns?: NetnsPath
  readonly own: readonly Resource[]
}

/** A part with the owner and the addresses of its attachment. */
export interface Note extends Part {
  readonly owner: Owner
  readonly ips: readonly string[]
}

/** The key of the interface plugin's part. */
export const LINK = 'link'

// A reboot empties this file system and the kernel together.
const DIR = '/run/cni/plumb'

/** The name of a plugin's part of an attachment. */
export function partName(type: string, owner: Owner): PartName {
  return `${type}:${fileName(owner)}`
}

/**
 * The state that an ADD finds. `attached`: the attachment exists. `unfinished`: a killed call left a rest, and the ADD must remove it
 * first.
 */
export type Found = 'nothing' | 'attached' | 'unfinished'

/**
 * Opens the entry of an attachment for an ADD. Waits first until every earlier call for this attachment has ended. `link` lists the
 * resources whose removal removes the link, when they are known. The entry gets them only when nothing exists yet. Throws CniError 11
 * when an earlier call does not end in time.
 */
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

/**
 * Notes that a removal is running. After a kill, the next ADD finds the entry unfinished and completes the removal. Never throws,
 * because a DEL must always be able to remove.
 */
export function beginRemoval(owner: Owner): void {
  try {
    if (occupy(partName(LINK, owner))) change(owner, (entry) => ({ ...entry, unfinished: true }))
  } catch {
    // /run is full or read-only. If this DEL is killed, the next ADD is refused. Another DEL solves that.
  }
}

/**
 * Notes the resources that plugins are going to make for an attachment, by plugin type. DEL then needs neither configuration nor
 * result. `ips` are the attachment's addresses. The next attachment that gets one of these addresses finds the entry by it.
 */
export function note(at: Attachment, made: Readonly<Record<string, readonly Resource[]>>, ips?: readonly { readonly address: Cidr }[]): void {
  const where = whereOf(at)
  const parts = Object.fromEntries(Object.entries(made).map(([type, own]): [string, Part] => [type, { ...where, own }]))
  change(at, (entry) => ({ ...entry, parts: { ...entry.parts, ...parts }, ips: ips?.map(({ address }) => split(address).ip) ?? entry.ips }))
}

function whereOf({ netns }: Attachment): Omit<Part, 'own'> {
  return netns === undefined ? {} : { netns, ...identityOf(netns) }
}

/** Notes that the ADD has ended. */
export function complete(owner: Owner): void {
  change(owner, ({ unfinished: _, ...entry }) => entry)
}

/** Notes that the link is removed and that the call has ended. The parts of chained plugins stay until their own DEL. */
export function close(owner: Owner): void {
  forgetting(owner, ({ unfinished: _, parts: { [LINK]: __, ...parts }, ...entry }) => ({ ...entry, parts }))
}

/**
 * Undoes a part and then removes it from the entry. Returns false when there is no such part. Only one process at a time works on a
 * part. It also waits for the tools of a killed call. A second process that waited finds no part. It touches nothing, because another
 * attachment may own the resources by then.
 */
export async function forget(part: PartName, undo: (note: Note) => Promise<void>): Promise<boolean> {
  if (!readPart(part)) return false
  if (!occupy(part)) log(`plumb: Cannot wait any longer for an earlier call that is at work on ${part}: what it made is removed meanwhile`)
  const found = readPart(part)
  if (!found) return false
  await undo(found)
  drop(part, found.owner)
  return true
}

/** Removes a part from the entry after its resources are gone. */
export function drop(part: PartName, owner: Owner): void {
  const [type] = splitName(part)
  forgetting(owner, ({ parts: { [type]: _, ...parts }, ...entry }) => ({ ...entry, parts }))
}

// DEL must free the address even when /run is read-only. The next attachment that gets the address removes the entry.
function forgetting(owner: Owner, to: (before: Entry) => Entry): void {
  try {
    change(owner, to)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EROFS') throw cause
    log(`plumb: Cannot change ${ENTRIES}/${fileName(owner)}: the file system is read-only; what it tells of is gone`)
  }
}

/** Throws CniError 50 when the journal cannot be written. No ADD would work then. */
export function ready(): void {
  try {
    // `withLock` makes the folder. The test file has no name, so a killed call leaves no file.
    withLock(`${DIR}/lock`, () => writeUnnamed(DIR, 'x'))
  } catch (cause) {
    throw new CniError(CODE.notReady, `Cannot write to ${DIR}: no pod can be attached`, (cause as Error).message, { cause })
  }
}

/** The entry of an attachment. Undefined when there is none. */
export function readEntry(owner: Owner): Entry | undefined {
  return read(fileName(owner))
}

/** A part of an entry. Undefined when there is none. */
export function readPart(part: PartName): Note | undefined {
  const [type, name] = splitName(part)
  const entry = read(name)
  const found = entry?.parts[type]
  return entry && found && { ...found, owner: entry.owner, ips: entry.ips }
}

/** Whether the attachment of a part has an entry. Works also for users who may not read the entry. */
export function hasEntry(part: PartName): boolean {
  return fs.existsSync(`${ENTRIES}/${splitName(part)[1]}`)
}

/** All entries. With `network`: the entries of that network, without the entries of the attachments in `but`. */
export function entries(network?: NetworkName, but: readonly Owner[] = []): Entry[] {
  const keep = new Set(but.map(fileName))
  const isMeant = (name: string) => network === undefined || (name.startsWith(`${brief(network)}:`) && !keep.has(name))
  return listFiles(ENTRIES).flatMap((name) => (isMeant(name) ? (read(name) ?? []) : []))
}

/** The parts of an entry, each with its name. */
export function partsOf({ owner, ips, parts }: Entry): [PartName, Note][] {
  return Object.entries(parts).map(([type, part]) => [partName(type, owner), { ...part, owner, ips }])
}

/** The names of the parts with the same plugin type in the other attachments of the same container. Such a part need not exist. */
export function siblings(part: PartName): PartName[] {
  const [type, name] = splitName(part)
  const container = `:${name.split(':')[1]}:`
  return listFiles(ENTRIES).flatMap((other): PartName[] => (other !== name && other.includes(container) ? [`${type}:${other}`] : []))
}

/** Whether two parts belong to the same container. */
export function isSameContainer(part: PartName, other: PartName): boolean {
  return part.split(':')[2] === other.split(':')[2]
}

/** The entries of the attachments that were noted with this address. */
export function attachmentsWith(ip: string): Entry[] {
  return holdersOf(`addresses/${ip}`).flatMap((part) => {
    const entry = read(splitName(part)[1])
    if (entry?.ips.includes(ip)) return [entry]
    release(`addresses/${ip}`, part)
    return []
  })
}

/** Whether the namespace of a part still exists at its path. Another pod may use the path now. */
export function isThere({ netns, inode, cookie }: Part): boolean {
  return netns !== undefined && inode !== undefined && isAt(netns, { inode, cookie })
}

// The lock admits one process at a time, so all processes share one draft file. A killed call leaves one draft, and the next call
// replaces it.
function change(owner: Owner, to: (before: Entry) => Entry): void {
  const { network, containerId, ifname } = owner
  const name = fileName(owner)
  withLock(`${DIR}/lock`, () => {
    const before = read(name)
    const after = to(before ?? { owner: { network, containerId, ifname }, ips: [], parts: {} })
    const isEmpty = !after.unfinished && Object.keys(after.parts).length === 0
    const ips = isEmpty ? [] : after.ips
    const holder: PartName = `${LINK}:${name}`
    // The order keeps the index within the entries. A call that is killed here leaves the entry, and the removal of the entry removes
    // the rest.
    if (!isEmpty) writeAtomic(`${ENTRIES}/${name}`, signed(after), { durable: false, by: `${DIR}/draft` })
    for (const ip of ips) if (!before?.ips.includes(ip)) share(`addresses/${ip}`, holder)
    for (const ip of before?.ips ?? []) if (!ips.includes(ip)) release(`addresses/${ip}`, holder)
    if (isEmpty) remove(`${ENTRIES}/${name}`)
  })
}

// Entries become command lines for tools. So an entry whose checksum is wrong is ignored.
function read(name: string): Entry | undefined {
  const path = `${ENTRIES}/${name}`
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { sum, ...entry } = JSON.parse(text)
    if (sum === digest(JSON.stringify(entry))) return entry as Entry
  } catch {
    // The log line below reports this case too.
  }
  log(`plumb: Cannot read ${path}, which somebody else wrote: what it told of is left as it is`)
  return undefined
}

// The entry as JSON, with its checksum as one more key, `sum`.
function signed(entry: Entry): string {
  const text = JSON.stringify(entry)
  return `${text.slice(0, -1)},"sum":"${digest(text)}"}`
}

function splitName(part: PartName): [type: string, name: string] {
  const colon = part.indexOf(':')
  return [part.slice(0, colon), part.slice(colon + 1)]
}
