import * as v from 'valibot'
import { type Attachment, definePlugin } from '../lib/cni/plugin.ts'
import type { Dns, IpConfig, Result } from '../lib/cni/result.ts'
import { addressStore, heldIn } from '../lib/pools/addresses.ts'
import { ipOrNone, onePerFamily, routesShape } from '../lib/pools/configuration.ts'
import { type RangeConf, type RangeSet, readRangeSets, type SetConf } from '../lib/pools/ranges.ts'
import { readResolv } from '../lib/pools/resolv.ts'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { type Ip, parseIp } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'

const DATA_DIR = '/var/lib/cni/networks'
const ips = v.optional(v.array(field.by(wantedIp)), [])
const range = { rangeStart: ipOrNone, rangeEnd: ipOrNone, gateway: ipOrNone }
const ranges = v.optional(v.array(v.array(v.object({ subnet: field.cidr, ...range }))), [])

// Allows unknown keys at the top: a pool gets the whole configuration of the plugin that delegates to it.
const conf = v.looseObject({
  ...common,
  ipam: v.object({
    type: v.optional(field.text, ''),
    subnet: v.exactOptional(field.cidr),
    ...range,
    ranges,
    routes: routesShape,
    dataDir: v.optional(field.path, DATA_DIR),
    resolvConf: v.exactOptional(field.path),
    // A key of plumb only: the seconds before a freed address is given out again.
    cooldown: v.optional(field.int(0, 31_536_000), 0),
  }),
  runtimeConfig: v.optional(v.looseObject({ ipRanges: ranges, ips }), {}),
  args: v.optional(v.looseObject({ cni: v.optional(v.looseObject({ ips }), {}) }), {}),
})
type Conf = v.InferOutput<typeof conf>

/**
 * The plugin `host-local`: addresses from configured ranges. They are kept on this node's disk in the layout of the
 * reference plugin host-local.
 */
export default definePlugin<Conf>({
  role: 'ipam',
  about: 'plumb host-local: gives out addresses of configured ranges, kept on this node',
  conf,
  args: ['IP'],
  pool(some, at) {
    const { ipam } = some
    const store = addressStore(ipam?.dataDir || DATA_DIR, at.network, ipam?.cooldown ?? 0)
    let read: Asked | undefined
    const asked = () => (read ??= readAsked(some, at))
    return {
      valid: () => void asked(),
      async take(owner, former) {
        const { wanted, sets, dns } = asked()
        return resultOf(
          await store.orAfterBoot((left) =>
            store.take(owner, sets, wanted, [...heldIn(left, owner), ...(former ?? [])]),
          ),
          some,
          dns,
        )
      },
      async foresee(owner, isFreed) {
        const { wanted, sets, dns } = asked()
        const { ips, why } = await store.orAfterBoot((left) => store.foresee(owner, sets, wanted, isFreed, left), true)
        return { result: resultOf(ips, some, dns), why }
      },
      release: (owner) => store.release(owner),
      holds: (owner) => store.holds(owner),
      keepOnly: (owners) => store.keepOnly(owners),
      ready: () => store.orAfterBoot(() => store.ready(setsOf(some, []))),
    }
  },
})

function resultOf(ips: readonly IpConfig[], { ipam }: Partial<Conf>, dns: Dns | undefined): Result {
  return { ips, ...(ipam?.routes.length ? { routes: ipam.routes } : {}), ...(dns ? { dns } : {}) }
}

/** The request of a call to the pool. All of it is checked before an address is taken. */
interface Asked {
  readonly wanted: readonly Ip[]
  readonly sets: readonly RangeSet[]
  readonly dns: Dns | undefined
}

function readAsked(some: Partial<Conf>, at: Attachment): Asked {
  const wanted = wantedBy(some, at)
  const sets = setsOf(some, wanted)
  return { wanted, sets, dns: some.ipam?.resolvConf ? readResolv(some.ipam.resolvConf) : undefined }
}

// As upstream: all three sources count, in this order. podman sends the same address in two of them.
function wantedBy({ args, runtimeConfig }: Partial<Conf>, at: Attachment): Ip[] {
  const all = [fromEnv(at.args.get('IP') ?? ''), ...(args?.cni?.ips ?? []), ...(runtimeConfig?.ips ?? [])]
  return [...new Set(all)].filter((one) => one !== undefined)
}

function fromEnv(text: string): Ip | undefined {
  try {
    return wantedIp(text)
  } catch (cause) {
    throw new CniError(CODE.env, `Cannot read IP of CNI_ARGS ${(cause as Error).message}`, '', { cause })
  }
}

// A prefix length is allowed and ignored. The length of the range counts.
function wantedIp(text: unknown): Ip | undefined {
  if (text === '') return undefined
  const [, address, length] = (typeof text === 'string' && /^([^/]+)\/(\d{1,3})$/.exec(text)) || []
  return parseIp(address !== undefined && Number(length) <= 128 ? address : text)
}

function setsOf(
  { cniVersion = '0.1.0', ipam, runtimeConfig }: Partial<Conf>,
  wanted: readonly Ip[],
): readonly RangeSet[] {
  const several = (key: string, given: readonly (readonly RangeConf[])[] = []) =>
    given.map((one, i): SetConf => ({ at: `${key}[${i}]`, ranges: one }))
  const flat: SetConf[] = ipam?.subnet ? [{ at: 'ipam', ranges: [{ ...ipam, subnet: ipam.subnet }], flat: true }] : []
  const sets = readRangeSets(
    [...several('runtimeConfig.ipRanges', runtimeConfig?.ipRanges), ...flat, ...several('ipam.ranges', ipam?.ranges)],
    wanted,
  )
  if (sets.length === 0)
    throw new ValueError('Cannot read ipam: no IP ranges specified; want "ranges": [[{"subnet": "10.1.0.0/24"}]]')
  onePerFamily(
    cniVersion,
    sets.flatMap(({ ranges }) => ranges[0]?.subnet ?? []),
    'ipam.ranges',
    'range set',
  )
  return sets
}
