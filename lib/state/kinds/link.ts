// This folder has one file per kind of kernel object, or of file on disk. Each file has the data type of the kind and
// its handler, which knows the lines for the tools. handler.ts one folder up defines the interface. index.ts lists all
// kinds. Begin with this file.
import { ownNetns } from '../../os/netns.ts'
import { BRIDGE_ALIAS } from '../../text/owner.ts'
import type { IfName, Mac } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import { closePort } from './ipip.ts'
import type { Link, LinkRow } from './link-shape.ts'
import { changeOverlay, createOverlay, isOverlay, overlayOf } from './overlay.ts'
import { inPod, isPodKind, likenessOf } from './podlink.ts'

/** What a link is. */
export type { Link, LinkRow }

/**
 * Links. `ip link add` makes them, and it fails when the link exists, unless the link is shared. So plumb never takes
 * over another program's link.
 */
export const link: Handler<Link> = {
  tool: 'ip',
  title: ({ ns, name }) => `link ${name}${inPodOf(ns)}`,
  purpose,
  key: ({ ns, name }) => `link ${ns} ${name}`,
  put(want) {
    // The line of the other end made this end. Only `up` is missing.
    if (want.type === 'peer') return want.up ? [{ text: `link set dev ${want.name} up` }] : []
    // Another plugin made this link. It stays unchanged when it is no port of a Linux bridge.
    if (want.type === 'port') {
      const set = `${want.port?.hairpin ? ' hairpin on' : ''}${want.port?.isolated ? ' isolated on' : ''}`
      return [{ text: `link set dev ${want.name} type bridge_slave${set}`, unless: /not supported|Cannot find device/ }]
    }
    if (want.type === 'loopback') return [{ text: `link set dev ${want.name} up` }]
    if (want.type === 'lent') return [{ text: want.move ? moving(want) : `link set dev ${want.name} up` }]
    if (want.type === 'veth') return veth(want)
    if (isOverlay(want.type)) return createOverlay(want)
    if (isPodKind(want.type)) return inPod(want)
    if (want.type === 'ifb') return ifb(want)
    return want.shared ? bridge(want) : [{ text: `link set dev ${want.name}${flags(want)}` }]
  },
  drop: (gone) => (gone.type === 'lent' ? (gone.move ? [{ text: moving(gone), unless: NONE }] : []) : drop(gone)),
  change: (want, have) => (isOverlay(want.type) ? changeOverlay(want, have) : changePort(want, have)),
  ask: ({ name }) => `addr show dev ${name}`,
  read(row, want) {
    const seen = row as LinkRow
    const slave = seen.linkinfo?.info_slave_data
    const seenKind = seen.linkinfo?.info_kind
    // Both ends of a veth pair show the kind veth. So `want` decides which end this is.
    const isEnd = seenKind === 'veth' && (want.type === 'peer' || want.type === 'port')
    const port = seen.master !== undefined && {
      master: seen.master as IfName,
      hairpin: slave?.hairpin ?? false,
      isolated: slave?.isolated ?? false,
      locked: slave?.locked ?? false,
    }
    return {
      kind: 'link',
      ns: want.ns,
      name: seen.ifname as IfName,
      type: want.type === 'lent' || isEnd ? want.type : ((seenKind ?? seen.link_type) as Link['type']),
      mac: seen.address as Mac,
      // The MTU of an ifb is not compared. The MTU of the shaped link may have changed since.
      ...(want.type === 'ifb' && want.mtu !== undefined ? { mtu: want.mtu } : { mtu: seen.mtu }),
      up: seen.flags.includes('UP'),
      ...(seen.ifalias === undefined ? {} : { alias: seen.ifalias }),
      ...(seen.promiscuity > 0 && seen.flags.includes('PROMISC') ? { promisc: true as const } : {}),
      ...(port && { port }),
      ...(seen.linkinfo?.info_data?.vlan_filtering === 1 ? { vlanFiltering: true as const } : {}),
      ...overlayOf(seen.linkinfo),
      ...(want.like && { like: likenessOf(seen.linkinfo?.info_data) }),
    }
  },
}

const NONE = /Cannot find device|No such device/

// An existing bridge may belong to another program. So these lines change only its address, when `pinned` is set. The
// line with the address also brings the bridge up. The kernel updates the state of a bridge (`state UNKNOWN`) only when
// its carrier changes. The carrier of a bridge with a fixed address changes only with its first port, and only while
// the bridge is up.
function bridge({ name, mac, pinned, mtu, up, promisc, vlanFiltering }: Link): Line[] {
  const pin = pinned && mac ? [{ text: `link set dev ${name} address ${mac}${up ? ' up' : ''}` }] : []
  const size = `${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''}`
  const set = `${size}${flags({ up, ...(promisc && { promisc }) })}`
  const filtering = vlanFiltering ? ' vlan_filtering 1' : ''
  return [
    { text: `link add name ${name}${set} type bridge${filtering}`, absent: name, unless: /File exists/ },
    { text: `link set dev ${name} alias ${BRIDGE_ALIAS}`, absent: name },
    ...pin,
  ]
}

// Only its owner uses this name. An existing ifb is left from an earlier call.
function ifb({ name, mac, mtu }: Link): Line[] {
  return [
    {
      text: `link add name ${name}${mac ? ` address ${mac}` : ''}${mtu ? ` mtu ${mtu}` : ''} txqueuelen 0 up type ifb`,
      unless: /File exists/,
      otherwise: [{ text: `link set dev ${name} up` }],
    },
  ]
}

function drop(gone: Link): Line[] {
  const { name, type } = gone
  if (type === 'port') return []
  return type === 'loopback'
    ? [{ text: `link set dev ${name} down` }]
    : [{ text: `link delete dev ${name}`, unless: NONE }, ...closePort(gone)]
}

// One message to the kernel. The kernel applies what follows `netns` after the device arrives there (rtnl_setlink). So
// no program sees a half moved device, and a killed call leaves it on one side or the other.
function moving({ name, up, move }: Link): string {
  const { to, name: called = name, alias, mac, mtu } = move ?? {}
  // `ip` may run in the pod. This process runs in the node's namespace.
  const netns = to === undefined ? '' : ` netns ${to === 'host' ? ownNetns() : to}`
  const address = mac ? ` address ${mac}` : ''
  const size = mtu ? ` mtu ${mtu}` : ''
  const mark = alias === undefined ? '' : ` alias ${alias || '""'}`
  return `link set dev ${name}${address}${size} name ${called}${mark}${netns}${up ? ' up' : ''}`
}

function flags({ up, promisc }: Pick<Link, 'up' | 'promisc'>): string {
  return `${up ? ' up' : ''}${promisc ? ' promisc on' : ''}`
}

// The bridge of an existing link, its settings there, and whether it is up.
function changePort({ name, port, up }: Link, have: Link): Line[] {
  const set = settings(port)
  return [
    have.up && !up && 'down',
    port && port.master !== have.port?.master && `master ${port.master}`,
    set !== '' && set !== settings(have.port) && `type bridge_slave${set}`,
    up && !have.up && 'up',
  ].flatMap((what) => (what ? [{ text: `link set dev ${name} ${what}` }] : []))
}

// What a port does that others do not.
function settings(port: Link['port']): string {
  const all = ['hairpin', 'isolated', 'locked'] as const
  return all.map((one) => (port?.[one] ? ` ${one} on` : '')).join('')
}

function veth({ name, mac, mtu, alias, peer, port, up, shared }: Link): Line[] {
  const size = mtu ? ` mtu ${mtu}` : ''
  const own = `${mac ? ` address ${mac}` : ''}${size}${up ? ' up' : ''}${port ? ` master ${port.master}` : ''}`
  const peerMac = peer?.mac ? ` address ${peer.mac}` : ''
  const peerNs = peer && peer.ns !== 'host' ? ` netns ${peer.ns}` : ''
  const other = peer ? ` peer name ${peer.name}${peerMac}${size}${peerNs}` : ''
  const marks = settings(port)
  const set = `${alias ? ` alias ${alias}` : ''}${marks ? ` type bridge_slave${marks}` : ''}`
  return [
    { text: `link add name ${name}${own} type veth${other}`, ...(shared ? { unless: /File exists/ } : {}) },
    ...(set ? [{ text: `link set dev ${name}${set}` }] : []),
  ]
}

function purpose(want: Link, { text }: Line, gone: boolean): string {
  const { ns, name, type, peer, port, alias, mtu, vlanFiltering, move } = want
  if (isPodKind(type)) return podLink(want, text, gone)
  if (move)
    return gone
      ? `the device is back on the node as ${move.name}, with address, size and state as they were`
      : `the device goes to the pod, is ${move.name} there, and bears a mark by which DEL finds it`
  if (gone && text.startsWith('link set'))
    return `${name} goes with its group: the kernel waits once for all of it, and reports the group`
  if (gone && text.startsWith('link delete group')) return 'they go, with their other ends, addresses and routes'
  if (gone) return `${name} and with it its other end, its addresses and its routes`
  if (type === 'ifb') return `what the pod sends passes through it, to be shaped`
  if (type === 'port' && port?.isolated) return `the bridge carries no frames between ${name} and other such ports`
  if (type === 'port') return `what comes from ${name} may go back through it: a pod reaches its own host ports`
  if (text.startsWith('link add') && type === 'bridge')
    return `the bridge${vlanFiltering ? ', which tells VLANs apart' : ''}`
  if (text.startsWith('link add')) {
    const other = `${peer?.name} ${peer?.ns === 'host' ? 'too' : 'in the pod'}`
    const size = mtu ? `, for packets of ${mtu} bytes` : ''
    return `the pair: ${name} here, ${other}${port ? `, a port of ${port.master}` : ''}${size}`
  }
  if (type === 'veth')
    return [alias === undefined ? '' : 'whose it is, for GC', ...marks(port)].filter(Boolean).join('; ')
  if (type === 'bridge' && text.includes(' alias ')) return 'the mark by which it is known as a bridge of plumb'
  return `${name} comes up${ns === 'host' ? '' : ' in the pod'}`
}

function podLink({ name, type, born, was, port, alias }: Link, text: string, gone: boolean): string {
  if (gone) return `${name} and with it its addresses and its routes`
  if (born && !/^(link|tuntap) add/.test(text)) return 'its address and its size'
  if (born) {
    const what = `the ${type === 'tun' ? 'tap' : type}${born.master ? ` on ${born.master}` : ''}`
    return `${what}, in the pod at once, under a name that it has until it is marked`
  }
  if (was) return `its own name, and whose it is (${alias}): both at once`
  return `${name} comes up in the pod${port ? `, a port of its bridge ${port.master}` : ''}`
}

function marks(port: Link['port']): string[] {
  return [
    port?.hairpin ? 'hairpin: a frame may go back where it came from' : '',
    port?.isolated ? 'isolated: no frames between it and other isolated ports' : '',
    port?.locked ? 'locked: frames from one address only (macspoofchk)' : '',
  ]
}
