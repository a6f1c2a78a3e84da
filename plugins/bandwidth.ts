import * as v from 'valibot'
import { type Attachment, definePlugin, type NodeFacts, type Wiring } from '../lib/cni/plugin.ts'
import { linkName, type Result } from '../lib/cni/result.ts'
import { compare } from '../lib/cni/versions.ts'
import { SHAPING } from '../lib/os/batch-tools.ts'
import { has } from '../lib/os/exec.ts'
import type { Link } from '../lib/state/kinds/link.ts'
import type { Qdisc } from '../lib/state/kinds/qdisc.ts'
import type { Redirect } from '../lib/state/kinds/redirect.ts'
import type { Resource } from '../lib/state/resource.ts'
import { foreignIfb, removeForeignIfb } from '../lib/takeover/links.ts'
import { missingForeignShaping } from '../lib/takeover/shaping.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { hostVeth } from '../lib/text/link-names.ts'
import { common, field } from '../lib/text/shape.ts'
import type { IfName } from '../lib/text/values.ts'
import { nodeFacts } from '../lib/wiring/node-facts.ts'
import { bucketOf, ifbOf, usualBurst } from '../lib/wiring/shaping.ts'
import { withoutSix } from '../lib/wiring/veth.ts'

const MTU = 1500
// Runtimes send 64-bit numbers. The kernel counts the bytes of a burst in 32 bits.
const bits = v.exactOptional(field.int(0, Number.MAX_SAFE_INTEGER))
const limits = { ingressRate: bits, ingressBurst: bits, egressRate: bits, egressBurst: bits }
type Limits = { readonly [key in keyof typeof limits]?: number }

const keys = v.object({
  ...common,
  ...limits,
  runtimeConfig: v.optional(v.looseObject({ bandwidth: v.exactOptional(v.looseObject(limits)) }), {}),
})
type Conf = v.InferOutput<typeof keys>

const conf = field.whole(keys, (conf) => {
  for (const way of ['ingress', 'egress'] as const) {
    const { rate, burst, path } = limitsOf(conf)[way]
    if (rate > 0 && burst === 0) {
      const fact = `if rate is set, burst must also be set, and ${path}Rate is ${rate}`
      throw new ValueError(`Cannot read ${path}Burst: ${fact}; want bits, such as ${usualBurst(rate, MTU)}`)
    }
    if (burst > 0 && rate === 0) {
      const fact = `if burst is set, rate must also be set, and ${path}Burst is ${burst}`
      throw new ValueError(`Cannot read ${path}Rate: ${fact}; want bits per second`)
    }
    if (burst / 8 >= 2 ** 32 - 1)
      throw new ValueError(
        `Cannot read ${path}Burst ${burst}: burst cannot be more than 4GB; want bits, such as ${usualBurst(rate, MTU)}`,
      )
  }
})

/** The plugin `bandwidth` (upstream plugins/meta/bandwidth). */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'bandwidth',
  fused: { key: 'bandwidth', place: 3, capability: 'bandwidth', asks: true },
  about: 'CNI plugin bandwidth: limits what a container gets and sends per second',
  conf,
  wire,
  tools: (conf) => (Object.values(limitsOf(conf)).some(({ rate }) => rate > 0) ? [SHAPING] : []),
  async unwireForeign(_conf, at, run) {
    await removeForeignIfb(at, run)
  },
  async checkForeign(conf, at, given, run) {
    const { ingress, egress } = limitsOf(conf)
    const { name: dev } = hostEndOf(conf, at, given, nodeFacts)
    const to = foreignIfb(at)
    const rates = [
      ...(ingress.rate > 0 ? [{ dev, rate: ingress.rate }] : []),
      ...(egress.rate > 0 ? [{ dev: to, rate: egress.rate }] : []),
    ]
    return missingForeignShaping(rates, egress.rate > 0 ? { dev, to } : undefined, run)
  },
  async status() {
    if (!has('tc'))
      throw new CniError(CODE.notReady, 'Cannot shape traffic: tc is not installed', 'install the package iproute2')
  },
})

/**
 * The resources of one attachment. Ingress traffic (to the container) waits at the node's end of its link. Egress
 * traffic waits on an ifb, and the node's end redirects it there. Pure.
 */
function wire(conf: Conf, at: Attachment, given: Result, node: NodeFacts): Wiring {
  const { ingress, egress } = limitsOf(conf)
  if (ingress.rate === 0 && egress.rate === 0) return { shared: [], own: [], result: given }
  const { name: dev, mtu } = hostEndOf(conf, at, given, node)
  const bucket = (dev: IfName, { rate, burst }: Limit): Qdisc => ({
    kind: 'qdisc',
    ns: 'host',
    dev,
    discipline: 'tbf',
    ...bucketOf(rate, burst, mtu),
  })
  const { name, mac } = ifbOf(at)
  const ifb: Link = { kind: 'link', ns: 'host', name, type: 'ifb', mac, mtu, up: true }
  const redirect: Redirect = { kind: 'redirect', ns: 'host', dev, to: name }
  const own: Resource[] = [
    ...(ingress.rate > 0 ? [bucket(dev, ingress)] : []),
    ...(egress.rate > 0 ? [ifb, withoutSix(name), bucket(name, egress), redirect] : []),
  ]
  return {
    shared: [],
    own,
    result: egress.rate > 0 ? { ...given, interfaces: [...(given.interfaces ?? []), { name, mac }] } : given,
  }
}

interface Limit {
  readonly rate: number
  readonly burst: number
  /** The prefix of its keys in the configuration. Error messages show it. */
  readonly path: string
}

// As upstream: one limit in the configuration itself switches off all limits of runtimeConfig.
function limitsOf(conf: Conf): { readonly ingress: Limit; readonly egress: Limit } {
  const isStatic = Object.keys(limits).some((key) => conf[key as keyof Limits] !== undefined)
  const given: Limits = isStatic ? conf : (conf.runtimeConfig.bandwidth ?? {})
  const path = isStatic ? '' : 'runtimeConfig.bandwidth.'
  return {
    ingress: { rate: given.ingressRate ?? 0, burst: given.ingressBurst ?? 0, path: `${path}ingress` },
    egress: { rate: given.egressRate ?? 0, burst: given.egressBurst ?? 0, path: `${path}egress` },
  }
}

/**
 * The node's end of the pod's link, chosen from the interfaces of the result. The name identifies plumb's own veth. For
 * the veth of another plugin, the kernel tells the other end. Throws CniError 7, and ValueError for a bad name.
 */
function hostEndOf(
  { cniVersion }: Conf,
  at: Attachment,
  { interfaces = [] }: Result,
  node: NodeFacts,
): { readonly name: IfName; readonly mtu: number } {
  const outer = interfaces.filter(({ sandbox }) => !sandbox)
  const own = outer.find(({ name }) => name === hostVeth(at))
  if (own) return { name: hostVeth(at), mtu: own.mtu ?? node.hostEnd?.(at)?.mtu ?? MTU }
  // Before CNI 0.3.0 no result names interfaces.
  const isOld = compare(cniVersion, '0.3.0') < 0
  if (interfaces.length === 0 && !isOld)
    throw refused(
      'prevResult names no interfaces',
      'want the plugin "bandwidth" after one that makes a veth, such as bridge or ptp',
    )
  const seen = node.hostEnd?.(at)
  if (seen === null) throw refused(`${at.ifname} has no veth peer on the node`, 'only veth links can be shaped')
  const named = outer.map(({ name }) => name)
  if (seen && (isOld || named.includes(seen.name))) return seen
  if (seen)
    throw refused(
      `its other end, ${seen.name}, is not among the interfaces of prevResult`,
      `those of the node are ${named.join(', ') || 'none'}`,
    )
  // The kernel tells nothing during `explain`. Takes the node's last interface, because a bridge comes before its port.
  const last = outer.at(-1)
  if (!last)
    throw refused(
      'prevResult names no interface of the node',
      `its interfaces are ${interfaces.map(({ name }) => shown(name)).join(', ') || 'none'}`,
    )
  return { name: linkName(last), mtu: last.mtu ?? MTU }

  function refused(why: string, want: string): CniError {
    return new CniError(CODE.config, `Cannot shape ${at.ifname} of container ${at.containerId}: ${why}`, want)
  }
}
