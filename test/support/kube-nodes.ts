import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { administered, type KubeServer, kubeServer } from './kube-server.ts'
import { type Cluster, inCluster, type Node } from './nodes.ts'
import type { KubeCluster } from './suites/testKube.ts'

/** An API server that a test can take away. */
export interface Kube extends KubeCluster {
  away(): void | Promise<void>
  /** Under the same address, with the same Nodes. */
  back(): void | Promise<void>
}

/** Where an API server listens that nodes of a cluster have to reach. `apiAddresses` makes them. */
export const API = { v4: '10.123.201.1', v6: 'fd99::1' } as const
const GATEWAY = { v4: '172.30.0.253', v6: 'fd00:30::253' } as const
let serial = 0

/** Gives the addresses of `API` to the namespace of the test, for as long as it stands. */
export async function apiAddresses(): Promise<void> {
  await sh(`ip link show apiserver >/dev/null 2>&1 && exit 0
    ip link add apiserver type bridge; ip address add ${API.v4}/32 dev apiserver; ip address add ${API.v6}/128 dev apiserver nodad; ip link set apiserver up
    echo 1 >/proc/sys/net/ipv4/ip_forward`)
}

/**
 * Wraps a test: nodes n1, n2 … as `inCluster` makes them, whose agents keep their leases in Kubernetes. Node N has the
 * pod CIDRs `podCidrs(N)`. The Nodes end with the test, and so do those that `more` names.
 */
export function onKube(
  count: number,
  {
    network,
    podCidrs,
    more = [],
  }: {
    readonly network: object
    readonly podCidrs: (n: number) => readonly string[]
    readonly more?: readonly string[]
  },
  serve: (test: Mocha.Context) => Promise<Kube>,
  work: (nodes: readonly Node[], kube: Kube) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  let kubeconfig = ''
  const options = ({ dir }: Cluster) => [
    '--kube-subnet-mgr',
    '--kubeconfig-file',
    kubeconfig,
    '--net-config-path',
    join(dir, 'net-conf.json'),
    '--probe-interval=0',
  ]
  return inCluster(count, options, async (cluster, test) => {
    await apiAddresses()
    const kube = await serve(test)
    kubeconfig = kube.kubeconfig
    writeFileSync(join(cluster.dir, 'net-conf.json'), JSON.stringify(network))
    await lead(cluster)
    try {
      for (const { name, n } of cluster.nodes) await kube.create(name, podCidrs(n))
      await work(cluster.nodes, kube)
    } finally {
      await kube.back()
      // A server that the test left faulty ends with the test.
      for (const name of [...cluster.nodes.map((node) => node.name), ...more]) await kube.remove(name).catch(() => {})
    }
  })
}

// Leads the nodes to the API server, and it back to them, through the namespace of the test.
async function lead({ hub, nodes }: Cluster): Promise<void> {
  const link = `kube${++serial}`
  const space = hub.path.slice(hub.path.lastIndexOf('/') + 1)
  await sh(`ip link add ${link} type veth peer name kube0 netns ${space}; ip -n ${space} link set kube0 master hub0 up
    ip address add ${GATEWAY.v4}/24 dev ${link}; ip address add ${GATEWAY.v6}/64 dev ${link} nodad; ip link set ${link} up`)
  for (const { ns } of nodes) {
    await ns.ip('route', 'add', API.v4, 'via', GATEWAY.v4)
    await ns.ip('route', 'add', API.v6, 'via', GATEWAY.v6)
  }
}

async function sh(script: string): Promise<void> {
  await execa('sh', ['-ec', script])
}

/** A server of this process that nodes reach. */
export async function served(ip: string): Promise<Kube & { readonly server: KubeServer }> {
  const server = await kubeServer(ip)
  return {
    ...administered(server),
    server,
    away: () => server.close(),
    back: () => (server.isOpen ? undefined : server.open()),
  }
}
