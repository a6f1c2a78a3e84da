import { chooseDns } from '../cni/dns.ts'
import type { Attachment, Wiring } from '../cni/plugin.ts'
import { previous } from '../cni/previous.ts'
import type { Dns, Result } from '../cni/result.ts'
import type { Run } from '../os/run.ts'
import type { Link } from '../state/kinds/link.ts'
import type { Birth, Likeness, PodKind } from '../state/kinds/podlink.ts'
import type { Resource } from '../state/resource.ts'
import { birthName } from '../text/link-names.ts'
import { alias, type Owner } from '../text/owner.ts'
import { type Mac, type NetnsPath, parse } from '../text/values.ts'
import { podSide } from './pod.ts'

/** The link of a pod that has nothing of it on the node. */
export interface PodLink {
  readonly type: PodKind
  /** The address it is given; undefined: the kernel's choice. */
  readonly mac?: Mac | undefined
  /** The size it is given; 0: the kernel's choice. */
  readonly mtu: number
  readonly like?: Likeness
  readonly birth: Birth
  /** A bridge of the pod that it is a port of. */
  readonly port?: Link['port']
  /** What the result says of it, where the kernel chooses. */
  readonly shown: { readonly mac?: Mac; readonly mtu: number }
}

/** The link as it is made, before it has its name. */
export function birthOf(at: Attachment, { type, mac, mtu, like, birth }: PodLink): Link {
  return { kind: 'link', ns: at.netns as NetnsPath, name: birthName(at), type, ...(mac ? { mac } : {}), ...(mtu ? { mtu } : {}), ...(like ? { like } : {}), born: birth, up: false }
}

/** What one pod needs whose link stands in it alone. CHECK, whose `given` names the link, wants what ADD ends with; a reference plugin may have made it. Pure. */
export function podWiring(link: PodLink, at: Attachment, { dns }: { readonly dns?: Dns }, given: Result): Wiring {
  const ns = at.netns as NetnsPath
  const made = given.interfaces?.find(({ name, sandbox }) => sandbox && name === at.ifname)
  const mac = made?.mac ? previous(parse.mac, made.mac) : (link.mac ?? link.shown.mac)
  const mtu = link.mtu ? { mtu: made?.mtu || link.mtu } : {}
  const done: Link = { kind: 'link', ns, name: at.ifname, type: link.type, ...(mac ? { mac } : {}), ...mtu, ...(link.like ? { like: link.like } : {}), ...(link.port ? { port: link.port } : {}), up: true }
  const ips = (given.ips ?? []).map((ip) => ({ ...ip, interface: 0 }))
  // As arp_notify does for IPv4: neighbours learn of a reused address at once.
  const notify: Resource = { kind: 'sysctl', ns, name: `ipv6/conf/${at.ifname}/ndisc_notify`, value: '1', optional: true }
  // Without detection the link-local address would be announced before the link is up: by a macvlan to all others of its master, one by one.
  const ends = ips.length > 0 ? [notify, ...podSide(done, { ...given, ips }, undefined)] : [done]
  return {
    shared: [],
    own: made ? ends.filter(isLasting) : [birthOf(at, link), named(at, link), ...ends.map((one) => through(one, at))],
    result: { interfaces: [{ name: at.ifname, ...(mac ? { mac } : {}), mtu: link.mtu || link.shown.mtu, sandbox: ns }], ips, ...(given.routes ? { routes: given.routes } : {}), ...chooseDns(dns, given.dns) },
  }
}

/** What removes it, whichever step it has reached; nothing when the namespace is not known. */
export function unwirePod(at: Owner & Pick<Attachment, 'netns'>, type: PodKind): Link[] {
  if (at.netns === undefined) return []
  const link = { kind: 'link', ns: at.netns, type, up: false } as const
  return [
    { ...link, name: birthName(at) },
    { ...link, name: at.ifname, alias: alias(at) },
  ]
}

/** Removes the link that a reference plugin made for this attachment: the pod's of its name and kind, when it has no alias of ours. */
export async function removeForeignPodLink({ netns, ifname }: Pick<Attachment, 'netns' | 'ifname'>, type: PodKind, run: Run): Promise<void> {
  const seen = netns === undefined ? undefined : run.seen?.(ifname, netns)
  if (seen?.kind === type && !seen.alias.startsWith('plumb/')) await run(['ip', 'link', 'delete', 'dev', ifname], '', netns)
}

function named(at: Attachment, { type, mac, like }: PodLink): Link {
  // A macvlan that has its master for itself is made with that one's address, whatever it is given.
  const late = mac && like?.mode === 'passthru' ? { mac } : {}
  return { kind: 'link', ns: at.netns as NetnsPath, name: at.ifname, type, ...late, alias: alias(at), was: birthName(at), up: false }
}

// Settings are written before `ip` runs in the pod, when the link still has the name it was made under.
function through(one: Resource, at: Attachment): Resource {
  const own = `/${at.ifname}/`
  return one.kind === 'sysctl' && one.name.includes(own) ? { ...one, through: one.name.replace(own, `/${birthName(at)}/`) } : one
}

// Settings have done their work when the link is up, and each release of the reference plugins has others.
function isLasting(one: Resource): boolean {
  return one.kind !== 'sysctl'
}
