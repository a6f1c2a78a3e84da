import { createOnce, ifDiskAllows, remove } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { log } from '../os/log.ts'
import { readText } from '../os/reading.ts'
import { type Ip, parseIp } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'

/** The directories of one network's pool. */
export interface PoolFolders {
  /**
   * host-local's layout: one file per address, named after the address, and the files `last_reserved_ip.N` and `lock`.
   */
  readonly dir: string
  /** Files that only plumb uses. All of them can be lost without harm. */
  readonly own: string
}
/**
 * The owner of a reservation. `ifname` is '' in files of host-local before 0.7, because these hold the container id
 * alone.
 */
export type Holder = Pick<Owner, 'containerId'> & { readonly ifname: string }

/**
 * The holder of an address. Undefined when there is no reservation, or none that can be read. A file that a crash left
 * empty counts as none.
 */
export function holderOf(place: PoolFolders, name: string): Holder | undefined {
  return holderIn(textOf(place, name) ?? '')
}

function holderIn(text: string): Holder | undefined {
  const [containerId = '', ifname = ''] = text
    .replaceAll('\0', '')
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
  return containerId === '' ? undefined : { containerId, ifname }
}

// Undefined for a folder, and for a file that the disk cannot read any more. Nobody knows whose address it is, so it
// stays reserved, and all other addresses go on. The reference plugin skips it, too.
function textOf(place: PoolFolders, name: string): string | undefined {
  const path = `${place.dir}/${name}`
  try {
    return readText(path) ?? ''
  } catch (cause) {
    if (!['EISDIR', 'EIO'].includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause
    log(`plumb: Cannot read ${path}, so this address stays reserved: ${(cause as Error).message}`)
    return undefined
  }
}

/** All reservations, by file name. Reads the whole directory. Removes the files that a crash left empty. */
export function readAll(place: PoolFolders): ReadonlyMap<string, Holder> {
  const all = new Map<string, Holder>()
  for (const name of names(place)) {
    const path = `${place.dir}/${name}`
    const text = textOf(place, name)
    if (text === undefined) continue
    const holder = holderIn(text)
    if (holder) all.set(name, holder)
    else ifDiskAllows(`Cannot remove the empty reservation ${path}`, () => remove(path))
  }
  return all
}

/** The reserved addresses in a folder of host-local. None when there is no such folder. The files are not read. */
export function reservedIn(dir: string): readonly string[] {
  return fs.statSync(dir)?.kind === 'folder' ? names({ dir, own: '' }) : []
}

/** The file names of all reservations. The files are not read. */
export function names(place: PoolFolders): readonly string[] {
  return fs.readdirSync(place.dir).filter(isAddress)
}

/**
 * Reserves addresses, all or none. Returns false when one of them is already reserved. Each file appears with its owner
 * inside and on the disk, even after a crash. Also notes the last address of each range set.
 */
export function reserve(place: PoolFolders, { containerId, ifname }: Owner, picks: readonly Ip[]): boolean {
  const paths = picks.map((ip) => `${place.dir}/${ip}`)
  if (!createOnce(paths, `${containerId}\r\n${ifname}`, { by: `${place.own}/draft` })) return false
  try {
    // Writes in place, as host-local does. A new file costs twenty times more. A crash can only spoil the order of the
    // next addresses.
    for (const [n, ip] of picks.entries()) fs.writeFileSync(lastPath(place, n), ip, 0o600)
  } catch (cause) {
    for (const path of paths) remove(path)
    throw cause
  }
  return true
}

/** The last address that range set `n` gave out. Undefined when no file tells. */
export function lastReserved(place: PoolFolders, n: number): Ip | undefined {
  try {
    return parseIp(readText(lastPath(place, n))?.trim())
  } catch {
    return undefined
  }
}

function lastPath(place: PoolFolders, n: number): string {
  return `${place.dir}/last_reserved_ip.${n}`
}

// The files "lock", "last_reserved_ip.0" and the draft are no addresses. The regular expression comes first, because an
// exception for each of 60,000 names costs time.
function isAddress(name: string): boolean {
  if (!/^[0-9a-fA-F]*[.:][0-9a-fA-F.:]+$/.test(name)) return false
  try {
    return parseIp(name) !== undefined
  } catch {
    return false
  }
}
