import type { Row } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'
import type { Pod, Scene } from './list.ts'
import type { Place } from './node.ts'
import type { Probe, Server } from './probes.ts'

/** An address of a pod and the gateway that the result names. */
interface Address {
  readonly ip: string
  readonly gateway: string | undefined
}
interface Mapping {
  readonly hostPort: number
  readonly containerPort: number
  readonly protocol?: string
  readonly hostIP?: string
}

/** A port on which everybody serves. */
const PORT = 7000
/** What pods without addresses get by hand, to see whether they are connected. */
export const BY_HAND: Readonly<Record<Pod, string>> = { a: '10.99.0.2', b: '10.99.0.3' }

/** The servers of a node: in the pods also on the ports that host ports lead to. */
export function serversOf({ node, a, b, world }: Place, { caps = {} }: Scene, pods: readonly Pod[]): Server[] {
  const ports = (pod: Pod) => [PORT, ...new Set(mappingsOf(caps[pod]).map(({ containerPort }) => containerPort))]
  return [
    { ns: node.path, name: 'node', ports: [PORT] },
    { ns: world.path, name: 'world', ports: [PORT] },
    ...pods.map((pod) => ({ ns: (pod === 'a' ? a : b).path, name: pod, ports: ports(pod) })),
  ]
}

/** Who may want to reach whom: pods, node and world by their addresses, and every host port from everywhere. */
export function probesOf(place: Place, { caps = {} }: Scene, results: Readonly<Partial<Record<Pod, Row>>>): Probe[] {
  const pods = (['a', 'b'] as const).flatMap((pod) =>
    results[pod] ? [{ pod, addresses: atLeast(addressesOf(results[pod]), pod), mappings: mappingsOf(caps[pod]) }] : [],
  )
  return pods.flatMap(({ pod, addresses, mappings }) => {
    const from = place[pod].path
    const others = pods.filter((one) => one.pod !== pod)
    const out = addresses.flatMap(({ ip, gateway }, i): Probe[] => {
      const [six, n] = [ip.includes(':'), i === 0 ? '' : ` #${i + 1}`]
      const elsewhere = [
        { to: 'world', host: six ? WORLD.world6 : WORLD.world4 },
        { to: 'node', host: six ? WORLD.node6 : WORLD.node4 },
        ...(gateway ? [{ to: `gateway${n}`, host: gateway }] : []),
      ]
      const inward = [
        { who: 'node', ns: place.node.path },
        { who: 'world', ns: place.world.path },
        { who: pod, ns: from },
        ...others.map((one) => ({ who: one.pod, ns: place[one.pod].path })),
      ]
      return [
        ...elsewhere.flatMap(({ to, host }) => both(`${pod} → ${to} ${six ? 6 : 4}`, from, host, PORT)),
        ...inward.flatMap(({ who, ns }) => both(`${who} → ${pod} ${six ? 6 : 4}${n}`, ns, ip, PORT)),
      ]
    })
    const [gateway4, gateway6] = [false, true].map(
      (six) => addresses.find(({ ip }) => ip.includes(':') === six)?.gateway,
    )
    const clients = {
      world: place.world.path,
      node: place.node.path,
      [pod]: from,
      ...Object.fromEntries(others.map((one) => [one.pod, place[one.pod].path])),
    }
    return [...out, ...mappings.flatMap((mapping) => hostPort(pod, mapping, clients, [gateway4, gateway6]))].filter(
      unique(),
    )
  })
}

function hostPort(
  pod: Pod,
  { hostPort, protocol = 'tcp', hostIP = '' }: Mapping,
  clients: Readonly<Record<string, string>>,
  gateways: readonly (string | undefined)[],
): Probe[] {
  const word = protocol.toLowerCase()
  if (word !== 'tcp' && word !== 'udp') return []
  const places = { 'node 4': WORLD.node4, 'node 6': WORLD.node6, 'gateway 4': gateways[0], 'gateway 6': gateways[1] }
  const own = { '127.0.0.1': '127.0.0.1', '::1': '::1' }
  return Object.entries(clients).flatMap(([who, from]) =>
    Object.entries(
      who === 'node'
        ? { ...places, ...own }
        : who === 'world'
          ? { 'node 4': places['node 4'], 'node 6': places['node 6'] }
          : places,
    ).flatMap(([name, host]) =>
      host === undefined
        ? []
        : [
            {
              id: `${who} → host port ${hostIP}:${hostPort} of ${pod} at ${name} ${word}`,
              from,
              protocol: word,
              host,
              port: hostPort,
            } as const,
          ],
    ),
  )
}

function both(id: string, from: string, host: string, port: number): Probe[] {
  return (['tcp', 'udp'] as const).map((protocol) => ({ id: `${id} ${protocol}`, from, protocol, host, port }))
}

/** The addresses of a result of any version. */
export function addressesOf({ ips, ip4, ip6 }: Row): Address[] {
  const rows: Row[] = ips ?? [ip4, ip6].filter(Boolean)
  return rows.map((row) => ({
    ip: ((row['address'] ?? row['ip']) as string).split('/')[0] as string,
    gateway: row['gateway'] as string | undefined,
  }))
}

function atLeast(found: readonly Address[], pod: Pod): readonly Address[] {
  return found.length > 0 ? found : [{ ip: BY_HAND[pod], gateway: undefined }]
}

function mappingsOf(caps: Readonly<Record<string, unknown>> | undefined): readonly Mapping[] {
  return (caps?.['portMappings'] ?? []) as readonly Mapping[]
}

function unique(): (probe: Probe) => boolean {
  const seen = new Set<string>()
  return ({ id }) => !seen.has(id) && Boolean(seen.add(id))
}
