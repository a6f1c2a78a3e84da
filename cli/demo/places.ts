const DIR = '/run/plumb-demo'
/** The addresses of the node and of the outside host, on the link between them (RFC 5737, RFC 3849). */
export const OUTSIDE = { node4: '192.0.2.1', node6: '2001:db8::1', host4: '192.0.2.2', host6: '2001:db8::2' } as const
/**
 * The folders of the demo's network: configuration, pool, cache, links to its plugins, and the state of the plugin
 * flannel. `store` is the folder that all nodes of the cluster see.
 */
export const PLACES = {
  conf: `${DIR}/net.d`,
  pool: `${DIR}/pool`,
  cache: `${DIR}/cache`,
  bin: `${DIR}/bin`,
  flannel: `${DIR}/flannel`,
  store: '/run/store',
} as const

/** The path of a cluster node's /run, seen from outside the node. */
export function runOf(node: string): string {
  return `/run/nodes/${node}`
}

/** The file of a cluster node's mount namespace. In that namespace the folder of `runOf` is /run. */
export function mountsOf(node: string): string {
  return `/run/mounts/${node}`
}
