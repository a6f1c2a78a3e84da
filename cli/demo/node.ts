import { writeAtomic } from '../../lib/files.ts'
import { exec, type Finished, must } from './exec.ts'

const DIR = '/run/plumb-demo'
// The plugins are where plumb is: dist/, or wherever it was installed to.
const BIN = process.execPath.slice(0, process.execPath.lastIndexOf('/'))
/** The addresses of the node and of the host outside of it, on the link between them (RFC 5737, RFC 3849). */
export const OUTSIDE = { node4: '192.0.2.1', node6: '2001:db8::1', host4: '192.0.2.2', host6: '2001:db8::2' } as const
/** Where the demo's network has its configuration, its pool and its cache. */
export const PLACES = { conf: `${DIR}/net.d`, pool: `${DIR}/pool`, cache: `${DIR}/cache` } as const

/** `plumb cni ARGV`, in a process of its own, as somebody types it; with the demo's folders. */
export function plumb(...argv: readonly string[]): Promise<Finished> {
  return exec([process.execPath, 'cni', ...argv, '--cache-dir', PLACES.cache], { env: { NETCONFPATH: PLACES.conf, CNI_PATH: BIN } })
}

/** Makes the network known, as a file of the configuration folder. */
export function configure(conf: object): void {
  writeAtomic(`${PLACES.conf}/10-demo.conflist`, JSON.stringify(conf), { durable: false })
}

/** Makes the node: a /run of its own, lo, and a link to a host outside. That has routes to the pods, so that a packet which is not masqueraded is seen, and answered, all the same. */
export async function makeNode(subnets: readonly string[]): Promise<void> {
  await must(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', '/run'])
  await must(['ip', 'netns', 'add', 'outside'])
  await lines('host', ['link set lo up', 'link add eth0 type veth peer name eth0 netns outside', ...up(OUTSIDE.node4, OUTSIDE.node6)])
  await lines('outside', ['link set lo up', ...up(OUTSIDE.host4, OUTSIDE.host6), ...subnets.map((subnet) => `route add ${subnet} via ${subnet.includes(':') ? OUTSIDE.node6 : OUTSIDE.node4}`)])
}

function up(four: string, six: string): string[] {
  return ['link set eth0 up', `addr add ${four}/24 dev eth0`, `addr add ${six}/64 dev eth0 nodad`]
}

async function lines(ns: string, commands: readonly string[]): Promise<void> {
  await must(['ip', '-batch', '-'], { ns, stdin: `${commands.join('\n')}\n` })
}
