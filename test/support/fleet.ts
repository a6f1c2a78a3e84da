import { Recorder } from '../../agent/state/recorder.ts'
import type { Peer } from '../../agent/state/status.ts'
import { summaryOf } from '../../agent/state/summary.ts'
import type { KnownAgent } from '../../cli/fleet/fleet.ts'
import { type KubeServer, kubeServer } from './kube-server.ts'
import { peers, type Scripted, scripted } from './scripted.ts'

/** A node of a scripted cluster. */
export interface Member {
  readonly name: string
  readonly zone: string
  /** Where its agent may listen: 127.0.1.1 and up. */
  readonly ip: string
  readonly source: Scripted
}

/** The port at which the agents of a cluster listen. */
const FLEET_PORT = 9469
const ZONES = ['a', 'b', 'c']

/** A cluster of nodes node-1 and up, in three zones by turns. Each has all others as peers. */
export function cluster(count: number): Member[] {
  const all = peers(count).map((peer, i) => ({ ...peer, zone: zoneOf(i) }))
  return all.map(({ node, subnets }, i) => ({
    name: node as string,
    zone: zoneOf(i),
    ip: `127.0.${1 + Math.floor(i / 250)}.${1 + (i % 250)}`,
    source: scripted({
      node: node as string,
      version: '0.2.0',
      zone: zoneOf(i),
      subnets,
      peers: all.filter((one) => one.node !== node),
    }),
  }))
}

/** The peer as it is when nothing of it comes back. */
export function silent(peer: Peer): Peer {
  return { ...peer, probe: { state: 'silent', sent: 10, lost: 10 } }
}

function zoneOf(i: number): string {
  return ZONES[i % ZONES.length] as string
}

/** What a collector knows of a node that answered at `now`, or that did not answer when it was asked last. */
export function knownOf({ name, source }: Member, now: number, failure?: KnownAgent['failure']): KnownAgent {
  const recorder = new Recorder(() => now)
  const rows = recorder.record(source.status()).values()
  const summary = summaryOf(source.status(), rows, recorder, { now, withRow: true })
  return { name, summary, at: now, tookMs: 3, ...(failure && { failure }) }
}

/** The API server of a cluster with these nodes, and an agent's pod on each member. The pod of node-4 of four is Pending. */
export async function fleetApi(
  members: readonly Member[],
  bare: readonly Pick<Member, 'name' | 'zone'>[] = [],
): Promise<KubeServer> {
  const server = await kubeServer()
  const post = (path: string, body: object) =>
    fetch(`${server.url}${path}`, {
      method: 'POST',
      headers: { Authorization: 'Bearer secret-of-the-test' },
      body: JSON.stringify(body),
      tls: { rejectUnauthorized: false },
    })
  for (const { name, zone } of [...members, ...bare])
    await post('/api/v1/nodes', { metadata: { name, labels: { 'topology.kubernetes.io/zone': zone } } })
  for (const { name } of members)
    await post('/api/v1/pods', {
      metadata: { name: `plumb-agent-${name}`, namespace: 'plumb', labels: { app: 'plumb-agent' } },
      spec: { nodeName: name, containers: [{ livenessProbe: { httpGet: { port: FLEET_PORT } } }] },
      status: { phase: members.length === 4 && name === 'node-4' ? 'Pending' : 'Running' },
    })
  const places = new Map(members.map(({ name, ip }) => [`plumb-agent-${name}`, ip]))
  server.forward = (pod, port) => {
    const hostname = places.get(pod)
    return hostname === undefined ? undefined : { hostname, port }
  }
  return server
}
