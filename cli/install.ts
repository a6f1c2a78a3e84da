import { pageFaults } from '../agent/footprint.ts'
import { asideOf, installPlugins, uninstall } from '../agent/install.ts'
import { CniError, CODE, ValueError } from '../lib/errors.ts'
import { describeOptions, type Given, type OptionName, readOptions } from './options.ts'
import { print } from './output.ts'

const names: readonly OptionName[] = ['bin-dir', 'conf-dir', 'state-dir', 'json', 'help']

/** Runs `plumb install ARGV` and gives the exit status. Throws ValueError for a wrong command line, CniError where the folders cannot be written. */
export async function run(argv: readonly string[]): Promise<number> {
  const given = optionsOf('install', argv)
  if (given.help) {
    print(HELP)
    return 0
  }
  const [places, { PLUGINS }] = [placesOf(given), await import('../agent/bundled.ts')]
  const { made, replaced } = writing(() => installPlugins(places, process.execPath, PLUGINS))
  const faults = pageFaults(`${places.binDir}/${PLUGINS[0]}`)
  const lines = [
    made.length === 0 ? `${places.binDir} has plumb and its ${PLUGINS.length} plugins already` : `installed ${made.length} programs in ${places.binDir}: ${made.map((path) => path.slice(places.binDir.length + 1)).join(' ')}`,
    ...replaced.map((path) => `kept what was there before: ${path} as ${asideOf(path)}`),
    ...(faults === undefined ? [] : [`a plugin starts with ${faults} page faults`]),
  ]
  print(given.json ? JSON.stringify({ ...places, made, replaced: replaced.map((path) => ({ path, kept: asideOf(path) })), faults }, null, 4) : lines.join('\n'))
  return 0
}

/** Runs `plumb uninstall ARGV`, as `run`. */
export async function runUninstall(argv: readonly string[]): Promise<number> {
  const given = optionsOf('uninstall', argv)
  if (given.help) {
    print(HELP_UNINSTALL)
    return 0
  }
  const { undone, left } = writing(() => uninstall(placesOf(given)))
  const lines = [...undone.map(({ path, isBack }) => (isBack ? `put back ${path}` : `removed ${path}`)), ...left.map((path) => `left ${path}: it is not as it was installed`)]
  print(given.json ? JSON.stringify({ undone, left }, null, 4) : lines.join('\n') || 'nothing is installed')
  return 0
}

function optionsOf(command: string, argv: readonly string[]): Given['values'] {
  const { values, words } = readOptions(argv, names, `plumb ${command}`)
  if (words.length > 0) throw new ValueError(`plumb ${command} takes no ${JSON.stringify(words[0])}; see plumb ${command} --help`)
  return values
}

function placesOf({ 'bin-dir': binDirs, 'conf-dir': confDir = '/etc/cni/net.d', 'state-dir': stateDir = '/var/lib/plumb' }: Given['values']) {
  const binDir = binDirs?.[0] ?? '/opt/cni/bin'
  for (const [name, dir] of Object.entries({ 'bin-dir': binDir, 'conf-dir': confDir, 'state-dir': stateDir }))
    if (!dir.startsWith('/')) throw new ValueError(`Cannot read --${name} ${JSON.stringify(dir)}: want the whole path of a folder, such as /opt/cni/bin`)
  if (binDirs && binDirs.length > 1) throw new ValueError(`Cannot read --bin-dir ${JSON.stringify(binDirs[1])}: want one folder`)
  return { binDir: trimmed(binDir), confDir: trimmed(confDir), stateDir: trimmed(stateDir) }
}

function trimmed(dir: string): string {
  return dir.replace(/(?<=.)\/+$/, '')
}

function writing<T>(work: () => T): T {
  try {
    return work()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (typeof code !== 'string') throw cause
    throw new CniError(CODE.io, `Cannot install: ${message}`, code === 'EACCES' || code === 'EPERM' ? 'plumb must run as root' : '', { cause })
  }
}

const HELP = `usage: plumb install [options]: puts plumb and all of its plugins where container runtimes look for them

Copies this executable as plumb, and once more under the name of each plugin (hard links to one
file). Each name changes in one step: a plugin that is called meanwhile is never missing or half
written. Another program of such a name is kept, in the folder .before-plumb beside it, and
plumb uninstall puts it back. What is right already stays as it is.

${describeOptions(names.filter((name) => name !== 'conf-dir'))}

exit status: 0 installed, 1 it could not be written, 2 the command line is wrong`

const HELP_UNINSTALL = `usage: plumb uninstall [options]: removes what plumb install and plumb agent --install-cni put on this node

Programs that were there before come back. What somebody else changed since stays, and is named.
Pods and their network stay as they are: delete the pods first (plumb cni del, kubectl drain).

${describeOptions(names)}

exit status: 0 removed, 1 it could not be, 2 the command line is wrong`
