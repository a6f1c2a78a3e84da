import { chooseDns } from '../cni/dns.ts'
import type { Attachment, Wiring } from '../cni/plugin.ts'
import { type Dns, previous, type Result } from '../cni/result.ts'
import type { Run } from '../os/run.ts'
import type { Birth, Likeness, Link, PodKind } from '../state/kinds/link-shape.ts'
import type { Resource } from '../state/resource.ts'
import { birthName } from '../text/link-names.ts'
import { alias, type Owner } from '../text/owner.ts'
import { type Mac, type NetnsPath, parse } from '../text/values.ts'
import { podSide } from './pod.ts'

/** A link in a pod without a counterpart on the node. */
export interface PodLink {
  readonly type: PodKind
  /** The MAC address that it gets. Undefined means that the kernel chooses. */
  readonly mac?: Mac | undefined
  /** The MTU that it gets. 0 means that the kernel chooses. */
  readonly mtu: number
  readonly like?: Likeness
  readonly birth: Birth
  /** The bridge in the pod whose port it is. */
  readonly port?: Link['port']
  /** The values in the result where the kernel chooses. */
  readonly shown: { readonly mac?: Mac; readonly mtu: number }
}

/** The link at its creation, before it has its final name. */
export function birthOf(at: Attachment, { type, mac, mtu, like, birth }: PodLink): Link {
  return {
    kind: 'link',
    ns: at.netns as NetnsPath,
    name: birthName(at),
    type,
    ...(mac ? { mac } : {}),
    ...(mtu ? { mtu } : {}),
    ...(like ? { like } : {}),
    born: birth,
    up: false,
  }
}

/**
 * The resources of a pod whose only link is in the pod. For CHECK, `given` names the link, and the resources are the
 * final state of ADD. A reference plugin may have made the link. Pure.
 */
export function podWiring(link: PodLink, at: Attachment, { dns }: { readonly dns?: Dns }, given: Result): Wiring {
  const ns = at.netns as NetnsPath
  const made = given.interfaces?.find(({ name, sandbox }) => sandbox && name === at.ifname)
  const mac = made?.mac ? previous(parse.mac, made.mac) : (link.mac ?? link.shown.mac)
  const mtu = link.mtu ? { mtu: made?.mtu || link.mtu } : {}
  const done: Link = {
    kind: 'link',
    ns,
    name: at.ifname,
    type: link.type,
    ...(mac ? { mac } : {}),
    ...mtu,
    ...(link.like ? { like: link.like } : {}),
    ...(link.port ? { port: link.port } : {}),
    up: true,
  }
  const ips = (given.ips ?? []).map((ip) => ({ ...ip, interface: 0 }))
  // Without duplicate address detection the kernel would announce the link-local address before the link is up. A
  // macvlan would send it to each other macvlan of its master, one by one.
  const ends = ips.length > 0 ? podSide(done, { ...given, ips }, undefined) : [done]
  return {
    shared: [],
    own: made ? ends.filter(isLasting) : [birthOf(at, link), named(at, link), ...ends.map((one) => through(one, at))],
    result: {
      interfaces: [{ name: at.ifname, ...(mac ? { mac } : {}), mtu: link.mtu || link.shown.mtu, sandbox: ns }],
      ips,
      ...(given.routes ? { routes: given.routes } : {}),
      ...chooseDns(dns, given.dns),
    },
  }
}

/** The resources that remove the link at every stage of its creation. Empty when the namespace is unknown. */
export function unwirePod(at: Owner & Pick<Attachment, 'netns'>, type: PodKind): Link[] {
  if (at.netns === undefined) return []
  const link = { kind: 'link', ns: at.netns, type, up: false } as const
  return [
    { ...link, name: birthName(at) },
    { ...link, name: at.ifname, alias: alias(at) },
  ]
}

/**
 * Removes the link that a reference plugin made for this attachment. This is the pod's link of this name and kind
 * without plumb's alias.
 */
export async function removeForeignPodLink(
  { netns, ifname }: Pick<Attachment, 'netns' | 'ifname'>,
  type: PodKind,
  run: Run,
): Promise<void> {
  const seen = netns === undefined ? undefined : run.seen?.(ifname, netns)
  if (seen?.kind === type && !seen.alias.startsWith('plumb/'))
    await run(['ip', 'link', 'delete', 'dev', ifname], '', netns)
}

function named(at: Attachment, { type, mac, like }: PodLink): Link {
  // A macvlan in passthru mode gets its master's MAC address, whatever the configuration says.
  const late = mac && like?.mode === 'passthru' ? { mac } : {}
  return {
    kind: 'link',
    ns: at.netns as NetnsPath,
    name: at.ifname,
    type,
    ...late,
    alias: alias(at),
    was: birthName(at),
    up: false,
  }
}

// Sysctls are written before `ip` runs in the pod. At that time the link still has its first name.
function through(one: Resource, at: Attachment): Resource {
  const own = `/${at.ifname}/`
  return one.kind === 'sysctl' && one.name.includes(own)
    ? { ...one, through: one.name.replace(own, `/${birthName(at)}/`) }
    : one
}

// CHECK leaves sysctls out. They have no effect once the link is up, and each release of the reference sets others.
function isLasting(one: Resource): boolean {
  return one.kind !== 'sysctl'
}
