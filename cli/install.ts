import { existsSync } from 'node:fs'
import { asideOf, installPlugins, packagedOtherwise } from '../agent/node/install.ts'
import { adviceFor, installTools, missingTools } from '../agent/node/own-tools.ts'
import { pluginProgram } from '../agent/node/plugin-program.ts'
import { CniError, CODE, ValueError } from '../lib/text/errors.ts'
import {
  choicesOf,
  describeOptions,
  type Entry,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { print } from './output.ts'

const names: readonly OptionName[] = ['with-plumb', 'tools', 'bin-dir', 'state-dir', 'json', 'help']
const uninstallNames: readonly OptionName[] = [
  'purge',
  'dry-run',
  'force',
  'daemonset',
  'wait',
  'bin-dir',
  'conf-dir',
  'state-dir',
  'json',
  'help',
]
const AGENT_FILE = '/etc/plumb/agent.yaml'

/** Its row in the list of commands. */
export const entry: Entry = { place: 16, about: 'put the plugins where container runtimes look for them' }

/** What may follow `plumb install`. */
export const grammar: Grammar = { options: choicesOf(names) }
/** What may follow `plumb uninstall`. */
export const uninstallGrammar: Grammar = { options: choicesOf(uninstallNames) }

/**
 * Runs `plumb install ARGV` and returns the exit status. Throws ValueError for a wrong command line, CniError when the
 * folders cannot be written.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const given = optionsOf('install', argv, names)
  if (given.help) {
    print(HELP)
    return 0
  }
  const [places, { PLUGINS }] = [placesOf(given), await import('../agent/node/plugins.ts')]
  const { made, replaced } = await writing(async () =>
    installPlugins(places, pluginProgram(), PLUGINS, { plumb: given['with-plumb'] ? process.execPath : undefined }),
  )
  const tools = given.tools ? await writing(async () => installTools(places.binDir)) : []
  const missing = given.tools ? [] : missingTools()
  const outdated = packagedOtherwise(places.binDir, PLUGINS)
  const programs = made.map((path) => path.slice(places.binDir.length + 1)).join(' ')
  const lines = [
    made.length === 0
      ? `${places.binDir} has the ${PLUGINS.length} plugins of plumb already`
      : `installed ${made.length} programs in ${places.binDir}: ${programs}`,
    ...(outdated === undefined ? [] : [outdated]),
    ...replaced.map((path) => `kept what was there before: ${path} as ${asideOf(path)}`),
    ...(tools.length > 0
      ? [`brought ${tools.join(', ')} to ${places.binDir}: plugins use them when the node has none`]
      : []),
    ...(missing.length > 0 ? [adviceFor(missing)] : []),
  ]
  const json = { ...places, made, replaced: replaced.map((path) => ({ path, kept: asideOf(path) })), tools }
  print(given.json ? JSON.stringify(json, null, 4) : lines.join('\n'))
  return 0
}

/**
 * Runs `plumb uninstall ARGV` and returns the exit status. Throws like `run`. Throws CniError 11 while pods live that
 * plumb attached, and with --purge while the agent runs.
 */
export async function runUninstall(argv: readonly string[]): Promise<number> {
  // The words after `--` are options of the agent.
  const at = argv.includes('--') ? argv.indexOf('--') : argv.length
  const given = optionsOf('uninstall', argv.slice(0, at), uninstallNames)
  const agent = argv.slice(at + 1)
  if (given.help) {
    print(HELP_UNINSTALL)
    return 0
  }
  if (agent.length > 0 && !given.purge)
    throw new ValueError(
      `plumb uninstall takes the agent's options, ${agent.join(' ')}, only with --purge; see plumb uninstall --help`,
    )
  if (given.daemonset !== undefined) return waited(given.daemonset, given)
  const { 'dry-run': dryRun = false, force = false } = given
  const [{ alive, living, requireNoPods }, { purge, removePrograms }] = await Promise.all([
    import('../agent/living.ts'),
    import('./purge.ts'),
  ])
  if (!dryRun && !force) requireNoPods('uninstall')
  const pods = dryRun && !force ? living() : []
  const refused = pods.length > 0 ? [`would be refused without --force: ${alive(pods)}`] : []
  const done = await writing(async () => {
    if (!given.purge) return removePrograms(placesOf(given), dryRun)
    const { settingsOf } = await import('../agent/index.ts')
    const settings = settingsOf(agent.length === 0 && existsSync(AGENT_FILE) ? [`--config=${AGENT_FILE}`] : agent)
    const { binDir, confDir, stateDir } = settings.files
    return purge(
      settings,
      placesOf({ 'bin-dir': [binDir], 'conf-dir': confDir, 'state-dir': stateDir, ...given }),
      dryRun,
    )
  })
  const lines = [...refused, ...done]
  print(given.json ? JSON.stringify({ dryRun, lines }, null, 4) : lines.join('\n') || 'nothing is installed')
  return 0
}

// A Job of the chart runs this, after the chart's DaemonSet has started on each node.
async function waited(daemonset: string, { wait = '240', json }: Given['values']): Promise<number> {
  const seconds = Number(wait)
  if (!Number.isInteger(seconds) || seconds < 1 || seconds > 86_400)
    throw new ValueError(`Cannot read --wait ${JSON.stringify(wait)}: want seconds, such as 240`)
  const { waitForNodes } = await import('./uninstall-nodes.ts')
  const nodes = await waitForNodes(daemonset, seconds)
  print(json ? JSON.stringify({ nodes }, null, 4) : `plumb is removed from ${nodes} nodes`)
  return 0
}

function optionsOf(command: string, argv: readonly string[], names: readonly OptionName[]): Given['values'] {
  const { values, words } = readOptions(argv, names, `plumb ${command}`)
  if (words.length > 0)
    throw new ValueError(`plumb ${command} takes no ${JSON.stringify(words[0])}; see plumb ${command} --help`)
  return values
}

function placesOf({
  'bin-dir': binDirs,
  'conf-dir': confDir = '/etc/cni/net.d',
  'state-dir': stateDir = '/var/lib/plumb',
}: Given['values']) {
  const binDir = binDirs?.[0] ?? '/opt/cni/bin'
  for (const [name, dir] of Object.entries({ 'bin-dir': binDir, 'conf-dir': confDir, 'state-dir': stateDir }))
    if (!dir.startsWith('/'))
      throw new ValueError(
        `Cannot read --${name} ${JSON.stringify(dir)}: want the whole path of a folder, such as /opt/cni/bin`,
      )
  if (binDirs && binDirs.length > 1)
    throw new ValueError(`Cannot read --bin-dir ${JSON.stringify(binDirs[1])}: want one folder`)
  return { binDir: trimmed(binDir), confDir: trimmed(confDir), stateDir: trimmed(stateDir) }
}

function trimmed(dir: string): string {
  return dir.replace(/(?<=.)\/+$/, '')
}

async function writing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (typeof code !== 'string') throw cause
    throw new CniError(
      CODE.io,
      `Cannot change what is installed: ${message}`,
      code === 'EACCES' || code === 'EPERM' ? 'plumb must run as root' : '',
      { cause },
    )
  }
}

const HELP = `usage: plumb install [options]: puts the plugins where container runtimes look for them

Writes one small executable, which needs nothing of the node but iproute2 and nftables, under the
name of each plugin: hard links to one file, and a copy for flannel. Each name changes in one
step: a plugin that is called meanwhile is never missing or half written. Another program of such
a name is kept, in the folder .before-plumb beside it, and plumb uninstall puts it back. What is
right already stays as it is, and so do plugins of the package plumb-plugins.

${describeOptions(names)}

exit status: 0 installed, 1 it could not be written, 2 the command line is wrong`

const HELP_UNINSTALL = `usage: plumb uninstall [options]: removes what plumb install and plumb agent --install-cni put on this node
       plumb uninstall --purge [options] [-- AGENT OPTIONS]: removes also all that plumb made here
       plumb uninstall --daemonset NAMESPACE/NAME: waits for the nodes of a cluster (conf/chart)

Programs that were there before come back. What somebody else changed since stays, and is named.
While pods live that plumb attached it is refused, and they are named: delete them first.

--purge removes also: links and addresses in pods, bridges that plumb made, table inet plumb, the
journal, reservations of addresses, saved sysctls, and what plumb agent cleanup removes. The agent's settings
are those of ${AGENT_FILE}, or what follows --. Files that a person wrote stay, and are named.

--dry-run changes nothing and prints a line for each thing. Run it first.

${describeOptions(uninstallNames)}

exit status: 0 removed, 1 it could not be, 2 the command line is wrong`
