// This folder has the address pools: host-local ranges on disk, leases of the DHCP daemon, and the resolver settings of
// a pool. Begin with `addressStore` in this file. Read dhcp.ts for DHCP.

import type { IpConfig } from '../cni/result.ts'
import { remove, requireRoom, withLock } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import { log } from '../os/log.ts'
import { CniError, CODE } from '../text/errors.ts'
import { type Ip, split } from '../text/ip.ts'
import type { Owner } from '../text/owner.ts'
import { brief, type NetworkName } from '../text/values.ts'
import { leftByEarlierBoot } from './earlier-boots.ts'
import { isInUse } from './living.ts'
import { heldBy, type Ledger, openLedger, removeIndex, settle } from './owner-index.ts'
import { capacity, describe, type RangeSet, rangeOf, search } from './ranges.ts'
import { type Holder, holderOf, lastReserved, names, type PoolFolders, readAll, reserve } from './reservations.ts'
import { putToRest, resting } from './resting.ts'

/** The addresses that an earlier boot left reserved, with their holders. */
export type Left = ReadonlyMap<string, Holder>
/**
 * The addresses of one network on disk, in host-local's layout and shared with host-local. Every method except
 * `foresee` holds host-local's lock. Only `take` makes a missing directory. All throw CniError 5 when the disk fails.
 */
export interface AddressStore {
  /**
   * Takes one address of each set, all or none. A set gives its wanted address, else a former one that is free, else
   * the next free one. Throws CniError 11 when a set is exhausted, 7 when a wanted address cannot be had, 4 when the
   * owner already holds addresses.
   */
  take(owner: Owner, sets: readonly RangeSet[], wanted: readonly Ip[], former?: readonly Ip[]): IpConfig[]
  /**
   * Runs `work`. When it fails because addresses are reserved, frees those that an earlier boot of the node left, logs
   * them, and runs `work` again. With `isQuestion` it frees and logs nothing.
   */
  orAfterBoot<T>(work: (left: Left) => T, isQuestion?: boolean): Promise<T>
  /**
   * Predicts the answer of `take`, without the lock and without a change. Returns the owner's addresses when it holds
   * some. Otherwise returns addresses that look free to this user. `why` says which case it is. `isFreed` predicts the
   * answer after a release of the owner's addresses. Addresses in `left` count as free. Throws like `take`.
   */
  foresee(
    owner: Owner,
    sets: readonly RangeSet[],
    wanted: readonly Ip[],
    isFreed?: boolean,
    left?: Left,
  ): { readonly ips: IpConfig[]; readonly why: string }
  release(owner: Owner): void
  holds(owner: Owner): boolean
  /** Frees the addresses that belong to none of these owners. */
  keepOnly(owners: readonly Owner[]): void
  /** Throws CniError 50 when the disk takes no file, or a set has no free address. */
  ready(sets: readonly RangeSet[]): void
}

// The number of addresses that are tried one by one. Then the directory is read once, and the search goes on in memory.
const PROBES = 64

/**
 * The store of a network below `dataDir`. A freed address rests for `cooldown` seconds. In that time it is given out
 * only when it is asked for by name.
 */
export function addressStore(dataDir: string, network: NetworkName, cooldown = 0): AddressStore {
  // No name of a network begins with a dot. So no network has the same directory as plumb's own folder `.plumb`.
  const place = { dir: `${dataDir}/${network}`, own: `${dataDir}/.plumb/${brief(network)}` }
  const locked = <T>(work: () => T): T => onDisk(place, () => withLock(`${place.dir}/lock`, work))
  const ifThere = <T>(work: () => T): T | undefined => (fs.existsSync(place.dir) ? locked(work) : undefined)
  return {
    take(owner, sets, wanted, former = []) {
      const given = assign(sets, wanted)
      return locked(() => take({ place, cooldown }, owner, sets, given, former))
    },
    async orAfterBoot(work, isQuestion = false) {
      try {
        return work(new Map())
      } catch (cause) {
        if (!(cause instanceof Occupied)) throw cause
        const left = isQuestion
          ? leftOr(cause, place)
          : (ifThere(() => takeBack(place, leftOr(cause, place))) ?? new Map())
        if (left.size === 0) throw cause
        if (!isQuestion)
          log('plumb: freed addresses that an earlier boot of the node left', { network, addresses: listed(left) })
        return work(left)
      }
    },
    foresee: (owner, sets, wanted, isFreed, left) =>
      foresee({ place, cooldown }, owner, sets, assign(sets, wanted), isFreed, left),
    release: (owner) => ifThere(() => release(openLedger(place), owner, cooldown)),
    holds: (owner) => ifThere(() => holds(openLedger(place), owner)) ?? false,
    keepOnly: (owners) => ifThere(() => keepOnly(place, owners, cooldown)),
    ready(sets) {
      requireDisk(place)
      ifThere(() => ready({ place, cooldown }, sets))
    },
  }
}

// The refusal of a request because of addresses that are reserved.
class Occupied extends CniError {}

// When it cannot be found out, all of them stay reserved. The refusal then says why.
function leftOr(refusal: Occupied, place: PoolFolders): Left {
  try {
    return leftByEarlierBoot(place)
  } catch (cause) {
    const why = `cannot tell which of them an earlier boot left, so all stay reserved: ${(cause as Error).message}`
    throw new Occupied(refusal.code, refusal.message, `${refusal.details}; ${why}`, { cause })
  }
}

interface Pool {
  readonly place: PoolFolders
  readonly cooldown: number
}

// Assigns each wanted address to the first set that contains it. A set gives only one address.
function assign(sets: readonly RangeSet[], wanted: readonly Ip[]): readonly (Ip | undefined)[] {
  const left = new Set(wanted)
  const given = sets.map((set) => {
    const ip = [...left].find((one) => rangeOf(set, one))
    if (ip === undefined) return undefined
    if (set.gateways.has(ip))
      throw new CniError(
        CODE.config,
        `requested ip ${ip} is subnet's gateway`,
        `want another address of ${describe(set)}`,
      )
    left.delete(ip)
    return ip
  })
  if (left.size > 0)
    throw new CniError(
      CODE.config,
      `failed to allocate all requested IPs: ${[...left].join(' ')}`,
      `each range set gives one address: ${sets.map(describe).join('; ')}`,
    )
  return given
}

function take(
  pool: Pool,
  owner: Owner,
  sets: readonly RangeSet[],
  wanted: readonly (Ip | undefined)[],
  former: readonly Ip[],
): IpConfig[] {
  const { place } = pool
  const ledger = openLedger(place)
  const [held] = heldBy(ledger, owner).names.toSorted()
  if (held !== undefined)
    throw new Occupied(
      CODE.env,
      `${held} has been allocated to ${owner.containerId}, duplicate allocation is not allowed`,
      `${owner.ifname} of this container has an address in network ${owner.network}; DEL it first`,
    )
  const free = finder(pool, owner)
  const isTaken = (ip: Ip) => fs.existsSync(`${place.dir}/${ip}`) || isInUse(ip, owner)
  const isOpen = (set: RangeSet, ip: Ip) => rangeOf(set, ip) && !set.gateways.has(ip) && !isTaken(ip)
  const picks = sets.map((set, n) => {
    const ip = wanted[n]
    if (ip === undefined) return former.find((one) => isOpen(set, one)) ?? free(set, n)
    if (isTaken(ip)) throw unavailable(ip, set, holderOf(place, ip))
    return ip
  })
  if (!reserve(place, owner, picks))
    throw new CniError(
      CODE.tryLater,
      `Cannot reserve ${picks.join(' and ')} in ${place.dir}`,
      'someone made the file without taking the lock; try again',
    )
  settle(ledger, [[owner, picks]])
  return picks.map((ip, n) => configured(ip, sets[n] as RangeSet))
}

function configured(ip: Ip, set: RangeSet): IpConfig {
  const { subnet, gateway } = rangeOf(set, ip) as NonNullable<ReturnType<typeof rangeOf>>
  return { address: `${ip}/${split(subnet).length}` as IpConfig['address'], gateway }
}

function unavailable(ip: Ip, set: RangeSet, holder: Holder | undefined): Occupied {
  const details = holder
    ? `${holder.ifname || 'an interface'} of container ${holder.containerId} has it`
    : 'it belongs to another attachment'
  return new Occupied(CODE.config, `requested IP address ${ip} is not available in range set ${describe(set)}`, details)
}

function foresee(
  { place, cooldown }: Pool,
  owner: Owner,
  sets: readonly RangeSet[],
  wanted: readonly (Ip | undefined)[],
  isFreed = false,
  left: Left = new Map(),
): { ips: IpConfig[]; why: string } {
  const reserved = visible(() => names(place), [])
  const tired = visible(() => resting(place, cooldown), new Set<string>())
  const all = reserved?.filter((name) => !left.has(name))
  const seenHolder = (name: string) => visible(() => holderOf(place, name), undefined)
  const mine = (all ?? []).filter((name) => isHeldBy(seenHolder(name), owner))
  const held = isFreed ? [] : mine
  // With a cooldown the freed addresses of this owner rest like all others, so they count as taken.
  const taken = new Set(isFreed && cooldown === 0 ? all?.filter((name) => !mine.includes(name)) : all)
  const free = finder({ place, cooldown }, owner, { all: taken, tired: tired ?? new Set() })
  const ips = sets.map((set, n) => {
    const own = held.find((name) => rangeOf(set, name as Ip)) as Ip | undefined
    const ip = own ?? wanted[n] ?? free(set, n)
    const isTaken = taken.has(ip) && !mine.includes(ip)
    if (own === undefined && ip === wanted[n] && isTaken) throw unavailable(ip, set, seenHolder(ip))
    return configured(ip, set)
  })
  if (held.length > 0) return { ips, why: 'held by this attachment already' }
  if (wanted.every((ip) => ip !== undefined)) return { ips, why: 'asked for' }
  if (all && tired) return { ips, why: 'free now; the pool decides when it is asked' }
  return { ips, why: `an example: ${place.dir} cannot be read, the pool decides when it is asked` }
}

/** The addresses that an owner had in an earlier boot. A container that is started again gets the same addresses. */
export function heldIn(left: Left, owner: Owner): Ip[] {
  return [...left].flatMap(([name, holder]) => (isHeldBy(holder, owner) ? (name as Ip) : []))
}

// A file of an old host-local names the container alone.
function isHeldBy(holder: Holder | undefined, { containerId, ifname }: Owner): boolean {
  return holder?.containerId === containerId && (holder.ifname === ifname || holder.ifname === '')
}

// Returns `absent` when the file does not exist, and undefined when this user must not read it.
function visible<T>(read: () => T, absent: T): T | undefined {
  try {
    return read()
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'ENOENT' ? absent : undefined
  }
}

/**
 * Finds the next free address of a set, round robin after the last address that was given out. `known` holds facts that
 * the caller has already read.
 */
function finder(
  { place, cooldown }: Pool,
  owner: Owner,
  known?: { readonly all: ReadonlySet<string>; readonly tired: ReadonlySet<string> },
): (set: RangeSet, n: number) => Ip {
  const tired = known?.tired ?? resting(place, cooldown)
  let all = known?.all
  return (set, n) => {
    let tried = 0
    const found = search(set, lastReserved(place, n), (ip) => {
      if (tried++ === PROBES) all ??= new Set(names(place))
      const isReserved = all ? all.has(ip) : fs.existsSync(`${place.dir}/${ip}`)
      return !isReserved && !tired.has(ip) && !isInUse(ip, owner)
    })
    if (found === undefined) throw exhausted(CODE.tryLater, set, figures(set, all ?? names(place), tired))
    return found
  }
}

function release(ledger: Ledger, owner: Owner, cooldown: number): void {
  const { holder, names } = heldBy(ledger, owner)
  free(ledger.place, names, cooldown)
  if (names.length > 0 || ledger.found) settle(ledger, [[holder, []]])
}

function holds(ledger: Ledger, owner: Owner): boolean {
  if (ledger.found) settle(ledger, [])
  return heldBy(ledger, owner).names.length > 0
}

function keepOnly(place: PoolFolders, owners: readonly Owner[], cooldown: number): void {
  // A file of an old host-local names the container alone. It stays as long as any interface of the container does.
  const keep = new Set(owners.flatMap(({ containerId, ifname }) => [`${containerId} ${ifname}`, `${containerId} `]))
  const all = readAll(place)
  const gone = [...all].filter(([, { containerId, ifname }]) => !keep.has(`${containerId} ${ifname}`))
  drop(place, all, gone, cooldown)
}

// No pod of this boot has had these addresses, so they do not rest.
function takeBack(place: PoolFolders, left: Left): Left {
  if (left.size > 0) drop(place, readAll(place), [...left], 0)
  return left
}

function drop(
  place: PoolFolders,
  all: ReadonlyMap<string, Holder>,
  gone: readonly (readonly [string, Holder])[],
  cooldown: number,
): void {
  const ledger = openLedger(place, all)
  const freed = gone.map(([name]) => name)
  const changes = gone.map(([, holder]) => [holder, []] as const)
  free(place, freed, cooldown)
  settle(ledger, changes)
  if (gone.length === all.size) removeIndex(place)
}

// A pool may have 65,000 addresses.
function listed(left: Left): string {
  const some = [...left.keys()].sort().slice(0, 100)
  return `${some.join(',')}${left.size > some.length ? ` and ${left.size - some.length} more` : ''}`
}

function ready({ place, cooldown }: Pool, sets: readonly RangeSet[]): void {
  const ledger = openLedger(place)
  if (ledger.found) settle(ledger, [])
  const [all, tired] = [names(place), resting(place, cooldown)]
  for (const set of sets) {
    const seen = figures(set, all, tired)
    if (BigInt(seen.used + seen.rest) >= seen.size) throw exhausted(CODE.notReady, set, seen)
  }
}

function free(place: PoolFolders, names: readonly string[], cooldown: number): void {
  if (names.length > 0) putToRest(place, names, cooldown)
  for (const name of names) remove(`${place.dir}/${name}`)
  try {
    // The draft of a reservation whose process was killed.
    remove(`${place.own}/draft`)
  } catch {
    // When the draft cannot be removed, no reservation made one.
  }
}

interface Figures {
  readonly size: bigint
  readonly used: number
  readonly rest: number
}

function figures(set: RangeSet, all: Iterable<string>, tired: ReadonlySet<string>): Figures {
  const inSet = (names: Iterable<string>) =>
    [...names].filter((name) => rangeOf(set, name as Ip) && !set.gateways.has(name as Ip))
  const used = new Set(inSet(all))
  return { size: capacity(set), used: used.size, rest: inSet(tired).filter((name) => !used.has(name)).length }
}

function exhausted(code: number, set: RangeSet, { size, used, rest }: Figures): Occupied {
  const resting = rest > 0 ? ` and ${rest} were freed so recently that they rest ("cooldown")` : ''
  const fact = `no IP addresses available in range set: ${describe(set)}`
  const advice = 'delete pods, widen the range, or run GC to free those of containers that no longer exist'
  return new Occupied(code, fact, `${used} of ${size} are in use${resting}; ${advice}`)
}

const ADVICE: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full: free space on it',
  EDQUOT: 'the disk quota is used up: raise it',
  EROFS: 'the file system is read-only: remount it, or set ipam.dataDir to a place that can be written',
  EACCES: 'it cannot be written: want to run as root, on a directory that root may write',
  EPERM: 'it cannot be written: want to run as root, on a directory without the immutable flag',
  ENOTDIR: 'something in its path is a file: want a directory',
  EEXIST: 'something in its path is a file: want a directory',
  ENAMETOOLONG: "the network's name or ipam.dataDir is too long for a path",
}

function requireDisk({ dir }: PoolFolders): void {
  try {
    requireRoom(dir)
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException
    const fact = `Cannot write to the address pool ${dir}: no pod can be attached`
    throw new CniError(CODE.notReady, fact, `${code}: ${ADVICE[code] ?? 'the disk failed'}`, { cause })
  }
}

function onDisk<T>({ dir }: PoolFolders, work: () => T): T {
  try {
    return work()
  } catch (cause) {
    const { code, path } = cause as NodeJS.ErrnoException
    if (cause instanceof CniError || typeof code !== 'string') throw cause
    throw new CniError(
      CODE.io,
      `Cannot use the address pool ${dir}: ${code} at ${path ?? dir}`,
      ADVICE[code] ?? 'the disk failed; the address was not taken or freed',
      { cause },
    )
  }
}
