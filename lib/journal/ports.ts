import { ifDiskAllows, withLock } from '../os/files.ts'
import { inodeOf } from '../os/netns.ts'
import type { Claim } from '../state/kinds/claim.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { PartName } from '../text/owner.ts'
import { hasEntry, isSameContainer, readPart } from './journal.ts'
import { holdersOf, release, share } from './shared.ts'

// Each claimed port has a folder. It contains one note per claimed address of the node, such as `any4 portmap:…`.
const LOCK = '/run/cni/plumb/ports.lock'

/**
 * Reserves host ports for their owners. Takes no port at all when another container has one of them. A port that
 * another attachment of the same container has stays with that attachment, because podman sends the same ports for each
 * network. A claim does not count when its owner has no entry. Throws CniError 7 with the name of the port's owner.
 */
export function take(claims: readonly Claim[]): void {
  withLock(LOCK, () => {
    for (const claim of claims.filter(isFree)) {
      for (const { on, owner } of owners(claim)) if (on === claim.ip) release(thing(claim), `${on} ${owner}`)
      try {
        share(thing(claim), noteOf(claim))
      } catch (cause) {
        // The disk is full. Leaves the port free.
        release(thing(claim), noteOf(claim))
        throw cause
      }
    }
  })
}

/** Gives back the ports that these parts own. Also removes an empty folder that a killed call left. */
export function giveBack(claims: readonly Claim[]): void {
  ifDiskAllows('Cannot give back host ports', () =>
    withLock(LOCK, () => {
      for (const claim of claims) release(thing(claim), noteOf(claim))
    }),
  )
}

/** Whether this claim is noted. */
export function holds(claim: Claim): boolean {
  return holdersOf(thing(claim)).some((note) => note === noteOf(claim))
}

/** Whether another attachment of the same container has the port. */
export function isElsewhere(claim: Claim): boolean {
  return !holds(claim) && inTheWay(claim).some((owner) => isSameContainer(owner, claim.part))
}

/**
 * The parts of other containers that block these claims although their network namespace is gone. No DEL was called for
 * them. The inode decides, because the namespace of another pod may have the path now. Enters no namespace.
 */
export function lapsed(claims: readonly Claim[]): PartName[] {
  const others = claims.flatMap((claim) => inTheWay(claim).filter((owner) => !isSameContainer(owner, claim.part)))
  return [...new Set(others)].filter((owner) => {
    const part = readPart(owner)
    return part?.netns !== undefined && inodeOf(part.netns) !== part.inode
  })
}

/**
 * The noted resources that belong to the attachment, without duplicates. Resources after a claim belong to that claim.
 * They are left out when `stands` says no for the claim. Then another attachment has the port, or the call was killed
 * before it took the port. Duplicates are possible, because two ports may lead to the same target. Pure.
 */
export function following(own: readonly Resource[], stands: (claim: Claim) => boolean): Resource[] {
  let mine = true
  const held = own.filter((one) => {
    if (one.kind === 'claim') mine = stands(one)
    return mine
  })
  return [...new Map(held.map((one) => [JSON.stringify(one), one])).values()]
}

/** Whether no other attachment has the port. Throws CniError 7 with the owner's name when another container has it. */
export function isFree(claim: Claim): boolean {
  const others = inTheWay(claim)
  const other = others.find((owner) => !isSameContainer(owner, claim.part))
  if (other !== undefined) throw taken(claim, other)
  return others.length === 0
}

// The parts of other attachments that have the port on the same address. `any4` and `any6` overlap with every address
// of their family.
function inTheWay(claim: Claim): PartName[] {
  const { ip, part } = claim
  return owners(claim).flatMap(({ on, owner }) => {
    const meets = on === ip || ((isAny(on) || isAny(ip)) && isSix(on) === isSix(ip))
    return meets && owner !== part && hasEntry(owner) ? [owner] : []
  })
}

function taken({ protocol, port }: Claim, by: PartName): CniError {
  const { containerId, network, ifname } = readPart(by)?.owner ?? { containerId: '?', network: '?', ifname: '?' }
  return new CniError(
    CODE.config,
    `Cannot give host port ${port}/${protocol} to this container: container ${containerId} has it`,
    `it is mapped to ${ifname} of network ${network}; want another hostPort, or another hostIP`,
  )
}

function owners(claim: Claim): { readonly on: string; readonly owner: PartName }[] {
  return holdersOf(thing(claim)).map((note) => {
    const space = note.indexOf(' ')
    return { on: note.slice(0, space), owner: note.slice(space + 1) as PartName }
  })
}

function noteOf({ ip, part }: Claim): string {
  return `${ip} ${part}`
}

function thing({ protocol, port }: Claim): string {
  return `ports/${protocol}-${port}`
}

function isAny(ip: string): boolean {
  return ip === 'any4' || ip === 'any6'
}

function isSix(ip: string): boolean {
  return ip === 'any6' || ip.includes(':')
}
