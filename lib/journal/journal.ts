import type { Attachment } from '../cni/plugin.ts'
import { ifDiskAllows, remove, requireRoom, withLock, writeAtomic } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { log } from '../os/log.ts'
import { type Identity, identityOf, inodeOf, isAt } from '../os/netns.ts'
import { listFiles, readText } from '../os/reading.ts'
import { occupy, takeTurn } from '../os/turns.ts'
import type { BridgePort, Resource } from '../state/resource.ts'
import { digest } from '../text/digest.ts'
import { CniError, CODE } from '../text/errors.ts'
import { type Cidr, split } from '../text/ip.ts'
import { fileName, type Owner, type PartName } from '../text/owner.ts'
import { brief, type NetnsPath, type NetworkName } from '../text/values.ts'
import { ENTRIES, holdersOf, LOCK, release, share } from './shared.ts'

/**
 * The journal's entry of an attachment: one file. plumb writes it before it changes the kernel, and removes it last
 * (docs/journal.md).
 */
export interface Entry {
  readonly owner: Owner
  /** An ADD or a DEL of the interface plugin is running, or was killed. */
  readonly unfinished?: true
  /** The addresses of the attachment. */
  readonly ips: readonly string[]
  /** The objects of each plugin, by plugin type. The part of the interface plugin is always named `LINK`. */
  readonly parts: Readonly<Record<string, Part>>
}

/**
 * The objects of one plugin for an attachment, and the pod's namespace. Another namespace may have the same path later.
 * Inode and cookie identify it.
 */
export interface Part extends Partial<Identity> {
  readonly netns?: NetnsPath
  readonly own: readonly Resource[]
  /** The ports of a bridge that the attachment needs. The ADD that makes the bridge again joins them to it. */
  readonly ports?: readonly BridgePort[]
}

/** A part with its owner. */
export interface Note extends Part {
  readonly owner: Owner
  readonly ips: readonly string[]
}

/** The name of the interface plugin's part. */
export const LINK = 'link'

/** The folder of the journal. A reboot empties this file system, and it empties the kernel too. */
export const DIR = '/run/cni/plumb'

/** The name of a plugin's part of an attachment's entry. */
export function partName(type: string, owner: Owner): PartName {
  return `${type}:${fileName(owner)}`
}

/**
 * The state that an ADD finds: nothing, a live attachment, the remains of a killed call, or an attachment whose
 * namespace is gone. The ADD removes the last two first.
 */
export type EntryState = 'nothing' | 'attached' | 'unfinished' | 'gone'

/**
 * Opens the entry of an attachment for an ADD. Waits until every other call for the attachment has ended. `link` names
 * the resources that remove the link, if they are known. It is written only when the attachment does not exist yet.
 * Throws CniError 11 when an earlier call does not end in time.
 */
export function begin(at: Attachment, link?: readonly Resource[]): EntryState {
  takeTurn(partName(LINK, at), `an earlier call for ${at.ifname} of container ${at.containerId}`)
  let found: EntryState = 'nothing'
  change(at, (entry) => {
    const { [LINK]: before, ...others } = entry.parts
    found = entry.unfinished ? 'unfinished' : before === undefined ? 'nothing' : isThere(before) ? 'attached' : 'gone'
    if (found !== 'nothing' || !link) return { ...entry, unfinished: true }
    return { ...entry, unfinished: true, parts: { [LINK]: { ...whereOf(at), own: link }, ...others } }
  })
  return found
}

/**
 * Writes to the entry that a removal is running, and makes the entry where there is none. The next ADD finishes an
 * unfinished removal first. Returns whether the entry was made for it. Never throws, because a DEL must always remove.
 */
export function beginRemoval(owner: Owner): boolean {
  let isNew = false
  try {
    if (occupy(partName(LINK, owner)))
      change(owner, (entry) => {
        isNew = !entry.unfinished && Object.keys(entry.parts).length === 0
        return { ...entry, unfinished: true }
      })
  } catch {
    // /run is full or read-only. After a killed DEL the next ADD is refused then, until the DEL is repeated.
  }
  return isNew
}

/**
 * Writes to the entry which objects plugins are about to make, by plugin type. DEL then needs neither configuration nor
 * result. `ips` are the attachment's addresses. The next ADD with one of these addresses finds the entry by them.
 * `ports` gives the ports of a bridge that the interface plugin's part names from now on.
 */
export function note(
  at: Attachment,
  made: Readonly<Record<string, readonly Resource[]>>,
  ips?: readonly { readonly address: Cidr }[],
  ports: (before: readonly BridgePort[]) => readonly BridgePort[] = (before) => before,
): void {
  const where = whereOf(at)
  const parts = Object.fromEntries(Object.entries(made).map(([type, own]): [string, Part] => [type, { ...where, own }]))
  change(at, (entry) => {
    const all = { ...entry.parts, ...parts }
    const link = all[LINK]
    const now = ports(link?.ports ?? [])
    return {
      ...entry,
      parts: link && now.length > 0 ? { ...all, [LINK]: { ...link, ports: now } } : all,
      ips: ips?.map(({ address }) => split(address).ip) ?? entry.ips,
    }
  })
}

function whereOf({ netns }: Attachment): Omit<Part, 'own'> {
  return netns === undefined ? {} : { netns, ...identityOf(netns) }
}

/** Writes to the entry that the ADD has ended. */
export function complete(owner: Owner): void {
  change(owner, ({ unfinished: _, ...entry }) => entry)
}

/** Writes to the entry that the link is gone and the call has ended. Parts of chained plugins stay until their DEL. */
export function close(owner: Owner): void {
  forgetting(owner, ({ unfinished: _, parts: { [LINK]: __, ...parts }, ...entry }) => ({ ...entry, parts }))
}

/**
 * Removes the objects of a part with `undo`, and then the part. One process does this at a time, after the tools of a
 * killed process have ended. A second process waits, finds no part, and removes nothing. Returns false without a part.
 */
export async function forget(part: PartName, undo: (note: Note) => Promise<void>): Promise<boolean> {
  if (!readPart(part)) return false
  if (!occupy(part)) log(`plumb: Gave up waiting for an earlier call on ${part}; its objects are removed while it runs`)
  const found = readPart(part)
  if (!found) return false
  await undo(found)
  drop(part, found.owner)
  return true
}

/** Removes a part whose objects are gone. */
export function drop(part: PartName, owner: Owner): void {
  const [type] = splitName(part)
  forgetting(owner, ({ parts: { [type]: _, ...parts }, ...entry }) => ({ ...entry, parts }))
}

// DEL must free the address also when the entry cannot be changed: the disk is full, read-only or broken, and a pod that
// goes is what makes room. The next ADD with the address removes the entry.
function forgetting(owner: Owner, to: (before: Entry) => Entry): void {
  const path = `${ENTRIES}/${fileName(owner)}`
  ifDiskAllows(`Cannot change ${path}, though what it names is gone`, () => change(owner, to))
}

/** Throws CniError 50 when the journal cannot be written. No ADD would work then. */
export function ready(): void {
  try {
    requireRoom(DIR)
  } catch (cause) {
    throw new CniError(CODE.notReady, `Cannot write to ${DIR}: no pod can be attached`, (cause as Error).message, {
      cause,
    })
  }
}

/** Reads the entry of an attachment. Undefined when there is none. */
export function readEntry(owner: Owner): Entry | undefined {
  return read(fileName(owner))
}

/** Reads a part of an entry. Undefined when there is none. */
export function readPart(part: PartName): Note | undefined {
  const [type, name] = splitName(part)
  const entry = read(name)
  const found = entry?.parts[type]
  return entry && found && { ...found, owner: entry.owner, ips: entry.ips }
}

/** Whether the attachment of a part has an entry. Only root may read the entry itself. */
export function hasEntry(part: PartName): boolean {
  return fs.existsSync(`${ENTRIES}/${splitName(part)[1]}`)
}

/** Reads all entries, or the entries of a network without those of the given attachments. */
export function entries(network?: NetworkName, but: readonly Owner[] = []): Entry[] {
  const keep = new Set(but.map(fileName))
  const isMeant = (name: string) => network === undefined || (name.startsWith(`${brief(network)}:`) && !keep.has(name))
  return listFiles(ENTRIES).flatMap((name) => (isMeant(name) ? (read(name) ?? []) : []))
}

/** The parts of an entry, by name. */
export function partsOf({ owner, ips, parts }: Entry): [PartName, Note][] {
  return Object.entries(parts).map(([type, part]) => [partName(type, owner), { ...part, owner, ips }])
}

/** The parts that the same plugin type made for other attachments of the same container. */
export function siblings(part: PartName): PartName[] {
  const [type, name] = splitName(part)
  const container = `:${name.split(':')[1]}:`
  return listFiles(ENTRIES).flatMap((other): PartName[] =>
    other !== name && other.includes(container) ? [`${type}:${other}`] : [],
  )
}

/** Whether two parts belong to the same container. */
export function isSameContainer(part: PartName, other: PartName): boolean {
  return part.split(':')[2] === other.split(':')[2]
}

/**
 * The entries of the attachments that have an address, or had it when their entry was written. A note without an entry
 * stays: an ADD may have written the entry since.
 */
export function attachmentsWith(ip: string): Entry[] {
  return holdersOf(`addresses/${ip}`).flatMap((part) => {
    const entry = read(splitName(part)[1])
    return entry?.ips.includes(ip) ? [entry] : []
  })
}

/** Whether the namespace of a part still exists. Its path may belong to another pod now. */
export function isThere({ netns, inode, cookie }: Part): boolean {
  return netns !== undefined && inode !== undefined && isAt(netns, { inode, cookie })
}

/**
 * Whether the interface of this name in the namespace belongs to another attachment of plumb. A DEL for an attachment
 * that plumb does not know must leave that interface alone. Its pod may be a later one with the same path.
 */
export function isAnothers(at: Attachment): boolean {
  const { ifname, netns } = at
  const inode = netns === undefined ? undefined : inodeOf(netns)
  if (inode === undefined) return false
  const others = listFiles(ENTRIES).filter((name) => name !== fileName(at) && name.endsWith(`:${ifname}`))
  return others.some((name) =>
    Object.values(read(name)?.parts ?? {}).some((part) => part.inode === inode && isThere(part)),
  )
}

// One process writes at a time, and all use the same draft file. A killed call may leave the draft, and the next call
// overwrites it.
function change(owner: Owner, to: (before: Entry) => Entry): void {
  const { network, containerId, ifname } = owner
  const name = fileName(owner)
  withLock(LOCK, () => {
    const before = read(name)
    const after = to(before ?? { owner: { network, containerId, ifname }, ips: [], parts: {} })
    const isEmpty = !after.unfinished && Object.keys(after.parts).length === 0
    const ips = isEmpty ? [] : after.ips
    const holder: PartName = `${LINK}:${name}`
    // The index never has more than the entries. A call that is killed here leaves the entry, and the removal of the
    // entry removes the rest.
    if (!isEmpty) writeAtomic(`${ENTRIES}/${name}`, signed(after), { durable: false, by: `${DIR}/draft` })
    for (const ip of ips) if (!before?.ips.includes(ip)) share(`addresses/${ip}`, holder)
    for (const ip of before?.ips ?? []) if (!ips.includes(ip)) release(`addresses/${ip}`, holder)
    if (isEmpty) remove(`${ENTRIES}/${name}`)
  })
}

// plumb makes lines for `ip` and `nft` from entries. An entry with a wrong checksum is ignored.
function read(name: string): Entry | undefined {
  const path = `${ENTRIES}/${name}`
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { sum, ...entry } = JSON.parse(text)
    if (sum === digest(JSON.stringify(entry))) return entry as Entry
  } catch {
    // The error below is the same for every bad text.
  }
  log(`plumb: Cannot read ${path}: plumb did not write it; the objects that it names stay`)
  return undefined
}

// The entry as JSON, with its checksum as one more key.
function signed(entry: Entry): string {
  const text = JSON.stringify(entry)
  return `${text.slice(0, -1)},"sum":"${digest(text)}"}`
}

function splitName(part: PartName): [type: string, name: string] {
  const colon = part.indexOf(':')
  return [part.slice(0, colon), part.slice(colon + 1)]
}
