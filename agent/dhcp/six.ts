import { inside } from '../../lib/os/netns.ts'
import { readText } from '../../lib/os/reading.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'
import { associationIn, encodeAssociation, statusIn } from './association6.ts'
import { bytesOf, joined } from './bytes.ts'
import { converse, type Protocol, random, type Session, type Times, type Who } from './conversation.ts'
import { fromServer, toServer } from './frame.ts'
import { addressesIn } from './message4.ts'
import { decode6, encode6, type Message6, TYPE6 } from './message6.ts'
import { namesIn } from './names.ts'
import { OPTION6, type Options6, option6 } from './options6.ts'

/** A DHCPv6 lease: one address of a non-temporary association (IA_NA). */
export interface Bound6 extends Times {
  readonly address: Ip
  /** The client's link-local address, the source address of its messages. */
  readonly local: Ip
  /** The server's identifier, in base64. */
  readonly server: string
  readonly nameservers: readonly Ip[]
  readonly search: readonly string[]
}

// The multicast address of all DHCP servers and relays on the link (RFC 8415 section 7.1), and its Ethernet address
// (RFC 2464).
const [SERVERS, SERVERS_MAC] = ['ff02::1:2' as Ip, '33:33:00:01:00:02' as Mac]
/** The number of the association. Each link has only one. */
const ASSOCIATION = 1
const INFINITE = 0xffffffff
const DUID_UUID = 4

/**
 * The client side of DHCPv6 (RFC 8415) for one address.
 * The client does not get a prefix or a router by DHCPv6. The kernel learns both from router advertisements.
 */
export const six: Protocol<Bound6> = {
  version: 6,
  async acquire(session, untilMs, again) {
    const local = await localOf(session, untilMs)
    const hint = again ? bytesOf(again.address) : undefined
    const wanted: Options6 = [
      [OPTION6.rapid, new Uint8Array()],
      [OPTION6.association, encodeAssociation(ASSOCIATION, hint)],
    ]
    const fits = (message: Message6) => isOffer(message, again)
    while (performance.now() < untilMs) {
      const first = await exchange(session, untilMs, local, TYPE6.solicit, wanted, fits)
      if (!first) return undefined
      const limit = Math.min(untilMs, performance.now() + session.timing.timeoutMs)
      const request = () => exchange(session, limit, local, TYPE6.request, asked(first, offered(first)), isReply)
      // With rapid commit, the first answer is already the reply with the lease.
      const answer = first.type === TYPE6.reply ? first : await request()
      const bound = answer && boundOf(answer, local)
      if (bound && (!again || bound.address === again.address)) return bound
    }
    return undefined
  },
  async extend(session, untilMs, bound, from) {
    const { local } = bound
    const server = [OPTION6.server, Uint8Array.from(Buffer.from(bound.server, 'base64'))] as const
    const association = [OPTION6.association, encodeAssociation(ASSOCIATION, bytesOf(bound.address))] as const
    const answer =
      from === 'own'
        ? await exchange(session, untilMs, local, TYPE6.renew, [server, association], isReply)
        : await exchange(session, untilMs, local, TYPE6.rebind, [association], isReply)
    if (!answer) return undefined
    const next = boundOf(answer, local)
    return next?.address === bound.address ? next : 'refused'
  },
  release(who, { address, local, server }) {
    const options: Options6 = [
      [OPTION6.client, identity(who)],
      [OPTION6.server, Uint8Array.from(Buffer.from(server, 'base64'))],
      [OPTION6.elapsed, new Uint8Array(2)],
      [OPTION6.association, encodeAssociation(ASSOCIATION, bytesOf(address))],
    ]
    const message = encode6({ type: TYPE6.release, xid: random(3), options })
    return { to: SERVERS_MAC, packet: toServer({ from: local, to: SERVERS }, message) }
  },
  result({ address, nameservers, search }) {
    const dns = { ...(nameservers.length > 0 && { nameservers }), ...(search.length > 0 && { search }) }
    return { ips: [{ address: `${address}/128` as Cidr }], ...(Object.keys(dns).length > 0 && { dns }) }
  },
}

function exchange(
  session: Session,
  untilMs: number,
  local: Ip,
  type: number,
  more: Options6,
  fits: (message: Message6) => boolean,
): Promise<Message6 | undefined> {
  const xid = random(3)
  const began = performance.now()
  function send(): void {
    const elapsed = Math.min(0xffff, Math.floor((performance.now() - began) / 10))
    const options: Options6 = [
      [OPTION6.client, identity(session)],
      [OPTION6.elapsed, joined([elapsed, 2])],
      [OPTION6.request, joined([OPTION6.dns, 2], [OPTION6.search, 2])],
      ...more,
    ]
    session.wire.send(SERVERS_MAC, toServer({ from: local, to: SERVERS }, encode6({ type, xid, options })))
  }
  return converse(session, untilMs, send, ({ bytes }) => {
    const found = fromServer(bytes)
    const message = found?.to === local ? decode6(found.payload) : undefined
    return message?.xid === xid && isOurs(message, session) && fits(message) ? message : undefined
  })
}

// RFC 8415 section 16: a reply must have a server identifier, and the identifier of this client.
function isOurs({ options }: Message6, who: Who): boolean {
  const [client, server] = [option6(options, OPTION6.client), option6(options, OPTION6.server)]
  return client !== undefined && server !== undefined && Buffer.compare(client, identity(who)) === 0
}

function isReply({ type }: Message6): boolean {
  return type === TYPE6.reply
}

/**
 * Whether the message offers an address. The message must be an advertisement, or a reply with rapid commit.
 * With `again`, the address must be the same as before.
 */
function isOffer(message: Message6, again: Bound6 | undefined): boolean {
  const { type, options } = message
  const address = offered(message)
  const isKind = type === TYPE6.advertise || (type === TYPE6.reply && option6(options, OPTION6.rapid) !== undefined)
  return isKind && address !== undefined && (!again || address === again.address)
}

function offered({ options }: Message6): Ip | undefined {
  const found = associationIn(options, ASSOCIATION)
  return statusIn(options) === 0 && found?.status === 0 ? found.address : undefined
}

function asked({ options }: Message6, address: Ip | undefined): Options6 {
  return [
    [OPTION6.server, option6(options, OPTION6.server) as Uint8Array],
    [OPTION6.association, encodeAssociation(ASSOCIATION, address && bytesOf(address))],
  ]
}

// The client's DUID (RFC 8415 section 11.5). It is unique for the attachment and stays the same after a restart.
function identity({ client }: Pick<Who, 'client'>): Uint8Array {
  return joined([DUID_UUID, 2], new Uint8Array(new Bun.CryptoHasher('sha256').update(client).digest()).slice(0, 16))
}

function boundOf(message: Message6, local: Ip): Bound6 | undefined {
  const { options } = message
  const found = associationIn(options, ASSOCIATION)
  const address = offered(message)
  const server = option6(options, OPTION6.server)
  if (!found || !address || !server) return undefined
  const nameservers = addressesIn(option6(options, OPTION6.dns), 16)
  const search = namesIn(option6(options, OPTION6.search))
  return { address, local, server: Buffer.from(server).toString('base64'), nameservers, search, ...timesOf(found) }
}

function timesOf({ preferred, valid, t1, t2 }: NonNullable<ReturnType<typeof associationIn>>): Times {
  const now = Date.now()
  const at = (seconds: number) => (seconds >= INFINITE ? Number.MAX_SAFE_INTEGER : now + seconds * 1000)
  // RFC 8415 section 14.2: T1 or T2 of zero means that the client chooses the time.
  const least = Math.min(preferred || valid, valid)
  const rebind = t2 > 0 && t2 <= valid ? t2 : least >= INFINITE ? INFINITE : least * 0.8
  const renew = t1 > 0 && t1 <= rebind ? t1 : rebind >= INFINITE ? INFINITE : Math.min(rebind, least * 0.5)
  return { renewAt: at(renew), rebindAt: at(rebind), expiresAt: at(valid) }
}

const STEP_MS = 50
// Address flags in /proc/net/if_inet6 (linux/if_addr.h).
const [IFA_F_DADFAILED, IFA_F_TENTATIVE] = [0x08, 0x40]

/**
 * Waits for the link-local address until duplicate address detection is over.
 * Before that, the kernel does not answer neighbours for the address.
 * Rejects with CniError 11 when `untilMs` passes first.
 */
async function localOf({ netns, ifname, signal }: Session, untilMs: number): Promise<Ip> {
  for (;;) {
    const text = inside(netns, () => readText('/proc/net/if_inet6') ?? '')
    const rows = text.split('\n').map((line) => line.trim().split(/\s+/))
    const found = rows.find(([address = '', , , , flags = '', name]) => {
      const isUsable = (Number.parseInt(flags, 16) & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) === 0
      return name === ifname && address.startsWith('fe8') && isUsable
    })
    if (found) return parseIp((found[0] as string).match(/.{4}/g)?.join(':'))
    signal.throwIfAborted()
    if (performance.now() >= untilMs)
      throw new CniError(
        CODE.tryLater,
        `Cannot ask for an IPv6 lease on ${ifname}: the link has no address of its own`,
        'IPv6 may be switched off in the namespace (net.ipv6.conf.*.disable_ipv6)',
      )
    await Bun.sleep(STEP_MS)
  }
}
