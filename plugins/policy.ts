import * as v from 'valibot'
import { argument } from '../lib/cni/environment.ts'
import { type Attachment, definePlugin, type Wiring } from '../lib/cni/plugin.ts'
import type { Interface, Result } from '../lib/cni/result.ts'
import { entries } from '../lib/journal/journal.ts'
import { present, SOCKET } from '../lib/nft/admission.ts'
import { linkFacts } from '../lib/os/links.ts'
import { BRIDGE_FILTERS, readSysctl } from '../lib/os/sysctls.ts'
import type { Admission } from '../lib/state/kinds/admission.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { split } from '../lib/text/ip.ts'
import { common, field } from '../lib/text/shape.ts'
import { byteLength, parse } from '../lib/text/values.ts'

const conf = v.object({
  ...common,
  socket: v.optional(field.by(socketPath), SOCKET),
  whenAway: v.optional(field.word('closed', 'wait'), 'closed'),
  timeout: v.optional(field.int(1, 25), 10),
  runtimeConfig: v.optional(v.looseObject({}), {}),
})
type Conf = v.InferOutput<typeof conf>

/** The plugin `policy`: a pod starts when the node agent has its network policies in the kernel. */
export default definePlugin<Conf>({
  role: 'chained',
  type: 'policy',
  fused: { key: 'policy', place: 5 },
  about: 'CNI plugin policy: network policy applies to a pod before the pod starts',
  conf,
  args: ['K8S_POD_NAMESPACE', 'K8S_POD_NAME', 'K8S_POD_UID'],
  wire,
  async status({ socket, name }, _run, base) {
    try {
      present(socket)
    } catch (cause) {
      const { message, details } = cause as CniError
      throw new CniError(CODE.notReady, message, details, { cause })
    }
    const isBridged =
      base === undefined
        ? entries(name).some(({ parts }) => (parts['policy']?.own ?? []).some(onBridge))
        : base === 'bridge'
    if (isBridged && !isFiltered())
      throw new CniError(
        CODE.notReady,
        'Cannot apply network policy between pods of a bridge: bridged frames do not pass the firewall',
        BRIDGED,
      )
  },
})

const BRIDGED =
  'load br_netfilter, and set net.bridge.bridge-nf-call-iptables and -ip6tables to 1; the plugin ptp needs neither'

/**
 * The resources of one attachment: its admission by the agent. The address and the node's end of the link come from the
 * previous result. Pure.
 */
function wire({ socket, whenAway, timeout }: Conf, at: Attachment, given: Result): Wiring {
  const [namespace, pod] = [nameOf(at, 'K8S_POD_NAMESPACE'), nameOf(at, 'K8S_POD_NAME')]
  const uid = argument(at, 'K8S_POD_UID', objectUid)
  const addresses = (given.ips ?? []).map(({ address }) => split(address).ip)
  const link = nodeEnd(given.interfaces ?? [])
  const { containerId, ifname } = at
  const admission: Admission = {
    kind: 'admission',
    ns: 'host',
    socket,
    whenAway,
    waitMs: timeout * 1000,
    endpoint: {
      containerId,
      ifname,
      namespace,
      pod,
      ...(uid !== undefined && { uid }),
      addresses,
      ...(link && { link }),
    },
  }
  return { shared: [], own: addresses.length === 0 ? [] : [admission], result: given }
}

// The kubelet gives both names to every plugin. Without them nothing tells which policies select the pod.
function nameOf(at: Attachment, key: 'K8S_POD_NAMESPACE' | 'K8S_POD_NAME'): string {
  const name = argument(at, key, objectName)
  if (name === undefined)
    throw new CniError(
      CODE.env,
      `Cannot apply network policy: CNI_ARGS has no ${key}`,
      'the kubelet sets it; for a container that is no pod of Kubernetes, leave the plugin policy out',
    )
  return name
}

// The names of namespaces and pods (RFC 1123 subdomain).
function objectName(value: string): string {
  if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(value))
    throw new ValueError(`${shown(value)}: want the name of a Kubernetes object, such as web-0`)
  return value
}

// A UUID. That of a static pod is a hash, or what its manifest says.
function objectUid(value: string): string {
  if (!/^[\w.-]{1,128}$/.test(value)) throw new ValueError(`${shown(value)}: want the UID of a Kubernetes object`)
  return value
}

// Interface plugins name the bridge first, then the node's end of the veth pair, then the end in the pod.
function nodeEnd(interfaces: readonly Interface[]): Admission['endpoint']['link'] {
  const inPod = interfaces.findIndex(({ sandbox }) => sandbox)
  const name = inPod > 0 ? interfaces[inPod - 1]?.name : undefined
  return name ? parse.ifname(name) : undefined
}

function onBridge(one: { readonly kind: string }): boolean {
  const { link } = one.kind === 'admission' ? (one as Admission).endpoint : {}
  return link !== undefined && linkFacts(link)?.master !== undefined
}

function isFiltered(): boolean {
  return BRIDGE_FILTERS.every((name) => readSysctl(name) === '1')
}

function socketPath(value: unknown): string {
  // The path in struct sockaddr_un has 108 bytes. The last byte is zero.
  if (typeof value !== 'string' || !/^\/[^\0]*$/.test(value) || byteLength(value) > 107)
    throw new ValueError(`${shown(value)}: want the absolute path of a socket, at most 107 bytes`)
  return value
}
