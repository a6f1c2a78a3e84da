import { readdirSync } from 'node:fs'
import type { Protocol } from '../agent/cluster/reading.ts'
import { run } from '../lib/os/exec.ts'
import { openWire } from '../lib/os/packets.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { bitsOf, type Ip } from '../lib/text/ip.ts'
import { type NetnsPath, parse } from '../lib/text/values.ts'
import { initMessage } from './connectivity/sctp.ts'

/** A first packet to send. `isToNode`: its destination is the node itself. */
export interface Trial {
  readonly source: Ip
  readonly destination: Ip
  readonly protocol: Protocol
  readonly port: number
  readonly isToNode: boolean
}
/** Whether the packet arrived, and how that was seen. */
export interface Arrival {
  readonly passes: boolean
  readonly reason: string
}

const TABLE = ['inet', 'plumb_policy'] as const
const PREFIX = 'plumb-trial-'
const [NEAR, FAR] = ['02:00:00:00:00:01', '02:00:00:00:00:02'] as const
/** How long a packet may take that the rules let through. */
const [STEP_MS, SETTLE_MS, LIMIT_MS] = [20, 300, 5000]
const NUMBERS = { TCP: 6, UDP: 17, SCTP: 132 } as const
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
const SOURCE_PORT = 40_000

/**
 * Tries a packet on a copy of the node's rules: a router in a namespace of its own, with a link for each of the two
 * addresses. Nothing of the node changes. Throws CniError 11 when the rules cannot be read, and CniError 5 when the
 * packet does not even reach the copy.
 */
export async function tryOut(trial: Trial): Promise<Arrival> {
  await sweep()
  const { status, stdout, stderr } = await run(['nft', 'list', 'table', ...TABLE], '')
  if (status !== 0)
    throw new CniError(
      CODE.tryLater,
      `Cannot list nft table ${TABLE[1]}: ${stderr.split('\n', 1)[0]}`,
      'the agent makes it when it knows all objects; plumb status says why not',
    )
  const names = ['router', 'sender', 'receiver'].map((role) => `${PREFIX}${process.pid}-${role}`)
  const [router = '', sender = '', receiver = ''] = names
  const remove = () => Promise.all(names.map((name) => run(['ip', 'netns', 'delete', name], '')))
  const end = (signal: NodeJS.Signals) => void remove().finally(() => process.kill(process.pid, signal))
  for (const signal of SIGNALS) process.once(signal, end)
  try {
    for (const name of names) await must(['ip', 'netns', 'add', name], '')
    await wire(trial, router, sender, receiver)
    await must(['nft', '-f', '-'], stdout, at(router))
    const place = trial.isToNode ? router : receiver
    await must(
      ['nft', '-f', '-'],
      counting(trial, 'came', trial.isToNode ? 'input priority 300' : 'prerouting priority -300'),
      at(place),
    )
    await must(['nft', '-f', '-'], counting(trial, 'seen', 'prerouting priority -300'), at(router))
    return await send(trial, { router, sender, place })
  } finally {
    for (const signal of SIGNALS) process.off(signal, end)
    await remove()
  }
}

// A trial that was killed leaves its namespaces.
async function sweep(): Promise<void> {
  const left = await run(['ip', 'netns', 'list'], '')
  const alive = new Set(readdirSync('/proc'))
  for (const [name, pid = ''] of left.stdout.matchAll(/^plumb-trial-(\d+)-\w+/gm))
    if (!alive.has(pid)) await run(['ip', 'netns', 'delete', name], '')
}

async function wire(
  { source, destination, isToNode }: Trial,
  router: string,
  sender: string,
  receiver: string,
): Promise<void> {
  const isV6 = isSix(source)
  const [flag, length] = isV6 ? ['-6 ', 128] : ['', 32]
  const nodad = isV6 ? ' nodad' : ''
  await must(
    ['ip', '-batch', '-'],
    [
      `link add near address ${NEAR} type veth peer name eth0 address ${FAR} netns ${sender}`,
      `link add far address ${NEAR} type veth peer name eth0 address ${FAR} netns ${receiver}`,
      'link set lo up',
      'link set near up',
      'link set far up',
      `${flag}route add ${source}/${length} dev near`,
      ...(isToNode
        ? [`addr add ${destination}/${length} dev lo${nodad}`]
        : [
            `${flag}route add ${destination}/${length} dev far`,
            `neigh add ${destination} lladdr ${FAR} dev far nud permanent`,
          ]),
      '',
    ].join('\n'),
    at(router),
  )
  for (const name of [sender, receiver]) await must(['ip', '-batch', '-'], 'link set eth0 up\n', at(name))
  const settings = [
    'net.ipv4.ip_forward=1',
    'net.ipv6.conf.all.forwarding=1',
    ...['all', 'default', 'near', 'far'].map((one) => `net.ipv4.conf.${one}.rp_filter=0`),
  ]
  await must(['ip', 'netns', 'exec', router, 'sysctl', '-qw', ...settings], '')
}

function counting({ source, destination }: Trial, name: string, hook: string): string {
  const word = isSix(source) ? 'ip6' : 'ip'
  return `table inet plumb_trial_${name} {
  counter ${name} { }
  chain ${name} { type filter hook ${hook}; ${word} saddr ${source} ${word} daddr ${destination} counter name ${name}; }
}
`
}

async function send(
  trial: Trial,
  { router, sender, place }: { readonly router: string; readonly sender: string; readonly place: string },
): Promise<Arrival> {
  const { source } = trial
  const isV6 = isSix(source)
  const socket = openWire(at(sender), 'eth0', isV6 ? 6 : 4)
  try {
    const packet = packetOf(trial)
    const started = performance.now()
    let seenAt: number | undefined
    for (;;) {
      // A link that has just come up may lose its first packets.
      if (seenAt === undefined) socket.send(parse.mac(NEAR), packet)
      await Bun.sleep(STEP_MS)
      if ((await count(place, 'came')) > 0)
        return { passes: true, reason: "a packet passes a copy of the node's rules" }
      const now = performance.now()
      if (seenAt === undefined && (await count(router, 'seen')) > 0) seenAt = now
      if (seenAt !== undefined && now - seenAt > SETTLE_MS)
        return { passes: false, reason: "a copy of the node's rules drops the packet" }
      if (seenAt === undefined && now - started > LIMIT_MS)
        throw new CniError(
          CODE.io,
          `Cannot try the rules: a packet from ${source} did not reach the copy within ${LIMIT_MS / 1000} s`,
          'try again',
        )
    }
  } finally {
    socket.close()
  }
}

async function count(name: string, counter: string): Promise<number> {
  const stdout = await must(['nft', 'list', 'counter', 'inet', `plumb_trial_${counter}`, counter], '', at(name))
  return Number(/packets (\d+)/.exec(stdout)?.[1] ?? 0)
}

/**
 * The first packet of a connection, from the IP header on. The checksums of TCP and UDP are left out: only the rules
 * read them.
 */
export function packetOf(
  { source, destination, protocol, port }: Omit<Trial, 'isToNode'>,
  sourcePort: number = SOURCE_PORT,
): Uint8Array {
  const segment =
    protocol === 'SCTP' ? initMessage({ sourcePort, port, tag: 1 }) : segmentOf(protocol, port, sourcePort)
  const number = NUMBERS[protocol]
  if (isSix(source)) {
    const bytes = new Uint8Array(40 + segment.length)
    const view = new DataView(bytes.buffer)
    view.setUint32(0, 6 << 28)
    view.setUint16(4, segment.length)
    bytes.set([number, 64], 6)
    bytes.set(addressBytes(source, 16), 8)
    bytes.set(addressBytes(destination, 16), 24)
    bytes.set(segment, 40)
    return bytes
  }
  const bytes = new Uint8Array(20 + segment.length)
  const view = new DataView(bytes.buffer)
  bytes[0] = 0x45
  view.setUint16(2, bytes.length)
  bytes.set([64, number], 8)
  bytes.set(addressBytes(source, 4), 12)
  bytes.set(addressBytes(destination, 4), 16)
  let sum = 0
  for (let i = 0; i < 20; i += 2) sum += view.getUint16(i)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16)
  view.setUint16(10, ~sum & 0xffff)
  bytes.set(segment, 20)
  return bytes
}

// TCP: a SYN. UDP: an empty datagram.
function segmentOf(protocol: 'TCP' | 'UDP', port: number, sourcePort: number): Uint8Array {
  const bytes = new Uint8Array({ TCP: 20, UDP: 8 }[protocol])
  const view = new DataView(bytes.buffer)
  view.setUint16(0, sourcePort)
  view.setUint16(2, port)
  if (protocol === 'UDP') view.setUint16(4, bytes.length)
  if (protocol === 'TCP') view.setUint16(12, (5 << 12) | 2)
  if (protocol === 'TCP') view.setUint16(14, 1024)
  return bytes
}

function addressBytes(ip: Ip, size: 4 | 16): number[] {
  const { bits } = bitsOf(ip)
  return Array.from({ length: size }, (_, i) => Number((bits >> BigInt(8 * (size - 1 - i))) & 0xffn))
}

function at(name: string): NetnsPath {
  return parse.netns(`/run/netns/${name}`)
}

async function must(argv: readonly string[], stdin: string, ns?: NetnsPath): Promise<string> {
  const { status, stdout, stderr } = await run(argv, stdin, ns)
  if (status !== 0)
    throw new CniError(
      CODE.io,
      `Cannot try the rules: ${argv.slice(0, 3).join(' ')} ended with ${status}: ${stderr.split('\n', 1)[0]}`,
      'it needs root, ip and nft',
    )
  return stdout
}
