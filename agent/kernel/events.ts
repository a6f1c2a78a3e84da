import { routeOf } from '../../lib/state/kinds/route.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { type Cidr, type Ip, parseCidr } from '../../lib/text/ip.ts'
import type { IfName, Mac } from '../../lib/text/values.ts'
import { face, resourceText } from './diff.ts'

/**
 * The monitor commands. `-o` prints each event on one line. `-rcvbuf` asks for 16 MiB, and the kernel grants at most
 * net.core.rmem_max. Lost messages never come again (stderr: "No buffer space"). Then everything is stale.
 */
export const MONITORS = {
  ip: ['ip', '-rcvbuf', String(1 << 24), '-o', 'monitor', 'link', 'address', 'route', 'neigh', 'nexthop'],
  bridge: ['bridge', 'monitor', 'fdb'],
} as const

/** One change of a kernel object. Another program or the agent itself may have made it. */
export interface Event {
  readonly kind: Resource['kind']
  readonly key: string
  /** The object no longer exists. */
  readonly gone: boolean
  /** The object's text now, for comparison with the text of a wanted resource. Empty when it cannot equal one. */
  readonly text: string
  readonly resource: Resource
}

/** Parses a line of `ip -o monitor`. Undefined when the line tells of an object that the agent never makes. */
export function ipEvent(line: string): Event | undefined {
  const gone = line.startsWith('Deleted ')
  const text = gone ? line.slice(8) : line
  const words = text.split(' ')
  const [first = '', second = ''] = words
  if (first === '' || second === '') return undefined
  if (first === 'id') return nexthopEvent(words, gone)
  // An index such as `3:` has one colon. An IPv6 address may end with colons, too.
  if (/^\d+:$/.test(first))
    return second.endsWith(':') ? linkEvent(text, words, gone) : addrEvent(text.split(/[\s\\]+/), gone)
  return STATE.test(text) ? neighEvent(words, gone) : routeEvent(text, words, gone)
}

/** Parses a line of `bridge monitor fdb`. Undefined when the line is not about an entry of a VXLAN device. */
export function bridgeEvent(line: string): Event | undefined {
  const gone = line.startsWith('Deleted ')
  const words = (gone ? line.slice(8) : line).split(' ')
  const [mac, dev, dst] = [words[0], after(words, 'dev'), after(words, 'dst')]
  if (mac === undefined || dev === undefined || dst === undefined || !words.includes('self')) return undefined
  const odd = !words.includes('permanent') || ['port', 'vni', 'via'].some((word) => words.includes(word))
  return event({ kind: 'tunnel', ns: 'host', dev: dev as IfName, mac: mac as Mac, dst: dst as Ip }, gone, odd)
}

// The states of ip-neighbour(8). A neighbour entry ends with one of them, and a route never has one.
const STATE = / (REACHABLE|STALE|DELAY|PROBE|FAILED|INCOMPLETE|NOARP|PERMANENT|NONE)( |$)/
// The route types of ip-route(8) that the agent never makes, and those that it makes apart from unicast routes.
const TYPES = ['local', 'broadcast', 'multicast', 'anycast', 'prohibit', 'throw', 'nat']
const OWN_TYPES = ['blackhole', 'unreachable']

const ADDRESS = /^(\d{1,3}(\.\d{1,3}){3}|[\da-f]*:[\da-f.:]*:[\da-f.:]*)(\/\d{1,3})?$/

function event(resource: Resource, gone: boolean, odd: boolean): Event {
  const [{ key }, text] = [face(resource), resourceText(resource)]
  return { kind: resource.kind, key, gone, text: odd ? '' : text, resource }
}

function after(words: readonly string[], word: string): string | undefined {
  const at = words.indexOf(word)
  return at < 0 ? undefined : words[at + 1]
}

// `3: flannel.1@NONE: <BROADCAST,UP> mtu 1450 …\ link/ether 02:… brd …`
function linkEvent(text: string, words: readonly string[], gone: boolean): Event {
  const name = (words[1] as string).slice(0, -1).split('@', 1)[0] as IfName
  const mac = /link\/\S+ ([\da-f.:]+)/.exec(text)?.[1]
  const up = /[<,]UP[,>]/.test(words[2] ?? '')
  const mtu = Number(after(words, 'mtu'))
  const given = mac ? { mac: mac as Mac } : {}
  return event({ kind: 'link', ns: 'host', name, type: 'vxlan', mtu, up, ...given }, gone, false)
}

// `3: flannel.1    inet 10.2.1.0/32 scope global flannel.1\ valid_lft forever preferred_lft forever`
function addrEvent(words: readonly string[], gone: boolean): Event | undefined {
  const given = after(words, 'inet') ?? after(words, 'inet6') ?? ''
  const cidr = cidrOf(given.includes('/') ? given : `${given}/32`)
  if (cidr === undefined) return undefined
  // In a pair such as `inet 10.0.0.1 peer 10.0.0.2/32`, the agent sets neither address.
  const odd = words.includes('peer') || words.includes('dadfailed')
  return event({ kind: 'addr', ns: 'host', dev: words[1] as IfName, cidr }, gone, odd)
}

function cidrOf(text: string): Cidr | undefined {
  try {
    return parseCidr(text)
  } catch {
    return undefined
  }
}

// `10.2.0.0 dev flannel.1 lladdr 02:… PERMANENT proto 112`
function neighEvent(words: readonly string[], gone: boolean): Event | undefined {
  const [ip, dev] = [words[0], after(words, 'dev')]
  if (ip === undefined || !ADDRESS.test(ip) || dev === undefined) return undefined
  // `ip monitor` also shows entries of a forwarding table. They have NOARP and PERMANENT.
  if (words.includes('NOARP') && words.includes('PERMANENT')) return undefined
  const resource: Resource = {
    kind: 'neigh',
    ns: 'host',
    dev: dev as IfName,
    ip: ip as Ip,
    mac: (after(words, 'lladdr') ?? '') as Mac,
    proto: Number(after(words, 'proto') ?? 0),
  }
  // The kernel reports an entry as FAILED before it deletes the entry.
  return event(resource, gone || words.includes('FAILED'), !words.includes('PERMANENT'))
}

// `id 5 via 10.0.0.9 dev eth0 scope link proto 112 onlink`
function nexthopEvent(words: readonly string[], gone: boolean): Event {
  const [via, dev] = [after(words, 'via'), after(words, 'dev')]
  const resource: Resource = {
    kind: 'nexthop',
    ns: 'host',
    id: Number(words[1]),
    via: (via ?? '') as Ip,
    dev: (dev ?? '') as IfName,
    ...(words.includes('onlink') && { onlink: true }),
    proto: Number(after(words, 'proto') ?? 0),
  }
  return event(resource, gone, via === undefined)
}

// `10.5.0.0/24 nhid 5 via 10.0.0.8 dev eth0 proto 112 onlink`. An IPv6 route also has `metric 1024 pref medium`.
function routeEvent(text: string, words: readonly string[], gone: boolean): Event | undefined {
  const type = OWN_TYPES.find((one) => words[0] === one)
  const dst = words[type ? 1 : 0] ?? ''
  const isNetwork = dst === 'default' || ADDRESS.test(dst)
  if (!isNetwork || TYPES.includes(dst) || words.includes('table')) return undefined
  const value = (word: string) => after(words, word)
  const [gateway, dev, nhid, proto, metric, mtu] = ['via', 'dev', 'nhid', 'proto', 'metric', 'mtu'].map(value)
  // `mtu lock 1400` is another attribute.
  const isLocked = mtu !== undefined && !/^\d+$/.test(mtu)
  const row = {
    dst,
    ...(type ? { type } : {}),
    ...(gateway ? { gateway } : {}),
    ...(dev ? { dev } : {}),
    ...(nhid ? { nhid: Number(nhid) } : {}),
    ...(metric ? { metric: Number(metric) } : {}),
    ...(mtu === undefined || isLocked ? {} : { metrics: [{ mtu: Number(mtu) }] }),
    ...(words.includes('onlink') ? { flags: ['onlink'] } : {}),
  }
  const odd = text.includes('nexthop') || words.includes('src') || isLocked || gateway === 'inet6'
  return event(routeOf(row, proto === undefined ? undefined : Number(proto)), gone, odd)
}
