import { inside } from '../lib/os/netns.ts'
import { parse } from '../lib/text/values.ts'
import type { Place } from './call.ts'
import { ip } from './tools.ts'

/** The bridge whose attachments are measured. */
export const BRIDGE = 'cni0'
/** The network behind it. */
export const NETWORK = 'bench'
let serial = 0

/** A namespace that stands for a node and one that stands for a pod, with lo up. */
export function makeNode(): { readonly node: Place; readonly pod: Place } {
  const n = ++serial
  const [node, pod] = makePlaces([`node${n}`, `pod${n}`]) as [Place, Place]
  return { node, pod }
}

/** Makes network namespaces by name, each with lo up, and gives their files. */
export function makePlaces(names: readonly string[]): Place[] {
  ip(names.map((name) => `netns add ${name}`))
  const places = names.map((name) => parse.netns(`/run/netns/${name}`))
  for (const place of places) inside(place, () => ip(['link set dev lo up']))
  return places
}

/** Removes them, and so all that is in them. */
export function removePlaces(places: readonly Place[]): void {
  ip(places.map((place) => `netns delete ${place.slice(place.lastIndexOf('/') + 1)}`))
}

/** A configuration as a runtime sends it: a gateway bridge, addresses of a /16, a default route. */
export function bridgeConf(dataDir: string, ipMasq: boolean): object {
  return { ...poolConf(dataDir), type: 'bridge', bridge: BRIDGE, isGateway: true, ipMasq }
}

/** A configuration for host-local by itself. */
export function poolConf(dataDir: string): object {
  return {
    cniVersion: '1.0.0',
    name: NETWORK,
    type: 'host-local',
    ipam: { type: 'host-local', dataDir, ranges: [[{ subnet: '10.1.0.0/16' }]], routes: [{ dst: '0.0.0.0/0' }] },
  }
}

/** portmap after it, with so many ports from `first` on, each to the same of the pod. */
export function portsConf(count: number, first: number): { readonly type: string; readonly conf: object } {
  const portMappings = Array.from({ length: count }, (_, i) => ({
    hostPort: first + i,
    containerPort: 80 + i,
    protocol: 'tcp',
  }))
  return {
    type: 'portmap',
    conf: { cniVersion: '1.0.0', name: NETWORK, type: 'portmap', runtimeConfig: { portMappings } },
  }
}

/** A link without a bridge: the node routes for the pod. */
export function ptpConf(dataDir: string, subnet: string): object {
  const six = subnet.includes(':')
  return {
    cniVersion: '1.0.0',
    name: NETWORK,
    type: 'ptp',
    ipam: { type: 'host-local', dataDir, ranges: [[{ subnet }]], routes: [{ dst: six ? '::/0' : '0.0.0.0/0' }] },
  }
}
