import * as v from 'valibot'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import { linkName, type Result } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { entries } from '../lib/journal/journal.ts'
import { ADMIN, adminChain, guarded, passages, readAdmin } from '../lib/nft/firewall.ts'
import { removeChain } from '../lib/nft/forward-chain.ts'
import { NFT } from '../lib/os/batch-tools.ts'
import { has } from '../lib/os/exec.ts'
import { apply } from '../lib/state/apply.ts'
import { CHAIN } from '../lib/state/kinds/passage.ts'
import type { Zoned } from '../lib/state/kinds/zoned.ts'
import { differences } from '../lib/state/observe.ts'
import type { Resource } from '../lib/state/resource.ts'
import { missingForeignRules, removeForeignRules } from '../lib/takeover/firewall-rules.ts'
import { hostCidr } from '../lib/text/cidr.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { type Cidr, split } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'
import type { IfName } from '../lib/text/values.ts'
import { nodeFacts } from '../lib/wiring/node-facts.ts'

const ZONE = 'trusted'

const conf = v.object({
  ...common,
  // plumb uses nft for all backends. For firewalld it also puts the pod's addresses into a zone.
  backend: v.exactOptional(field.word('', 'iptables', 'firewalld', 'nftables')),
  iptablesAdminChainName: v.optional(field.by(readAdmin), ADMIN),
  firewalldZone: v.optional(field.by(readZone), ZONE),
  ingressPolicy: v.exactOptional(field.word('', 'open', 'same-bridge', 'isolated')),
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `firewall` (upstream plugins/meta/firewall). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'firewall',
  fused: { key: 'firewall', place: 2 },
  about: 'CNI plugin firewall: what a container sends, and the answers, pass the node',
  conf,
  wire,
  tools: () => [NFT],
  notes,
  async unwireForeign({ cniVersion = '0.1.0', prevResult, backend = '', firewalldZone = ZONE }, _at, run) {
    const addresses = addressesOf(prevResult, cniVersion)
    await removeForeignRules(addresses, run)
    await apply({ put: [], drop: zonedOf({ backend, firewalldZone }, addresses, nodeFacts) }, run)
  },
  async checkForeign(conf, _at, given, run) {
    const addresses = (given.ips ?? []).map(({ address }) => address)
    if (isByZone(conf, nodeFacts)) return differences(zonedOf(conf, addresses, nodeFacts), run)
    const policy = conf.ingressPolicy || 'open'
    return missingForeignRules(
      addresses,
      policy === 'open' ? undefined : { name: bridgeOf(given, policy), isApart: policy === 'isolated' },
      run,
    )
  },
  async unshare({ iptablesAdminChainName: admin }, run) {
    if (entries().some(({ parts }) => parts['firewall'])) return
    await removeChain(CHAIN, run)
    await removeChain(admin, run, { ifEmpty: true })
  },
  async status(conf) {
    if (!has('nft'))
      throw new CniError(CODE.notReady, 'Cannot guard pods: nft is not installed', 'install the package nftables')
    if (isByZone(conf, nodeFacts) && !has('dbus-send'))
      throw new CniError(
        CODE.notReady,
        'Cannot put pods into zones of firewalld: dbus-send is not installed',
        'install the package dbus-bin, or set "backend" to iptables or nftables',
      )
  },
})

/**
 * The resources of one attachment. As upstream, all addresses of the previous result count, on any of its interfaces.
 * The first interface is the bridge. Pure.
 */
function wire(conf: Conf, at: Attachment, given: Result, node: NodeFacts): Wiring {
  const { backend, iptablesAdminChainName: admin, ingressPolicy } = conf
  const addresses = (given.ips ?? []).map(({ address }) => address)
  const policy = ingressPolicy || 'open'
  const bridge = policy === 'open' ? undefined : bridgeOf(given, policy)
  return {
    shared: [...passages(addresses, admin, backend !== 'nftables'), ...(policy === 'isolated' ? separate(given) : [])],
    own: [
      ...adminChain(addresses, admin),
      ...guarded(at, addresses, admin, policy, bridge),
      ...zonedOf(conf, addresses, node),
    ],
    result: given,
  }
}

function zonedOf(conf: Pick<Conf, 'backend' | 'firewalldZone'>, addresses: readonly Cidr[], node: NodeFacts): Zoned[] {
  if (addresses.length === 0 || !isByZone(conf, node)) return []
  const { firewalldZone } = conf
  return addresses.map((address) => ({
    kind: 'zoned',
    ns: 'host',
    zone: firewalldZone,
    source: hostCidr(split(address).ip),
  }))
}

// As upstream: zones are used where firewalld runs, unless another backend is named.
function isByZone({ backend = '' }: Pick<Conf, 'backend'>, node: NodeFacts): boolean {
  return (backend === '' || backend === 'firewalld') && node.hasFirewalld === true
}

function bridgeOf({ interfaces: [first] = [] }: Result, policy: string): IfName {
  if (!first?.name)
    throw new CniError(
      CODE.config,
      `Cannot use ingressPolicy ${shown(policy)}: prevResult names no interface`,
      'it is about the bridge that comes first in prevResult.interfaces: want the plugin "firewall" after "bridge"',
    )
  // In nft `*` in an interface name is a wildcard.
  if (first.name.includes('*'))
    throw new ValueError(
      `Cannot use ingressPolicy ${shown(policy)} on the bridge ${shown(first.name)}: want a name without "*"`,
    )
  return linkName(first)
}

// Without bridge netfilter, bridged frames do not pass the rules. Then the bridge itself must isolate its ports.
function separate({ interfaces: [bridge, port, inPod] = [] }: Result): Resource[] {
  if (!bridge || bridge.sandbox || !port || port.sandbox || !inPod?.sandbox) return []
  return [
    {
      kind: 'link',
      ns: 'host',
      name: linkName(port),
      type: 'port',
      port: { master: linkName(bridge), isolated: true },
      up: true,
    },
  ]
}

function addressesOf(prevResult: unknown, cniVersion: string): Cidr[] {
  try {
    return (decode(prevResult, cniVersion).ips ?? []).map(({ address }) => address)
  } catch {
    // DEL works without the addresses.
    return []
  }
}

function notes({ backend }: Conf): string[] {
  return backend === 'firewalld' && !nodeFacts.hasFirewalld
    ? ['"backend" is firewalld, which does not run: the pod is put into no zone of it']
    : []
}

// The limits of firewalld, because its chain names contain the zone name. An empty value means the default zone.
function readZone(value: unknown): string {
  if (value === '' || value === ZONE) return ZONE
  if (typeof value !== 'string' || !/^[\w-]{1,17}$/.test(value))
    throw new ValueError(
      `${shown(value)}: want the name of a zone of firewalld: letters, digits, "_" and "-", 17 at most`,
    )
  return value
}
