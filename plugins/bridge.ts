import * as v from 'valibot'
import { chooseDns } from '../lib/cni/dns.ts'
import { argument } from '../lib/cni/environment.ts'
import { within, withinKeys } from '../lib/cni/fused.ts'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import { type IpConfig, previous, type Result } from '../lib/cni/result.ts'
import { MASQUERADE, masquerade } from '../lib/nft/masquerade.ts'
import { BLIND, NFT } from '../lib/os/batch-tools.ts'
import type { Addr } from '../lib/state/kinds/addr.ts'
import type { Link } from '../lib/state/kinds/link.ts'
import type { Resource } from '../lib/state/resource.ts'
import {
  missingForeignMasquerade,
  missingForeignSpoofCheck,
  removeForeignMasquerade,
  removeForeignSpoofCheck,
  removeForeignVeth,
} from '../lib/takeover/links.ts'
import { isSix } from '../lib/text/cidr.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { type Cidr, split } from '../lib/text/ip.ts'
import { bridgeMac, gatewayMacs, gatewayPort, hostMac, hostVeth, podMac } from '../lib/text/link-names.ts'
import { alias } from '../lib/text/owner.ts'
import { field } from '../lib/text/shape.ts'
import { type IfName, type Mac, type NetnsPath, parse } from '../lib/text/values.ts'
import { bridgeReady, settling } from '../lib/wiring/bridge.ts'
import { linkKeys } from '../lib/wiring/link-keys.ts'
import { nodeFacts } from '../lib/wiring/node-facts.ts'
import { defaultRoutes, gatewayOf, podSide } from '../lib/wiring/pod.ts'
import { mute } from '../lib/wiring/veth.ts'
import { portVlans, trunkShape, vlanId } from '../lib/wiring/vlans.ts'

const mac = field.filled(parse.mac)
const off = v.optional(field.flag, false)

const keys = v.object({
  bridge: v.optional(
    field.by((text) => (text === '' ? ('cni0' as IfName) : parse.ifname(text))),
    'cni0',
  ),
  isGateway: off,
  isDefaultGateway: off,
  forceAddress: off,
  ipMasq: off,
  // plumb uses nft for both backends. The packets leave the node the same.
  ipMasqBackend: v.exactOptional(field.word('', 'iptables', 'nftables')),
  // 0: the kernel's default. 65535 is the largest MTU of a veth.
  mtu: v.optional(field.int(0, 65535), 0),
  hairpinMode: off,
  promiscMode: off,
  vlan: v.optional(vlanId, 0),
  vlanTrunk: v.optional(trunkShape, []),
  preserveDefaultVlan: off,
  macspoofchk: off,
  enabledad: off,
  disableContainerInterface: off,
  portIsolation: off,
  ...linkKeys,
  ...withinKeys,
  runtimeConfig: v.optional(v.looseObject({ mac }), {}),
  args: v.optional(v.looseObject({ cni: v.optional(v.looseObject({ mac }), {}) }), {}),
})
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, ({ hairpinMode, promiscMode, disableContainerInterface, ipam }) => {
  if (hairpinMode && promiscMode)
    throw new ValueError(
      'cannot set hairpin mode and promiscuous mode at the same time: want "hairpinMode" or "promiscMode", not both',
    )
  if (disableContainerInterface && ipam.type) {
    const fact = 'cannot use IPAM when DisableContainerInterface flag is set'
    throw new ValueError(`${fact}: want "ipam" or "disableContainerInterface", not both`)
  }
})

/** The plugin `bridge` (upstream plugins/main/bridge). */
export default definePlugin<Conf>({
  role: 'interface',
  about: 'CNI plugin bridge: a veth pair from the container to a bridge on the node',
  conf,
  // The pool reads IP and GATEWAY from the same variable.
  args: ['MAC', 'IP', 'GATEWAY'],
  wire,
  within,
  tools: ({ ipMasq, vlan }) => [...(vlan ? [BLIND] : []), ...(ipMasq ? [NFT] : [])],
  links(conf, at, node) {
    const { bridge, port } = links(conf, at, {}, node)
    return [bridge, port]
  },
  holders: (conf) =>
    conf.vlan && (conf.isGateway || conf.isDefaultGateway) ? [gatewayName(conf.bridge, conf.vlan)] : [],
  unwire: (owner) => [{ kind: 'link', ns: 'host', name: hostVeth(owner), type: 'veth', up: true }],
  async unwireForeign({ bridge, ipMasq, macspoofchk }, at, run) {
    await removeForeignVeth(at, ({ master }) => master !== undefined && master === (bridge ?? master), run)
    if (ipMasq !== false) await removeForeignMasquerade(at, run)
    if (macspoofchk !== false) await removeForeignSpoofCheck(at, run)
  },
  async checkForeign(conf, at, given, run) {
    const { port, mac } = links(conf, at, given, nodeFacts)
    const addresses = (given.ips ?? []).map(({ address }) => address)
    return [
      ...(conf.ipMasq ? await missingForeignMasquerade(at, addresses, run) : []),
      ...(conf.macspoofchk ? await missingForeignSpoofCheck(at, port.name, mac, run) : []),
    ]
  },
  unwireLost: async (run) => removeForeignSpoofCheck(undefined, run),
  async status({ bridge, vlan, isGateway, isDefaultGateway }, run) {
    if (!isGateway && !isDefaultGateway) await bridgeReady(bridge, undefined, run)
    else await bridgeReady(bridge, vlan ? gatewayName(bridge, vlan) : bridge, run)
  },
})

/**
 * The resources of one pod. The node has a bridge with its gateway addresses and one port. The pod has the other end of
 * the port. Pure.
 */
function wire(conf: Conf, at: Attachment, given: Result, node: NodeFacts): Wiring {
  const gateway = conf.isGateway || conf.isDefaultGateway
  // The plugin firewall isolates ports, too. `links` then leaves its setting as it is.
  const link = links(conf, at, given, node, node.noted?.('firewall', at))
  const { ips = [], routes = [] } = given
  const addresses = ips.map(({ address }) => address)
  const addressed: IpConfig[] = ips.map((ip) => ({
    ...ip,
    interface: 2,
    ...(gateway ? { gateway: gatewayOf(ip) } : {}),
  }))
  const plan = {
    ips: addressed,
    routes: conf.isDefaultGateway ? [...routes, ...defaultRoutes(addressed, routes)] : routes,
  }
  const holder = conf.vlan && gateway ? gatewayLink(conf, node, Boolean(given.interfaces?.length)) : undefined
  const dev = holder?.name ?? conf.bridge
  const gatewayAddress = (ip: IpConfig): Addr => {
    const cidr = `${gatewayOf(ip)}/${split(ip.address).length}` as Cidr
    return { kind: 'addr', ns: 'host', dev, cidr }
  }
  const gateways = gateway ? addressed.map(gatewayAddress) : []
  const pod: Link = {
    kind: 'link',
    ns: at.netns as NetnsPath,
    name: at.ifname,
    type: 'peer',
    mac: link.mac,
    ...link.podMtu,
    up: true,
  }
  const own: Resource[] = [link.port, mute(link.port), ...portVlans(link.port.name, conf)]
  if (conf.macspoofchk) own.push({ kind: 'fdb', ns: 'host', dev: link.port.name, mac: link.mac })
  if (ips.length > 0) own.push(...podSide(pod, plan, conf.enabledad))
  else if (!conf.disableContainerInterface) own.push(pod)
  const result = (mac: string | undefined, mtu: number | undefined): Result => ({
    interfaces: [
      { name: conf.bridge, ...(mac ? { mac } : {}), ...(mtu ? { mtu } : {}) },
      { name: link.port.name, mac: link.port.mac as Mac, mtu: conf.mtu || VETH_MTU },
      { name: at.ifname, mac: link.mac, mtu: conf.mtu || VETH_MTU, sandbox: pod.ns },
      ...(holder ? [{ name: holder.name, mac: holder.mac }] : []),
    ],
    ips: addressed,
    routes: plan.routes,
    ...chooseDns(conf.dns, given.dns),
  })
  const locked = conf.macspoofchk ? link.port.name : undefined
  const made = { bridge: link.bridge, holder: dev, gateways, isForced: conf.forceAddress, locked, result }
  return {
    shared: [link.bridge, ...forwarding(conf.bridge, addressed, gateway), ...(holder?.resources ?? [])],
    own,
    ...(conf.ipMasq && { noted: [{ type: MASQUERADE, own: masquerade(at, addresses) }] }),
    later: gateways,
    result: result(undefined, undefined),
    settle: (now) => settling(made, now),
  }
}

// The kernel's default MTU of a veth pair (veth_setup).
const VETH_MTU = 1500

/**
 * The bridge, the port, and the pod's MAC and MTU. CHECK uses the link names of ADD's result, because a reference
 * plugin may have made the links.
 */
function links(
  conf: Conf,
  at: Attachment,
  { interfaces = [] }: Result,
  node: NodeFacts,
  isMarked = false,
): { bridge: Link; port: Link; mac: Mac; podMtu: { mtu?: number } } {
  const made = {
    host: interfaces.find(({ name, sandbox }) => !sandbox && name !== conf.bridge),
    pod: interfaces.find(({ name, sandbox }) => sandbox && name === at.ifname),
  }
  const own = hostVeth(at)
  const asked = conf.runtimeConfig.mac ?? conf.args.cni.mac ?? argument(at, 'MAC', parse.mac)
  const mac = made.pod?.mac ? previous(parse.mac, made.pod.mac) : (asked ?? podMac(at, node))
  const mtu = (seen?: { readonly mtu?: number }) => (conf.mtu ? { mtu: seen?.mtu || conf.mtu } : {})
  return {
    mac,
    podMtu: mtu(made.pod),
    bridge: {
      kind: 'link',
      ns: 'host',
      name: conf.bridge,
      type: 'bridge',
      ...(interfaces.length === 0 ? { ...fixedMac(conf, at, node), ...mtu() } : {}),
      up: true,
      shared: true,
      ...(conf.promiscMode ? { promisc: true } : {}),
      ...(conf.vlan || conf.vlanTrunk.length > 0 ? { vlanFiltering: true } : {}),
    },
    port: {
      kind: 'link',
      ns: 'host',
      name: made.host ? previous(parse.ifname, made.host.name) : own,
      type: 'veth',
      mac: made.host?.mac ? previous(parse.mac, made.host.mac) : hostMac(at, node),
      ...mtu(made.host),
      ...(made.host && made.host.name !== own ? {} : { alias: alias(at) }),
      peer: { ns: at.netns as NetnsPath, name: at.ifname, mac },
      port: {
        master: conf.bridge,
        ...(conf.hairpinMode ? { hairpin: true } : {}),
        ...(conf.portIsolation || !isMarked ? { isolated: conf.portIsolation } : {}),
        locked: conf.macspoofchk,
      },
      up: true,
    },
  }
}

// The gateway of the pods must keep its MAC while ports come and go, also on a bridge of another program. Such a bridge
// keeps its MAC. It gets plumb's MAC only when its last port has left it without a MAC.
function fixedMac(
  { bridge, vlan, isGateway, isDefaultGateway }: Conf,
  at: Attachment,
  node: NodeFacts,
): Pick<Link, 'mac' | 'pinned'> {
  const own = bridgeMac(bridge, at, node)
  const floating = (isGateway || isDefaultGateway) && !vlan ? node.floatingMac?.(bridge) : undefined
  if (!floating) return { mac: own }
  return { mac: /^[0:]*$/.test(floating) ? own : floating, pinned: true }
}

function forwarding(bridge: IfName, ips: readonly IpConfig[], gateway: boolean): Resource[] {
  const set = (name: string, value: string): Resource => ({ kind: 'sysctl', ns: 'host', name, value, optional: true })
  const on = (six: boolean) => gateway && ips.some(({ address }) => isSix(address) === six)
  return [
    set(`ipv6/conf/${bridge}/accept_ra`, '0'),
    ...(on(false) ? [set('ipv4/ip_forward', '1')] : []),
    ...(on(true) ? [set('ipv6/conf/all/forwarding', '1')] : []),
  ]
}

/**
 * With a VLAN the gateway addresses are on a separate link, `<bridge>.<vlan>`. Its other end is a port of the bridge in
 * that VLAN. With `isMade` (CHECK) the MAC of the existing port is accepted.
 */
function gatewayLink(
  { bridge, vlan, mtu }: Conf,
  node: NodeFacts,
  isMade: boolean,
): { name: IfName; mac: Mac; resources: Resource[] } {
  const name = gatewayName(bridge, vlan)
  const port = gatewayPort(name)
  const macs = gatewayMacs(name, node)
  const vlans = portVlans(port, { vlan, vlanTrunk: [], preserveDefaultVlan: false })
  return {
    name,
    mac: macs.holder,
    resources: [
      {
        kind: 'link',
        ns: 'host',
        name: port,
        type: 'veth',
        ...(isMade ? {} : { mac: macs.port }),
        ...(mtu ? { mtu } : {}),
        peer: { ns: 'host', name, mac: macs.holder },
        port: { master: bridge },
        up: true,
        shared: true,
      },
      ...vlans.map((one) => ({ ...one, shared: true as const })),
      { kind: 'link', ns: 'host', name, type: 'peer', up: true },
    ],
  }
}

function gatewayName(bridge: IfName, vlan: number): IfName {
  try {
    return parse.ifname(`${bridge}.${vlan}`)
  } catch (cause) {
    const fact = `the link for them has the name ${(cause as Error).message}`
    throw new ValueError(`Cannot hold gateway addresses in VLAN ${vlan} of bridge ${shown(bridge)}: ${fact}`, { cause })
  }
}
