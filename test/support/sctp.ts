import assert from 'node:assert/strict'
import { packetOf } from '../../cli/policy-trial.ts'
import { openWire } from '../../lib/os/packets.ts'
import { parseIp } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'
import type { Namespace } from './harness.ts'

/**
 * Sends the first packet of an SCTP association (RFC 9260, INIT) over eth0, because the kernel of the tests has no SCTP
 * sockets. `to` is the MAC of the router.
 */
export function sendInit(
  from: Namespace,
  to: string,
  source: string,
  destination: string,
  port: number,
  sourcePort: number,
): void {
  const wire = openWire(parse.netns(from.path), 'eth0', 4)
  const addresses = { source: parseIp(source), destination: parseIp(destination) }
  try {
    wire.send(parse.mac(to), packetOf({ ...addresses, protocol: 'SCTP', port }, sourcePort))
  } finally {
    wire.close()
  }
}

/** A client and a server, and a router between them that tracks connections. */
export type SctpWorld = Record<'client' | 'router' | 'server', Namespace>
/** The addresses of that world, by family. */
export const SIDES = {
  IPv4: { client: parseIp('10.9.1.2'), server: parseIp('10.9.2.2') },
  IPv6: { client: parseIp('fd00:9:1::2'), server: parseIp('fd00:9:2::2') },
} as const

/** Wires the namespaces. The router drops what its connection tracking finds wrong, so also a wrong checksum. */
export async function wireSctpWorld({ client, router, server }: SctpWorld): Promise<void> {
  for (const [side, n] of [
    [client, 1],
    [server, 2],
  ] as const) {
    await router.ip('link', 'add', side.name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', nameOf(side))
    await router.ip('link', 'set', side.name, 'up')
    await router.ip('address', 'add', `10.9.${n}.1/24`, 'dev', side.name)
    await router.ip('address', 'add', `fd00:9:${n}::1/64`, 'dev', side.name, 'nodad')
    await side.ip('link', 'set', 'eth0', 'up')
    await side.ip('address', 'add', `10.9.${n}.2/24`, 'dev', 'eth0')
    await side.ip('address', 'add', `fd00:9:${n}::2/64`, 'dev', 'eth0', 'nodad')
    await side.ip('route', 'add', 'default', 'via', `10.9.${n}.1`)
    await side.ip('route', 'add', 'default', 'via', `fd00:9:${n}::1`)
  }
  await router.exec(['sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1'])
  await rules(
    router,
    `table inet track { chain c { type filter hook forward priority 0; ct state invalid counter drop; }; }\n`,
  )
}

/** Loads rules of nft in a namespace. */
export async function rules({ exec }: Namespace, text: string): Promise<void> {
  const { status, stderr } = await exec(['nft', '-f', '-'], { stdin: text })
  assert.equal(status, 0, stderr)
}

function nameOf({ path }: Namespace): string {
  return path.slice(path.lastIndexOf('/') + 1)
}
