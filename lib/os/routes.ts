import { bitsOf, format, type Ip } from '../text/ip.ts'
import { type IfName, parse } from '../text/values.ts'
import { readText } from './reading.ts'

/**
 * The node's link towards an IPv4 address, by the longest matching prefix of the main table. Undefined for IPv6, and
 * when no route matches. Reads /proc/net/route instead of starting `ip`.
 */
export function deviceTo(ip: Ip): IfName | undefined {
  const { family, bits } = bitsOf(ip)
  if (family !== 4) return undefined
  let best: { device: string; mask: bigint } | undefined
  for (const line of (readText('/proc/net/route') ?? '').split('\n').slice(1)) {
    const [device, destination = '', , , , , , netmask = ''] = line.split(/\s+/)
    if (!device) continue
    const [net, mask] = [bigEndian(destination), bigEndian(netmask)]
    if ((bits & mask) === net && (!best || mask > best.mask)) best = { device, mask }
  }
  return best && parse.ifname(best.device)
}

/**
 * The link of the default route of this thread's namespace. Prefers the IPv4 route with the lowest metric, then IPv6.
 * Undefined when there is none. Reads /proc instead of starting `ip`.
 */
export function defaultDevice(): IfName | undefined {
  const rows = (family: string) =>
    (readText(`/proc/thread-self/net/${family}`) ?? '').split('\n').map((line) => line.trim().split(/\s+/))
  const four = rows('route').flatMap(([device = '', destination, , flags = '', , , metric, mask]) =>
    destination === '00000000' && mask === '00000000' ? [{ device, flags, metric: Number(metric) }] : [],
  )
  const six = rows('ipv6_route').flatMap(([to = '', length, , , , metric = '', , , flags = '', device = '']) =>
    length === '00' && /^0{32}$/.test(to) ? [{ device, flags, metric: Number.parseInt(metric, 16) }] : [],
  )
  const [best] = [four, six].flatMap((found) =>
    found.filter(({ device, flags }) => leads(device, flags)).sort((a, b) => a.metric - b.metric),
  )
  return best && parse.ifname(best.device)
}

// linux/route.h: the route is up and does not reject packets. A route that drops packets has no link, or lo.
function leads(device: string, flags: string): boolean {
  const bits = Number.parseInt(flags, 16)
  return (bits & RTF_UP) !== 0 && (bits & RTF_REJECT) === 0 && device !== '*' && device !== 'lo'
}

const [RTF_UP, RTF_REJECT] = [0x1, 0x200]

/**
 * The node's own addresses of a family. The kernel also treats all of 127.0.0.0/8 as local. The result does not list
 * that whole range.
 */
export function localAddresses(family: 4 | 6): Set<Ip> {
  if (family === 6) {
    const rows = (readText('/proc/net/if_inet6') ?? '').split('\n').filter((row) => row !== '')
    return new Set(rows.map((row) => format({ family, bits: BigInt(`0x${row.slice(0, 32)}`) })))
  }
  // fib_trie lists destinations. Below each destination stand its prefix lengths and types.
  const found = (readText('/proc/net/fib_trie') ?? '').matchAll(/\|-- ([\d.]+)\n(?:.*\n)??\s+\/32 host LOCAL/g)
  return new Set([...found].map(([, ip]) => ip as Ip))
}

// The kernel prints the bytes of the address as one number in the machine's byte order. That order is little endian.
function bigEndian(hex: string): bigint {
  return BigInt(`0x${(hex.match(/../g) ?? ['0']).reverse().join('')}`)
}
