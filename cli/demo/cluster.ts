import { readText } from '../../lib/os/reading.ts'
import { lines, must, start } from './exec.ts'
import { configure } from './node.ts'
import { mountsOf, PLACES, runOf } from './places.ts'
import { until } from './running.ts'

const LIMIT_MS = 5000

/** The nodes of the cluster, and the name of the pod on each node. */
export const NODES = [
  { node: 'n1', name: 'web' },
  { node: 'n2', name: 'app' },
  { node: 'n3', name: 'db' },
] as const
/**
 * Addresses on the link between the nodes, by number (RFC 5737, RFC 3849). The nodes have the numbers from 1 on.
 * `router` is the number of a router that leads nowhere, `etcd` is the number of etcd.
 */
export const UNDERLAY = {
  v4: (n: number) => `192.0.2.${n}`,
  v6: (n: number) => `2001:db8::${n}`,
  router: 254,
  etcd: 9,
} as const

/**
 * Makes the nodes. Each node has a private network namespace, private mounts and a private /run. The eth0 of each node
 * is on one bridge.
 */
export async function makeNodes(): Promise<void> {
  const { v4, v6, router } = UNDERLAY
  await lines('host', [
    'link set lo up',
    'link add lan0 up type bridge',
    `addr add ${v4(router)}/24 dev lan0`,
    `addr add ${v6(router)}/64 dev lan0 nodad`,
  ])
  await must(['mkdir', '-p', PLACES.store, '/run/mounts'])
  for (const [i, { node }] of NODES.entries()) {
    await attach(node, i + 1)
    await must(['mkdir', '-p', `${runOf(node)}/store`, `${runOf(node)}/netns`])
    await must(['mount', '--bind', PLACES.store, `${runOf(node)}/store`])
    await holdMounts(node)
    await must(['mount', '--rbind', runOf(node), '/run'], { node })
  }
}

// A process holds the mounts of the node as long as it lives. A bind mount of the mount namespace on a file would need
// no process. But Linux 6.18 refuses that bind mount (EINVAL, "loop") when the new namespace was made on another
// processor than the caller's namespace.
async function holdMounts(node: string): Promise<void> {
  const { pid, exited } = start(['unshare', '--mount', '--propagation', 'private', 'sleep', 'infinity'], { ns: node })
  const ended = exited.then((status) => {
    throw new Error(`unshare ended with ${status}`)
  })
  const held = until(
    async () => readText(`/proc/${pid}/comm`) === 'sleep\n' || undefined,
    LIMIT_MS,
    () => `${node} has no mounts of its own`,
  )
  await Promise.race([held, ended])
  await must(['ln', '-s', `/proc/${pid}/ns/mnt`, mountsOf(node)])
}

/**
 * Makes a namespace with this name and connects it to the nodes' bridge. Its addresses have the number `n`. Its default
 * routes go to the router.
 */
export async function attach(name: string, n: number): Promise<void> {
  const { v4, v6, router } = UNDERLAY
  await must(['ip', 'netns', 'add', name])
  await lines('host', [`link add p-${name} up master lan0 type veth peer name eth0 netns ${name}`])
  await lines(name, [
    'link set lo up',
    'link set eth0 up',
    `addr add ${v4(n)}/24 dev eth0`,
    `addr add ${v6(n)}/64 dev eth0 nodad`,
    `route add default via ${v4(router)}`,
    `route add default via ${v6(router)}`,
  ])
}

/**
 * Configures the network of flannel on every node, with its folders below /run. Also makes a namespace for the pod of
 * each node.
 */
export async function makePods(conf: { readonly plugins: readonly object[] }): Promise<void> {
  const [flannel, ...chained] = conf.plugins
  const plugins = [{ ...flannel, dataDir: PLACES.flannel, ipam: { dataDir: PLACES.pool } }, ...chained]
  for (const { node, name } of NODES) {
    configure({ ...conf, plugins }, runOf(node))
    await must(['ip', 'netns', 'add', name], { node })
  }
}
