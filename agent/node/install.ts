import { existsSync, statSync } from 'node:fs'
import { isAbsolute, normalize } from 'node:path'
import * as v from 'valibot'
import { draftOf, remove, writeAtomic } from '../../lib/os/files.ts'
import { log } from '../../lib/os/log.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { CniError, CODE, shown, ValueError } from '../../lib/text/errors.ts'
import { field, read } from '../../lib/text/shape.ts'
import type { Settings } from '../settings/settings.ts'
import { fingerprint, isLinked, isPlumb, isProgram, place, putBack, setAside } from './executables.ts'
import { fetchHuge, pageFaults, SMALL_PAGES } from './memory-pages.ts'

/** Where things are installed, and where it is noted what was. */
export interface Places {
  readonly binDir: string
  readonly confDir: string
  readonly stateDir: string
}
/** What an installation of plugins came to, as paths. */
export interface Plugins {
  readonly made: readonly string[]
  /** Of those, the ones that were another program; `uninstall` puts these back. */
  readonly replaced: readonly string[]
}
/** What an installation of the network came to. */
export interface Network {
  readonly path: string
  readonly made: boolean
  /** Somebody else's file stands there, and was left. */
  readonly foreign: boolean
  /** A file that comes before it, so that runtimes take that one. */
  readonly hiddenBy?: string
}

/** What was undone at a path: what was there before is back, or nothing is there. */
export interface Undone {
  readonly path: string
  readonly isBack: boolean
}

// flannel's own names, so that a node that had flannel has one network and not two.
const FILE = '10-flannel.conflist'
// Beside the programs.
const ASIDE = '.before-plumb'

/**
 * Installs a program as `plumb`, and once more under the name of each plugin, hard links to one file: a process that stays and plugins want different pages
 * (docs/decisions/0021). What is right already stays as it is; another program of such a name is kept aside, the first that was there. Each name leads to the
 * old program or to the new one at any moment. Plugins that lie in small pages after that are written once more. With `rewrite` all of it is written, as if
 * nothing were right.
 */
export function installPlugins({ binDir, stateDir }: Places, program: string, names: readonly string[], { rewrite = false } = {}): Plugins {
  const base = `${binDir}/plumb`
  const [first = base, ...others] = names.map((name) => `${binDir}/${name}`)
  const noted = readNote(stateDir)
  fetchHuge(first)
  const print = fingerprint(program) as string
  const isOurs = (path: string) => fingerprint(path) === print
  // A link to `plumb` is the same program in the wrong pages.
  const isRight = (path: string) => !rewrite && isOurs(path) && (path === base || !isLinked(base, path))
  const made = [base, first, ...others].filter((path) => !isRight(path))
  const replaced = made.filter((path) => isForeign(path, [print, ...noted.prints]))
  // First: what a kill leaves half done can then be told from what was there.
  if (made.length > 0) writeNote(stateDir, { ...noted, files: [...new Set([...noted.files, ...made])], prints: latest(print, noted.prints) })
  for (const path of replaced) setAside(path, asideOf(path))
  const put = (paths: readonly string[]) => {
    for (const path of paths) place(path === base || path === first ? program : first, path, { linked: path !== base && path !== first })
  }
  put(made)
  if (made.includes(first) && (pageFaults(first) ?? 0) > SMALL_PAGES) put([first, ...others.filter((path) => made.includes(path))])
  return { made, replaced }
}

/** Installs the plugins, and then the network for the container runtime, and says in the log what is to be known of it. Throws CniError while a plugin that the network names is not where the runtime looks. */
export async function installNode({ files }: Pick<Settings, 'files'>): Promise<void> {
  if (!files.install) return
  const { PLUGINS } = await import('./plugins.ts')
  const { replaced } = installPlugins(files, process.execPath, PLUGINS)
  for (const path of replaced) log(`agent: put plumb in the place of ${path}, which is kept as ${asideOf(path)}`)
  mustResolve(networkText(files.subnetEnv), files.binDir)
  const { path, made, foreign, hiddenBy } = installNetwork(files, files.subnetEnv)
  if (hiddenBy !== undefined) log(`agent: ${hiddenBy} comes before ${path}: the container runtime takes that one`)
  if (foreign) log(`agent: ${path} is somebody else's and was left as it is`)
  else if (made) log(`agent: wrote ${path}: pods can start`)
}

// The plugins of the list, and those that flannel runs by itself.
function mustResolve(network: string, binDir: string): void {
  const types = [...(JSON.parse(network).plugins as { type: string }[]).map(({ type }) => type), 'bridge', 'host-local']
  const missing = types.filter((type) => !isProgram(`${binDir}/${type}`))
  if (missing.length > 0) throw new CniError(CODE.notReady, `Pods cannot start: ${binDir} has no ${missing.join(', ')}`, 'plumb install puts the plugins there')
}

/** Installs the network for the container runtime, to be called when pods can be served. What somebody else put there under the same name stays. */
export function installNetwork({ confDir, stateDir }: Places, subnetFile: string): Network {
  const [path, text] = [`${confDir}/${FILE}`, networkText(subnetFile)]
  const noted = readNote(stateDir)
  const there = readText(path)
  const [hiddenBy] = listFiles(confDir)
    .filter((name) => /\.(conflist|conf|json)$/.test(name) && name < FILE)
    .sort()
  const found = { path, ...(hiddenBy !== undefined && { hiddenBy: `${confDir}/${hiddenBy}` }) }
  if (there === text) return { ...found, made: false, foreign: false }
  if (there !== undefined && !noted.networks.includes(there)) return { ...found, made: false, foreign: true }
  writeNote(stateDir, { ...noted, networks: latest(text, noted.networks) })
  writeAtomic(path, text, { mode: 0o644, by: draftOf(path) })
  return { ...found, made: true, foreign: false }
}

/**
 * Removes what these two installed, as far as it is still that, the network first, and puts back what was kept aside. Gives the paths that are gone or as they
 * were before, and those that somebody else changed since and that stay. With `dryRun` it only says so. What is kept aside is put back even where the note of
 * what was installed is lost.
 */
export function uninstall({ binDir, confDir, stateDir }: Places, { dryRun = false } = {}): { readonly undone: readonly Undone[]; readonly left: readonly string[] } {
  const { files: noted, prints, networks } = readNote(stateDir)
  const kept = listFiles(`${binDir}/${ASIDE}`).map((name) => `${binDir}/${name}`)
  const files = [...new Set([...noted, ...kept])]
  const [undone, left]: [Undone[], string[]] = [[], []]
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
    if (isForeign(file, prints) || isOther(file)) left.push(file)
    else {
      const isBack = dryRun ? existsSync(asideOf(file)) : putBack(asideOf(file), file)
      if (!isBack && !dryRun) remove(file)
      undone.push({ path: file, isBack })
    }
  }
  if (dryRun) return { undone, left }
  for (const path of [notePath(stateDir), draftOf(notePath(stateDir))]) remove(path)
  return { undone, left }
}

/** The network that pods are in: flannel's of kube-flannel.yml, in plumb's versions. */
export function networkText(subnetFile: string): string {
  const where = subnetFile === '/run/flannel/subnet.env' ? {} : { subnetFile }
  const plugins = [
    { type: 'flannel', ...where, delegate: { hairpinMode: true, isDefaultGateway: true } },
    { type: 'portmap', capabilities: { portMappings: true } },
  ]
  // A runtime that knows the second key asks for STATUS and GC; one that does not speaks the version of the first.
  return `${JSON.stringify({ cniVersion: '1.0.0', cniVersions: ['1.0.0', '1.1.0'], name: 'cbr0', plugins }, null, 2)}\n`
}

/** What was installed: paths, what the program's bytes looked like, and the network's text; of the last two also what came before, for a kill in between. */
interface Note {
  readonly files: readonly string[]
  readonly prints: readonly string[]
  readonly networks: readonly string[]
}

const texts = v.array(field.text)
const shape = v.object({ files: v.array(field.by(absolute)), prints: texts, networks: texts })

// As they were written: what is no path that can be is nobody's program.
function absolute(value: unknown): string {
  if (typeof value !== 'string' || value.includes('\0') || !isAbsolute(value) || normalize(value) !== value || value.length > 4000) throw new ValueError(`${shown(value)}: want the whole path of a file`)
  return value
}

function notePath(stateDir: string): string {
  return `${stateDir}/installed.json`
}

function readNote(stateDir: string): Note {
  const nothing = { files: [], prints: [], networks: [] }
  const text = readText(notePath(stateDir))
  try {
    return text === undefined ? nothing : read(shape, JSON.parse(text)).value
  } catch (cause) {
    log(`agent: Cannot use ${notePath(stateDir)}, taking what is installed for somebody else's: ${(cause as Error).message}`)
    return nothing
  }
}

function writeNote(stateDir: string, note: Note): void {
  writeAtomic(notePath(stateDir), `${JSON.stringify(note, null, 2)}\n`, { mode: 0o644, by: draftOf(notePath(stateDir)) })
}

function latest(now: string, before: readonly string[]): string[] {
  return [now, ...before.filter((one) => one !== now)].slice(0, 2)
}

// There, and neither what we put there nor plumb of another version, whose note may be lost: what was there before that is kept already.
function isForeign(path: string, prints: readonly string[]): boolean {
  try {
    const print = fingerprint(path)
    return print !== undefined && !prints.includes(print) && !isPlumb(path)
  } catch (cause) {
    // What cannot be read is no program of ours.
    if (typeof (cause as NodeJS.ErrnoException).code !== 'string') throw cause
    return true
  }
}

// A folder or a device is no program of ours, whatever the note says.
function isOther(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === false
}

/** Where a program that was there before is kept: in a folder of its own, which no runtime looks into. */
export function asideOf(path: string): string {
  return path.replace(/[^/]*$/, `${ASIDE}/$&`)
}
