import type { Attachment, InterfacePlugin, NodeFacts, Plugin } from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import { batches } from '../../lib/state/apply.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { read } from '../../lib/text/shape.ts'
import { remaining } from '../../lib/verbs/add.ts'

/** A node whose link eth1, of 1450 bytes, every namespace has too. */
const NODE = {
  bridgeNf: false,
  link: (name: string) =>
    name === 'eth1'
      ? { index: 7, mtu: 1450, mac: '02:00:00:00:00:e1', kind: '', alias: '', isEthernet: true }
      : undefined,
} as unknown as NodeFacts
const AT = {
  network: 'net',
  containerId: 'c1',
  ifname: 'eth0',
  netns: '/run/netns/pod',
  args: new Map(),
  path: [],
} as unknown as Attachment

/**
 * What ADD of an interface plugin says to tools and writes, a line each behind its namespace and tool, and what it
 * answers; `plumb…` for a name made up. `given` is what the pool gave.
 */
export function told(plugin: Plugin, keys: object, given: Result = {}): { lines: string; result: Result } {
  const made = plugin as unknown as InterfacePlugin<never>
  const conf = read(made.conf, { cniVersion: '1.1.0', name: 'net', ...keys }).value
  const links = made.links?.(conf, AT, NODE) ?? []
  const wiring = made.wire(conf, AT, given, NODE)
  const text = (put: readonly Resource[]) =>
    batches({ put, drop: [] }).flatMap(({ ns, tool, steps }) =>
      steps.map(({ line }) => `${ns === 'host' ? 'node' : 'pod'} ${tool}: ${line.text}`),
    )
  return {
    lines: [...text(links), ...text(remaining(links, wiring).put)].join('\n').replace(/plumb[0-9a-f]{10}/g, 'plumb…'),
    result: wiring.result,
  }
}
