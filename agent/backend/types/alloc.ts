import * as v from 'valibot'
import type { Backend } from '../backend.ts'

const alloc: Backend<object, never> = {
  type: 'alloc',
  shape: v.object({ Backend: v.object({}) }),
  conf: () => ({}),
  mtu: (_conf, uplink) => uplink,
  announce: () => ({}),
  data: () => ({}),
  want: () => ({ resources: [], problems: new Map(), ownersOf: () => new Map() }),
  answersAt: () => ({}),
  links: () => [],
  byBird: () => ({}),
}

/**
 * A backend that only allocates a subnet for the node. Another program routes packets to the other nodes (a cloud's
 * routes, a routing daemon).
 */
export default alloc
