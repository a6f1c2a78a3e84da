import { CniError, CODE } from './errors.ts'
import { fs } from './fs.ts'
import { listFiles } from './reading.ts'
import { readRecord } from './records.ts'
import type { Claim, Resource } from './state.ts'

/** Where host ports are claimed: a folder per protocol and port, in it a symbolic link per address whose text is the owner's record. */
export const PORTS = '/run/cni/plumb/ports'

/** Whether a claim stands. */
export function holds({ protocol, port, ip, record }: Claim): boolean {
  return ownerOf(`${PORTS}/${protocol}-${port}/${ip}`) === record
}

/** Whether another attachment of the same container has the port. */
export function isElsewhere(claim: Claim): boolean {
  return !holds(claim) && inTheWay(claim).some((owner) => isSibling(owner, claim))
}

/** The records of owners that are in the way of these claims though their network namespace is gone: nobody called DEL for them. */
export function lapsed(claims: readonly Claim[]): string[] {
  const others = claims.flatMap((claim) => inTheWay(claim).filter((owner) => !isSibling(owner, claim)))
  return [...new Set(others)].filter((owner) => {
    const netns = readRecord(owner)?.netns
    return netns !== undefined && !fs.existsSync(netns)
  })
}

/** Whether nobody has the port yet. Throws CniError 7 naming its owner when it is another container's. */
export function isFree(claim: Claim): boolean {
  const others = inTheWay(claim)
  const other = others.find((owner) => !isSibling(owner, claim))
  if (other !== undefined) throw taken(claim, other)
  return others.length === 0
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

// The records of other attachments that have the port on this address, or on all where this is one, or on one where this is all.
function inTheWay({ protocol, port, ip, record }: Claim): string[] {
  const dir = `${PORTS}/${protocol}-${port}`
  return listFiles(dir).flatMap((other) => {
    const owner = ownerOf(`${dir}/${other}`)
    const meets = other === ip || ((isAny(other) || isAny(ip)) && isSix(other) === isSix(ip))
    return meets && owner !== undefined && owner !== record && fs.existsSync(owner) ? [owner] : []
  })
}

function taken({ protocol, port }: Claim, owner: string): CniError {
  const { containerId, network, ifname } = readRecord(owner)?.owner ?? { containerId: '?', network: '?', ifname: '?' }
  return new CniError(CODE.config, `Cannot give host port ${port}/${protocol} to this container: container ${containerId} has it`, `it is mapped to ${ifname} of network ${network}; want another hostPort, or another hostIP`)
}

// A record's name is network, container and interface; none of them holds a colon.
function isSibling(owner: string, { record }: Claim): boolean {
  return owner.split(':')[1] === record.split(':')[1]
}

function isAny(ip: string): boolean {
  return ip === 'any4' || ip === 'any6'
}

function isSix(ip: string): boolean {
  return ip === 'any6' || ip.includes(':')
}

function ownerOf(path: string): string | undefined {
  try {
    return fs.readlinkSync(path)
  } catch {
    return undefined
  }
}
