import * as v from 'valibot'
import { dnsShape } from '../lib/cni/dns.ts'
import { argument } from '../lib/cni/environment.ts'
import { type Attachment, definePlugin } from '../lib/cni/plugin.ts'
import type { IpConfig, Result } from '../lib/cni/result.ts'
import { ipOrNone, onePerFamily, routesShape } from '../lib/pools/configuration.ts'
import { contains, isSix } from '../lib/text/cidr.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { parseCidr, parseIp } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'

const address = field.whole(v.object({ address: field.cidr, gateway: ipOrNone }), ({ address, gateway }) => {
  if (gateway !== undefined && isSix(gateway) !== isSix(address))
    throw new ValueError(`gateway ${shown(gateway)}: want an address of the family of ${address}`)
})
// podman sends an empty string when nobody requested an address.
const ips = v.optional(v.array(field.by((text) => (text === '' ? undefined : parseCidr(text)))), [])

// Allows unknown keys at the top: a pool gets the whole configuration of the plugin that delegates to it.
const conf = v.looseObject({
  ...common,
  ipam: v.object({
    type: v.optional(field.text, ''),
    addresses: v.optional(v.array(address), []),
    routes: routesShape,
    dns: dnsShape,
  }),
  runtimeConfig: v.optional(v.looseObject({ ips }), {}),
  args: v.optional(v.looseObject({ cni: v.optional(v.looseObject({ ips }), {}) }), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `static` (upstream plugins/ipam/static): addresses that configuration or runtime name. Stores nothing. */
export default definePlugin<Conf>({
  role: 'ipam',
  about: 'CNI plugin static: gives every caller the addresses that its configuration or the runtime names',
  conf,
  args: ['IP', 'GATEWAY'],
  pool(some, at) {
    const { routes = [], dns } = some.ipam ?? {}
    const take = (): Result => ({
      ips: addressesOf(some, at),
      ...(routes.length > 0 ? { routes } : {}),
      ...(dns ? { dns } : {}),
    })
    return {
      valid() {
        if (addressesOf(some, at).length > 0) return
        const byRuntime = 'one by the runtime: runtimeConfig.ips, args.cni.ips, IP in CNI_ARGS'
        const wish = `want at least one, such as {"address": "10.1.0.2/24"}, or ${byRuntime}`
        throw new ValueError(`Cannot read ipam.addresses []: ${wish}`)
      },
      take,
      foresee: () => ({ result: take(), why: 'as configured' }),
      release() {},
      holds: () => true,
      check(previous) {
        for (const one of addressesOf(some, at)) confirm(one, previous, at)
      },
      keepOnly() {},
      ready() {},
    }
  },
})

/**
 * As upstream: `runtimeConfig.ips` wins over `args.cni.ips`. Both win over the addresses of configuration and CNI_ARGS.
 */
function addressesOf({ cniVersion = '0.1.0', ipam, args, runtimeConfig }: Partial<Conf>, at: Attachment): IpConfig[] {
  const own = [
    ...(ipam?.addresses ?? []),
    ...(argument(at, 'IP', listOf(parseCidr)) ?? []).map((address): IpConfig => ({ address })),
  ]
  const gateways = argument(at, 'GATEWAY', listOf(parseIp)) ?? []
  const wanted = [runtimeConfig?.ips, args?.cni?.ips]
    .map((some = []) => some.filter((one) => one !== undefined))
    .find((some) => some.length > 0)
  const all =
    wanted?.map((address): IpConfig => ({ address })) ??
    own.map((one) => withGateway(one.address, one.gateway ?? gateways.findLast((ip) => contains(one.address, ip))))
  const addresses = all.map(({ address }) => address)
  onePerFamily(cniVersion, addresses, 'ipam.addresses', 'address')
  return all
}

function withGateway(address: IpConfig['address'], gateway: IpConfig['gateway'] | undefined): IpConfig {
  return { address, ...(gateway === undefined ? {} : { gateway }) }
}

function listOf<T>(parser: (text: unknown) => T): (text: string) => T[] {
  return (text) => text.split(',').map((one) => parser(one.trim()))
}

/**
 * Throws CniError for an address that ADD did not give, or gave with another gateway. An address that is configured
 * without a gateway may have any gateway.
 */
function confirm({ address, gateway }: IpConfig, { ips = [] }: Result, { ifname, containerId }: Attachment): void {
  const given = ips.filter((ip) => ip.address === address)
  if (given.some((ip) => gateway === undefined || ip.gateway === gateway)) return
  const [other] = given
  const failed = `Cannot confirm ${address} on ${ifname} of container ${containerId}`
  const advice = 'the configuration changed; delete the pod'
  if (other) {
    const why = `ADD gave it the gateway ${other.gateway ?? 'none'}, want ${gateway}`
    throw new CniError(CODE.internal, `${failed}: ${why}`, advice)
  }
  const had = ips.map((ip) => ip.address).join(', ') || 'no address'
  throw new CniError(CODE.internal, `${failed}: it is not in the result of ADD`, `that has ${had}; ${advice}`)
}
