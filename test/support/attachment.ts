import type { Attachment } from '../../lib/cni/plugin.ts'

/** The attachment of a container `c1` to a network `net`, for plugins that are asked without a node. */
export const AT = {
  network: 'net',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/pod',
  args: new Map(),
  path: [],
} as unknown as Attachment
