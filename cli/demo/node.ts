import { writeAtomic } from '../../lib/os/files.ts'
import { exec, type Finished, lines, must } from './exec.ts'
import { OUTSIDE, PLACES } from './places.ts'

/**
 * Runs `plumb cni ARGV` as a separate process, as a person types it, with the demo's folders. With `node` the process
 * runs on that node of the cluster.
 */
export async function plumb(argv: readonly string[], node?: string): Promise<Finished> {
  return exec([process.execPath, 'cni', ...argv, '--cache-dir', PLACES.cache], {
    node,
    env: { NETCONFPATH: PLACES.conf, CNI_PATH: await plugins() },
  })
}

/** Writes the network to a file in the configuration folder. `run` is the path of the node's /run. */
export function configure(conf: object, run = '/run'): void {
  writeAtomic(`${run}${PLACES.conf.slice('/run'.length)}/10-demo.conflist`, JSON.stringify(conf), { durable: false })
}

/**
 * Makes the node: lo, and a link to an outside host. The outside host has routes to the pods. So it receives and
 * answers even packets without masquerading, and the demo sees that mistake.
 */
export async function makeNode(subnets: readonly string[]): Promise<void> {
  await must(['ip', 'netns', 'add', 'outside'])
  await lines('host', [
    'link set lo up',
    'link add eth0 type veth peer name eth0 netns outside',
    ...up(OUTSIDE.node4, OUTSIDE.node6),
  ])
  await lines('outside', [
    'link set lo up',
    ...up(OUTSIDE.host4, OUTSIDE.host6),
    ...subnets.map((subnet) => `route add ${subnet} via ${subnet.includes(':') ? OUTSIDE.node6 : OUTSIDE.node4}`),
  ])
}

function up(four: string, six: string): string[] {
  return ['link set eth0 up', `addr add ${four}/24 dev eth0`, `addr add ${six}/64 dev eth0 nodad`]
}

let linked: Promise<string> | undefined

// In a folder without the plugins, such as /usr/local/bin, the demo writes them into a folder of its own.
function plugins(): Promise<string> {
  linked ??= import('../../agent/node/plugins.ts').then(({ pluginsNextTo }) => pluginsNextTo(PLACES.bin))
  return linked
}
