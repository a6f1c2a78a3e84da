const DIR = '/run/plumb-demo'
/** The addresses of the node and of the host outside of it, on the link between them (RFC 5737, RFC 3849). */
export const OUTSIDE = { node4: '192.0.2.1', node6: '2001:db8::1', host4: '192.0.2.2', host6: '2001:db8::2' } as const
/** Where the demo's network has its configuration, its pool, its cache, links to its plugins and the state of the plugin flannel; and the folder that all nodes of the cluster see. */
export const PLACES = { conf: `${DIR}/net.d`, pool: `${DIR}/pool`, cache: `${DIR}/cache`, bin: `${DIR}/bin`, flannel: `${DIR}/flannel`, store: '/run/store' } as const

/** Where the /run of a node of the cluster is, seen from outside. */
export function runOf(node: string): string {
  return `/run/nodes/${node}`
}

/** The file of such a node's mount namespace, in which that is /run. */
export function mountsOf(node: string): string {
  return `/run/mounts/${node}`
}
