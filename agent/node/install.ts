import { existsSync, statSync } from 'node:fs'
import { isAbsolute, normalize } from 'node:path'
import * as v from 'valibot'
import { SOCKET } from '../../lib/nft/admission.ts'
import { draftOf, remove, writeAtomic } from '../../lib/os/files.ts'
import { log, warn } from '../../lib/os/log.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { CniError, CODE, shown, ValueError } from '../../lib/text/errors.ts'
import { field, read } from '../../lib/text/shape.ts'
import type { Pods, Settings } from '../settings/settings.ts'
import {
  dropAside,
  fingerprint,
  fingerprintOf,
  isPlumb,
  isProgram,
  placeBytes,
  placeCopy,
  placeLink,
  putBack,
  setAside,
} from './executables.ts'
import { isPluginProgram, pluginProgram } from './plugin-program.ts'

/** The folders of programs, of network configurations, and of the agent's state with the note of what it installed. */
export interface InstallFolders {
  readonly binDir: string
  readonly confDir: string
  readonly stateDir: string
}
/** The result of an installation of plugins, as paths. */
export interface Plugins {
  readonly made: readonly string[]
  /** The paths in `made` that were another program. `uninstall` restores those programs. */
  readonly replaced: readonly string[]
}
/** The choices of an installed network. */
export interface NetworkWish {
  /** How it connects pods. By a bridge unless told otherwise. */
  readonly pods?: Pods
  /** The agent's socket for network policy, when it is enforced. */
  readonly policySocket?: string | undefined
}
/** The result of an installation of the network. */
export interface Network {
  readonly path: string
  readonly made: boolean
  /** The path has a file of another program, and the file stays. */
  readonly foreign: boolean
  /** A configuration file that sorts before this one. Runtimes use that file. */
  readonly hiddenBy?: string
}

/** An uninstalled path. With `isBack` the earlier program is there again, else nothing is there. */
export interface Undone {
  readonly path: string
  readonly isBack: boolean
}

// flannel uses the same name. So a node that had flannel keeps one network instead of two.
const FILE = '10-flannel.conflist'
// A folder beside the programs.
const ASIDE = '.before-plumb'
/**
 * A file that the package plumb-plugins has beside its programs. An image sees it too, unlike dpkg's and rpm's notes.
 */
export const PACKAGED = '.plumb-package'

/**
 * The plugin that has a file of its own. The init container of kube-flannel writes over it in place (`cp -f`), and
 * would write over all plugins through a hard link.
 */
export const APART = 'flannel'

/** Who installs or uninstalls: `plumb install` and `plumb uninstall` unless it is the agent. */
type By = { readonly by?: 'agent' }

/**
 * Installs the executable of the plugins, whose bytes are `program`, under each of their names: hard links to one file,
 * except `flannel`. With `plumb` it also puts that program there. Correct files and those of the package plumb-plugins
 * stay as they are. Another program with such a name is kept aside. Each name leads to the old or to the new program at
 * any moment. The note says which programs the agent alone put there: a cleanup of the agent removes those, and no others.
 */
export function installPlugins(
  { binDir, stateDir }: InstallFolders,
  program: Uint8Array,
  names: readonly string[],
  { plumb, by }: { readonly plumb?: string | undefined } & By = {},
): Plugins {
  const [first = '', ...others] = names.map((name) => `${binDir}/${name}`)
  const base = plumb === undefined ? [] : [`${binDir}/plumb`]
  const noted = readNote(stateDir)
  const prints = [fingerprintOf(program), ...(plumb === undefined ? [] : [fingerprint(plumb) as string])]
  const [print = '', plumbPrint] = prints
  const isCorrect = (path: string) => fingerprint(path) === (base.includes(path) ? plumbPrint : print)
  const all = [...base, first, ...others]
  const made = all.filter((path) => !isCorrect(path) && !isPackaged(path))
  const replaced = made.filter((path) => isForeign(path, [...prints, ...noted.prints]))
  // The note is written first. After a kill it tells plumb's half-installed files from files that were there before.
  const files = [...new Set([...noted.files, ...made])]
  const byAgent =
    by === 'agent'
      ? [...noted.byAgent, ...made.filter((path) => !noted.files.includes(path))]
      : noted.byAgent.filter((path) => !all.includes(path))
  if (made.length > 0 || byAgent.length !== noted.byAgent.length)
    writeNote(stateDir, { ...noted, files, byAgent, prints: latest(prints, noted.prints) })
  // By the same time, in whole seconds, a plugin knows the other file as its own program (lib/verbs/delegate.ts).
  const time = Math.floor((made.includes(first) ? Date.now() : statSync(first).mtimeMs) / 1000)
  try {
    for (const path of replaced) setAside(path, asideOf(path))
    for (const path of made) {
      if (base.includes(path)) placeCopy(plumb as string, path)
      else if (path === first || path === `${binDir}/${APART}`) placeBytes(program, path, time)
      else placeLink(first, path)
    }
  } catch (cause) {
    const placed = made.filter((path) => prints.includes(fingerprint(path) ?? ''))
    for (const path of replaced) if (!placed.includes(path)) dropAside(asideOf(path))
    if (placed.length === 0) putNoteBack(stateDir, noted)
    throw cause
  }
  return { made, replaced }
}

// Nothing was put in place, so the note is as before. A disk that takes no note keeps the new one, whose files
// uninstall does not find.
function putNoteBack(stateDir: string, noted: Note): void {
  try {
    if (noted.files.length > 0 || noted.networks.length > 0) writeNote(stateDir, noted)
    else remove(notePath(stateDir))
  } catch {
    // The error of the installation counts.
  }
}

/**
 * Installs the plugins, then the network for the container runtime. Logs replaced programs and foreign configurations.
 * Throws CniError 50 while a plugin of the network is missing in the runtime's folder.
 */
export async function installNode({ files, policy }: Pick<Settings, 'files' | 'policy'>): Promise<void> {
  if (!files.install) return
  const { PLUGINS } = await import('./plugins.ts')
  const { replaced } = installPlugins(files, pluginProgram(), PLUGINS, { by: 'agent' })
  const outdated = packagedOtherwise(files.binDir, PLUGINS)
  if (outdated !== undefined) warn(`agent: ${outdated}`)
  for (const path of replaced) log(`agent: installed plumb as ${path}; the earlier program is kept as ${asideOf(path)}`)
  const wish = { pods: files.pods, policySocket: policy && files.policySocket }
  mustResolve(networkText(files.subnetEnv, wish), files.binDir)
  const { path, made, foreign, hiddenBy } = installNetwork(files, files.subnetEnv, wish)
  if (hiddenBy !== undefined) warn(`agent: ${hiddenBy} comes before ${path}: the container runtime takes that one`)
  if (foreign) warn(`agent: ${path} is not plumb's file and stays as it is`)
  else if (made) log(`agent: wrote ${path} for the container runtime`)
}

// Checks the plugins of the list, and the plugins that flannel starts itself.
function mustResolve(network: string, binDir: string): void {
  const plugins = JSON.parse(network).plugins as { type: string; delegate?: { type?: string } }[]
  const own = plugins.flatMap(({ type, delegate }) => [type, delegate?.type ?? 'bridge'])
  const types = [...own, 'host-local']
  const missing = types.filter((type) => !isProgram(`${binDir}/${type}`))
  if (missing.length === 0) return
  const text = `Pods cannot start: ${binDir} has no ${missing.join(', ')}`
  throw new CniError(CODE.notReady, text, 'plumb install puts the plugins there')
}

/**
 * Installs the network for the container runtime. Call it when pods can be served. A file of the same name from another
 * program stays.
 */
export function installNetwork(
  { confDir, stateDir }: InstallFolders,
  subnetFile: string,
  wish: NetworkWish = {},
): Network {
  const [path, text] = [`${confDir}/${FILE}`, networkText(subnetFile, wish)]
  const noted = readNote(stateDir)
  const there = readText(path)
  // A disk that failed may leave an empty file.
  const isThere = there !== undefined && there.trim() !== ''
  const [hiddenBy] = listFiles(confDir)
    .filter((name) => /\.(conflist|conf|json)$/.test(name) && name < FILE)
    .sort()
  const found = { path, ...(hiddenBy !== undefined && { hiddenBy: `${confDir}/${hiddenBy}` }) }
  if (there === text) return { ...found, made: false, foreign: false }
  if (isThere && !noted.networks.includes(there)) return { ...found, made: false, foreign: true }
  writeNote(stateDir, { ...noted, networks: latest([text], noted.networks) })
  writeAtomic(path, text, { mode: 0o644, by: draftOf(path) })
  return { ...found, made: true, foreign: false }
}

/** The paths that were installed and are missing: the network, and programs. None from the begin of `uninstall` on. */
export function missingOf({ binDir, confDir, stateDir }: InstallFolders): string[] {
  const { files, networks, isLeaving } = readNote(stateDir)
  if (networks.length === 0 || isLeaving) return []
  const path = `${confDir}/${FILE}`
  const isGone = (readText(path) ?? '').trim() === ''
  const own = files.filter((one) => one.startsWith(`${binDir}/`) && one !== `${binDir}/plumb`)
  return [...(isGone ? [path] : []), ...own.filter((one) => !existsSync(one))]
}

/**
 * Removes the network first, then the plugins, if they are unchanged, and puts back the programs that were kept aside.
 * These come back even when the note is lost. `undone` has the paths that are gone or restored. `left` has the paths
 * that another program changed or that the package plumb-plugins owns, and those stay. For the agent the programs that
 * it did not put there stay as well: `installed` has them. With `dryRun` nothing changes.
 */
export function uninstall(
  { binDir, confDir, stateDir }: InstallFolders,
  { dryRun = false, by }: { readonly dryRun?: boolean } & By = {},
): { readonly undone: readonly Undone[]; readonly left: readonly string[]; readonly installed: readonly string[] } {
  const noted = readNote(stateDir)
  const { prints, networks } = noted
  const kept = listFiles(`${binDir}/${ASIDE}`).map((name) => `${binDir}/${name}`)
  const all = [...new Set([...noted.files, ...kept])]
  const installed = by === 'agent' ? all.filter((path) => !noted.byAgent.includes(path)) : []
  const files = all.filter((path) => !installed.includes(path))
  const [undone, left]: [Undone[], string[]] = [[], []]
  if (!dryRun) noteLeaving(stateDir, noted)
  const path = `${confDir}/${FILE}`
  const there = readText(path)
  if (there !== undefined && networks.length > 0) {
    const isOurs = networks.includes(there)
    if (isOurs && !dryRun) remove(path)
    if (isOurs) undone.push({ path, isBack: false })
    else left.push(path)
  }
  if (!dryRun) remove(draftOf(path))
  for (const file of files) {
    if (isForeign(file, prints) || isOther(file) || isPackaged(file)) left.push(file)
    else {
      const isThere = existsSync(file)
      const isBack = dryRun ? existsSync(asideOf(file)) : putBack(asideOf(file), file)
      if (!isBack && !dryRun) remove(file)
      if (isThere || isBack) undone.push({ path: file, isBack })
    }
  }
  if (dryRun) return { undone, left, installed }
  const stay = noted.files.filter((path) => installed.includes(path))
  if (stay.length > 0) writeNote(stateDir, { ...noted, files: stay, byAgent: [], networks: [] })
  else for (const path of [notePath(stateDir), draftOf(notePath(stateDir))]) remove(path)
  return { undone, left, installed }
}

/**
 * The configuration list of the pods' network, as text. It is the list of kube-flannel.yml with host ports and traffic
 * shaping inside the delegate `bridge`, so that the runtime starts one process for a pod. `forceAddress` lets `cni0`
 * follow a subnet that changed. Routed pods have `ptp` instead of `bridge`. The list of kube-flannel.yml with `portmap`
 * behind `flannel` works too. With the agent's socket for network policy, the agent admits each pod.
 */
export function networkText(subnetFile: string, { pods = 'bridge', policySocket }: NetworkWish = {}): string {
  const where = subnetFile === '/run/flannel/subnet.env' ? {} : { subnetFile }
  const policy = policySocket === undefined ? {} : { policy: policySocket === SOCKET ? true : { socket: policySocket } }
  const delegate =
    pods === 'routed'
      ? { type: 'ptp', routed: true }
      : { hairpinMode: true, isDefaultGateway: true, forceAddress: true }
  const flannel = {
    type: 'flannel',
    ...where,
    delegate: { ...delegate, portMappings: true, ...policy },
    capabilities: { portMappings: true, bandwidth: true },
  }
  // A runtime that knows the second key asks for STATUS and GC. An older runtime uses the version of the first key.
  const list = { cniVersion: '1.0.0', cniVersions: ['1.0.0', '1.1.0'], name: 'cbr0', plugins: [flannel] }
  return `${JSON.stringify(list, null, 2)}\n`
}

/**
 * The installed files: paths, hashes of the program, and texts of the network. The last two also have the previous
 * value, because a kill may come in between.
 */
interface Note {
  readonly files: readonly string[]
  /** Those of `files` that `plumb install` did not ask for. A note of an earlier version has none. */
  readonly byAgent: readonly string[]
  readonly prints: readonly string[]
  readonly networks: readonly string[]
  /** An uninstall is at work, or was killed. */
  readonly isLeaving?: boolean
}

const texts = v.array(field.text)
const paths = v.array(field.by(absolute))
const shape = v.object({
  files: paths,
  byAgent: v.optional(paths, []),
  prints: texts,
  networks: texts,
  isLeaving: v.exactOptional(field.flag),
})

// Accepts only absolute, normalized paths, as the note has them. An impossible path belongs to no program.
function absolute(value: unknown): string {
  const isPath = typeof value === 'string' && !value.includes('\0') && value.length <= 4000
  if (isPath && isAbsolute(value) && normalize(value) === value) return value
  throw new ValueError(`${shown(value)}: want the whole path of a file`)
}

function notePath(stateDir: string): string {
  return `${stateDir}/installed.json`
}

function readNote(stateDir: string): Note {
  const nothing = { files: [], byAgent: [], prints: [], networks: [] }
  const text = readText(notePath(stateDir))
  try {
    return text === undefined ? nothing : read(shape, JSON.parse(text)).value
  } catch (cause) {
    const effect = 'the installed programs count as foreign'
    warn(`agent: Cannot use ${notePath(stateDir)}; ${effect}: ${(cause as Error).message}`)
    return nothing
  }
}

function writeNote(stateDir: string, { files, byAgent, prints, networks }: Note, isLeaving = false): void {
  const path = notePath(stateDir)
  const note: Note = { files, byAgent, prints, networks, ...(isLeaving && { isLeaving }) }
  writeAtomic(path, `${JSON.stringify(note, null, 2)}\n`, { mode: 0o644, by: draftOf(path) })
}

// An agent that lives puts nothing back from now on.
function noteLeaving(stateDir: string, noted: Note): void {
  if (noted.networks.length === 0) return
  try {
    writeNote(stateDir, noted, true)
  } catch (cause) {
    // A full disk stops no uninstall. It is quicker than the agent on most nodes.
    warn(`agent: Cannot note that plumb is removed, its agent may put files back: ${(cause as Error).message}`)
  }
}

// The current values, and as many earlier ones.
function latest(now: readonly string[], before: readonly string[]): string[] {
  return [...now, ...before.filter((one) => !now.includes(one))].slice(0, now.length * 2)
}

// Whether the path is a program that is neither from this note nor plumb of another version. Another version is not
// kept aside, because the program before it is kept already. Its note may be lost.
function isForeign(path: string, prints: readonly string[]): boolean {
  try {
    const print = fingerprint(path)
    return print !== undefined && !prints.includes(print) && !isPlumb(path)
  } catch (cause) {
    // An unreadable program is not plumb's.
    if (typeof (cause as NodeJS.ErrnoException).code !== 'string') throw cause
    return true
  }
}

// A folder or a device is not plumb's, even if the note has its path.
function isOther(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === false
}

// Whether a program belongs to the package plumb-plugins, which alone changes it. That package has no `plumb`.
function isPackaged(path: string): boolean {
  return !path.endsWith('/plumb') && existsSync(path.replace(/[^/]*$/, PACKAGED)) && isPlumb(path)
}

/** Why `uninstall` left a path. */
export function leftLine(path: string): string {
  const why = isPackaged(path) ? 'it belongs to the package plumb-plugins' : 'it is not as it was installed'
  return `left ${path}: ${why}`
}

/** A sentence when plugins of the package plumb-plugins are not those of this program. */
export function packagedOtherwise(binDir: string, names: readonly string[]): string | undefined {
  const others = names.filter((name) => isPackaged(`${binDir}/${name}`) && !isPluginProgram(`${binDir}/${name}`))
  if (others.length === 0) return undefined
  const why = 'they belong to the package plumb-plugins, which has another version'
  return `left ${others.join(' ')} in ${binDir}: ${why}: install the same version of it`
}

/** The path where an earlier program is kept. It is in a separate folder, and no runtime looks there. */
export function asideOf(path: string): string {
  return path.replace(/[^/]*$/, `${ASIDE}/$&`)
}
