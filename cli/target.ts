import { existsSync, readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { isPluginProgram } from '../agent/node/plugin-program.ts'
import { compare, decode, encode } from '../lib/cni/versions.ts'
import { type Cached, type Key, readCached } from '../lib/runtime/cache.ts'
import { type Host, warn } from '../lib/runtime/invoke.ts'
import { type Json, loadNetwork, type NetworkList, parseJson, parseNetwork } from '../lib/runtime/network-list.ts'
import type { RuntimeConf } from '../lib/runtime/requests.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { parseIp } from '../lib/text/ip.ts'
import { type NetnsPath, parse } from '../lib/text/values.ts'
import type { Given } from './options.ts'

const env = process.env

/**
 * Takes directories and time limits from the options, else from the environment, else the defaults. Throws ValueError.
 */
export function hostOf({ values }: Given): Host & { readonly cacheDir: string } {
  const seconds = Number(values.timeout ?? 120)
  if (!(seconds > 0 && seconds <= 86_400))
    throw new ValueError(`Cannot read --timeout ${shown(values.timeout)}: want seconds, more than 0`)
  const dirs = values['bin-dir'] ?? [env['CNI_PATH'] || '/opt/cni/bin']
  return {
    path: dirs.flatMap((dir) => dir.split(':')).filter(Boolean),
    cacheDir: values['cache-dir'] ?? '/var/lib/cni',
    timeoutMs: seconds * 1000,
  }
}

/**
 * Loads the network with this name. The name `-` means the node's default network, the first one of the directory. With
 * `cached`, a network without a file is read from the configuration that ADD remembered. Throws ValueError.
 */
export function networkOf({ values }: Given, name: string, cached?: Cached): NetworkList {
  try {
    return loadNetwork(values['conf-dir'] ?? (env['NETCONFPATH'] || '/etc/cni/net.d'), name === '-' ? undefined : name)
  } catch (cause) {
    if (!cached || !(cause instanceof ValueError)) throw cause
    warn({ path: [] }, `${cause.message}; going on with the configuration that ADD saw`)
    return parseNetwork(cached.config, 'the cached configuration')
  }
}

/**
 * Finds the attachment that NETNS and the options mean, and its cache entry. A name of `ip netns` stands for its path.
 * /run/netns and /var/run/netns are one folder, so the spelling that ADD saw wins. Throws ValueError.
 */
export function attachmentOf(
  options: Given,
  network: string,
  netns: string | undefined,
): RuntimeConf & { readonly cached: Cached | undefined } {
  const { values } = options
  const { cacheDir } = hostOf(options)
  const ifname = named('--ifname', () => parse.ifname(values.ifname ?? (env['CNI_IFNAME'] || 'eth0')))
  const id = values['container-id']
  const fixed = id === undefined ? undefined : named('--container-id', () => parse.containerId(id))
  const tries = spellings(netns, fixed !== undefined).map((path) => ({
    netns: path,
    key: { network: named('NETWORK', () => parse.network(network)), containerId: fixed ?? idOf(path), ifname },
  }))
  const found = tries
    .map((one) => ({ ...one, cached: remembered(cacheDir, one.key) }))
    .sort((a, b) => Number(b.cached !== undefined) - Number(a.cached !== undefined))[0]
  if (!found)
    throw new ValueError(
      'NETNS is missing: want the name of a network namespace or its path; without one, --container-id',
    )
  const { key, cached } = found
  const given = found.netns !== '' ? found.netns : existing(cached?.netns)
  return {
    containerId: key.containerId,
    ifname,
    netns: given,
    ...argsOf(values.args ?? env['CNI_ARGS']),
    ...capabilitiesOf(values['cap-args'] ?? env['CAP_ARGS'], values['port-mapping']),
    cached,
  }
}

/** Reads the result from `--prev-result` in a CNI version. Undefined without the option. Throws ValueError. */
export function answerOf({ values }: Given, version: string): Json | undefined {
  const file = values['prev-result']
  if (file === undefined) return undefined
  return named('--prev-result', () =>
    JSON.parse(encode(decode(parseJson(readFileSync(file === '-' ? 0 : file, 'utf8'), file), version, file), version)),
  )
}

/**
 * Returns the attachments that the options of `gc` name as in use. Returns undefined when no option names any, and an
 * empty list for `--all`. Throws ValueError for a given list that is empty.
 */
export function validOf({ values }: Given): readonly Omit<Key, 'network'>[] | undefined {
  const { valid = [], 'valid-file': file, all = false } = values
  if (all && (valid.length > 0 || file !== undefined))
    throw new ValueError('--all says that no attachment is in use: it excludes --valid and --valid-file')
  if (all) return []
  if (valid.length === 0 && file === undefined) return undefined
  const text = file === undefined ? '' : named('--valid-file', () => readFileSync(file === '-' ? 0 : file, 'utf8'))
  const found = [...valid, ...listedIn(text, `--valid-file ${file}`)].map((one) => {
    const at = one.lastIndexOf(':')
    return named(`the attachment ${shown(one)}`, () => ({
      containerId: parse.containerId(one.slice(0, Math.max(at, 0))),
      ifname: parse.ifname(one.slice(at + 1)),
    }))
  })
  if (found.length === 0) {
    const advice = 'give --valid ID:IFNAME or --valid-file; --all when none is'
    throw new ValueError(`gc removes what is not in use, and nothing says what is: ${advice}`)
  }
  return found
}

function listedIn(text: string, what: string): string[] {
  const lines = text.split('\n').map((line) => line.replace(/#.*/, '').trim())
  if (!text.trimStart().startsWith('[')) return lines.filter(Boolean)
  const list = parseJson(text, what) as { containerID?: string; ifname?: string }[]
  return list.map((one) => `${one?.containerID}:${one?.ifname}`)
}

/**
 * Returns the plugins of a list that understand GC. From CNI 1.1.0 on these are all plugins. Below 1.1.0 these are the
 * plugins of this executable, because they know GC in every version.
 */
export function askedForGc({ cniVersion, plugins }: NetworkList, { path }: Host): NetworkList['plugins'] {
  return compare(cniVersion, '1.1.0') >= 0 ? plugins : plugins.filter(({ type }) => isOwnPlugin(type, { path }))
}

/** Tells whether a runtime would find plumb's plugin of this version under this type. */
export function isOwnPlugin(type: string, { path }: Pick<Host, 'path'>): boolean {
  const file = path.map((dir) => `${dir}/${type}`).find((one) => statSync(one, { throwIfNoEntry: false })?.isFile())
  return file !== undefined && isPluginProgram(file)
}

function spellings(text: string | undefined, optional: boolean): (NetnsPath | '')[] {
  if (text === undefined) return optional ? [''] : []
  const path = named('NETNS', () => parse.netns(text.includes('/') ? resolve(text) : `/run/netns/${text}`))
  if (path.startsWith('/run/netns/')) return [path, `/var${path}` as NetnsPath]
  return path.startsWith('/var/run/netns/') ? [path, path.slice('/var'.length) as NetnsPath] : [path]
}

/** Makes the container id in the same way as cnitool. So plumb and cnitool can take over each other's attachments. */
function idOf(netns: string): Key['containerId'] {
  return parse.containerId(`cnitool-${new Bun.CryptoHasher('sha512').update(netns).digest('hex').slice(0, 20)}`)
}

function remembered(cacheDir: string, key: Key): Cached | undefined {
  try {
    return readCached(cacheDir, key)
  } catch {
    // The cache entry is damaged. The verb itself reports that.
    return undefined
  }
}

function existing(netns: string | undefined): NetnsPath | '' {
  return netns && existsSync(netns) ? named('the cached netns', () => parse.netns(netns)) : ''
}

function argsOf(text: string | undefined): Pick<RuntimeConf, 'args'> {
  if (!text) return {}
  const args = text.split(';').map((pair) => {
    const at = pair.indexOf('=')
    if (at < 1 || at === pair.length - 1)
      throw new ValueError(`Cannot read --args ${shown(text)}: ${shown(pair)} is no pair K=V`)
    return [pair.slice(0, at), pair.slice(at + 1)] as const
  })
  return { args }
}

function capabilitiesOf(
  text: string | undefined,
  mappings: readonly string[] = [],
): Pick<RuntimeConf, 'capabilityArgs'> {
  if (!text && mappings.length === 0) return {}
  const given = text ? parseJson(text, '--cap-args') : {}
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new ValueError(`Cannot read --cap-args ${shown(text)}: want an object`)
  const { portMappings = [] } = given as { portMappings?: unknown[] }
  return {
    capabilityArgs: {
      ...given,
      ...(mappings.length > 0 && { portMappings: [...portMappings, ...mappings.map(portMapping)] }),
    },
  }
}

function portMapping(text: string): Json {
  const [, ip, host, container, protocol = 'tcp'] =
    /^(?:(\[[^\]]+\]|[^:[\]]+):)?(\d+):(\d+)(?:\/(tcp|udp|sctp))?$/i.exec(text) ?? []
  if (host === undefined)
    throw new ValueError(
      `Cannot read --port-mapping ${shown(text)}: want [IP:]HOST:CONTAINER[/tcp|udp|sctp], such as 8080:80/tcp`,
    )
  return named(`--port-mapping ${shown(text)}`, () => ({
    hostPort: parse.port(Number(host)),
    containerPort: parse.port(Number(container)),
    protocol: protocol.toLowerCase(),
    ...(ip && { hostIP: parseIp(ip.replace(/[[\]]/g, '')) }),
  }))
}

function named<T>(what: string, work: () => T): T {
  try {
    return work()
  } catch (cause) {
    throw new ValueError(`Cannot read ${what}: ${(cause as Error).message}`, { cause })
  }
}
