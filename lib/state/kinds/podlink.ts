import type { Line } from '../handler.ts'
import type { Likeness, LikenessRow, Link, PodKind } from './link-shape.ts'

const KINDS: readonly string[] = ['macvlan', 'ipvlan', 'vlan', 'dummy', 'tun']

/** Whether links of this type are in a pod and have no part on the node. */
export function isPodKind(type: string): type is PodKind {
  return KINDS.includes(type)
}

/**
 * The lines for such a link. It is made in three steps:
 * - It is made under a birth name, straight in its namespace (`born`).
 * - It gets its name and its alias in one line (`was`). So no link ever has that name without the alias.
 * - It comes up after its addresses are set.
 */
export function inPod(want: Link): Line[] {
  const { name, mac, alias, was, born, port, up } = want
  if (born) return want.type === 'tun' ? tap(want) : made(want)
  if (was) return [{ text: `link set dev ${was}${mac ? ` address ${mac}` : ''} alias ${alias} name ${name}` }]
  return up ? [{ text: `link set dev ${name}${port ? ` master ${port.master}` : ''} up` }] : []
}

// The node's `ip` makes a link with a master on the node, straight in the pod's namespace. Kernels before 6.13 refuse a
// name that a link of the node has. The birth name avoids that on every kernel.
function made({ ns, name, type, mac, mtu, like = {}, born }: Link): Line[] {
  const master = born?.master ? ` link ${born.master}` : ''
  const size = `${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}`
  const by = born?.by === 'host' ? ` netns ${ns}` : ''
  const mode = like.mode ? ` mode ${like.mode}` : ''
  const queue = like.bcqueuelen ? ` bcqueuelen ${like.bcqueuelen}` : ''
  const id = like.id === undefined ? '' : ` id ${like.id}`
  const text = `link add${master} name ${name}${size}${by} type ${type}${mode}${queue}${id}`
  return [{ text, ...(by ? { ns: 'host' as const } : {}) }]
}

function tap({ name, mac, mtu, like, born }: Link): Line[] {
  const owner = born?.owner === undefined ? '' : ` user ${born.owner}`
  const group = born?.group === undefined ? '' : ` group ${born.group}`
  const set = `${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}`
  // Upstream gives the virtio header to a tap with owner and group. It makes all other taps by `ip` too, without the
  // header. So virtual machines find the header in the same cases.
  const header = born?.owner !== undefined && born.group !== undefined && born.context === undefined ? ' vnet_hdr' : ''
  const queues = like?.multiQueue ? ' multi_queue' : ''
  return [
    { text: `tuntap add mode tap name ${name}${header}${queues}${owner}${group}` },
    ...(set ? [{ text: `link set dev ${name}${set}` }] : []),
  ]
}

/** Converts the output of `ip` to a `Likeness`. */
export function likenessOf(row: LikenessRow & { readonly id?: number } = {}): Likeness {
  const { mode, bcqueuelen, id, multi_queue } = row
  return {
    ...(mode === undefined ? {} : { mode }),
    ...(bcqueuelen === undefined ? {} : { bcqueuelen }),
    ...(id === undefined ? {} : { id }),
    ...(multi_queue === undefined ? {} : { multiQueue: multi_queue }),
  }
}
