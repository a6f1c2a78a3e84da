import assert from 'node:assert/strict'
import { remains } from '../../support/container-leftovers.ts'
import type { Containerd } from '../../support/containerd.ts'
import type { Namespace, Row } from '../../support/harness.ts'

/** The plugins of a pod of `network`, loopback among them, which containerd calls for itself. */
export const TYPES = ['loopback', 'bridge', 'portmap']
/** What a pod asks for that serves the web and names. */
export const WEB = {
  ports: [
    { host: 8080, container: 80 },
    { host: 5353, container: 53, protocol: 'udp' },
  ],
} as const

/** A network of a bridge with host ports, with these keys in its pool. */
export function network(pool: Row = { ranges: [[{ subnet: '10.9.0.0/24' }], [{ subnet: 'fd00:9::/64' }]] }): Row {
  const bridge = {
    type: 'bridge',
    bridge: 'plumb0',
    isDefaultGateway: true,
    ipMasq: true,
    hairpinMode: true,
    ipam: { type: 'host-local', ...pool },
  }
  return {
    cniVersion: '1.0.0',
    name: 'faults',
    plugins: [bridge, { type: 'portmap', snat: true, capabilities: { portMappings: true } }],
  }
}

/** Removes every sandbox that there is: nothing stays of any, and another pod gets the same ports, and goes as well. */
export async function leavesNothing(containerd: Containerd, node: Namespace): Promise<void> {
  const gone = async () => {
    await containerd.away(...(await containerd.list()))
    assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
  }
  await gone()
  await containerd.run('next', WEB)
  await gone()
}
