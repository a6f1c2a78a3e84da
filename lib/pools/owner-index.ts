import { remove, writeAtomic } from '../os/files.ts'
import { fs, type Stat } from '../os/fs.ts'
import type { Owner } from '../text/owner.ts'
import { brief, isName } from '../text/values.ts'
import { type Holder, holderOf, type PoolFolders, readAll } from './reservations.ts'

/**
 * The index of addresses by owner. It is valid while the pool's lock is held. host-local's layout tells an owner's
 * addresses only by reading every file. Whoever has read every file writes the index as one file, sorted by owner.
 * After that each holder that changes gets a symbolic link `<container id>:<ifname>`, whose text lists its addresses. A
 * link is made in one step and read in one step, so no reader sees half of it. The index is used as long as its stamp
 * matches the directory.
 */
export interface Ledger {
  readonly place: PoolFolders
  /** The addresses by key, when the directory had to be read. Absent while the index is right. */
  readonly found?: ReadonlyMap<string, readonly string[]>
}

const MANY = '*'
let boot: string | undefined

/**
 * The ledger of a place. The caller holds the lock. Reads the whole directory when another program changed it, or when
 * the node was booted since the last stamp. `all` holds the reservations when the caller has already read them.
 */
export function openLedger(place: PoolFolders, all?: ReadonlyMap<string, Holder>): Ledger {
  makeOwn(place)
  return !all && attempt(() => fs.readFileSync(stampPath(place))) === stampOf(fs.statSync(place.dir) as Stat)
    ? { place }
    : { place, found: byKey(all ?? readAll(place)) }
}

/**
 * The addresses that an owner holds. The index is only a hint, so each file is read. Otherwise the address of another
 * owner could be freed. An owner without addresses gets the addresses that an old host-local noted for the container.
 * Then `holder` has no interface name.
 */
export function heldBy(ledger: Ledger, { containerId, ifname }: Owner): { holder: Holder; names: readonly string[] } {
  const names = holdingsOf(ledger, { containerId, ifname })
  const holder = { containerId, ifname: names.length > 0 ? ifname : '' }
  return { holder, names: names.length > 0 ? names : holdingsOf(ledger, holder) }
}

/**
 * Updates the index by holder, after the directory has changed. Then writes the stamp. Cannot fail: without a stamp the
 * next call reads the directory. The same happens after a kill at any point.
 */
export function settle({ place, found }: Ledger, changed: readonly (readonly [Holder, readonly string[]])[]): void {
  try {
    const changes = changed.map(([holder, names]) => [keyOf(holder), names] as const)
    const changing = new Set(changes.map(([key]) => key))
    if (found) rewrite(place, new Map([...found].filter(([key]) => !changing.has(key))))
    for (const [key, names] of changes) point(place, key, names)
    stamp(place)
  } catch {
    // The disk is full or read-only. A DEL that freed its address must not fail for that.
  }
}

/** Removes the index of a network that has no reservation left. */
export function removeIndex({ own }: PoolFolders): void {
  try {
    for (const name of fs.readdirSync(own)) remove(`${own}/${name}`)
    fs.rmdirSync(own)
  } catch {
    // Files that stay have no effect.
  }
}

// Only the owner of the folder may read it, as with the reservations. The index tells who has which address.
function makeOwn({ own }: PoolFolders): void {
  try {
    if (!fs.existsSync(own)) fs.mkdirSync(own, 0o700)
  } catch {
    // A full or read-only disk causes an error later, at the reservations.
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
  const hints = found
    ? []
    : [attempt(() => fs.readlinkSync(`${place.own}/${key}`)), attempt(() => listedFor(place, key))]
  const all = found ?? (hints.includes(MANY) ? byKey(readAll(place)) : undefined)
  const names = all?.get(key) ?? hints.flatMap((one) => one?.split(',') ?? [])
  return [...new Set(names)].filter((name) => {
    const one = holderOf(place, name)
    return one?.containerId === holder.containerId && one.ifname === holder.ifname
  })
}

// A reservation can hold any text. A text that no attachment can have as its name gets one common key. No owner asks
// for this key.
function keyOf({ containerId, ifname }: Holder): string {
  return isName(containerId) && ifname.length <= 15 && /^[!-.0-~]*$/.test(ifname)
    ? `${brief(containerId)}:${ifname}`
    : '?:'
}

// One file costs the same at any number of holders. A link for each would cost more than reading all reservations.
function rewrite(place: PoolFolders, all: ReadonlyMap<string, readonly string[]>): void {
  for (const name of fs.readdirSync(place.own)) if (name.includes(':') && !all.has(name)) remove(`${place.own}/${name}`)
  const lines = [...all].flatMap(([key, names]) => (names.length > 0 ? `${key} ${textOf(names)}\n` : [])).sort()
  if (lines.length === 0) remove(listPath(place))
  else writeAtomic(listPath(place), lines.join(''), { durable: false, by: `${place.own}/draft` })
}

/** Longer than any line of the list. */
const BLOCK = 8192

// The addresses of a key in the list. A binary search, because the list may have 60,000 lines.
function listedFor(place: PoolFolders, key: string): string | undefined {
  const fd = fs.openSync(listPath(place), 'r')
  try {
    const block = new Uint8Array(2 * BLOCK)
    const textAt = (from: number) => new TextDecoder().decode(block.subarray(0, fs.readSync(fd, block, from)))
    // The line begins at `low` or later, and not after `high`.
    let [low, high] = [0, fs.endSync(fd)]
    while (high - low > BLOCK) {
      const middle = (low + high) >> 1
      const text = textAt(middle)
      const begin = text.indexOf('\n') + 1
      if (begin < text.length && text.slice(begin, text.indexOf(' ', begin)) <= key) low = middle + begin
      else high = middle
    }
    const line = textAt(low)
      .split('\n')
      .find((one) => one.startsWith(`${key} `))
    return line?.slice(key.length + 1)
  } finally {
    fs.closeSync(fd)
  }
}

function point(place: PoolFolders, key: string, names: readonly string[]): void {
  const path = `${place.own}/${key}`
  remove(path)
  if (names.length > 0) fs.symlinkSync(textOf(names), path)
}

// A symbolic link holds at most 4095 bytes. An admin who reserves addresses by hand may write the same word into a
// thousand files.
function textOf(names: readonly string[]): string {
  const text = names.join(',')
  return text.length < 4000 ? text : MANY
}

function stamp(place: PoolFolders): void {
  // The kernel's timestamps are as coarse as its tick. A change by another program could leave the same timestamp as
  // plumb's change. So plumb sets a timestamp with finer digits than a tick. Then every other change is visible.
  const at = Date.now() / 1000 + (performance.now() % 1) / 1000
  fs.utimesSync(place.dir, at)
  const seen = fs.statSync(place.dir)
  // The timestamp says nothing when the directory changed again, or when the file system keeps whole seconds only.
  if (seen && Math.abs(Number(seen.mtimeNs) / 1e9 - at) < 1e-6) fs.writeFileSync(stampPath(place), stampOf(seen), 0o600)
}

// The stamp has the boot id. After a power loss, data that was not fsynced may be older than the directory.
function stampOf({ ino, mtimeNs }: { readonly ino: bigint; readonly mtimeNs: bigint }): string {
  boot ??= fs.readFileSync('/proc/sys/kernel/random/boot_id').trim()
  return `${boot} ${ino} ${mtimeNs}`
}

function listPath({ own }: PoolFolders): string {
  return `${own}/owners`
}

function stampPath({ own }: PoolFolders): string {
  return `${own}/stamp`
}

// A part of the index that cannot be read counts as missing.
function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
