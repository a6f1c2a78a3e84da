import * as v from 'valibot'
import { definePlugin } from '../lib/cni.ts'
import { CniError, CODE, shown, ValueError } from '../lib/errors.ts'
import { has } from '../lib/exec.ts'
import { ADMIN, admitted, guarded, readAdmin } from '../lib/firewall.ts'
import { removeForeignRules } from '../lib/foreignrules.ts'
import type { Cidr } from '../lib/ip.ts'
import type { Attachment, Wiring } from '../lib/plugin.ts'
import type { Interface, Result } from '../lib/result.ts'
import { common, field } from '../lib/shape.ts'
import type { Resource } from '../lib/state.ts'
import { type IfName, parse } from '../lib/values.ts'
import { decode } from '../lib/versions.ts'

const conf = v.object({
  ...common,
  // Served by nft whichever is named.
  backend: v.exactOptional(field.word('', 'iptables', 'firewalld', 'nftables')),
  iptablesAdminChainName: v.optional(field.by(readAdmin), ADMIN),
  firewalldZone: v.exactOptional(field.text),
  ingressPolicy: v.exactOptional(field.word('', 'open', 'same-bridge', 'isolated')),
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `firewall` (upstream plugins/meta/firewall). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'firewall',
  about: 'CNI plugin firewall: what a container sends, and the answers, pass the node',
  conf,
  wire,
  notes,
  async unwireForeign({ cniVersion = '0.1.0', prevResult }, _at, run) {
    await removeForeignRules(addressesOf(prevResult, cniVersion), run)
  },
  async status() {
    if (!has('nft')) throw new CniError(CODE.notReady, 'Cannot guard pods: nft is not installed', 'install the package nftables')
  },
})

/** What one attachment needs. As upstream all addresses of the previous result count, whichever link they are on, and its first link is the bridge. Pure. */
function wire({ backend, iptablesAdminChainName: admin, ingressPolicy }: Conf, at: Attachment, given: Result): Wiring {
  const addresses = (given.ips ?? []).map(({ address }) => address)
  const policy = ingressPolicy || 'open'
  const bridge = policy === 'open' ? undefined : bridgeOf(given, policy)
  return {
    shared: [...admitted(addresses, admin, backend !== 'nftables'), ...(policy === 'isolated' ? separate(given) : [])],
    own: guarded(at, addresses, admin, policy, bridge),
    result: given,
  }
}

function bridgeOf({ interfaces: [first] = [] }: Result, policy: string): IfName {
  if (!first?.name) throw new CniError(CODE.config, `Cannot use ingressPolicy ${shown(policy)}: prevResult names no interface`, 'it is about the bridge that comes first in prevResult.interfaces: want the plugin "firewall" after "bridge"')
  // To nft it stands for any other letters.
  if (first.name.includes('*')) throw new ValueError(`Cannot use ingressPolicy ${shown(policy)} on the bridge ${shown(first.name)}: want a name without "*"`)
  return linkName(first)
}

// Where bridged frames do not meet the rules, the bridge itself has to keep its ports apart.
function separate({ interfaces: [bridge, port, inPod] = [] }: Result): Resource[] {
  if (!bridge || bridge.sandbox || !port || port.sandbox || !inPod?.sandbox) return []
  return [{ kind: 'link', ns: 'host', name: linkName(port), type: 'port', port: { master: linkName(bridge), isolated: true }, up: true }]
}

function linkName({ name }: Interface): IfName {
  try {
    return parse.ifname(name)
  } catch (cause) {
    throw new ValueError(`Cannot read the interface of prevResult ${(cause as Error).message}`, { cause })
  }
}

function addressesOf(prevResult: unknown, cniVersion: string): Cidr[] {
  try {
    return (decode(prevResult, cniVersion).ips ?? []).map(({ address }) => address)
  } catch {
    // DEL does without it.
    return []
  }
}

function notes({ backend, firewalldZone }: Conf): string[] {
  const unused = [...(backend === 'firewalld' ? ['"backend": "firewalld"'] : []), ...(firewalldZone ? ['"firewalldZone"'] : [])]
  return unused.map((key) => `${key} is not used: the pod is put into no zone of firewalld; where firewalld runs, its own zone of the bridge decides, too`)
}
