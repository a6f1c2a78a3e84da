import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import type { Wgdevice } from '../../lib/state/kinds/wgdevice.ts'
import { section, type Wgpeer } from '../../lib/state/kinds/wgpeer.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { Secret } from '../../lib/text/secret.ts'
import type { IfName } from '../../lib/text/values.ts'

/**
 * After this time without a handshake, a peer has no connection (REJECT_AFTER_TIME of the WireGuard paper). Seconds.
 */
export const CONNECTED_S = 180
/** The number of peers that one process removes. A command line is limited. */
const MOST_REMOVED = 1000
const NONE = '(none)'
/** The standard input as a file. Not every system has /dev/stdin. */
const INPUT = '/proc/self/fd/0'

/** The peers went together with their device. */
const GONE = /No such device/

/** What `wg` makes. */
type Made = Wgdevice | Wgpeer

/**
 * Makes and removes keys, ports and peers of WireGuard devices, with a few processes per device. Gives what failed, each
 * with the tool's message. Throws CniError when `wg` is not installed.
 */
export async function performWireguard(
  puts: readonly Made[],
  drops: readonly Made[],
  run: Run,
): Promise<Map<Resource, string>> {
  const failed = new Map<Resource, string>()
  const tried = async (some: readonly Made[], words: readonly string[], stdin = '', unless?: RegExp) => {
    if (some.length === 0) return
    const { status, stderr } = await run(['wg', ...words], stdin)
    const message = hidden(stderr.trim(), some) || `ended with status ${status}`
    if (status !== 0 && !unless?.test(message)) for (const one of some) failed.set(one, message)
  }
  for (const dev of new Set([...puts, ...drops].map((one) => one.dev))) {
    const own = (all: readonly Made[]) => all.filter((one) => one.dev === dev)
    for (const one of own(puts).filter((made) => made.kind === 'wgdevice')) {
      const words = ['set', dev, 'listen-port', String(one.port), 'private-key', INPUT]
      await tried([one], words, `${one.privateKey?.reveal()}\n`)
    }
    // A network moves to the peer that names it last. So the former peers go first.
    const gone = own(drops).filter((made) => made.kind === 'wgpeer')
    for (let at = 0; at < gone.length; at += MOST_REMOVED) {
      const some = gone.slice(at, at + MOST_REMOVED)
      const words = some.flatMap(({ publicKey }) => ['peer', publicKey, 'remove'])
      await tried(some, ['set', dev, ...words], '', GONE)
    }
    const peers = own(puts).filter((made) => made.kind === 'wgpeer')
    await tried(peers, ['addconf', dev, INPUT], peers.map(section).join('\n'))
  }
  return failed
}

// wg repeats what it cannot read.
function hidden(text: string, some: readonly Made[]): string {
  const secrets = some.flatMap((one) => (one.kind === 'wgdevice' ? one.privateKey : one.psk) ?? [])
  return secrets.reduce((shown, secret) => shown.replaceAll(secret.reveal(), `${secret}`), text)
}

/** The keys, ports and peers of those of these devices that are WireGuard's. Throws CniError without `wg`. */
export async function listWireguard(devices: readonly IfName[], run: Run): Promise<Resource[]> {
  const dumps = await Promise.all(devices.map((dev) => listed(['wg', 'show', dev, 'dump'], run)))
  return dumps.flatMap((dump, i) => (dump === '' ? [] : foundIn(dump, devices[i] as IfName)))
}

// The first line is the device: its private and public key, the port and a mark. Each other line is a peer: its public
// key, second key, endpoint, networks, last handshake, bytes received and sent, keepalive. A tab separates the fields.
function foundIn(dump: string, dev: IfName): Resource[] {
  const [first = '', ...rows] = dump.split('\n').filter(Boolean)
  const [, publicKey = '', port] = first.split('\t')
  const now = Math.floor(Date.now() / 1000)
  const device: Wgdevice = { kind: 'wgdevice', ns: 'host', dev, port: Number(port), publicKey }
  return [device, ...rows.map((row) => peerOf(row.split('\t'), dev, now))]
}

function peerOf(
  [key = '', psk = NONE, endpoint = NONE, allowed = NONE, at, , , keepalive]: string[],
  dev: IfName,
  now: number,
) {
  const handshake = Number(at)
  // The kernel follows a connected peer to another address by itself. A handshake in the future says nothing: somebody
  // has set the clock back.
  const isConnected = handshake <= now && now - handshake < CONNECTED_S
  const peer: Wgpeer = {
    kind: 'wgpeer',
    ns: 'host',
    dev,
    publicKey: key,
    ...(isConnected ? {} : { endpoint: endpoint === NONE ? '' : endpoint }),
    allowed: allowed === NONE ? [] : (allowed.split(',') as Cidr[]),
    keepalive: keepalive === 'off' ? 0 : Number(keepalive),
    ...(psk === NONE ? {} : { psk: new Secret(psk) }),
    handshake,
  }
  return peer
}
