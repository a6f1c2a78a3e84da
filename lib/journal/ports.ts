import { withLock } from '../os/files.ts'
import { fs } from '../os/fs.ts'
import type { Claim } from '../state/kinds/claim.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { PartName } from '../text/owner.ts'
import { hasEntry, isSameContainer, readPart } from './journal.ts'
import { holdersOf, release, share } from './shared.ts'

// A port has a note for each address of the node that it is claimed on: `any4 portmap:…`.
const LOCK = '/run/cni/plumb/ports.lock'

/** Reserves host ports for their owners, all or none. What another attachment of the same container has stays with that one: podman sends the same ports for each network of a container. Throws CniError 7 naming the owner of one that is taken; a claim whose owner has no entry any more counts for nothing. */
export function take(claims: readonly Claim[]): void {
  withLock(LOCK, () => {
    for (const claim of claims.filter(isFree)) {
      for (const { on, owner } of owners(claim)) if (on === claim.ip) release(thing(claim), `${on} ${owner}`)
      try {
        share(thing(claim), noteOf(claim))
      } catch (cause) {
        // A full disk: nobody has the port.
        release(thing(claim), noteOf(claim))
        throw cause
      }
    }
  })
}

/** Gives them back, those that are still their owner's; of others what a call left that was killed here: a folder with nothing in it. */
export function giveBack(claims: readonly Claim[]): void {
  withLock(LOCK, () => {
    for (const claim of claims) release(thing(claim), noteOf(claim))
  })
}

/** Whether a claim stands. */
export function holds(claim: Claim): boolean {
  return holdersOf(thing(claim)).some((note) => note === noteOf(claim))
}

/** Whether another attachment of the same container has the port. */
export function isElsewhere(claim: Claim): boolean {
  return !holds(claim) && inTheWay(claim).some((owner) => isSameContainer(owner, claim.part))
}

/** The parts that are in the way of these claims though their network namespace is gone: nobody called DEL for them. */
export function lapsed(claims: readonly Claim[]): PartName[] {
  const others = claims.flatMap((claim) => inTheWay(claim).filter((owner) => !isSameContainer(owner, claim.part)))
  return [...new Set(others)].filter((owner) => {
    const netns = readPart(owner)?.netns
    return netns !== undefined && !fs.existsSync(netns)
  })
}

/** Of what was noted, what is the attachment's, each once. What follows a claim belongs to it: where that is another's, refused, or not made yet when the call was killed, the rest is none of ours. Two ports may lead to one place. Pure. */
export function following(own: readonly Resource[], stands: (claim: Claim) => boolean): Resource[] {
  let mine = true
  const held = own.filter((one) => {
    if (one.kind === 'claim') mine = stands(one)
    return mine
  })
  return [...new Map(held.map((one) => [JSON.stringify(one), one])).values()]
}

/** Whether nobody has the port yet. Throws CniError 7 naming its owner when it is another container's. */
export function isFree(claim: Claim): boolean {
  const others = inTheWay(claim)
  const other = others.find((owner) => !isSameContainer(owner, claim.part))
  if (other !== undefined) throw taken(claim, other)
  return others.length === 0
}

// The parts of other attachments that have the port on this address, or on all where this is one, or on one where this is all.
function inTheWay(claim: Claim): PartName[] {
  const { ip, part } = claim
  return owners(claim).flatMap(({ on, owner }) => {
    const meets = on === ip || ((isAny(on) || isAny(ip)) && isSix(on) === isSix(ip))
    return meets && owner !== part && hasEntry(owner) ? [owner] : []
  })
}

function taken({ protocol, port }: Claim, by: PartName): CniError {
  const { containerId, network, ifname } = readPart(by)?.owner ?? { containerId: '?', network: '?', ifname: '?' }
  return new CniError(CODE.config, `Cannot give host port ${port}/${protocol} to this container: container ${containerId} has it`, `it is mapped to ${ifname} of network ${network}; want another hostPort, or another hostIP`)
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
