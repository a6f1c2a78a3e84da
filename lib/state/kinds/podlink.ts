import { CniError, CODE } from '../../text/errors.ts'
import type { IfName, Netns } from '../../text/values.ts'
import type { Line } from '../handler.ts'
import type { Resource } from '../resource.ts'
import type { Link } from './link.ts'

/** Links that stand in a pod with nothing of them on the node; `tun` is what the kernel calls a tap. */
export type PodKind = 'macvlan' | 'ipvlan' | 'vlan' | 'dummy' | 'tun'

/** What such a link shows (ip-link(8)). */
export interface Likeness {
  /** Of a macvlan or ipvlan. */
  readonly mode?: string
  /** Of a macvlan: how many broadcast frames may wait. */
  readonly bcqueuelen?: number
  /** Of a VLAN. */
  readonly id?: number
  /** Of a tap. */
  readonly multiQueue?: boolean
}

/** What makes such a link beside its likeness: the namespace of the tool that is told, the link it stands on, and whose a tap is. */
export interface Birth {
  readonly by: Netns
  readonly master?: IfName
  readonly owner?: number
  readonly group?: number
  /** The SELinux context in which the tool runs. */
  readonly context?: string
}

const KINDS: readonly string[] = ['macvlan', 'ipvlan', 'vlan', 'dummy', 'tun']

/** Whether links of a type stand in a pod with nothing of them on the node. */
export function isPodKind(type: string): type is PodKind {
  return KINDS.includes(type)
}

/** The lines for such a link, in three steps: it is made under a name of its own, straight in its namespace; it gets its own name and its alias at once, so that none ever has that name which is not marked; and once it has its addresses it comes up. */
export function inPod(want: Link): Line[] {
  const { name, mac, alias, was, born, port, up } = want
  if (born) return want.type === 'tun' ? tap(want) : made(want)
  if (was) return [{ text: `link set dev ${was}${mac ? ` address ${mac}` : ''} alias ${alias} name ${name}` }]
  return up ? [{ text: `link set dev ${name}${port ? ` master ${port.master}` : ''} up` }] : []
}

/** What a VLAN says that cannot be made because its master has it already, in whichever namespace; undefined for any other refusal. */
export function onlyOnce(cause: { readonly resource: Resource }): CniError | undefined {
  const { resource } = cause
  if (resource.kind !== 'link' || resource.type !== 'vlan' || !resource.born) return undefined
  const { born, like } = resource
  return new CniError(
    CODE.tryLater,
    `Cannot create VLAN ${like?.id} of ${born.master}: it is there already, and a link has each of its VLANs once`,
    'another container or the node itself has it; use another "vlanId" or "master", or a bridge of that VLAN',
    { cause },
  )
}

// The node makes what stands on a link of its, in the pod's namespace at once. A link of the node that has the same name is no hindrance then
// on any kernel: those before 6.13 look for the name on the node.
function made({ ns, name, type, mac, mtu, like = {}, born }: Link): Line[] {
  const { mode, bcqueuelen, id } = like
  const own = `${mode ? ` mode ${mode}` : ''}${bcqueuelen ? ` bcqueuelen ${bcqueuelen}` : ''}${id === undefined ? '' : ` id ${id}`}`
  const by = born?.by === 'host' ? ` netns ${ns}` : ''
  const text = `link add${born?.master ? ` link ${born.master}` : ''} name ${name}${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}${by} type ${type}${own}`
  return [{ text, ...(by ? { ns: 'host' as const } : {}) }]
}

function tap({ name, mac, mtu, like, born }: Link): Line[] {
  const whose = `${born?.owner === undefined ? '' : ` user ${born.owner}`}${born?.group === undefined ? '' : ` group ${born.group}`}`
  const set = `${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}`
  // As upstream, whose other taps are made by ip, too: virtual machines find the header where both are named.
  const header = born?.owner !== undefined && born.group !== undefined && born.context === undefined ? ' vnet_hdr' : ''
  return [{ text: `tuntap add mode tap name ${name}${header}${like?.multiQueue ? ' multi_queue' : ''}${whose}` }, ...(set ? [{ text: `link set dev ${name}${set}` }] : [])]
}

/** What `ip -d -j addr show` prints of the likeness of such a link. */
export interface LikenessRow {
  readonly mode?: string
  readonly bcqueuelen?: number
  readonly multi_queue?: boolean
}

/** It as a likeness. */
export function likenessOf({ mode, bcqueuelen, id, multi_queue }: LikenessRow & { readonly id?: number } = {}): Likeness {
  return { ...(mode === undefined ? {} : { mode }), ...(bcqueuelen === undefined ? {} : { bcqueuelen }), ...(id === undefined ? {} : { id }), ...(multi_queue === undefined ? {} : { multiQueue: multi_queue }) }
}
