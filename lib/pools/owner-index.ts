import { remove } from '../os/files.ts'
import { fs, type Stat } from '../os/fs.ts'
import type { Owner } from '../text/owner.ts'
import { brief, isName } from '../text/values.ts'
import { type Holder, holderOf, type Place, readAll } from './reservations.ts'

/** Who holds which addresses, while the pool's lock is held. host-local's layout answers that only by reading every file; so beside it each holder has a symbolic link `<container id>:<ifname>` whose text lists its addresses: made in one step, read in one, never torn. The index is believed as long as its stamp matches the directory. */
export interface Ledger {
  readonly place: Place
  /** What the directory held when it had to be read, by key; absent while the index is right. */
  readonly found?: ReadonlyMap<string, readonly string[]>
}

const MANY = '*'
let boot: string | undefined

/** The ledger of a place whose lock the caller holds. Reads the whole directory when something but plumb changed it since, or the node was started anew. `all` is what a caller found who had to read it anyway. */
export function openLedger(place: Place, all?: ReadonlyMap<string, Holder>): Ledger {
  makeOwn(place)
  return !all && attempt(() => fs.readFileSync(stampPath(place))) === stampOf(fs.statSync(place.dir) as Stat) ? { place } : { place, found: byKey(all ?? readAll(place)) }
}

/** The addresses that an owner holds, each file looked into: the index is a hint, never a reason to free what is another's. Without any, those that an old host-local noted for the container, which are then what `holder` says. */
export function heldBy(ledger: Ledger, { containerId, ifname }: Owner): { holder: Holder; names: readonly string[] } {
  const names = holdingsOf(ledger, { containerId, ifname })
  const holder = { containerId, ifname: names.length > 0 ? ifname : '' }
  return { holder, names: names.length > 0 ? names : holdingsOf(ledger, holder) }
}

/** Brings the index up to what was changed, by holder, after the directory was; then stamps it. Cannot fail: without its stamp the next call reads the directory, and so it does after a kill at any point. */
export function settle({ place, found }: Ledger, changed: readonly (readonly [Holder, readonly string[]])[]): void {
  try {
    const changes = changed.map(([holder, names]) => [keyOf(holder), names] as const)
    if (found) rewrite(place, new Map([...found, ...changes]))
    else for (const [key, names] of changes) point(place, key, names)
    stamp(place)
  } catch {
    // A full or read-only disk: no reason to fail a DEL that freed its address.
  }
}

/** Removes the index of a network that has no reservation left. */
export function removeIndex({ own }: Place): void {
  try {
    for (const name of fs.readdirSync(own)) remove(`${own}/${name}`)
    fs.rmdirSync(own)
  } catch {
    // What stays tells of nothing.
  }
}

// Closed to others, as the reservations are: it tells which container has which address.
function makeOwn({ own }: Place): void {
  try {
    if (!fs.existsSync(own)) fs.mkdirSync(own, 0o700)
  } catch {
    // A disk that is full or read-only shows where it matters.
  }
}

function byKey(all: ReadonlyMap<string, Holder>): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const [name, holder] of all) {
    const key = keyOf(holder)
    const names = found.get(key)
    if (names) names.push(name)
    else found.set(key, [name])
  }
  return found
}

function holdingsOf({ place, found }: Ledger, holder: Holder): readonly string[] {
  const key = keyOf(holder)
  const listed = found ? undefined : attempt(() => fs.readlinkSync(`${place.own}/${key}`))
  const all = found ?? (listed === MANY ? byKey(readAll(place)) : undefined)
  return (all?.get(key) ?? listed?.split(',') ?? []).filter((name) => {
    const one = holderOf(place, name)
    return one?.containerId === holder.containerId && one.ifname === holder.ifname
  })
}

// A reservation can hold any text. What no attachment is called by is kept under one key, which none asks for.
function keyOf({ containerId, ifname }: Holder): string {
  return isName(containerId) && ifname.length <= 15 && !ifname.includes('/') ? `${brief(containerId)}:${ifname}` : '?:'
}

function rewrite(place: Place, all: ReadonlyMap<string, readonly string[]>): void {
  const known = new Set(fs.readdirSync(place.own).filter((name) => name.includes(':')))
  for (const key of known) if (!all.has(key)) remove(`${place.own}/${key}`)
  for (const [key, names] of all) if (!known.has(key) || attempt(() => fs.readlinkSync(`${place.own}/${key}`)) !== textOf(names)) point(place, key, names)
}

function point(place: Place, key: string, names: readonly string[]): void {
  const path = `${place.own}/${key}`
  remove(path)
  if (names.length > 0) fs.symlinkSync(textOf(names), path)
}

// A link takes 4095 bytes. One who keeps addresses back by hand may have written the same word into a thousand files.
function textOf(names: readonly string[]): string {
  const text = names.join(',')
  return text.length < 4000 ? text : MANY
}

function stamp(place: Place): void {
  // The kernel's own times are as coarse as its tick: a change by someone else could leave the very time that ours left.
  // A time of our own, with digits that no tick has, makes each of them show.
  const at = Date.now() / 1000 + (performance.now() % 1) / 1000
  fs.utimesSync(place.dir, at)
  const seen = fs.statSync(place.dir)
  // Changed again meanwhile, or kept in whole seconds: then it says nothing.
  if (seen && Math.abs(Number(seen.mtimeNs) / 1e9 - at) < 1e-6) fs.writeFileSync(stampPath(place), stampOf(seen), 0o600)
}

// The boot, because what is not fsynced may be older than the directory after a power loss.
function stampOf({ ino, mtimeNs }: { readonly ino: bigint; readonly mtimeNs: bigint }): string {
  boot ??= fs.readFileSync('/proc/sys/kernel/random/boot_id').trim()
  return `${boot} ${ino} ${mtimeNs}`
}

function stampPath({ own }: Place): string {
  return `${own}/stamp`
}

// Whatever cannot be read of the index is as good as not there.
function attempt(read: () => string): string | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
