import { CniError, CODE } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, split } from '../../lib/text/ip.ts'
import type { Mac } from '../../lib/text/values.ts'
import { bytesOf, joined, macBytes, numberOf } from './bytes.ts'
import { converse, type Protocol, random, type Session, type Times, type Who } from './conversation.ts'
import { fromServer, toServer } from './frame.ts'
import { addressesIn, decode4, encode4, type Message4, OPTION4, TYPE4 } from './message4.ts'
import { type Bound4, result4 } from './result4.ts'

const [ANY, ALL] = ['0.0.0.0' as Ip, '255.255.255.255' as Ip]
const EVERYONE = 'ff:ff:ff:ff:ff:ff' as Mac
const INFINITE = 0xffffffff
const ARP = 0x0806
// RFC 2132 section 9.14: the option has one byte of type, then the identifier. Both together have at most 255 bytes.
const LONGEST_CLIENT = 254

/** The client side of DHCPv4 (RFC 2131), for a link that has no address yet. */
export const four: Protocol<Bound4> = {
  version: 4,
  async acquire(session, untilMs, again) {
    const wanted = again && split(again.address).ip
    const isOffer = ({ type, yiaddr }: Message4) =>
      type === TYPE4.offer && yiaddr !== undefined && (!wanted || yiaddr === wanted)
    const discover = wanted ? { address: wanted } : {}
    while (performance.now() < untilMs) {
      const offer = await exchange(session, untilMs, TYPE4.discover, discover, isOffer)
      const [server] = addressesIn(offer?.message.options.get(OPTION4.server))
      if (!offer || !server) return undefined
      const limit = Math.min(untilMs, performance.now() + session.timing.timeoutMs)
      const request = { address: offer.message.yiaddr as Ip, server, xid: offer.message.xid }
      const answer = await exchange(session, limit, TYPE4.request, request, isAnswer)
      const bound = answer && boundOf(answer)
      if (bound) return bound
    }
    return undefined
  },
  async extend(session, untilMs, bound, from) {
    const { ip } = split(bound.address)
    const request = { ciaddr: ip, ...(from === 'own' && { to: bound.server, via: bound.via }) }
    const answer = await exchange(session, untilMs, TYPE4.request, request, isAnswer)
    if (!answer) return undefined
    const next = boundOf(answer)
    return next?.address.startsWith(`${ip}/`) ? next : 'refused'
  },
  release(who, { address, server, via }) {
    const { ip } = split(address)
    const options = new Map([
      [OPTION4.client, identity(who)],
      [OPTION4.server, bytesOf(server)],
    ])
    const payload = encode4({ type: TYPE4.release, xid: random(4), ciaddr: ip, chaddr: who.mac, options })
    return { to: via, packet: toServer({ from: ip, to: server }, payload) }
  },
  result: result4,
  announcement({ address }, mac) {
    const own = bytesOf(split(address).ip)
    // ARP announcement (RFC 5227 section 2.3): an ARP request for the client's new address.
    const packet = joined([1, 2], [0x0800, 2], 6, 4, [1, 2], macBytes(mac), own, new Uint8Array(6), own)
    return { to: EVERYONE, type: ARP, packet }
  },
}

interface Request {
  readonly xid?: number
  /** The client's current address, if it has one. */
  readonly ciaddr?: Ip
  /** The address that the client requests (option 50). */
  readonly address?: Ip
  readonly server?: Ip
  readonly to?: Ip
  readonly via?: Mac
}
interface Answer {
  readonly message: Message4
  readonly from: Mac
}

function exchange(
  session: Session,
  untilMs: number,
  type: number,
  request: Request,
  fits: (message: Message4) => boolean,
): Promise<Answer | undefined> {
  const { wire, mac, timing } = session
  const { xid = random(4), ciaddr, address, server, to = ALL, via = EVERYONE } = request
  const began = performance.now()
  function send(): void {
    const options = new Map([
      ...optionsOf(session),
      ...(address ? [[OPTION4.address, bytesOf(address)] as const] : []),
      ...(server ? [[OPTION4.server, bytesOf(server)] as const] : []),
    ])
    const secs = Math.min(0xffff, Math.floor((performance.now() - began) / 1000))
    const { broadcast } = timing
    const message = encode4({ type, xid, secs, broadcast, chaddr: mac, ...(ciaddr && { ciaddr }), options })
    wire.send(via, toServer({ from: ciaddr ?? ANY, to }, message))
  }
  return converse(session, untilMs, send, ({ from, bytes }) => {
    const found = fromServer(bytes)
    const message = found && decode4(found.payload)
    return message?.xid === xid && message.chaddr === mac && fits(message) ? { message, from } : undefined
  })
}

function isAnswer({ type }: Message4): boolean {
  return type === TYPE4.ack || type === TYPE4.nak
}

function optionsOf(who: Who): Map<number, Uint8Array> {
  const { request, provide } = who.wants
  const asked: [number, Uint8Array][] = request.length > 0 ? [[OPTION4.request, Uint8Array.from(request)]] : []
  return new Map([
    [OPTION4.client, identity(who)],
    ...asked,
    ...provide.map(([code, value]) => [code, new TextEncoder().encode(value)] as const),
  ])
}

// The client identifier. A value from the configuration is sent unchanged.
// The default value is the attachment's name with type 0 ("not a hardware address").
function identity({ client, wants: { provide } }: Who): Uint8Array {
  const own = provide.find(([code]) => code === OPTION4.client)?.[1]
  if (own !== undefined) return new TextEncoder().encode(own)
  return joined(0, new TextEncoder().encode(client).slice(0, LONGEST_CLIENT))
}

/** The lease in an ACK. Undefined for a NAK, and for an ACK without an address, a lease time or a server identifier. */
function boundOf({ message: { type, yiaddr, options }, from }: Answer): Bound4 | undefined {
  const lease = options.get(OPTION4.lease)
  const [server] = addressesIn(options.get(OPTION4.server))
  if (type !== TYPE4.ack || !yiaddr || lease?.length !== 4 || !server) return undefined
  return {
    address: `${yiaddr}/${lengthOf(options.get(OPTION4.mask))}` as Cidr,
    server,
    via: from,
    options: Object.fromEntries([...options].map(([code, value]) => [code, Buffer.from(value).toString('base64')])),
    ...timesOf(options),
  }
}

function timesOf(options: Message4['options']): Times {
  const now = Date.now()
  const seconds = (code: number) => {
    const value = options.get(code)
    return value?.length === 4 ? numberOf(value) : undefined
  }
  const lease = seconds(OPTION4.lease) as number
  const never = Number.MAX_SAFE_INTEGER
  if (lease === INFINITE) return { renewAt: never, rebindAt: never, expiresAt: never }
  const within = (value: number | undefined, most: number, otherwise: number) =>
    value === undefined || value > most ? otherwise : value
  // RFC 2131 section 4.4.5: the default of T2 is 0.85 of the lease time, and of T1 0.5.
  const rebind = within(seconds(OPTION4.rebinding), lease, lease * 0.85)
  const renew = within(seconds(OPTION4.renewal), rebind, Math.min(rebind, lease / 2))
  return { renewAt: now + renew * 1000, rebindAt: now + rebind * 1000, expiresAt: now + lease * 1000 }
}

function lengthOf(mask: Uint8Array | undefined): number {
  const bits = [...(mask ?? [])].map((byte) => byte.toString(2).padStart(8, '0')).join('')
  if (!/^1*0*$/.test(bits) || bits.length !== 32)
    throw new CniError(
      CODE.config,
      "Cannot use the lease: the server's answer has no subnet mask",
      'want option 1 among ipam.request, where "skipDefault" is set, and a server that has it',
    )
  return bits.replace(/0+$/, '').length
}
