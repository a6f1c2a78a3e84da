import { type Entry, entries, isThere, LINK } from '../../../lib/journal/journal.ts'
import { isClaim } from '../../../lib/state/kinds/claim.ts'
import type { Link } from '../../../lib/state/kinds/link.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import type { Fact } from './facts.ts'
import type { Link as NodeLink } from './links.ts'

/** An attachment of plumb's plugins. */
export interface Pod {
  readonly container: string
  /** Absent for an attachment without a namespace of its own. */
  readonly netns?: NetnsPath
  /** The pod's interface. */
  readonly ifname: string
  readonly ips: readonly Ip[]
  /** The link on the node, such as a veth. Undefined for a plugin without one. */
  readonly link: string | undefined
  /** The ports of the node that lead to it. */
  readonly hostPorts: readonly HostPort[]
}
/** A port of the node that leads to a pod. */
export interface HostPort {
  readonly protocol: string
  readonly port: number
  /** An address of the node, `any4` or `any6`. */
  readonly ip: string
}

/** What the journal of plumb's plugins says. */
export interface Journal {
  readonly pods: readonly Pod[]
  /** The addresses of pods that went without DEL, by network. */
  readonly gone: ReadonlyMap<string, ReadonlySet<string>>
}

/** The attachments of plumb's plugins whose pod is still there. */
export const pods: Fact<readonly Pod[]> = {
  read: async ({ once }) => (await once(readJournal)).pods,
  inAgent: 'given',
}

/** Reads the journal. Throws Error. */
export function readJournal(): Journal {
  const all = entries()
  const gone = new Map<string, Set<string>>()
  for (const { owner, unfinished, parts, ips } of all) {
    const part = parts[LINK]
    if (unfinished || part?.netns === undefined || isThere(part)) continue
    const held = gone.get(owner.network) ?? new Set()
    gone.set(owner.network, held)
    for (const ip of ips) held.add(ip)
  }
  return { pods: podsOf(all), gone }
}

/** The pods of the journal's entries. Leaves out calls that run, and pods whose namespace is gone. */
export function podsOf(all: readonly Entry[]): Pod[] {
  return all.flatMap(({ owner, unfinished, ips, parts }): Pod[] => {
    const part = parts[LINK]
    if (unfinished || part === undefined || !isThere(part)) return []
    const link = part.own.find((one): one is Link => one.kind === 'link' && one.ns === 'host')
    const { containerId, ifname } = owner
    const claims = Object.values(parts).flatMap(({ own }) => own.filter(isClaim))
    const hostPorts = claims.map(({ protocol, port, ip }) => ({ protocol, port, ip }))
    return [
      {
        container: containerId,
        ...(part.netns !== undefined && { netns: part.netns }),
        ifname,
        ips: ips as Ip[],
        link: link?.name,
        hostPorts,
      },
    ]
  })
}

/** The names of the bridges that pods are on. */
export function bridgesOf(pods: readonly Pod[], links: readonly NodeLink[]): ReadonlySet<string> {
  const ofPods = new Set(pods.flatMap(({ link }) => link ?? []))
  return new Set(links.flatMap(({ name, master }) => (ofPods.has(name) && master !== undefined ? [master] : [])))
}

/** The links by which packets of pods come to the node: a pod's bridge, or its own link. */
export function entrancesOf(pods: readonly Pod[], links: readonly NodeLink[]): ReadonlySet<string> {
  const ofPods = new Set(pods.flatMap(({ link }) => link ?? []))
  return new Set(links.flatMap(({ name, master }) => (ofPods.has(name) ? [master ?? name] : [])))
}
