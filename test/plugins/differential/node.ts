import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'

/**
 * A node with two pods and the world behind it. `node` runs in a mount namespace of its own, where /var/lib/cni and
 * /run/cni are empty.
 */
export interface Place {
  readonly node: Namespace
  readonly a: Namespace
  readonly b: Namespace
  readonly world: Namespace
}

const NAMES = ['node', 'a', 'b', 'world'] as const

/** Makes two such nodes, the reference's and ours, and removes them whatever happens. */
export async function onTwoNodes(work: (theirs: Place, ours: Place) => Promise<void>): Promise<void> {
  const both = ['theirs', 'ours'].flatMap((side) => NAMES.map((name) => `${side}-${name}`))
  const run = inNamespaces(both, async (all) => {
    const place = (side: string) =>
      ({ node: all[`${side}-node`], a: all[`${side}-a`], b: all[`${side}-b`], world: all[`${side}-world`] }) as Place
    const [theirs, ours] = await Promise.all([furnish(place('theirs')), furnish(place('ours'))])
    try {
      await work(theirs.place, ours.place)
    } finally {
      await Promise.all([theirs.close(), ours.close()])
    }
  })
  await run.call(undefined as unknown as Mocha.Context)
}

async function furnish(bare: Place): Promise<{ place: Place; close(): Promise<void> }> {
  // As wireWorld does, in one process.
  const { node, world } = bare
  const wired = await node.exec(['sh', '-ec', wiring(world.path)])
  if (wired.status !== 0) throw new Error(`Cannot wire the world: ${wired.stderr}`)
  const holder = Bun.spawn(['unshare', '--mount', '--propagation', 'slave', 'sh', '-ec', ROOM], {
    stdin: 'pipe',
    stdout: 'pipe',
  })
  const exec: Namespace['exec'] = (argv, options) =>
    node.exec(['nsenter', `--mount=/proc/${holder.pid}/ns/mnt`, '--', ...argv], options)
  await holder.stdout.getReader().read()
  const close = async () => {
    holder.kill('SIGKILL')
    await holder.exited
  }
  return { place: { ...bare, node: { ...node, exec } }, close }
}

const ROOM = `
mkdir -p /var/lib/cni /run/cni
mount -t tmpfs -o mode=755 tmpfs /var/lib/cni
mount -t tmpfs -o mode=755 tmpfs /run/cni
echo ready
exec cat`

// The world knows the way back to every subnet of a pod: what is not masqueraded is heard all the same.
function wiring(world: string): string {
  const on = (four: string, six: string) =>
    `ip link set lo up; ip link set up0 up; ip addr add ${four}/24 dev up0; ip addr add ${six}/64 dev up0 nodad`
  return `
ip link add up0 type veth peer name up0 netns ${world}
${on(WORLD.node4, WORLD.node6)}
nsenter --net=${world} sh -ec '${on(WORLD.world4, WORLD.world6)}; ip route add 10.0.0.0/8 via ${WORLD.node4}; ip route add fd00::/8 via ${WORLD.node6}'`
}
