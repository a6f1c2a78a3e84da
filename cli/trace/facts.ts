import { networkOf } from '../../agent/doctor/facts/agent.ts'
import { type Link, readLinks } from '../../agent/doctor/facts/links.ts'
import { readRuleset } from '../../agent/doctor/facts/ruleset.ts'
import { readSubnetFile } from '../../agent/doctor/facts/subnet-file.ts'
import { both } from '../../agent/lease/families.ts'
import type { Decision } from '../../agent/policy/view.ts'
import type { ServiceView } from '../../agent/services/view.ts'
import type { Status } from '../../agent/state/status.ts'
import { run } from '../../lib/os/exec.ts'
import { linkFacts } from '../../lib/os/links.ts'
import { inside } from '../../lib/os/netns.ts'
import { readText } from '../../lib/os/reading.ts'
import { askForRoute } from '../../lib/os/route-question.ts'
import { maybeSysctl } from '../../lib/os/sysctls.ts'
import { contains, isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { Netns, NetnsPath } from '../../lib/text/values.ts'
import { addressesOf, namespaceOf } from './ends.ts'
import type { Local, Routed, TraceFacts } from './oracle.ts'
import type { Protocol } from './packet.ts'

/** What the agent says, each part undefined when it does not. */
export interface AgentAnswers {
  readonly status: Status | undefined
  readonly services: readonly ServiceView[] | undefined
  readonly decision: Decision | undefined
}

/**
 * Reads the facts of the node for the oracle. `sender` is the namespace that sends. Routes and sockets are asked for
 * when the oracle needs them. Throws ExecError when `ip` or `nft` fails.
 */
export async function readTraceFacts(
  told: AgentAnswers,
  sender: Netns,
  pods: Parameters<typeof namespaceOf>[1],
  subnetFile: string,
): Promise<TraceFacts> {
  const { status, services, decision } = told
  const [links, { chains }] = [await readLinks(run), await readRuleset(run)]
  const own = new Set(addressesOf('host'))
  const spaces = new Map<Ip, Local | undefined>()
  const localAt = (ip: Ip): Local | undefined => {
    const isV6 = isSix(ip)
    if (own.has(ip)) return { isNode: true, listens: (protocol, port) => listens('host', protocol, port, isV6) }
    // Nodes that share a machine see each other's namespaces.
    const ns = peerOf(ip, status) ? undefined : namespaceOf(ip, pods)
    if (ns === undefined) return undefined
    const link = linkOfPod(ns, ip, links)
    return { isNode: false, ...link, listens: (protocol, port) => listens(ns, protocol, port, isV6) }
  }
  return {
    links,
    chains,
    sysctl: maybeSysctl,
    route: (at, to, from, iif) => routeIn(at === 'sender' ? sender : 'host', to, from, iif),
    at(ip) {
      if (!spaces.has(ip)) spaces.set(ip, localAt(ip))
      return spaces.get(ip)
    },
    services,
    decision,
    peer(ip) {
      const found = peerOf(ip, status)
      if (found === undefined) return undefined
      const { node, ips, problem } = found
      const devs = linksToPeers(status, links)
      const name = node ?? both(ips)[0] ?? ''
      return { name, devs, ...(problem !== undefined && { problem }) }
    },
    networks: networkOf(status, readSubnetFile(subnetFile))?.networks,
  }
}

function peerOf(ip: Ip, status: Status | undefined): Status['peers'][number] | undefined {
  return status?.peers.find(({ subnets }) =>
    both(subnets).some((subnet) => isSix(subnet) === isSix(ip) && contains(subnet, ip)),
  )
}

/** The kinds of links that carry packets to all peers, by the backend. */
const OVERLAYS: Readonly<Record<string, string>> = { vxlan: 'vxlan', wireguard: 'wireguard', ipip: 'ipip' }

// The links by which the backend sends to other nodes. With DirectRouting, some of them are reached without the tunnel.
function linksToPeers(status: Status | undefined, links: readonly Link[]): string[] {
  const uplink = status?.uplink === undefined ? [] : [status.uplink.name]
  if (status?.backend === 'host-gw') return uplink
  const kind = OVERLAYS[status?.backend ?? '']
  const [overlay, more] = links.filter((one) => one.kind === kind)
  if (overlay === undefined || more !== undefined) return []
  return kind === 'wireguard' ? [overlay.name] : [overlay.name, ...uplink]
}

function routeIn(ns: Netns, to: Ip, from: Ip | undefined, iif: string | undefined): Routed {
  return inside(ns, () => {
    const index = iif === undefined ? undefined : linkFacts(iif)?.index
    const answer = askForRoute({ to, ...(from !== undefined && { from }), ...(index !== undefined && { iif: index }) })
    if ('errno' in answer) return answer
    const { index: out, type, via } = answer
    const link = linkFacts(out)
    return { dev: link?.name ?? '', type, ...(via !== undefined && { via }), ...(link && { mtu: link.mtu }) }
  })
}

// The other end of the pod's pair of links. A link of another kind is none of the node's.
function linkOfPod(ns: NetnsPath, ip: Ip, links: readonly Link[]): { readonly link?: string } {
  const routed = inside(ns, () => {
    const answer = askForRoute({ to: ANYBODY[isSix(ip) ? 6 : 4], from: ip })
    return 'errno' in answer ? undefined : linkFacts(answer.index)
  })
  const pod = routed?.kind === 'veth' ? routed : inside(ns, () => linkFacts('eth0'))
  if (pod?.kind !== 'veth' || pod.on === undefined) return {}
  const link = linkFacts(pod.on)
  return link?.kind === 'veth' && link.on === pod.index && links.some(({ name }) => name === link.name)
    ? { link: link.name }
    : {}
}

/** Addresses of documentation (RFC 5737, RFC 3849), which no link has. */
const ANYBODY = { 4: '192.0.2.1' as Ip, 6: '2001:db8::1' as Ip } as const

/** The state of a socket that listens, in /proc/net/tcp (include/net/tcp_states.h), and of a free one of UDP. */
const STATES = { TCP: '0A', UDP: '07' } as const

// Whether a program listens on a port, of any address. Undefined for ICMP, and when it cannot be read.
function listens(ns: Netns, protocol: Protocol, port: number, isV6: boolean): boolean | undefined {
  if (protocol === 'ICMP') return undefined
  const word = protocol.toLowerCase()
  // A socket of IPv6 may take packets of IPv4 as well.
  const files = isV6 ? [`${word}6`] : [word, `${word}6`]
  try {
    const text = inside(ns, () => files.map((file) => readText(`/proc/thread-self/net/${file}`) ?? '').join('\n'))
    const wanted = port.toString(16).toUpperCase().padStart(4, '0')
    return text.split('\n').some((line) => {
      const [, local = '', , state] = line.trim().split(/\s+/)
      return state === STATES[protocol] && local.endsWith(`:${wanted}`)
    })
  } catch {
    return undefined
  }
}
