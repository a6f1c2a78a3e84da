import { statSync } from 'node:fs'
import { isAbsolute, normalize } from 'node:path'
import * as v from 'valibot'
import { shown, ValueError } from '../lib/errors.ts'
import { remove, writeAtomic } from '../lib/files.ts'
import { log } from '../lib/log.ts'
import { listFiles, readText } from '../lib/reading.ts'
import { field, read } from '../lib/shape.ts'
import { draftOf } from './drafts.ts'
import { fingerprint, isSame, place, putBack, setAside } from './executables.ts'
import { fetchHuge } from './footprint.ts'

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

// flannel's own names, so that a node that had flannel has one network and not two.
const FILE = '10-flannel.conflist'

/** Installs a copy of a program as `plumb` and under the name of each plugin, hard links to one file. What is right already stays as it is; another program of such a name is kept aside. The program is read through once, so that the first pod does not wait for the disk. */
export function installPlugins({ binDir, stateDir }: Places, program: string, names: readonly string[]): Plugins {
  const base = `${binDir}/plumb`
  const noted = readNote(stateDir)
  fetchHuge(base)
  const print = fingerprint(program) as string
  const isNew = fingerprint(base) !== print
  const made = [base, ...names.map((name) => `${binDir}/${name}`)].filter((path) => isNew || !isSame(base, path))
  const replaced = made.filter((path) => isForeign(path, [print, ...noted.prints]))
  // First: what a kill leaves half done can then be told from what was there.
  if (made.length > 0) writeNote(stateDir, { ...noted, files: [...new Set([...noted.files, ...made])], prints: latest(print, noted.prints) })
  for (const path of replaced) setAside(path, asideOf(path))
  // A copy: a process that stays and plugins want different pages of it (docs/decisions/0021).
  for (const path of made) place(path === base ? program : base, path, { linked: path !== base })
  return { made, replaced }
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

/** Removes what these two installed, as far as it is still that, the network first, and puts back what was kept aside. Gives the paths that are gone or as they were before, and those that somebody else changed since and that stay. */
export function uninstall({ confDir, stateDir }: Places): { readonly undone: readonly string[]; readonly left: readonly string[] } {
  const { files, prints, networks } = readNote(stateDir)
  const [undone, left]: [string[], string[]] = [[], []]
  const path = `${confDir}/${FILE}`
  const there = readText(path)
  if (there !== undefined && networks.length > 0) {
    const isOurs = networks.includes(there)
    if (isOurs) remove(path)
    ;(isOurs ? undone : left).push(path)
  }
  remove(draftOf(path))
  for (const file of files) {
    if (isForeign(file, prints) || isOther(file)) left.push(file)
    else {
      if (!putBack(asideOf(file), file)) remove(file)
      undone.push(file)
    }
  }
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

// There, and not what we put there.
function isForeign(path: string, prints: readonly string[]): boolean {
  try {
    const print = fingerprint(path)
    return print !== undefined && !prints.includes(print)
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

// In a folder of its own, which no runtime looks into.
function asideOf(path: string): string {
  return path.replace(/[^/]*$/, '.before-plumb/$&')
}
