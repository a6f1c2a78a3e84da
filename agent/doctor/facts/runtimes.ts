import { readlinkSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import type { Fact, FactSources } from './facts.ts'
import { type Lists, readLists } from './lists.ts'
import { type Process, processes } from './processes.ts'

/** A container runtime that runs on this node. */
export interface Runtime {
  /** `containerd` or `crio`. */
  readonly name: string
  readonly pid: number
  /** Such as `1.6.20`. */
  readonly version: string
  /** The folder from which it takes networks. */
  readonly confDir: string
  /** The names of the networks there. */
  readonly networks: readonly string[]
  /** The folders in which it looks for plugins. */
  readonly binDirs: readonly string[]
}

/** The limit for one question, in milliseconds. */
const WAIT_MS = 1500

/** The container runtimes that run on this node. */
export const runtimes: Fact<readonly Runtime[]> = {
  read: async ({ of }) => readRuntimes(await of(processes)),
  inAgent: { missing: 'the runtimes' },
}

/** The configured networks, in the order of the runtime, and the plugins that they name. */
export const lists: Fact<Lists> = {
  read: async ({ places, maybe }) => listsOf(places, await maybe(runtimes)),
  inAgent: 'given',
}

// Those of the one runtime that has networks, when the usual folder has none.
function listsOf({ confDir, binDirs, isUsual }: FactSources, all: readonly Runtime[] = []): Lists {
  const usual = readLists(confDir, binDirs)
  if (!isUsual || usual.files.length > 0) return usual
  const [one, ...others] = all.filter(({ networks }) => networks.length > 0)
  return one && others.length === 0 ? readLists(one.confDir, one.binDirs) : usual
}

/**
 * Asks the runtimes of this node for their version and their configuration. Asks the program of the process itself,
 * with its file of configuration. Throws Error when a runtime does not answer.
 */
export async function readRuntimes(processes: readonly Process[]): Promise<Runtime[]> {
  const found = processes.filter(({ name }) => name === 'containerd' || name === 'crio')
  return Promise.all(found.flatMap((one) => askable(one) ?? []).map(readRuntime))
}

interface Askable extends Process {
  readonly program: string
}

// Anybody may give a process the name of a runtime. The doctor, which is root, starts only a program of root's with that
// name, which nobody else may write.
function askable(one: Process): Askable | undefined {
  const program = readlinkSync(`/proc/${one.pid}/exe`).replace(/ \(deleted\)$/, '')
  const file = statSync(program, { throwIfNoEntry: false })
  const isOfRoot = statSync(`/proc/${one.pid}`).uid === 0 && file?.uid === 0 && (file.mode & 0o022) === 0
  return isOfRoot && basename(program) === one.name ? { ...one, program } : undefined
}

async function readRuntime({ pid, name, argv, program }: Askable): Promise<Runtime> {
  const conf = configOf(argv)
  const dump = name === 'crio' ? ['status', 'config'] : ['config', 'dump']
  const [said, text] = await Promise.all([
    answerOf([program, '--version']),
    answerOf([program, ...(conf === undefined ? [] : ['--config', conf]), ...dump]),
  ])
  // containerd: `… v1.7.24 REVISION`, or `… 1.6.20~ds1` of Debian. CRI-O: `crio version 1.31.0`.
  const [, version = ''] = /\bv?(\d+\.\d+\.\d+)/.exec(said) ?? []
  const folders = name === 'crio' ? ofCrio(text) : ofContainerd(text)
  const networks = readLists(folders.confDir, []).files.flatMap(({ list }) => list?.name ?? [])
  return { name, pid, version, ...folders, networks }
}

// The words that started a runtime name its file: `--config FILE`, `--config=FILE` or `-c FILE`.
function configOf(argv: readonly string[]): string | undefined {
  const at = argv.findIndex((word) => word === '--config' || word === '-c')
  return at >= 0 ? argv[at + 1] : argv.find((word) => word.startsWith('--config='))?.slice('--config='.length)
}

type Folders = Pick<Runtime, 'confDir' | 'binDirs'>

/** The folders in the text of `containerd config dump`. Up to 2.0 it has `bin_dir`, later `bin_dirs`. Pure. */
export function ofContainerd(text: string): Folders {
  const [, body = ''] = /^\s*\[plugins\.['"][^'"\n]*cri[^\n]*\.cni\]\n((?:(?!\s*\[).*\n?)*)/m.exec(text) ?? []
  const confDir = textOf(body, 'conf_dir') ?? '/etc/cni/net.d'
  const several = listOf(body, 'bin_dirs')
  return { confDir, binDirs: several.length > 0 ? several : [textOf(body, 'bin_dir') ?? '/opt/cni/bin'] }
}

/** The folders in the text of `crio status config`. Pure. */
export function ofCrio(text: string): Folders {
  const binDirs = listOf(text, 'plugin_dirs')
  return {
    confDir: (textOf(text, 'network_dir') ?? '/etc/cni/net.d').replace(/(.)\/$/, '$1'),
    binDirs: binDirs.length > 0 ? binDirs : ['/opt/cni/bin'],
  }
}

function textOf(body: string, key: string): string | undefined {
  const [, value] = new RegExp(`^\\s*${key} = ["']([^"'\\n]*)["']`, 'm').exec(body) ?? []
  return value === '' ? undefined : value
}

function listOf(body: string, key: string): string[] {
  const [, inner = ''] = new RegExp(`^\\s*${key} = \\[([^\\]]*)\\]`, 'm').exec(body) ?? []
  return [...inner.matchAll(/["']([^"']+)["']/g)].map(([, one = '']) => one)
}

async function answerOf(argv: readonly string[]): Promise<string> {
  const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'pipe', stderr: 'ignore', timeout: WAIT_MS })
  const text = await new Response(child.stdout).text()
  const status = await child.exited
  if (status === 0) return text
  throw new Error(`${argv.join(' ')} ${child.signalCode === null ? `ended with ${status}` : 'does not answer'}`)
}
