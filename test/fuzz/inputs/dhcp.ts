import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { bytesOf, joined } from '../../../agent/dhcp/bytes.ts'
import type { Session } from '../../../agent/dhcp/conversation.ts'
import { four } from '../../../agent/dhcp/four.ts'
import { Leases } from '../../../agent/dhcp/leases.ts'
import { readQuestion } from '../../../agent/dhcp/reading.ts'
import { six } from '../../../agent/dhcp/six.ts'
import type { Result } from '../../../lib/cni/result.ts'
import { decode, encode } from '../../../lib/cni/versions.ts'
import { listen } from '../../../lib/os/answers.ts'
import type { Wire } from '../../../lib/os/packets.ts'
import { leasesOf } from '../../../lib/pools/dhcp.ts'
import { CniError, CODE, ValueError } from '../../../lib/text/errors.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { exchanged } from '../exchange.ts'
import type { Target } from '../target.ts'
import { readJson } from './agent.ts'
import { named } from './node.ts'

const SOCKET = '/run/fuzz/dhcp.sock'
const CLIENT = 'c1/fuzz/eth0'
const MAC = parse.mac('02:00:00:00:00:05')
/** A link of the sandbox with an address of its own. */
export const LINK = 'fuzz0'

/** What comes from the network to the DHCP client, and what the daemon is asked and finds on disk. */
export const DHCP: readonly Target[] = [
  {
    name: 'dhcp4',
    built: (_, stored) => frame4(readJson(stored)),
    feed: ({ offer, ack }) => conversation(4, [offer, ack]),
  },
  {
    name: 'dhcp6',
    built: (_, stored) => frame6(readJson(stored)),
    feed: ({ advertise, reply }) => conversation(6, [advertise, reply]),
  },
  {
    name: 'dhcp questions',
    async feed({ question }) {
      const leases = fresh()
      const server = listen({ unix: SOCKET }, 'dhcp', async (asked, signal) =>
        leases.handle(readQuestion(asked), signal),
      )
      try {
        // A client that sends more than a question may have is cut off.
        const text =
          (await exchanged(
            SOCKET,
            Buffer.concat([(question ?? Buffer.of()).subarray(0, 1 << 20), Buffer.from('\n')]),
          )) || '{}'
        const reply = JSON.parse(text)
        if (reply.error === undefined) return reply.result === undefined ? [] : judged(reply.result)
        if (!(Object.values(CODE) as number[]).includes(reply.error.code)) return [`it answers ${text.slice(0, 500)}`]
        // So that it is judged, and counted, as any other refusal.
        throw new CniError(reply.error.code, reply.error.msg, reply.error.details)
      } finally {
        leases.stop()
        server.stop()
      }
    },
  },
  {
    name: 'dhcp leases',
    async feed({ name, file }) {
      const leases = fresh()
      const path = named(name)
      for (const one of new Set([path, 'fuzz:c1:eth0'])) writeFileSync(`${leasesOf(SOCKET)}/${one}`, file ?? '')
      try {
        await leases.load()
        const { result } = await leases.handle(
          {
            verb: 'check',
            owner: {
              network: parse.network('fuzz'),
              containerId: parse.containerId('c1'),
              ifname: parse.ifname('eth0'),
            },
          },
          new AbortController().signal,
        )
        return result === undefined ? ['no result'] : judged(result)
      } finally {
        leases.stop()
      }
    },
  },
]

function fresh(): Leases {
  rmSync(SOCKET, { force: true })
  rmSync(leasesOf(SOCKET), { recursive: true, force: true })
  mkdirSync(leasesOf(SOCKET), { recursive: true })
  return new Leases({
    dir: leasesOf(SOCKET),
    hostPrefix: '',
    timeoutMs: 1,
    resendMaxMs: 1,
    resendTimeoutMs: 1,
    broadcast: false,
  })
}

async function conversation(version: 4 | 6, answers: readonly (Buffer | undefined)[]): Promise<readonly string[]> {
  const coming = answers.flatMap((one) => one ?? [])
  const heard: Uint8Array[] = []
  const wire: Wire = {
    index: 1,
    mac: MAC,
    send: (_, request) =>
      void heard.push(
        ...coming.splice(0, 1).map((one) => (version === 4 ? fitted4(one, request) : fitted6(one, request))),
      ),
    hear() {
      const bytes = heard.shift()
      if (!bytes) throw new ValueError('Cannot go on: want another packet')
      return { from: MAC, bytes }
    },
    close() {},
  }
  const session: Session = {
    client: CLIENT,
    mac: MAC,
    wants: { families: [version], request: [1, 3, 6], provide: [] },
    wire,
    netns: 'host' as never,
    ifname: LINK,
    timing: { timeoutMs: 20, resendMaxMs: 1, resendTimeoutMs: 20, broadcast: false },
    signal: new AbortController().signal,
  }
  return version === 4 ? talked(four, session) : talked(six, session)
}

async function talked<B extends { renewAt: number; rebindAt: number; expiresAt: number }>(
  protocol: {
    acquire(session: Session, until: number): Promise<B | undefined>
    result(bound: B): Result
    release(who: Session, bound: B): unknown
  },
  session: Session,
): Promise<string[]> {
  const bound = await protocol.acquire(session, performance.now() + 20)
  if (!bound) throw new ValueError('Cannot go on: want a lease')
  protocol.release(session, bound)
  const { renewAt, rebindAt, expiresAt } = bound
  const times = renewAt <= rebindAt && rebindAt <= expiresAt ? [] : [`times ${renewAt} ${rebindAt} ${expiresAt}`]
  return [...times, ...judged(protocol.result(bound))]
}

/** A pool's result that came from outside: addresses are addresses, names are names, and it is no flood. */
function judged(result: Result): string[] {
  const text = encode(result, '1.1.0')
  decode(JSON.parse(text), '1.1.0', 'the result')
  const { ips = [], routes = [], dns = {} } = result
  const [addresses, networks] = [
    [
      ...(dns.nameservers ?? []),
      ...ips.flatMap(({ gateway }) => gateway ?? []),
      ...routes.flatMap(({ gw }) => gw ?? []),
    ],
    [...ips.map(({ address }) => address), ...routes.map(({ dst }) => dst)],
  ]
  const names = [...(dns.search ?? []), ...(dns.domain === undefined ? [] : [dns.domain])]
  return [
    ...addresses.filter((one) => isIP(one) === 0).map((one) => `address ${JSON.stringify(one)}`),
    ...networks
      .filter((one) => !/^[^/]+\/\d{1,3}$/.test(one) || isIP(one.split('/')[0] as string) === 0)
      .map((one) => `network ${JSON.stringify(one)}`),
    ...names.filter((one) => !/^[\w.-]{1,255}$/.test(one)).map((one) => `name ${JSON.stringify(one.slice(0, 300))}`),
    ...(text.length > 500_000 ? [`a result of ${text.length} characters`] : []),
  ]
}

/** What a stored packet says, generously: a fuzzer changes it. */
interface Stored {
  readonly type?: unknown
  readonly yiaddr?: unknown
  readonly options?: unknown
}

// What is nested deep has no number and no text.
const flat = (value: unknown) => (typeof value === 'object' ? '' : String(value))
const number = (value: unknown, size: number) => Math.abs(Math.trunc(Number(flat(value)) || 0)) % 256 ** size
const hex = (value: unknown) => (value === 'CLIENT' ? identity() : Buffer.from(flat(value), 'hex'))
const pairs = (value: unknown) => (Array.isArray(value) ? value.map((one) => (Array.isArray(one) ? one : [])) : [])

function identity(): Buffer {
  return Buffer.concat([
    Buffer.of(0, 4),
    Buffer.from(new Bun.CryptoHasher('sha256').update(CLIENT).digest()).subarray(0, 16),
  ])
}

function frame4(given: unknown): Buffer {
  const { type, yiaddr, options } = (given ?? {}) as Stored
  const address = isIP(flat(yiaddr)) === 4 ? bytesOf(yiaddr as Ip) : new Uint8Array(4)
  const all = pairs(options).map(([code, value]) => {
    const bytes = hex(value)
    return joined(number(code, 1), number(bytes.length, 1), bytes)
  })
  const message = joined(
    2,
    1,
    6,
    0,
    new Uint8Array(12),
    address,
    new Uint8Array(216),
    [0x63825363, 4],
    53,
    1,
    number(type, 1),
    ...all,
    255,
  )
  return Buffer.from(
    joined(
      0x45,
      0,
      [20 + 8 + message.length, 2],
      [0, 4],
      64,
      17,
      [0, 2],
      10,
      7,
      0,
      1,
      255,
      255,
      255,
      255,
      [67, 2],
      [68, 2],
      [8 + message.length, 2],
      [0, 2],
      message,
    ),
  )
}

function frame6(given: unknown): Buffer {
  const { type, options } = (given ?? {}) as Stored
  const all = (list: unknown): Uint8Array[] =>
    pairs(list).map(([code, value, inner]) => {
      const bytes = joined(hex(value), ...all(inner))
      return joined([number(code, 2), 2], [number(bytes.length, 2), 2], bytes)
    })
  const message = joined(number(type, 1), 0, 0, 0, ...all(options))
  return Buffer.from(
    joined(
      [0x60000000, 4],
      [8 + message.length, 2],
      17,
      64,
      new Uint8Array(32),
      [547, 2],
      [546, 2],
      [8 + message.length, 2],
      [0, 2],
      message,
    ),
  )
}

// A server that answers at all knows number and address of who asks.
function fitted4(answer: Buffer, request: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(answer)
  if (bytes.length < 62) return bytes
  bytes.set(request.slice(32, 36), 32)
  bytes.set(request.slice(56, 62), 56)
  return bytes
}

function fitted6(answer: Buffer, request: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(answer)
  if (bytes.length < 52) return bytes
  bytes.set(request.slice(8, 24), 24)
  bytes.set(request.slice(49, 52), 49)
  return bytes
}
