import * as v from 'valibot'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import { linkName, type Result } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { dropConditionChains, readConditions } from '../lib/nft/conditions.ts'
import { hostPorts, places, podAddresses, readProtocol, refuseTwice } from '../lib/nft/host-ports.ts'
import { NFT } from '../lib/os/batch-tools.ts'
import { has } from '../lib/os/exec.ts'
import type { Resource } from '../lib/state/resource.ts'
import { missingForeignPorts, removeForeignPorts } from '../lib/takeover/host-ports.ts'
import { isSix } from '../lib/text/cidr.ts'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { type Cidr, type Ip, parseIp, split } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'

const port = field.int(1, 65535)
const mapping = v.object({
  hostPort: port,
  containerPort: port,
  protocol: v.optional(field.by(readProtocol), 'tcp'),
  hostIP: field.filled(parseIp),
  range: v.optional(field.int(0, 65535), 1),
})

const keys = v.object({
  ...common,
  backend: v.exactOptional(field.word('', 'iptables', 'nftables')),
  snat: v.optional(field.flag, true),
  masqAll: v.optional(field.flag, false),
  markMasqBit: v.exactOptional(field.int(0, 31)),
  externalSetMarkChain: v.exactOptional(field.text),
  conditionsV4: v.exactOptional(field.by(readConditions(4))),
  conditionsV6: v.exactOptional(field.by(readConditions(6))),
  runtimeConfig: v.optional(v.looseObject({ portMappings: v.optional(v.array(mapping), []) }), {}),
})
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, (conf) => {
  const { backend, markMasqBit, externalSetMarkChain, conditionsV4, conditionsV6, runtimeConfig } = conf
  if (markMasqBit !== undefined && externalSetMarkChain)
    throw new ValueError('Cannot specify externalSetMarkChain and markMasqBit: want one of them, or neither')
  if (backend === 'nftables' && externalSetMarkChain) {
    const fact = 'it names a chain of iptables; want one of them, or neither'
    throw new ValueError(`Cannot use externalSetMarkChain with backend "nftables": ${fact}`)
  }
  if (backend === 'iptables' && (conditionsV4 || conditionsV6)) {
    const key = conditionsV4 ? 'conditionsV4' : 'conditionsV6'
    const wish = 'want backend "nftables", or none'
    throw new ValueError(`Cannot use ${key} in nft's syntax with backend "iptables": ${wish}`)
  }
  for (const { hostPort, containerPort, range } of runtimeConfig.portMappings) {
    const first = Math.max(hostPort, containerPort)
    if (first + range - 1 > 65535)
      throw new ValueError(`Cannot read runtimeConfig.portMappings: ${range} ports from ${first} on end above 65535`)
  }
  refuseTwice(runtimeConfig.portMappings)
})

/** The plugin `portmap` (upstream plugins/meta/portmap). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'portmap',
  fused: { key: 'portMappings', place: 1, capability: 'portMappings', asks: true, isList: true },
  about: 'CNI plugin portmap: ports of the node lead to ports of the container',
  conf,
  wire,
  tools: ({ runtimeConfig }) => (runtimeConfig.portMappings.length > 0 ? [NFT] : []),
  notes,
  async unwireForeign({ cniVersion = '0.1.0', prevResult, runtimeConfig }, at, run) {
    const { portMappings = [] } = runtimeConfig ?? {}
    const addresses = addressesOf(prevResult, cniVersion, at)
    await removeForeignPorts(at, { addresses, isMapped: portMappings.length > 0 }, run)
  },
  async checkForeign({ runtimeConfig }, at, given, run) {
    const pods = Object.fromEntries(
      podAddresses(given, at.ifname).map((address) => [isSix(address) ? 6 : 4, split(address).ip]),
    )
    return missingForeignPorts(at, places(runtimeConfig.portMappings), pods, run)
  },
  async unshare({ name }, run) {
    await dropConditionChains(name, run)
  },
  async status() {
    if (!has('nft'))
      throw new CniError(CODE.notReady, 'Cannot map ports: nft is not installed', 'install the package nftables')
  },
})

/** The resources of one attachment's port mappings. Pure. */
function wire(conf: Conf, at: Attachment, given: Result, node: NodeFacts): Wiring {
  const { portMappings } = conf.runtimeConfig
  const addresses = podAddresses(given, at.ifname)
  const own = hostPorts(at, portMappings, addresses, {
    // As upstream: without `snat`, `masqAll` has no effect.
    snat: !conf.snat ? 'never' : conf.masqAll ? 'always' : 'needed',
    conditions: {
      ...(conf.conditionsV4 ? { 4: conf.conditionsV4 } : {}),
      ...(conf.conditionsV6 ? { 6: conf.conditionsV6 } : {}),
    },
  })
  return { shared: own.length === 0 ? [] : links(conf, given, addresses, node), own, result: given }
}

/** The settings that the mappings need on the node's links to the pod. */
function links({ snat }: Conf, { interfaces = [] }: Result, addresses: readonly Cidr[], node: NodeFacts): Resource[] {
  const [bridge, port, inPod] = interfaces
  // A bridge plugin names in its result the bridge, its port and the pod's link, in this order.
  const isBridged =
    bridge !== undefined && !bridge.sandbox && port !== undefined && !port.sandbox && Boolean(inPod?.sandbox)
  const four = addresses.find((address) => !isSix(address))
  // Skips the ifb of the plugin bandwidth. It shapes the packets from the pod and is no way to the pod.
  const isIfb = (name: string) => name.startsWith('bwp') && /^bwp[0-9a-f]{12}$/.test(name)
  const named = interfaces
    .filter((one) => !one.sandbox && !(isBridged && one === port) && !isIfb(one.name))
    .map(linkName)
  const leading = four === undefined ? [] : named.length > 0 ? named : [node.deviceTo?.(split(four).ip) ?? []].flat()
  const all: Resource[] = []
  // The node's own processes use the port on 127.0.0.1. This works only over links that may carry that address.
  for (const dev of snat ? leading : [])
    all.push({ kind: 'sysctl', ns: 'host', name: `ipv4/conf/${dev}/route_localnet`, value: '1', optional: true })
  // With bridge netfilter, a pod may call its own host port. The packets return through the pod's own port, and this
  // needs hairpin mode.
  if (isBridged && node.bridgeNf) {
    const name = linkName(port)
    const settings = { master: linkName(bridge), hairpin: true }
    all.push({ kind: 'link', ns: 'host', name, type: 'port', port: settings, up: true })
  }
  return all
}

function addressesOf(prevResult: unknown, cniVersion: string, { ifname }: Attachment): Ip[] {
  try {
    return podAddresses(decode(prevResult, cniVersion), ifname).map((address) => split(address).ip)
  } catch {
    // DEL works without the addresses.
    return []
  }
}

function notes({ backend, markMasqBit, externalSetMarkChain }: Conf): string[] {
  const unused = [
    ...(backend === 'iptables' ? ['"backend": "iptables"'] : []),
    ...(markMasqBit === undefined ? [] : ['"markMasqBit"']),
    ...(externalSetMarkChain ? ['"externalSetMarkChain"'] : []),
  ]
  return unused.map(
    (key) => `${key} is not used: portmap works with nftables and its own rules, and the packets come out the same`,
  )
}
