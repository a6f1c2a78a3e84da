import { createOnce, remove } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { readText } from '../os/reading.ts'
import { type Ip, parseIp } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'

/** Where one network's pool lies. */
export interface Place {
  /** host-local's layout: one file per address named after it, `last_reserved_ip.N`, `lock`. */
  readonly dir: string
  /** Beside it: what plumb keeps for itself, all of which can be lost. */
  readonly own: string
}
/** Whom a reservation belongs to. `ifname` is '' in files of host-local before 0.7, which hold the bare container id. */
export type Holder = Pick<Owner, 'containerId'> & { readonly ifname: string }

/** Whom the reservation of an address belongs to; undefined when there is none, or one that a crash left empty, which counts as none. */
export function holderOf(place: Place, name: string): Holder | undefined {
  const [containerId = '', ifname = ''] = (readText(`${place.dir}/${name}`) ?? '')
    .replaceAll('\0', '')
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)
  return containerId === '' ? undefined : { containerId, ifname }
}

/** Every reservation, by the name of its file. Reads the whole directory, and removes the files that a crash left empty. */
export function readAll(place: Place): ReadonlyMap<string, Holder> {
  const all = new Map<string, Holder>()
  for (const name of names(place)) {
    const holder = holderOf(place, name)
    if (holder) all.set(name, holder)
    else remove(`${place.dir}/${name}`)
  }
  return all
}

/** The names of all reservations, unread. */
export function names(place: Place): readonly string[] {
  return fs.readdirSync(place.dir).filter(isAddress)
}

/** Reserves addresses, all or none: false when one of them is reserved already. Each file appears with its owner inside and on the disk, whatever happens meanwhile. `last` is what to note per range set. */
export function reserve(place: Place, { containerId, ifname }: Owner, picks: readonly Ip[]): boolean {
  const paths = picks.map((ip) => `${place.dir}/${ip}`)
  if (!createOnce(paths, `${containerId}\r\n${ifname}`, { by: `${place.own}/draft` })) return false
  try {
    // In place, as host-local does: making a file anew costs twenty times more, and all that a crash can spoil is whose turn it is.
    for (const [n, ip] of picks.entries()) fs.writeFileSync(lastPath(place, n), ip, 0o600)
  } catch (cause) {
    for (const path of paths) remove(path)
    throw cause
  }
  return true
}

/** The address that range set `n` gave out last; undefined when nothing says. */
export function lastReserved(place: Place, n: number): Ip | undefined {
  try {
    return parseIp(readText(lastPath(place, n))?.trim())
  } catch {
    return undefined
  }
}

function lastPath(place: Place, n: number): string {
  return `${place.dir}/last_reserved_ip.${n}`
}

// "lock", "last_reserved_ip.0" and a draft are none. Throwing for 60,000 names would cost, hence the first look.
function isAddress(name: string): boolean {
  if (!/^[0-9a-fA-F]*[.:][0-9a-fA-F.:]+$/.test(name)) return false
  try {
    return parseIp(name) !== undefined
  } catch {
    return false
  }
}
