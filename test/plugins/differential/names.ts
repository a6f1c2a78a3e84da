import type { Row } from '../../support/harness.ts'
import type { Pod } from './list.ts'
import type { Raw } from './raw.ts'

/** Some of what a node and its pods hold at one moment; a pod whose namespace is gone is not there. */
export type Part<K extends keyof Raw> = { readonly node: Pick<Raw, K> } & { readonly [pod in Pod]?: Pick<Raw, K> }
/** All of it. */
export type Sight = Part<keyof Raw>
/** Gives what either side makes up as it likes, names of host links and MAC addresses, the same words on both sides. */
export interface Names {
  /** Looks who is who: the host end of each pod's link, and who has which MAC address. */
  learn(sight: Part<'links'>): void
  /** A text in those words. */
  plain(text: string): string
  /** A MAC address, in the words of this link of its when it has it: `br0`, `a:eth0`. */
  mac(address: string, of?: string): string
}

const MAC = /\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/g
// `ip` writes the identity of a bridge without leading zeros.
const BRIDGE_ID = /\b8000\.(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}\b/g
// Multicast, broadcast and none.
const COMMON = /^(33:33:|01:00:5e:|01:80:c2:|ff:ff:ff:ff:ff:ff|00:00:00:00:00:00)/

/**
 * For one side of one scene: `given` is what was asked for, whose MAC addresses are nobody's choice; `netns` are the
 * paths of the pods.
 */
export function makeNames(given: string, netns: Readonly<Record<string, string>>): Names {
  const asked = given.toLowerCase()
  const links = new Map<string, string>()
  let ifbs = 0
  let holders = new Map<string, string[]>()
  function mac(address: string, of?: string): string {
    const low = address.toLowerCase()
    if (COMMON.test(low) || asked.includes(low)) return low
    const found = holders.get(low) ?? []
    return `<mac of ${(of !== undefined && found.includes(of) ? of : found[0]) ?? 'nobody'}>`
  }
  function plain(text: string): string {
    let out = text
    for (const [name, path] of Object.entries(netns)) out = out.replaceAll(path, `<netns ${name}>`)
    return out
      .replace(BRIDGE_ID, (id) => id.replace(/\b[0-9a-f]\b/g, '0$&'))
      .replace(/\bbwp[0-9a-f]{12}\b/g, (name) => links.get(name) ?? name)
      .replace(/\bveth[0-9a-f]{8,11}\b/g, (name) => links.get(name) ?? '<another veth>')
      .replace(MAC, (address) => mac(address))
      .replace(/\bfe80::[0-9a-f:]+/g, 'fe80::*')
  }
  return {
    learn(sight) {
      for (const pod of ['a', 'b'] as const)
        for (const inPod of sight[pod]?.links ?? [])
          for (const outer of sight.node.links) if (isPair(inPod, outer)) links.set(outer['ifname'], `veth-${pod}`)
      // The links on which what pods send is shaped, in the order of the ADDs.
      for (const { ifname } of sight.node.links)
        if (/^bwp[0-9a-f]{12}$/.test(ifname) && !links.has(ifname)) links.set(ifname, `ifb-${++ifbs}`)
      holders = holdersOf(sight, links)
    },
    plain,
    mac,
  }
}

function isPair(one: Row, other: Row): boolean {
  return (
    /^veth[0-9a-f]{8,11}$/.test(other['ifname']) &&
    one['link_index'] === other['ifindex'] &&
    other['link_index'] === one['ifindex']
  )
}

// A bridge may have its first port's address: it comes first.
function holdersOf({ node, a, b }: Part<'links'>, names: ReadonlyMap<string, string>): Map<string, string[]> {
  const own = (link: Row) => names.get(link['ifname']) ?? (link['ifname'] as string)
  const bridges = node.links.filter((link) => link['linkinfo']?.info_kind === 'bridge')
  const all = [
    ...bridges.map((link) => [link, own(link)] as const),
    ...(a?.links ?? []).map((link) => [link, `a:${link['ifname']}`] as const),
    ...(b?.links ?? []).map((link) => [link, `b:${link['ifname']}`] as const),
    ...node.links.filter((link) => !bridges.includes(link)).map((link) => [link, own(link)] as const),
  ]
  const found = new Map<string, string[]>()
  for (const [link, name] of all) found.set(link['address'], [...(found.get(link['address']) ?? []), name])
  return found
}
