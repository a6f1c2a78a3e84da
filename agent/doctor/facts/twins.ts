import { linksNow } from '../../../lib/os/links.ts'
import { ethernetIn, openArp, type Wire } from '../../../lib/os/packets.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import { bitsOf, type Ip } from '../../../lib/text/ip.ts'
import type { Mac } from '../../../lib/text/values.ts'
import type { Status } from '../../state/status.ts'
import { status } from './agent.ts'
import type { Fact } from './facts.ts'
import { type Link, links } from './links.ts'
import { type Route, routes } from './routes.ts'

/** An address of this node that another machine has, too. */
export interface Twin {
  readonly ip: Ip
  /** The link of this node with the address. */
  readonly link: string
  /** The hardware address of the other machine. Absent for IPv6, where the kernel does not keep it. */
  readonly mac?: Mac
}

const [WAIT_MS, LOOK_MS] = [300, 10]
const EVERYBODY = 'ff:ff:ff:ff:ff:ff' as Mac
/** The most addresses that are asked for. */
const MOST = 8
// RFC 826: Ethernet, IPv4, the lengths of their addresses, and a question.
const QUESTION = [0, 1, 8, 0, 6, 4, 0, 1]
const [SENDER_MAC, TARGET_IP, ARP_BYTES, SENDER_IP] = [8, 24, 28, 14]

/** The addresses of the uplink that another machine has, too. */
export const twins: Fact<readonly Twin[]> = {
  async read({ of, maybe }) {
    return readTwins(...(await Promise.all([of(links), of(routes), maybe(status)])))
  },
  inAgent: { missing: 'the neighbours' },
}

/**
 * Asks the neighbours for the addresses of the uplink, as a node does before it takes an address (RFC 5227). Without
 * the agent, the uplinks are the links of the default routes. For IPv6, the kernel has asked already. Takes 0.3 s.
 */
export async function readTwins(
  links: readonly Link[],
  routes: readonly Route[],
  status: Status | undefined,
): Promise<Twin[]> {
  const byRoute = routes.filter(
    ({ table, dst, dev }) => table === 'main' && /^(0\.0\.0\.0|::)\/0$/.test(dst) && dev !== '',
  )
  const names = new Set(status?.uplink ? [status.uplink.name] : byRoute.map(({ dev }) => dev))
  const addresses = links
    .filter(({ name }) => names.has(name))
    .flatMap(({ name, addresses: own }) => own.map((one) => ({ ...one, link: name })))
  const refused = addresses.flatMap(({ ip, link, isDuplicate }): Twin[] => (isDuplicate ? [{ ip, link }] : []))
  const asked = addresses.filter(({ ip, isLinkLocal }) => !isSix(ip) && !isLinkLocal).slice(0, MOST)
  return [...refused, ...(await ask(asked))]
}

async function ask(asked: readonly { readonly ip: Ip; readonly link: string }[]): Promise<Twin[]> {
  const wires = new Map<string, Wire>()
  const twins = new Map<Ip, Twin>()
  try {
    for (const { ip, link } of asked) {
      if (!ethernetIn('host', link)?.isUp) continue
      const wire = wires.get(link) ?? openArp('host', link)
      wires.set(link, wire)
      wire.send(EVERYBODY, questionFor(ip, wire.mac))
    }
    if (wires.size === 0) return []
    // Another link of this node on the same network answers, too.
    const own = new Set(linksNow().map(({ mac }) => mac))
    for (const until = performance.now() + WAIT_MS; performance.now() < until; await Bun.sleep(LOOK_MS))
      for (const [link, wire] of wires)
        for (let one = wire.hear(); one; one = wire.hear()) {
          const ip = senderOf(one.bytes)
          const isAsked = asked.some((each) => each.ip === ip && each.link === link)
          if (ip !== undefined && isAsked && !own.has(one.from)) twins.set(ip, { ip, link, mac: one.from })
        }
  } finally {
    for (const wire of wires.values()) wire.close()
  }
  return [...twins.values()]
}

function questionFor(ip: Ip, mac: Mac): Uint8Array {
  const bytes = new Uint8Array(ARP_BYTES)
  bytes.set(QUESTION)
  bytes.set(
    mac.split(':').map((pair) => Number.parseInt(pair, 16)),
    SENDER_MAC,
  )
  new DataView(bytes.buffer).setUint32(TARGET_IP, Number(bitsOf(ip).bits))
  return bytes
}

function senderOf(bytes: Uint8Array): Ip | undefined {
  return bytes.length < ARP_BYTES ? undefined : (bytes.subarray(SENDER_IP, SENDER_IP + 4).join('.') as Ip)
}
