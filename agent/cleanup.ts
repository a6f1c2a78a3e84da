import { existsSync } from 'node:fs'
import { draftOf, remove } from '../lib/os/files.ts'
import { linksNow } from '../lib/os/links.ts'
import { isThere } from '../lib/os/nftables.ts'
import type { Run } from '../lib/os/run.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { openBackend } from './backend/open.ts'
import { birdFiles, removeBird } from './bgp/bird.ts'
import { removeProxies } from './doctor/pod-proxies.ts'
import { TABLE as FAST_PATH, REMOVE as REMOVE_FAST_PATH } from './fast-path/table.ts'
import { leaveForward } from './firewall/forward.ts'
import { removal } from './firewall/masquerade.ts'
import { birdDir, instanceOf, knownPlace, scopeOf, storeWish, tableOf, tunnelsOf } from './instance.ts'
import { Converger } from './kernel/converge.ts'
import { markOf } from './kernel/marks.ts'
import { run } from './kernel/run.ts'
import type { NetworkConf } from './lease/network-configuration.ts'
import { requireNoPods } from './living.ts'
import { readAdded, removeAll } from './node/added-peers.ts'
import { forget, identity, remembered, statePath } from './node/files.ts'
import { leftLine, uninstall } from './node/install.ts'
import { listenerOf } from './node/instance-lock.ts'
import { isTaken } from './node/socket.ts'
import { REMOVE as REMOVE_GUARD } from './policy/guard.ts'
import { TABLE as POLICY_TABLE, REMOVE } from './policy/table.ts'
import { closeLoopback } from './services/removal.ts'
import { isOnLoopback, REMOVE as REMOVE_SERVICES, TABLE as SERVICES_TABLE } from './services/table.ts'
import type { Settings } from './settings/settings.ts'
import { openStore } from './store/open.ts'

/** Time limit for the store. The cleanup of the node goes on without an answer. */
const STORE_MS = 5000

/**
 * Removes everything that the agent made and installed on this node, and returns its subnet to the store. Gives one
 * line for each action. A missing object is no error. Programs of `plumb install` stay, plumb itself among them. Throws
 * CniError 11 while the agent runs, because a running agent makes most of it again at once, and without `force` while
 * pods live that plumb attached.
 */
export async function cleanup(settings: Settings, { force = false } = {}): Promise<string[]> {
  const running = await runningAt(settings.files.socket)
  if (running) throw running
  if (!force) requireNoPods('clean up')
  const done = await withdraw(settings)
  const { undone, left, installed } = uninstall(settings.files, { by: 'agent' })
  const count = installed.filter((path) => existsSync(path)).length
  return [
    ...done,
    ...undone.map(({ path, isBack }) => `${isBack ? 'put back' : 'removed'} ${path}`),
    ...left.map(leftLine),
    ...(count > 0 ? [`left ${count} programs in ${settings.files.binDir}: plumb uninstall removes them`] : []),
  ]
}

/**
 * Does the work of `cleanup` except for installed files. With `dryRun` it changes nothing and gives the actions that it
 * would take. Commands for tools appear in their own syntax.
 */
export async function withdraw(settings: Settings, { dryRun = false } = {}): Promise<string[]> {
  const { files, node } = settings
  const [done, lines]: [string[], string[]] = [[], []]
  const running = await runningAt(files.socket)
  if (running && !dryRun) throw running
  if (running) done.push(`would be refused: ${running.message}: ${running.details}`)
  const tools = dryRun ? asking(run, lines) : run
  const instance = instanceOf(settings)
  // First of all, so that nobody sends packets to this node any more.
  const ended = await removeBird(birdDir(settings), run, { dryRun })
  const earlier = remembered(files.stateDir, node, instance)
  const conf = await released(settings, done, dryRun)
  const links = conf ? await linksOf(conf) : []
  const scope = scopeOf(settings, conf ?? EMPTY, links, earlier?.network)
  const { changed, failed } = await new Converger(scope, tools).step([])
  await removeProxies(tools)
  if (!dryRun)
    done.push(`removed ${changed} links, addresses, routes, nexthops, neighbours and forwarding entries`, ...failed)
  const addedPeers = statePath(files.stateDir, 'commands', instance)
  const added = readAdded(addedPeers).peers.length
  if (added > 0 && settings.network.allowExtension) {
    if (!dryRun) done.push(...(await removeAll(addedPeers)))
    done.push(`${dryRun ? 'would run' : 'ran'} SubnetRemoveCommand for ${added} peers`)
  } else if (added > 0)
    done.push(`left ${addedPeers}, whose command was not run for ${added} peers: want --allow-extension`)
  for (const table of [tableOf(instance), tunnelsOf(instance)]) {
    const { status, stderr } = await tools(['nft', '-f', '-'], removal(table))
    if (!dryRun) done.push(status === 0 ? `removed nft table inet ${table}` : `nft: ${stderr.trim()}`)
  }
  for (const [table, removing] of [
    [FAST_PATH, REMOVE_FAST_PATH],
    [POLICY_TABLE, `${REMOVE}${REMOVE_GUARD}`],
    [SERVICES_TABLE, REMOVE_SERVICES],
  ] as const) {
    // Without this chain, other machines could reach 127.0.0.0/8. Somebody may have removed it.
    const wasWanted = settings.services !== undefined && isOnLoopback(settings.services, 4)
    if (table === SERVICES_TABLE) done.push(...closeLoopback(wasWanted, { dryRun }))
    if (!isThere('inet', table)) continue
    const { status, stderr } = await tools(['nft', '-f', '-'], removing)
    if (!dryRun) done.push(status === 0 ? `removed nft table inet ${table}` : `nft: ${stderr.trim()}`)
  }
  done.push(...ended)
  await leaveForward(instance, tools)
  const forgotten = forget(files.stateDir, node, files.subnetEnv, { instance, dryRun })
  const { path } = knownPlace(settings)
  if (existsSync(path)) forgotten.push(path)
  for (const one of dryRun ? [] : [path, draftOf(path)]) remove(one)
  return [...done, ...lines, ...forgotten.map((path) => `${dryRun ? 'would remove' : 'removed'} ${path}`)]
}

/** Whether an object of this agent is left on the node: its state, its socket, BIRD, its nft table or a marked link. */
export function hasLeft(settings: Settings): boolean {
  const { files, node } = settings
  const instance = instanceOf(settings)
  const isMarked = () => linksNow().some(({ alias }) => alias === markOf(instance))
  return (
    remembered(files.stateDir, node, instance) !== undefined ||
    existsSync(files.socket) ||
    existsSync(birdFiles(birdDir(settings)).conf) ||
    isThere('inet', tableOf(instance)) ||
    isThere('inet', tunnelsOf(instance)) ||
    isThere('inet', FAST_PATH) ||
    isThere('inet', POLICY_TABLE) ||
    isThere('inet', SERVICES_TABLE) ||
    isMarked()
  )
}

// The `Run` of a dry run. Commands that only show something run. The input of all others is noted in `lines`.
function asking(tools: Run, lines: string[]): Run {
  const asked: Run = async (argv, stdin, ns) => {
    if (argv.includes('-j') || argv[0]?.endsWith('-save')) return tools(argv, stdin, ns)
    for (const line of stdin.split('\n').filter(Boolean)) lines.push(`would run ${argv[0]}: ${line}`)
    return { status: 0, stdout: '', stderr: '' }
  }
  return Object.assign(asked, tools)
}

async function runningAt(socket: string): Promise<CniError | undefined> {
  if (!(await isTaken(socket))) return undefined
  const pid = listenerOf(socket)
  const who = pid === undefined ? 'the agent runs' : `the agent runs, process ${pid},`
  const text = `Cannot clean up: ${who} and answers at ${socket}`
  return new CniError(CODE.tryLater, text, 'stop it first: systemctl stop plumb-agent, or delete its DaemonSet')
}

const EMPTY: NetworkConf = { backend: { type: 'alloc', options: {} }, enableNFTables: false }

// The network configuration names the backend's devices. Without it, cleanup still finds devices by their mark.
async function released(settings: Settings, done: string[], dryRun: boolean): Promise<NetworkConf | undefined> {
  const store = await openStore(storeWish(settings))
  try {
    // A store that answers takes the lease back also without a configuration.
    const conf = await store.config(AbortSignal.timeout(STORE_MS)).catch((cause) => {
      if (!store.state().connected) throw cause
      return undefined
    })
    if (!dryRun) await store.release(settings.node, identity(settings.files.stateDir))
    done.push(`${dryRun ? 'would give' : 'gave'} back the subnet of node ${settings.node}`)
    return conf
  } catch (cause) {
    done.push(`the store did not answer, the subnet stays this node's until it ends: ${(cause as Error).message}`)
    return undefined
  } finally {
    await store.close()
  }
}

async function linksOf({ backend }: NetworkConf) {
  const found = await openBackend(backend.type)
  return found.links(found.conf(backend.options))
}
