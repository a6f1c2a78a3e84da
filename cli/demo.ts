import { readlinkSync } from 'node:fs'
import { constants } from 'node:os'
import { has } from '../lib/os/exec.ts'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import { must } from './demo/exec.ts'
import { fetchPage, servePage } from './demo/page.ts'
import { play } from './demo/story.ts'
import { type DemoRequest, help, type Story, wishOf } from './demo/wish.ts'
import type { Entry } from './options.ts'
import { print, write } from './output.ts'

/** Its row in the list of commands. */
export const entry: Entry = { place: 18, about: 'make pods and nodes of its own, try them out and remove them' }

/** What may follow `plumb demo`. */
export { grammar } from './demo/wish.ts'

/** Commands that the demo starts, and the Debian package of each. */
const NEEDS: Readonly<Record<string, string>> = {
  ip: 'iproute2',
  nft: 'nftables',
  bridge: 'iproute2',
  ping: 'iputils-ping',
  unshare: 'util-linux',
  nsenter: 'util-linux',
  mount: 'mount',
}
// Everything that the demo makes ends with these namespaces, also after a crash. That means links, rules, mounts below
// /run and processes.
const UNSHARE = 'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private'.split(' ')
const OWN = '/proc/self/ns/net'
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * Runs `plumb demo` and returns the exit status. The status is 0 when every step had the expected result, and 1 when a
 * step had not. After an interruption the status is 128 plus the number of the signal. Throws CniError when the demo
 * cannot run on this machine, ValueError for a wrong command line.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const [part, ...rest] = argv
  // The demo starts itself with these words: to tell a story, and as server and client in the pods.
  if (part === '--inside') return inside(rest)
  if (part === '--serve') return servePage(rest)
  if (part === '--fetch') return fetchPage(rest)
  const wish = wishOf(argv)
  if (wish !== 'help') return playAll(wish)
  print(help())
  return 0
}

async function playAll({ stories, isStoreNamed }: DemoRequest): Promise<number> {
  const isCluster = stories.some(({ name }) => name === 'kubernetes')
  if (process.getuid?.() !== 0)
    throw new CniError(CODE.env, 'Cannot run the demo: it needs root, for namespaces', 'run it with sudo')
  const needs: Readonly<Record<string, string>> = {
    ...NEEDS,
    ...(isStoreNamed && stories.some(isForEtcd) ? { etcd: 'etcd-server' } : {}),
    ...(stories.some(({ name }) => name === 'bgp') ? { bird: 'bird2' } : {}),
  }
  const missing = Object.keys(needs).filter((name) => !has(name))
  if (missing.length > 0)
    throw new CniError(
      CODE.env,
      `Cannot run the demo: ${missing.join(', ')} not found`,
      `install ${[...new Set(missing.map((name) => needs[name]))].join(' ')}`,
    )
  if (isCluster) return playCluster(stories[0] as Story)
  const chosen = stories.filter((story) => !isForEtcd(story) || has('etcd'))
  for (const [i, story] of chosen.entries()) {
    if (i > 0) print('')
    const status = await inNamespaces(story)
    if (status !== 0) return status
  }
  if (chosen.length < stories.length)
    print('\nLeft out: nodes with their leases in etcd, which is not installed (package etcd-server)')
  print('Next: plumb cni --help, plumb agent --help')
  return 0
}

// The cluster has control groups and folders on the disk. They do not end with the namespaces.
async function playCluster(story: Story): Promise<number> {
  const { missing, sweeping } = await import('../tools/k8s/lab.ts')
  const { CLUSTER_NODES } = await import('./demo/kubernetes.ts')
  const why = missing()
  if (why !== undefined)
    throw new CniError(CODE.env, `Cannot run a cluster: ${why}`, 'a checkout of plumb and Go 1.26 are needed for that')
  return sweeping(CLUSTER_NODES, (TMPDIR) => inNamespaces(story, { TMPDIR }))
}

function isForEtcd({ store }: Story): boolean {
  return store === 'etcd'
}

async function inNamespaces({ name, store }: Story, env: Readonly<Record<string, string>> = {}): Promise<number> {
  // `detached` gives the child a separate session. Ctrl-C reaches only this process, and this process ends the whole
  // demo at once.
  const child = Bun.spawn(
    [...UNSHARE, process.execPath, 'demo', '--inside', readlinkSync(OWN), name, ...(store ? ['--store', store] : [])],
    { stdio: ['ignore', 'inherit', 'inherit'], detached: true, env: { ...process.env, ...env } },
  )
  let caught: NodeJS.Signals | undefined
  const end = (signal: NodeJS.Signals) => {
    caught = signal
    child.kill('SIGKILL')
  }
  for (const signal of SIGNALS) process.on(signal, end)
  await child.exited
  for (const signal of SIGNALS) process.off(signal, end)
  if (!caught) return child.exitCode ?? 1
  write(`\nplumb demo: interrupted by ${caught}; what it had made ends with its namespaces\n`)
  return 128 + constants.signals[caught]
}

// Runs as the first process of a PID namespace, with a private /run. The agents, etcd and the servers in the pods end
// when this process ends.
async function inside([outer, ...words]: readonly string[]): Promise<never> {
  const wish = outer === undefined ? 'help' : wishOf(words)
  const story = wish === 'help' ? undefined : wish.stories[0]
  if (process.pid !== 1 || story === undefined || outer === readlinkSync(OWN))
    throw new ValueError('plumb demo --inside is for plumb demo itself, which gives it namespaces of its own')
  await must(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', '/run'])
  process.exit(await play(story))
}
