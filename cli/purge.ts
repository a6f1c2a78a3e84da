import { existsSync, readdirSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { hasLeft, withdraw } from '../agent/cleanup.ts'
import { instanceOf } from '../agent/instance.ts'
import { run } from '../agent/kernel/run.ts'
import { cachedLiving, isAttachment, isOurs, nameOf, pluginsOf } from '../agent/living.ts'
import { statePath } from '../agent/node/files.ts'
import { type InstallFolders, leftLine, uninstall } from '../agent/node/install.ts'
import { removeTools } from '../agent/node/own-tools.ts'
import type { Settings } from '../agent/settings/settings.ts'
import { entries } from '../lib/journal/journal.ts'
import { thingsOf } from '../lib/journal/shared.ts'
import { removeChain } from '../lib/nft/forward-chain.ts'
import { run as pluginRun } from '../lib/os/exec.ts'
import { type LinkFacts, linksNow } from '../lib/os/links.ts'
import { isThere as hasTable } from '../lib/os/nftables.ts'
import { readText } from '../lib/os/reading.ts'
import { listCached } from '../lib/runtime/cache.ts'
import { CHAIN } from '../lib/state/kinds/passage.ts'
import { ExecError } from '../lib/text/errors.ts'
import { BRIDGE_ALIAS } from '../lib/text/owner.ts'
import { removeNoted } from '../lib/verbs/orphans.ts'
import { removeLeft } from './trace/watch.ts'

const CACHE = '/var/lib/cni'
const [RUN, JOURNAL, TUNING, DHCP] = ['/run/plumb', '/run/cni/plumb', '/run/cni/tuning', '/run/cni/dhcp.sock']
/** plumb's own folder in host-local's folder, beside the folders of the networks. */
const OWN = '.plumb'
/** The names of the files that host-local keeps in the folder of a network. */
const POOL_FILES = /^(lock|last_reserved_ip\.\d+|[\da-f.:_]+|\.[\w-]*\.?draft)$/i

/** The report of a purge, one line per object. With `dryRun` a line says what would happen. */
interface Purge {
  readonly lines: string[]
  readonly dryRun: boolean
}

/**
 * Removes the installed programs and the installed network, and returns a line for each. With `dryRun` changes nothing.
 */
export function removePrograms(places: InstallFolders, dryRun: boolean): string[] {
  const { undone, left } = uninstall(places, { dryRun })
  const done = (isBack: boolean) =>
    dryRun ? (isBack ? 'would put back' : 'would remove') : isBack ? 'put back' : 'removed'
  const tools = removeTools(places.binDir, dryRun).map((path) => `${dryRun ? 'would remove' : 'removed'} ${path}`)
  return [...tools, ...undone.map(({ path, isBack }) => `${done(isBack)} ${path}`), ...left.map(leftLine)]
}

/**
 * Removes everything that plumb made on this node, and everything that was installed. That includes the agent's part,
 * attachments, bridges, the nft table, the journal, reservations and saved values. With `dryRun` changes nothing.
 * Returns a line for each object. Throws CniError 11 while the agent runs, ExecError when a tool fails.
 */
export async function purge(settings: Settings, places: InstallFolders, dryRun: boolean): Promise<string[]> {
  const it: Purge = { lines: [], dryRun }
  const { socket } = settings.files
  if (hasLeft(settings)) it.lines.push(...(await withdraw(settings, { dryRun })))
  const seen = { links: linksNow(), shared: new Set(thingsOf('links')) }
  await attachments(it)
  await remainingLinks(it, seen)
  await firewall(it)
  for (const dir of poolFolders(places.confDir)) pools(it, dir)
  keptByFlannel(it)
  // The folder below has the notes of killed traces.
  if (!dryRun) await removeLeft()
  for (const path of [JOURNAL, TUNING, ...(socket.startsWith(`${RUN}/`) ? [RUN] : [])]) tree(it, path)
  if (existsSync(DHCP)) it.lines.push(`left ${DHCP}, the socket of plumb dhcp: stop that, and remove it`)
  else tree(it, `${DHCP}.leases`)
  // The programs go last. After a failure in an earlier step the user can still run the purge again.
  it.lines.push(...removePrograms(places, dryRun))
  // A runtime may have called a plugin meanwhile (the second DEL of a sandbox), which made the journal's folder again.
  if (!dryRun) tree(it, JOURNAL)
  const own = (['lease', 'network'] as const).map((what) => statePath(places.stateDir, what, instanceOf(settings)))
  emptied(it, places.stateDir, [`${places.stateDir}/installed.json`, ...own])
  emptied(it, '/etc/plumb', [])
  return it.lines
}

async function attachments(it: Purge): Promise<void> {
  for (const entry of entries())
    await act(it, `what ${nameOf(entry.owner)} has by the journal`, () => removeNoted(entry, pluginRun))
}

// A bridge with a port that plumb did not make is in use, and stays.
async function remainingLinks(
  it: Purge,
  { links, shared }: { readonly links: readonly LinkFacts[]; readonly shared: ReadonlySet<string> },
): Promise<void> {
  const own = links.filter(({ alias, name }) => isAttachment(alias) || shared.has(name))
  const ends = new Set(own.flatMap(({ index, on }) => [index, ...(on === undefined ? [] : [on])]))
  for (const { name } of own) await deleted(it, name)
  for (const { name, index } of links.filter(({ alias, kind }) => kind === 'bridge' && alias === BRIDGE_ALIAS)) {
    const others = links.filter((link) => link.master === index && !ends.has(link.index))
    if (others.length === 0) await deleted(it, name)
    else it.lines.push(`left bridge ${name}: ${others.map((link) => link.name).join(', ')} stands on it`)
  }
}

async function deleted(it: Purge, name: string): Promise<void> {
  await act(it, `link ${name}`, () =>
    must(['ip', '-force', '-batch', '-'], `link delete dev ${name}\n`, /Cannot find device|No such device/),
  )
}

async function firewall(it: Purge): Promise<void> {
  if (hasTable('inet', 'plumb'))
    await act(it, 'nft table inet plumb', () => must(['nft', '-f', '-'], 'table inet plumb\ndelete table inet plumb\n'))
  for (const tool of await removeChain(CHAIN, run, it))
    it.lines.push(`${it.dryRun ? 'would remove' : 'removed'} chain ${CHAIN} of ${tool}`)
}

// Returns host-local's folders: the default folder, and the folders that networks name.
function poolFolders(confDir: string): string[] {
  const texts = namesIn(confDir).flatMap((name) =>
    /\.(conflist|conf|json)$/.test(name) ? (readText(`${confDir}/${name}`) ?? '') : [],
  )
  const lists = [...texts, ...listCached(CACHE).entries.map(({ config }) => config)].map(pluginsOf)
  const named = lists
    .flat()
    .flatMap(({ ipam }) => (ipam?.type === 'host-local' && ipam.dataDir?.startsWith('/') ? [ipam.dataDir] : []))
  return [...new Set([`${CACHE}/networks`, ...named])]
}

// Pods of other plugins may also have their addresses from host-local. Such a folder stays while those pods live.
function pools(it: Purge, dir: string): void {
  const inUse = new Set<string>(cachedLiving().flatMap(({ network, config }) => (isOurs(config) ? [] : [network])))
  for (const network of namesIn(dir).filter((name) => name !== OWN && statSync(`${dir}/${name}`).isDirectory())) {
    const path = `${dir}/${network}`
    const files = namesIn(path)
    const foreign = files.find((name) => !POOL_FILES.test(name))
    if (inUse.has(network)) it.lines.push(`left ${path}: pods of ${network} live, whose interface is of another plugin`)
    else if (foreign !== undefined) it.lines.push(`left ${path}: ${foreign} is no file of host-local`)
    else if (files.length > 0) tree(it, path)
  }
  tree(it, `${dir}/${OWN}`)
}

// Removes only files with a colon in their names. flannel's own plugin names its files by the container id alone,
// without a colon.
function keptByFlannel(it: Purge): void {
  const dir = `${CACHE}/flannel`
  for (const name of namesIn(dir)) if (name.includes(':')) tree(it, `${dir}/${name}`)
}

// A folder that is not empty stays. It has files of a person, or a store that all nodes share.
function emptied(it: Purge, dir: string, own: readonly string[]): void {
  if (!existsSync(dir)) return
  const left = namesIn(dir).filter((name) => !(it.dryRun && own.includes(`${dir}/${name}`)))
  if (left.length > 0) return void it.lines.push(`left ${dir}: plumb did not make ${left.join(', ')}`)
  if (!it.dryRun) unlessMounted(() => rmdirSync(dir))
  it.lines.push(`${it.dryRun ? 'would remove' : 'removed'} ${dir}`)
}

function tree(it: Purge, path: string): void {
  if (!existsSync(path)) return
  if (!it.dryRun) unlessMounted(() => rmSync(path, { recursive: true, force: true }))
  it.lines.push(`${it.dryRun ? 'would remove' : 'removed'} ${path}`)
}

// The kernel does not remove a folder that is a mount point (EBUSY). That folder stays, but empty.
function unlessMounted(work: () => void): void {
  try {
    work()
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EBUSY') throw cause
  }
}

async function act(it: Purge, what: string, work: () => Promise<void>): Promise<void> {
  if (!it.dryRun) await work()
  it.lines.push(`${it.dryRun ? 'would remove' : 'removed'} ${what}`)
}

async function must(argv: readonly string[], stdin: string, unless?: RegExp): Promise<void> {
  const { status, stderr } = await run(argv, stdin)
  if (status !== 0 && !unless?.test(stderr)) throw new ExecError(argv, undefined, stderr.trim())
}

function namesIn(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : []
}
