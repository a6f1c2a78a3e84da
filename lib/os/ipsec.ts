import { readText } from './reading.ts'

/** The protocol of netlink by which policies of IPsec are set (linux/netlink.h). */
const NETLINK_XFRM = 6

/**
 * Whether the kernel takes policies of IPsec by netlink. When it does not, nobody has set one so. A tool that asked would
 * load a module. Each protocol that is served has a socket of the kernel, with port 0 (netlink(7)).
 */
export function hasIpsec(text = readText('/proc/thread-self/net/netlink') ?? ''): boolean {
  return text.split('\n').some((line) => {
    const [, protocol, port] = line.trim().split(/\s+/)
    return Number(protocol) === NETLINK_XFRM && port === '0'
  })
}
