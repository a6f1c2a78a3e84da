import * as v from 'valibot'
import { type Attachment, definePlugin } from '../lib/cni/plugin.ts'
import type { Result, RouteConfig } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { Unreachable } from '../lib/os/ask.ts'
import { remove } from '../lib/os/files.ts'
import { listFiles, readText } from '../lib/os/reading.ts'
import { askDaemon, leaseName, leasesOf, SOCKET, type Wants } from '../lib/pools/dhcp.ts'
import { releaseLease } from '../lib/pools/dhcp-release.ts'
import { readLeaseFile } from '../lib/pools/lease-file.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { common, field } from '../lib/text/shape.ts'
import { brief, byteLength, type NetnsPath } from '../lib/text/values.ts'

/** The option names of dhcp-options(5) that the reference plugin knows, with their numbers. */
const NAMES: Readonly<Record<string, number>> = {
  'dhcp-client-identifier': 61,
  'subnet-mask': 1,
  routers: 3,
  'host-name': 12,
  'user-class': 77,
  'vendor-class-identifier': 60,
}
/**
 * The options that are requested without `skipDefault`. Classless routes come first (RFC 3442), then mask, router, DNS,
 * domain, MTU, static routes, search list.
 */
const DEFAULTS = [121, 1, 3, 6, 15, 26, 33, 119]
// The length of an option is one byte. A server may fail to join the pieces of a longer value.
const LONGEST = 255
/** Time limit of a call that asks no DHCP server. */
const SOON_MS = 3000
/** ADD waits as long as the daemon tries. It gives up after this time without a sign of life from the daemon. */
const QUIET_MS = 10_000

const option = field.by((value) => {
  const number = numberOf(value)
  if (number === undefined || !Number.isInteger(number) || number < 1 || number > 254)
    throw new ValueError(
      `${shown(value)}: want the number of a DHCP option, 1 to 254, or one of ${Object.keys(NAMES).join(', ')}`,
    )
  return number
})
const text = field.by((value) => {
  if (typeof value !== 'string' || byteLength(value) > LONGEST)
    throw new ValueError(`${shown(value)}: want a string of at most ${LONGEST} bytes`)
  return value
})
const provided = v.object({ option, value: v.optional(text, ''), fromArg: v.optional(field.text, '') })
const requested = v.object({ option: v.exactOptional(option), skipDefault: v.optional(field.flag, false) })

const ipam = v.object({
  type: v.optional(field.text, ''),
  daemonSocketPath: v.optional(
    field.by((value) => (value === '' ? SOCKET : absolute(value))),
    SOCKET,
  ),
  request: v.optional(v.array(requested), []),
  provide: v.optional(v.array(provided), []),
  priority: v.optional(field.int(0, 0xffffffff), 0),
  suppress: v.optional(v.array(field.word('gateway')), []),
  // A key of plumb only: the reference plugin serves IPv4 alone.
  families: v.optional(v.array(field.word('ipv4', 'ipv6')), ['ipv4']),
})
// Allows unknown keys at the top: a pool gets the whole configuration of the plugin that delegates to it.
const conf = v.looseObject({ ...common, ipam })
type Conf = v.InferOutput<typeof conf>

/**
 * The plugin `dhcp` (upstream plugins/ipam/dhcp): addresses of a DHCP server on the container's link. The daemon `plumb
 * dhcp` gets and keeps the leases.
 */
export default definePlugin<Conf>({
  role: 'lease',
  about: 'CNI plugin dhcp: an address of a DHCP server, which the daemon "plumb dhcp" gets and keeps',
  conf,
  valid: (conf, env) => void wantsOf(conf.ipam, env),
  async add({ ipam }, at, env) {
    const { result = {} } = await askDaemon(
      ipam.daemonSocketPath,
      { verb: 'add', owner: owner(at), netns: at.netns as NetnsPath, wants: wantsOf(ipam, env) },
      QUIET_MS,
    )
    return shaped(result, ipam)
  },
  async check({ ipam, prevResult, cniVersion }, at) {
    const { result = {} } = await askDaemon(ipam.daemonSocketPath, { verb: 'check', owner: owner(at) }, SOON_MS)
    if (prevResult) agree(result, decode(prevResult, cniVersion), at)
  },
  async del({ ipam }, at) {
    const daemonSocketPath = ipam?.daemonSocketPath ?? SOCKET
    try {
      await askDaemon(daemonSocketPath, { verb: 'del', owner: owner(at) }, SOON_MS)
    } catch (cause) {
      if (!(cause instanceof Unreachable)) throw cause
      await withoutDaemon(`${leasesOf(daemonSocketPath)}/${leaseName(at)}`)
    }
  },
  async gc({ ipam, name }, keep) {
    const { daemonSocketPath: socket } = ipam
    try {
      await askDaemon(socket, { verb: 'gc', network: name, keep }, SOON_MS)
    } catch (cause) {
      if (!(cause instanceof Unreachable)) throw cause
      const kept = new Set(keep.map(leaseName))
      for (const file of listFiles(leasesOf(socket)))
        if (file.startsWith(`${brief(name)}:`) && !kept.has(file)) await withoutDaemon(`${leasesOf(socket)}/${file}`)
    }
  },
  async status({ ipam }) {
    await askDaemon(ipam.daemonSocketPath, { verb: 'status' }, SOON_MS).catch((cause: CniError) => {
      throw new CniError(CODE.notReady, cause.message, cause.details, { cause })
    })
  },
})

function absolute(value: unknown): string {
  // The path in struct sockaddr_un has 108 bytes. The last byte is zero.
  if (typeof value !== 'string' || !/^\/[^\0]*$/.test(value) || byteLength(value) > 107)
    throw new ValueError(`${shown(value)}: want the absolute path of a socket, at most 107 bytes`)
  return value
}

function numberOf(value: unknown): number | undefined {
  if (typeof value === 'number') return value
  if (typeof value === 'string' && Object.hasOwn(NAMES, value)) return NAMES[value]
  return /^\d{1,3}$/.test(String(value)) ? Number(value) : undefined
}

function owner({ network, containerId, ifname }: Attachment): Pick<Attachment, 'network' | 'containerId' | 'ifname'> {
  return { network, containerId, ifname }
}

/**
 * As upstream: one `skipDefault` drops all default options. A value of CNI_ARGS wins over `value`. Throws CniError 4
 * and ValueError.
 */
function wantsOf({ request, provide, families }: Conf['ipam'], env: string): Wants {
  const named = request.flatMap(({ option }) => option ?? [])
  const args = new Map<string, string>()
  for (const pair of env.split(';')) {
    const at = pair.indexOf('=')
    if (at >= 0) args.set(pair.slice(0, at), pair.slice(at + 1))
  }
  const asked = request.some(({ skipDefault }) => skipDefault) ? named : [...DEFAULTS, ...named]
  const provided = provide.flatMap(({ option, value, fromArg }) => {
    const given = args.get(fromArg) ?? value
    if (byteLength(given) > LONGEST) {
      const what = `${shown(given)} of CNI_ARGS ${shown(fromArg)} as DHCP option ${option}`
      throw new CniError(CODE.env, `Cannot send ${what}: want at most ${LONGEST} bytes`)
    }
    return given === '' ? [] : [[option, given] as const]
  })
  if (families.length === 0) throw new ValueError('Cannot read ipam.families []: want "ipv4", "ipv6" or both')
  return {
    families: [...new Set(families)].map((one) => (one === 'ipv4' ? 4 : 6)),
    request: [...new Set(asked)],
    provide: provided,
  }
}

function shaped({ ips = [], routes = [], ...rest }: Result, { priority, suppress }: Conf['ipam']): Result {
  const bare = suppress.includes('gateway')
  const kept = routes
    .filter(({ dst }) => !bare || !dst.endsWith('/0'))
    .map((route): RouteConfig => ({ ...route, ...(priority ? { priority } : {}) }))
  return {
    ips: bare ? ips.map(({ gateway: _, ...ip }) => ip) : ips,
    ...(kept.length > 0 ? { routes: kept } : {}),
    ...rest,
  }
}

function agree({ ips = [] }: Result, previous: Result, { ifname, containerId }: Attachment): void {
  const missing = ips.find(({ address }) => !previous.ips?.some((ip) => ip.address === address))
  if (!missing) return
  const given = previous.ips?.map(({ address }) => address).join(', ') || 'no address'
  throw new CniError(
    CODE.internal,
    `Cannot confirm ${ifname} of container ${containerId}: its lease is ${missing.address}`,
    `that is not in the result of ADD, which has ${given}; delete the pod`,
  )
}

/**
 * Does the daemon's work while the daemon is down: releases the lease at its server, and removes the lease file. The
 * release is sent once, without waiting for an answer.
 */
async function withoutDaemon(path: string): Promise<void> {
  // A file that is no valid lease is only removed. Its server takes the address back when the lease ends.
  const lease = readLeaseFile(readText(path))
  if (lease) await releaseLease(lease)
  remove(path)
}
