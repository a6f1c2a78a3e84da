import * as v from 'valibot'
import { chooseDns } from '../lib/cni/dns.ts'
import { within, withinKeys } from '../lib/cni/fused.ts'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import type { IpConfig, Result } from '../lib/cni/result.ts'
import { MASQUERADE, masquerade } from '../lib/nft/masquerade.ts'
import { BLIND, NFT } from '../lib/os/batch-tools.ts'
import { rows } from '../lib/os/iproute2.ts'
import type { Run } from '../lib/os/run.ts'
import { listed } from '../lib/os/show.ts'
import type { LinkRow } from '../lib/state/kinds/link.ts'
import type { Resource } from '../lib/state/resource.ts'
import { missingForeignMasquerade, removeForeignMasquerade, removeForeignVeth } from '../lib/takeover/links.ts'
import { contains, isSix } from '../lib/text/cidr.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { type Cidr, split } from '../lib/text/ip.ts'
import { hostVeth } from '../lib/text/link-names.ts'
import { aliasPrefix } from '../lib/text/owner.ts'
import { field } from '../lib/text/shape.ts'
import { notForwarding } from '../lib/wiring/forwarding.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { gatewayOf, podSide } from '../lib/wiring/pod.ts'
import { guardedGateways, hostSide, isRoutedGateway, ROUTED, routed } from '../lib/wiring/routed.ts'
import { mute, vethPair } from '../lib/wiring/veth.ts'

const conf = v.object({
  ipMasq: v.optional(field.flag, false),
  // plumb uses nft for both backends. The packets leave the node the same.
  ipMasqBackend: v.exactOptional(field.word('', 'iptables', 'nftables')),
  // 0: the kernel's default.
  mtu: v.optional(field.int(0, 65535), 0),
  // A key of plumb only: the pod gets its address alone, and a gateway that is the same in each pod.
  routed: v.optional(field.flag, false),
  ...linkKeys,
  ...withinKeys,
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `ptp` (upstream plugins/main/ptp). */
export default definePlugin<Conf>({
  role: 'interface',
  about: 'CNI plugin ptp: a veth pair from the container to the node, which routes for it',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['IP', 'GATEWAY'],
  wire,
  within,
  tools: ({ ipMasq, routed }) => [BLIND, ...(ipMasq || routed ? [NFT] : [])],
  links: ({ mtu }, at, node) => [vethPair(at, mtu, {}, node).host],
  unwire: (owner) => [{ kind: 'link', ns: 'host', name: hostVeth(owner), type: 'veth', up: true }],
  async unwireForeign({ ipMasq }, at, run) {
    await removeForeignVeth(at, ({ master }) => master === undefined, run)
    if (ipMasq !== false) await removeForeignMasquerade(at, run)
  },
  async checkForeign({ ipMasq }, at, { ips = [] }, run) {
    if (!ipMasq) return []
    const addresses = ips.map(({ address }) => address)
    return missingForeignMasquerade(at, addresses, run)
  },
  status,
})

/**
 * The resources of one pod. The node has the gateway addresses and a route to each pod address. The pod has only routes
 * through the gateways. Pure.
 */
function wire(conf: Conf, at: Attachment, pooled: Result, node: NodeFacts): Wiring {
  const { host, pod, shown } = vethPair(at, conf.mtu, pooled, node)
  const given = conf.routed ? routed(pooled) : pooled
  const ips = (given.ips ?? []).map((ip): IpConfig => ({ ...ip, interface: 1, gateway: reachable(ip) }))
  const noted = [
    // The subnet of the pool keeps the pod's address, also when the pod has its address alone.
    ...(conf.ipMasq
      ? [
          {
            type: MASQUERADE,
            own: masquerade(
              at,
              (pooled.ips ?? []).map(({ address }) => address),
            ),
          },
        ]
      : []),
    ...(conf.routed ? [{ type: ROUTED, own: guardedGateways(at, ips) }] : []),
  ]
  const set = (name: string, value: string): Resource => ({ kind: 'sysctl', ns: 'host', name, value, optional: true })
  // A router sends no neighbour solicitations before its link-local address passes duplicate address detection
  // (ndisc_solicit). The pod would be unreachable for two seconds.
  const routing = [set(`ipv6/conf/${host.name}/accept_ra`, '0'), set(`ipv6/conf/${host.name}/accept_dad`, '0')]
  const isPlain = ips.length > 0 && !ips.some(({ address }) => isSix(address))
  const forwarding = [set('ipv4/ip_forward', '1'), set('ipv6/conf/all/forwarding', '1')].filter((_, i) =>
    ips.some(({ address }) => isSix(address) === (i === 1)),
  )
  return {
    shared: [...forwarding],
    own: [
      host,
      ...(isPlain ? [mute(host)] : routing),
      ...hostSide(host.name, ips, conf.routed),
      ...(ips.length > 0 ? podSide(pod, { ...given, ips }, false, true) : [pod]),
    ],
    ...(noted.length > 0 && { noted }),
    result: {
      interfaces: shown,
      ips,
      ...(given.routes ? { routes: given.routes } : {}),
      ...chooseDns(conf.dns, given.dns),
    },
  }
}

// The gateway address belongs to the node, so it must differ from the pod's address. Throws CniError 7.
function reachable(ip: IpConfig): NonNullable<IpConfig['gateway']> {
  const [own, gateway] = [split(ip.address).ip, gatewayOf(ip)]
  if (gateway !== own && isSix(gateway) === isSix(own) && (ip.gateway !== undefined || contains(ip.address, gateway)))
    return gateway
  throw new CniError(
    CODE.config,
    `Cannot route ${ip.address} through the gateway ${ip.gateway ?? 'that its subnet would have'}`,
    `want a gateway of the same family that is not ${own}; the pool has to name one`,
  )
}

/**
 * Throws CniError 51 when the node does not forward the packets of the network's pods. Without proof of this the
 * network is ready.
 */
async function status({ name, ipam }: Conf, run: Run): Promise<void> {
  if (!ipam.type) return
  const links = (rows(await listed(['ip', '-d', '-j', 'addr', 'show'], run)).flat() as LinkRow[]).filter(
    ({ ifalias }) => ifalias?.startsWith(aliasPrefix(name)),
  )
  const held = links.flatMap(({ addr_info }) =>
    addr_info.flatMap(({ local, prefixlen, scope }) =>
      scope === 'link' && !isRoutedGateway(local) ? [] : (`${local}/${prefixlen}` as Cidr),
    ),
  )
  const shut = notForwarding(held)
  if (shut.length > 0)
    throw new CniError(
      CODE.limited,
      `Pods of network ${name} reach only the node: it does not forward`,
      `sysctl ${shut.map((one) => `net/${one}`).join(', ')} is 0; the next ADD sets it to 1`,
    )
}
