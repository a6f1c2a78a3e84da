import type { Backend } from '../backend.ts'

const alloc: Backend<object, never> = {
  type: 'alloc',
  conf: () => ({}),
  mtu: (_conf, uplink) => uplink,
  announce: () => ({}),
  data: () => ({}),
  want: () => ({ resources: [], problems: new Map(), ownersOf: () => new Map() }),
  answersAt: () => ({}),
  links: () => [],
}

/** A subnet for the node and nothing else: how packets get to the other nodes is somebody else's business (a cloud's routes, a routing daemon). */
export default alloc
