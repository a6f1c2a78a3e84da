import { compare, decode, encode, gate } from '../cni/versions.ts'
import { CniError, CODE, shown } from '../text/errors.ts'
import type { NetnsPath } from '../text/values.ts'
import { type Cached, type Key, listCached, readCached, removeCached, withCache, writeCached } from './cache.ts'
import { type Host, invoke, TIMEOUT_MS, warn } from './invoke.ts'
import type { Json, NetworkList, PluginConf } from './network-list.ts'
import { configOf, envOf, type RuntimeConf, requestOf, restored } from './requests.ts'

const CACHE = '/var/lib/cni'

/**
 * Runs ADD of every plugin in order and records the attachment. Returns the last result in the CNI version of the list.
 * When a plugin fails, that plugin and the plugins before it get DEL, in reverse order, and nothing is recorded. Throws
 * CniError, also when the attachment already exists (CNI spec 1.1.0: no second ADD without DEL).
 */
export function addNetwork(list: NetworkList, at: RuntimeConf, host: Host): Promise<Json> {
  const { cacheDir = CACHE, timeoutMs = TIMEOUT_MS } = host
  const key = { network: list.name, ...at }
  return withCache(cacheDir, 'add', timeoutMs, async () => {
    if (known(key, host))
      throw new CniError(
        CODE.config,
        `Cannot attach ${at.containerId} to ${list.name} as ${at.ifname}: it is attached already`,
        `run DEL first; remembered in ${cacheDir}/results`,
      )
    const { args = [], capabilityArgs = {}, netns } = at
    let [result, done]: [Json | undefined, number] = [undefined, 0]
    try {
      for (const plugin of list.plugins) {
        done += 1
        result = converted(
          await call('ADD', list, plugin, at, result, host),
          list.cniVersion,
          `the result of ${plugin.type}`,
        )
      }
      writeCached(cacheDir, { ...key, netns, args, capabilityArgs, config: list.text, result })
    } catch (cause) {
      throw await rolledBack(cause, { ...list, plugins: list.plugins.slice(0, done) }, at, result, host)
    }
    return result as Json
  })
}

/**
 * Runs CHECK of every plugin in order, with the recorded result. Does nothing when the list has disableCheck. Throws
 * CniError 1 below CNI
 * 0.4.0, and 3 for an attachment without a record.
 */
export async function checkNetwork(list: NetworkList, at: RuntimeConf, host: Host): Promise<void> {
  gate('CHECK', list.cniVersion)
  if (list.disableCheck) return
  const cached = readCached(host.cacheDir ?? CACHE, { network: list.name, ...at })
  if (!cached)
    throw new CniError(
      CODE.unknownContainer,
      `Cannot check ${at.containerId} on ${list.name} as ${at.ifname}: it is not attached`,
      `nothing in ${host.cacheDir ?? CACHE}/results`,
    )
  const prevResult = cached.result && converted(cached.result, list.cniVersion, 'the cached result')
  for (const plugin of list.plugins) await call('CHECK', list, plugin, restored(at, cached), prevResult, host)
}

/**
 * Runs DEL of every plugin in reverse order, also after a failure. Then removes the record. After failures it keeps the
 * record for the next attempt and throws CniError with every failure. An unknown attachment is no error.
 */
export function delNetwork(list: NetworkList, at: RuntimeConf, host: Host): Promise<void> {
  return withCache(host.cacheDir ?? CACHE, 'del', host.timeoutMs ?? TIMEOUT_MS, () => removeAttachment(list, at, host))
}

/**
 * Runs DEL for every recorded attachment of the network that is not in `valid`. Then runs GC of every plugin with the
 * list of valid attachments; below CNI 1.1.0 only of the plugins in `asked`. Goes on after a failure, and returns the
 * stale attachments. Does nothing when the list has disableGC. Changes nothing with `dryRun`. ADD and DEL wait
 * meanwhile. Throws CniError with every failure.
 */
export async function gcNetwork(
  list: NetworkList,
  valid: readonly Omit<Key, 'network'>[],
  host: Host,
  { dryRun = false, asked = compare(list.cniVersion, '1.1.0') >= 0 ? list.plugins : [] } = {},
): Promise<readonly Cached[]> {
  const { cacheDir = CACHE, timeoutMs = TIMEOUT_MS } = host
  const isValid = (one: Cached) =>
    valid.some(({ containerId, ifname }) => one.containerId === containerId && one.ifname === ifname)
  const stale = () => listCached(cacheDir).entries.filter((one) => one.network === list.name && !isValid(one))
  if (list.disableGC) return []
  if (dryRun) return stale()
  return withCache(cacheDir, 'gc', timeoutMs, async () => {
    const found = stale()
    const failures = await every(found, ({ netns, ...one }) =>
      removeAttachment(list, { ...one, netns: netns as NetnsPath }, host),
    )
    const attachments = valid.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }))
    // Both names of the key, as libcni. The first text of the spec had another name (containernetworking/cni#1101).
    const extra = { 'cni.dev/valid-attachments': attachments, 'cni.dev/attachments': attachments }
    // The first version with GC.
    const asking = compare(list.cniVersion, '1.1.0') >= 0 ? list : { ...list, cniVersion: '1.1.0' }
    fail('gc', [
      ...failures,
      ...(await every(asked, ({ type, conf }) => invoke(type, envOf('GC'), configOf(asking, conf, extra), host))),
    ])
    return found
  })
}

/**
 * Runs STATUS of every plugin in order, until one is not ready. Throws the CniError of that plugin. CNI before 1.1.0
 * has no STATUS, so no plugin is called.
 */
export async function statusNetwork(list: NetworkList, host: Host): Promise<void> {
  if (compare(list.cniVersion, '1.1.0') < 0) return
  for (const { type, conf } of list.plugins) await invoke(type, envOf('STATUS'), configOf(list, conf, {}), host)
}

async function removeAttachment(list: NetworkList, at: RuntimeConf, host: Host): Promise<void> {
  const key = { network: list.name, ...at }
  const cached = known(key, host)
  // CNI spec: DEL gets prevResult from 0.4.0 on.
  const isGiven = compare(list.cniVersion, '0.4.0') >= 0
  const prevResult = isGiven && cached?.result ? readable(cached.result, list.cniVersion, host) : undefined
  const remove = (plugin: PluginConf) => call('DEL', list, plugin, restored(at, cached), prevResult, host)
  fail('del', await every(list.plugins.toReversed(), remove))
  removeCached(host.cacheDir ?? CACHE, key)
}

// The failed plugin gets DEL too, because its leftovers would block the next ADD.
async function rolledBack(
  cause: unknown,
  list: NetworkList,
  at: RuntimeConf,
  prevResult: Json | undefined,
  host: Host,
): Promise<CniError> {
  const first =
    cause instanceof CniError
      ? cause
      : new CniError(CODE.io, `Cannot remember the attachment: ${(cause as Error).message}`, '', { cause })
  const given = compare(list.cniVersion, '0.4.0') >= 0 ? prevResult : undefined
  const remove = (plugin: PluginConf) => call('DEL', list, plugin, at, given, host)
  const missed = await every(list.plugins.toReversed(), remove)
  const left = missed.filter(({ message }) => message !== first.message).map(spoken)
  if (left.length === 0) return first
  const details = [first.details, ...left.map((one) => `rollback: ${one}`)].filter(Boolean)
  return new CniError(first.code, first.message, details.join('\n'), { cause: first })
}

async function call(
  command: 'ADD' | 'CHECK' | 'DEL',
  list: NetworkList,
  plugin: PluginConf,
  at: RuntimeConf,
  prevResult: Json | undefined,
  host: Host,
): Promise<string> {
  const { env, config } = requestOf(command, list, plugin, at, prevResult)
  return invoke(plugin.type, env, config, host)
}

// A torn entry must not stop ADD or DEL. Its content is lost, and the plugins work from the key.
function known(key: Key, host: Host): Cached | undefined {
  try {
    return readCached(host.cacheDir ?? CACHE, key)
  } catch (cause) {
    warn(host, `${spoken(cause as Error)}; going on without it`)
    return undefined
  }
}

function readable(result: Json, version: string, host: Host): Json | undefined {
  try {
    return converted(result, version, 'the cached result')
  } catch (cause) {
    warn(host, `${spoken(cause as Error)}; going on without it`)
    return undefined
  }
}

function converted(given: Json | string, version: string, at: string): Json {
  try {
    const raw = typeof given === 'string' ? JSON.parse(given) : given
    const result = decode(raw, version, at)
    return raw.cniVersion === version ? raw : JSON.parse(encode(result, version))
  } catch (cause) {
    if (cause instanceof CniError) throw cause
    const message = (cause as Error).message.replace(/^(?!Cannot read)/, `Cannot read ${at}: `)
    throw new CniError(CODE.decode, message, typeof given === 'string' ? shown(given) : '', { cause })
  }
}

async function every<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<CniError[]> {
  const failures: CniError[] = []
  for (const item of items)
    await work(item).catch((cause) =>
      failures.push(cause instanceof CniError ? cause : new CniError(CODE.io, (cause as Error).message, '', { cause })),
    )
  return failures
}

function fail(verb: string, failures: readonly CniError[]): void {
  const [first] = failures
  if (first === undefined) return
  if (failures.length === 1) throw first
  const message = `${failures.length} failures (${verb}), the first: ${first.message}`
  throw new CniError(first.code, message, failures.map(spoken).join('\n'), { cause: first })
}

function spoken(cause: Error): string {
  return cause instanceof CniError && cause.details ? `${cause.message}: ${cause.details}` : cause.message
}
