import { BRIDGE_ALIAS } from '../../text/owner.ts'
import type { IfName, Mac } from '../../text/values.ts'
import type { Handler, Line, Link } from '../resource.ts'
import { inPod, isPodKind, type LikenessRow, likenessOf } from './podlink.ts'
import { changeVxlan, createVxlan, type VxlanRow, vxlanOf } from './vxlan.ts'

/** Links: made by `ip link add`, exclusively unless shared, so that nobody else's link is ever taken over. */
export const link: Handler<Link> = {
  tool: 'ip',
  key: ({ ns, name }) => `link ${ns} ${name}`,
  put(want) {
    // The other half of a pair is made with the first; what is left is to bring it up.
    if (want.type === 'peer') return want.up ? [{ text: `link set dev ${want.name} up` }] : []
    // Another's link: what is no port of a Linux bridge is left as it is.
    if (want.type === 'port') return [{ text: `link set dev ${want.name} type bridge_slave${want.port?.hairpin ? ' hairpin on' : ''}${want.port?.isolated ? ' isolated on' : ''}`, unless: /not supported|Cannot find device/ }]
    if (want.type === 'loopback') return [{ text: `link set dev ${want.name} up` }]
    if (want.type === 'lent') return [{ text: want.move ? moving(want) : `link set dev ${want.name} up` }]
    if (want.type === 'veth') return veth(want)
    if (want.type === 'vxlan') return createVxlan(want)
    if (isPodKind(want.type)) return inPod(want)
    if (want.type === 'ifb') return ifb(want)
    return want.shared ? bridge(want) : [{ text: `link set dev ${want.name}${flags(want)}` }]
  },
  drop: (gone) => (gone.type === 'lent' ? (gone.move ? [{ text: moving(gone), unless: NONE }] : []) : drop(gone)),
  change: (want, have) => (want.type === 'vxlan' ? changeVxlan(want, have) : link.put(want)),
  ask: ({ name }) => `addr show dev ${name}`,
  read(row, want) {
    const seen = row as LinkRow
    const slave = seen.linkinfo?.info_slave_data
    const vxlan = vxlanOf(seen.linkinfo)
    return {
      kind: 'link',
      ns: want.ns,
      name: seen.ifname as IfName,
      // Told from the other half only by which one was asked for.
      type: want.type === 'lent' || ((want.type === 'peer' || want.type === 'port') && seen.linkinfo?.info_kind === 'veth') ? want.type : ((seen.linkinfo?.info_kind ?? seen.link_type) as Link['type']),
      mac: seen.address as Mac,
      // An ifb carries whatever its pair does, which may have been told another size since.
      ...(want.type === 'ifb' && want.mtu !== undefined ? { mtu: want.mtu } : { mtu: seen.mtu }),
      up: seen.flags.includes('UP'),
      ...(seen.ifalias === undefined ? {} : { alias: seen.ifalias }),
      ...(seen.promiscuity > 0 && seen.flags.includes('PROMISC') ? { promisc: true as const } : {}),
      ...(seen.master === undefined ? {} : { port: { master: seen.master as IfName, hairpin: slave?.hairpin ?? false, isolated: slave?.isolated ?? false, locked: slave?.locked ?? false } }),
      ...(seen.linkinfo?.info_data?.vlan_filtering === 1 ? { vlanFiltering: true as const } : {}),
      ...(vxlan && { vxlan }),
      ...(want.like && { like: likenessOf(seen.linkinfo?.info_data) }),
    }
  },
}

const NONE = /Cannot find device|No such device/

/** What `ip -d -j addr show dev X` prints of a link, as far as it is read. */
export interface LinkRow {
  readonly ifindex: number
  readonly link_index?: number
  readonly ifname: string
  readonly ifalias?: string
  readonly flags: readonly string[]
  readonly mtu: number
  readonly txqlen?: number
  readonly master?: string
  readonly address: string
  readonly link_type: string
  readonly promiscuity: number
  readonly linkinfo?: {
    readonly info_kind?: string
    readonly info_data?: { readonly vlan_filtering?: number } & VxlanRow & LikenessRow
    readonly info_slave_data?: { readonly hairpin?: boolean; readonly isolated?: boolean; readonly locked?: boolean }
  }
  readonly addr_info: readonly AddrRow[]
}
/** One address of a link, as `ip -j addr show` prints it. */
export interface AddrRow {
  readonly family: 'inet' | 'inet6'
  readonly local: string
  readonly prefixlen: number
  readonly scope: string
  readonly tentative?: boolean
  readonly dadfailed?: boolean
}

// Nothing else is set on one that is there before the caller has judged it: it may be another's. It comes up with the address, for the kernel tells the state
// of a bridge (`state UNKNOWN`) only when its carrier changes, and that of one with a fixed address changes with its first port alone, and only while it is up.
function bridge({ name, mac, pinned, mtu, up, promisc, vlanFiltering }: Link): Line[] {
  const pin = pinned && mac ? [{ text: `link set dev ${name} address ${mac}${up ? ' up' : ''}` }] : []
  return [
    { text: `link add name ${name}${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}${flags({ up, ...(promisc && { promisc }) })} type bridge${vlanFiltering ? ' vlan_filtering 1' : ''}`, absent: name, unless: /File exists/ },
    { text: `link set dev ${name} alias ${BRIDGE_ALIAS}`, absent: name },
    ...pin,
  ]
}

// Its name is its owner's alone: one that is there is left from an earlier call.
function ifb({ name, mac, mtu }: Link): Line[] {
  return [{ text: `link add name ${name}${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''} txqueuelen 0 up type ifb`, unless: /File exists/, otherwise: [{ text: `link set dev ${name} up` }] }]
}

function drop({ name, type }: Link): Line[] {
  if (type === 'port') return []
  return type === 'loopback' ? [{ text: `link set dev ${name} down` }] : [{ text: `link delete dev ${name}`, unless: NONE }]
}

// All in one message to the kernel, which does what is behind `netns` once the device is there (rtnl_setlink): nobody sees it half moved, and a killed call leaves it on one side or the other.
function moving({ name, up, move }: Link): string {
  const { to, name: called = name, alias, mac, mtu } = move ?? {}
  // `ip` may run in the pod: the node's namespace is this process's.
  const netns = to === undefined ? '' : ` netns ${to === 'host' ? `/proc/${process.pid}/ns/net` : to}`
  return `link set dev ${name}${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''} name ${called}${alias === undefined ? '' : ` alias ${alias || '""'}`}${netns}${up ? ' up' : ''}`
}

function flags({ up, promisc }: Pick<Link, 'up' | 'promisc'>): string {
  return `${up ? ' up' : ''}${promisc ? ' promisc on' : ''}`
}

function veth({ name, mac, mtu, alias, peer, port, up, shared }: Link): Line[] {
  const size = mtu ? ` mtu ${mtu}` : ''
  const other = peer ? ` peer name ${peer.name}${peer.mac ? ` address ${peer.mac}` : ''}${size}${peer.ns === 'host' ? '' : ` netns ${peer.ns}`}` : ''
  const marks = [port?.hairpin ? ' hairpin on' : '', port?.isolated ? ' isolated on' : '', port?.locked ? ' locked on' : ''].join('')
  const set = `${alias ? ` alias ${alias}` : ''}${marks ? ` type bridge_slave${marks}` : ''}`
  return [
    { text: `link add name ${name}${mac ? ` address ${mac}` : ''}${size}${up ? ' up' : ''}${port ? ` master ${port.master}` : ''} type veth${other}`, ...(shared ? { unless: /File exists/ } : {}) },
    ...(set ? [{ text: `link set dev ${name}${set}` }] : []),
  ]
}
