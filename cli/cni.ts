import { existsSync, readFileSync } from 'node:fs'
import { PLUGINS } from '../agent/node/plugins.ts'
import type { Io } from '../lib/cni/call.ts'
import { compare } from '../lib/cni/versions.ts'
import { run as tools } from '../lib/os/exec.ts'
import { type Cached, listCached } from '../lib/runtime/cache.ts'
import { type Host, warn } from '../lib/runtime/invoke.ts'
import { type NetworkList, type PluginConf, parseJson } from '../lib/runtime/network-list.ts'
import type { RuntimeConf } from '../lib/runtime/requests.ts'
import { addNetwork, checkNetwork, delNetwork, gcNetwork, statusNetwork } from '../lib/runtime/runtime.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import type { Owner } from '../lib/text/owner.ts'
import { suggestion } from '../lib/text/shape.ts'
import { orphaned, removeOrphaned } from '../lib/verbs/orphans.ts'
import { fuse } from './fuse.ts'
import {
  choicesOf,
  describeOptions,
  type Entry,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { print, table } from './output.ts'
import { addressesOf } from './result.ts'
import { refuseUnknown } from './strict.ts'
import { answerOf, askedForGc, attachmentOf, hostOf, networkOf, validOf } from './target.ts'

/** The answer of a verb, as text for people and as data for programs. */
interface Said {
  readonly text: string
  readonly json: unknown
}
interface Verb {
  readonly words: string
  readonly about: string
  readonly options: readonly OptionName[]
  run(given: Given, network: string, netns: string | undefined, load: Io['plugin']): Promise<Said>
}
const where: readonly OptionName[] = ['conf-dir', 'bin-dir', 'cache-dir', 'timeout', 'json', 'help']
/** Plugins that pass the ports on to another one. */
const PASSING: readonly string[] = ['flannel', 'minicni']
/** Plugins that open the ports that the runtime gives them. */
const PUBLISHING: readonly string[] = ['portmap', 'bridge', 'ptp']
const who: readonly OptionName[] = ['ifname', 'container-id', 'cap-args', 'port-mapping', 'args']
const verbs: Readonly<Record<string, Verb>> = {
  add: {
    words: 'NETWORK NETNS',
    about: 'attach a network namespace to a network',
    options: [...who, 'lenient', ...where],
    run: add,
  },
  check: {
    words: 'NETWORK NETNS',
    about: 'see whether an attachment is still as it was made',
    options: [...who, ...where],
    run: check,
  },
  del: {
    words: 'NETWORK [NETNS]',
    about: 'detach; without NETNS by --container-id',
    options: [...who, ...where],
    run: del,
  },
  gc: {
    words: '[NETWORK]',
    about:
      'remove what is left of attachments: of those whose namespace is gone, or with options of all that are not in use',
    options: ['valid', 'valid-file', 'all', 'dry-run', ...where],
    run: gc,
  },
  status: { words: 'NETWORK', about: 'see whether the network can take attachments', options: where, run: status },
  explain: {
    words: 'NETWORK [NETNS]',
    about: 'print what add, or with --del del, would run; runs nothing, needs no root',
    options: [...who, 'lenient', 'del', 'prev-result', 'rules', ...where.filter((one) => one !== 'timeout')],
    run: explain,
  },
  fuse: {
    words: 'CONFLIST',
    about:
      'print a configuration list (a file, - for standard input) with portmap, firewall, bandwidth and tuning put into bridge or ptp: one process instead of five',
    options: ['json', 'help'],
    run: fused,
  },
  list: {
    words: '[NETWORK]',
    about: 'show the attachments that are remembered',
    options: ['cache-dir', 'json', 'help'],
    run: list,
  },
}

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 1,
  about: 'attach a network namespace to a network and detach it, as a container runtime does',
}

/** What may follow `plumb cni`. */
export const grammar: Grammar = {
  options: choicesOf(['help']),
  commands: Object.fromEntries(
    Object.entries(verbs).map(([name, { about, words, options }]) => [
      name,
      { about, grammar: { options: choicesOf(options), words: words.replace(/[[\]]/g, '').split(' ') } },
    ]),
  ),
}

/**
 * Runs `plumb cni ARGV` and returns the exit status. `load` finds a plugin of this executable. Throws ValueError for a
 * wrong command line or configuration, CniError for the error of a plugin.
 */
export async function run(argv: readonly string[], load: Io['plugin']): Promise<number> {
  const [name = '--help', ...rest] = argv
  if (/^(--help|-h|help)$/.test(name)) {
    print(help())
    return argv.length === 0 ? 2 : 0
  }
  const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined
  if (!verb) {
    const hint = suggestion(name, new Map(Object.keys(verbs).map((one) => [one, one])))
    throw new ValueError(`plumb cni has no command ${shown(name)}${hint}; see plumb cni --help`)
  }
  const given = readOptions(rest, verb.options, `plumb cni ${name}`)
  if (given.values.help) {
    print(helpOf(name, verb))
    return 0
  }
  const [network, netns] = given.words
  // cnitool demands a NETNS also for gc and status, and does not use it. So plumb accepts a NETNS here.
  if (given.words.length > 2 || (network === undefined && name !== 'list' && name !== 'gc'))
    throw new ValueError(
      `plumb cni ${name} wants ${verb.words}, not ${shown(given.words.join(' '))}; see plumb cni ${name} --help`,
    )
  const { text, json } = await verb.run(given, network ?? '', netns, load)
  print(given.values.json ? JSON.stringify(json, null, 4) : text)
  return 0
}

async function fused({ values }: Given, file: string): Promise<Said> {
  const { list, changes } = fuse(parseJson(read(file), file))
  if (!values.json) for (const change of changes) warn({ path: [] }, change)
  return { text: JSON.stringify(list, null, 2), json: { list, changes } }
}

function read(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    throw new ValueError(
      `Cannot read ${shown(file)}: want a file with a configuration list (${(cause as NodeJS.ErrnoException).code})`,
      { cause },
    )
  }
}

async function add(given: Given, network: string, netns: string | undefined, load: Io['plugin']): Promise<Said> {
  const list = networkOf(given, network)
  const at = attachmentOf(given, list.name, netns)
  const host = hostOf(given)
  mustExist(at.netns)
  warnUnused(list, at, host)
  if (!given.values.lenient) await refuseUnknown(list, host, load)
  const result = await addNetwork(list, at, host)
  const addresses = addressesOf(result).join(', ') || 'no address'
  const text = `attached ${at.netns} to ${list.name} as ${at.ifname}: ${addresses} (container ${at.containerId})`
  return { text, json: result }
}

async function check(given: Given, network: string, netns: string | undefined): Promise<Said> {
  const list = networkOf(given, network)
  const at = attachmentOf(given, list.name, netns)
  mustExist(at.netns)
  await checkNetwork(list, at, hostOf(given))
  const said = list.disableCheck ? 'was not checked: the network says disableCheck' : 'is as it should be'
  return { text: `${at.ifname} of ${at.containerId} on ${list.name} ${said}`, json: { checked: !list.disableCheck } }
}

async function del(given: Given, network: string, netns: string | undefined): Promise<Said> {
  const name = network === '-' ? networkOf(given, '-').name : network
  const at = attachmentOf(given, name, netns)
  await delNetwork(networkOf(given, name, at.cached), at, hostOf(given))
  return {
    text: `detached ${at.ifname} of ${at.containerId} from ${name}`,
    json: { network: name, containerId: at.containerId, ifname: at.ifname },
  }
}

async function gc(given: Given, network: string): Promise<Said> {
  const valid = validOf(given)
  if (valid === undefined) return freeGone(given, network)
  if (network === '')
    throw new ValueError('plumb cni gc wants NETWORK beside --valid, --valid-file and --all; see plumb cni gc --help')
  const list = networkOf(given, network)
  const dryRun = given.values['dry-run'] ?? false
  const host = hostOf(given)
  const asked = askedForGc(list, host)
  const removed = (await gcNetwork(list, valid, host, { dryRun, asked })).map(rowOf)
  const verb = dryRun ? 'would remove' : 'removed'
  const isAll = asked.length === list.plugins.length
  const who = isAll ? 'its plugins' : asked.map(({ type }) => type).join(', ')
  const were = !isAll && asked.length === 1 ? 'was' : 'were'
  const told = `${who} ${dryRun ? 'would be' : were} told that ${valid.length} are in use`
  const forwarded =
    asked.length > 0 ? `; ${told}` : `; ${list.name} is CNI ${list.cniVersion}, which has no GC for plugins`
  const fact = list.disableGC
    ? `nothing done: ${list.name} says disableGC`
    : `${verb} ${removed.length} of ${list.name} that ${removed.length === 1 ? 'is' : 'are'} not in use${forwarded}`
  const lines = removed.map((row) => `  ${row.containerId}:${row.ifname}  ${row.addresses.join(', ')}`.trimEnd())
  return { text: [fact, ...lines].join('\n'), json: { dryRun, removed } }
}

// Removes only attachments that cannot be in use. So no plugin gets a list of the attachments in use.
async function freeGone(given: Given, network: string): Promise<Said> {
  const host = hostOf(given)
  const dryRun = given.values['dry-run'] ?? false
  const name = network === '-' ? networkOf(given, '-').name : network
  const isMeant = (one: { readonly network: string }) => name === '' || one.network === name
  const gone = listCached(host.cacheDir).entries.filter(
    (one) => isMeant(one) && one.netns !== '' && !existsSync(one.netns),
  )
  const failures: string[] = []
  const removed: Cached[] = []
  for (const one of gone) {
    try {
      const at = { containerId: one.containerId, ifname: one.ifname, netns: '' as const }
      if (!dryRun) await delNetwork(networkOf(given, one.network, one), at, host)
      removed.push(one)
    } catch (cause) {
      failures.push(`${one.containerId}:${one.ifname} of ${one.network}: ${(cause as Error).message}`)
    }
  }
  const isFreed = ({ network, containerId, ifname }: Owner) =>
    gone.some((one) => one.network === network && one.containerId === containerId && one.ifname === ifname)
  const orphans = dryRun
    ? orphaned(tools).filter((owner) => isMeant(owner) && !isFreed(owner))
    : await removeOrphaned(tools, isMeant)
  if (failures.length > 0)
    throw new CniError(
      CODE.tryLater,
      `Cannot free ${failures.length} of the attachments whose namespace is gone: ${failures[0]}`,
      failures.join('; '),
    )
  const rows = [...removed.map(rowOf), ...orphans.map((owner) => ({ ...owner, netns: '', addresses: [] }))]
  const verb = dryRun ? 'would remove' : 'removed'
  const whose = name === '' ? '' : `of ${name} `
  const fact = `${verb} ${rows.length} ${whose}that ${rows.length === 1 ? 'is' : 'are'} gone`
  const lines = rows.map((row) =>
    `  ${row.network}  ${row.containerId}:${row.ifname}  ${row.addresses.join(', ')}`.trimEnd(),
  )
  return { text: [fact, ...lines].join('\n'), json: { dryRun, removed: rows } }
}

async function status(given: Given, network: string): Promise<Said> {
  const list = networkOf(given, network)
  await statusNetwork(list, hostOf(given))
  const asked = compare(list.cniVersion, '1.1.0') >= 0
  return {
    text: asked
      ? `${list.name} is ready`
      : `${list.name} is CNI ${list.cniVersion}, which has no STATUS: its plugins were not asked`,
    json: { asked },
  }
}

async function explain(given: Given, network: string, netns: string | undefined, load: Io['plugin']): Promise<Said> {
  const [{ EXAMPLE, explainAdd, explainDel }, { explainedText }] = await Promise.all([
    import('./explain/index.ts'),
    import('./explain/text.ts'),
  ])
  const { del: isDel = false, rules = false, 'container-id': id } = given.values
  const name = isDel && network !== '-' ? network : networkOf(given, network).name
  // DEL needs no NETNS when --container-id names the container.
  const isExample = netns === undefined && !(isDel && id !== undefined)
  const { cached, ...at } = attachmentOf(given, name, isExample ? EXAMPLE : netns)
  const [list, host] = [networkOf(given, name, cached), hostOf(given)]
  if (!isDel) warnUnused(list, at, host)
  if (!isDel && !given.values.lenient) await refuseUnknown(list, host, load)
  const subject = { list, at, cached, isExample, host, load, answer: answerOf(given, list.cniVersion) }
  const explained = await (isDel ? explainDel(subject) : explainAdd(subject))
  return { text: explainedText(explained, rules), json: explained }
}

async function list({ values }: Given, network: string): Promise<Said> {
  const dir = values['cache-dir'] ?? '/var/lib/cni'
  const { entries, unreadable } = listCached(dir)
  const rows = entries.filter((one) => network === '' || one.network === network).map(rowOf)
  const lines = rows.map((row) => [
    row.network,
    row.containerId,
    row.ifname,
    row.addresses.join(', ') || '-',
    row.netns + (row.netns === '' || existsSync(row.netns) ? '' : ' (gone)'),
  ])
  const torn = unreadable.map((name) => `unreadable: ${dir}/results/${name}`)
  const text =
    rows.length === 0
      ? `no attachment${network && ` of ${network}`} in ${dir}/results`
      : table(['NETWORK', 'CONTAINER', 'IFNAME', 'ADDRESSES', 'NETNS'], lines)
  return { text: [text, ...torn].join('\n'), json: rows }
}

function rowOf({ network, containerId, ifname, netns, result }: Cached) {
  return { network, containerId, ifname, netns, addresses: addressesOf(result) }
}

function mustExist(netns: string): void {
  if (!existsSync(netns))
    throw new ValueError(
      `Cannot open the network namespace ${shown(netns)}: it does not exist; ip netns list shows what does`,
    )
}

function warnUnused(list: NetworkList, at: RuntimeConf, host: Host): void {
  for (const name of Object.keys(at.capabilityArgs ?? {})) {
    if (!list.plugins.some(({ capabilities }) => capabilities.includes(name)))
      warn(host, `no plugin of ${list.name} declares the capability ${name}: it is not used`)
    else if (name === 'portMappings' && !list.plugins.some(publishes))
      warn(
        host,
        `no plugin of ${list.name} publishes ports: no port is open; want the capability at bridge or ptp, or portmap in the list`,
      )
  }
}

// A plugin that declares the capability gets the ports, and may not read them. What another program does with them is not
// known.
function publishes({ type, capabilities }: PluginConf): boolean {
  const isKnown = PLUGINS.includes(type) && !PASSING.includes(type)
  return capabilities.includes('portMappings') && (!isKnown || PUBLISHING.includes(type))
}

function help(): string {
  return `usage: plumb cni COMMAND …: what a container runtime does with CNI plugins

${table(
  [],
  Object.entries(verbs).map(([name, { words, about }]) => [`  ${name} ${words}`, about]),
)}

NETWORK is the name of a network configured in /etc/cni/net.d; - is the first one there, the
node's default. NETNS is a name that ip netns knows, or a path. Attachments are remembered where
libcni remembers them, and cnitool's can be taken over, and the other way round.

exit status: 0 done
             1 a plugin failed: its code, message and details are on stderr
             2 the command line or a configuration is wrong, nothing was run`
}

function helpOf(name: string, { words, about, options }: Verb): string {
  return `usage: plumb cni ${name} ${words} [options]: ${about}

${describeOptions(options)}

exit status: 0 done, 1 a plugin failed (code, message, details on stderr), 2 nothing was run`
}
