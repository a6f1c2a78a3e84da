import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs'
import { remove, writeAtomic } from '../os/files.ts'
import { flock } from '../os/libc.ts'
import { listFiles, readText } from '../os/reading.ts'
import { CniError, CODE, shown } from '../text/errors.ts'
import { type ContainerId, type IfName, type NetworkName, parse } from '../text/values.ts'
import { type Json, parseJson } from './network-list.ts'

/**
 * The runtime's record of an attachment between ADD and DEL. Path and format are libcni's:
 * `<dir>/results/<network>-<container id>-<ifname>`, kind cniCacheV1.
 */
export interface Cached extends Key {
  readonly netns: string
  readonly args: readonly (readonly [string, string])[]
  readonly capabilityArgs: Json
  /** The network list of the ADD, as JSON text. */
  readonly config: string
  /** The last plugin's result, in the CNI version of the list. */
  readonly result: Json | undefined
}
/** The key of an attachment (CNI spec 1.1.0 "Terminology"). */
export interface Key {
  readonly network: NetworkName
  readonly containerId: ContainerId
  readonly ifname: IfName
}

/**
 * Reads the entry of an attachment. Undefined when there is none. Throws CniError 6 when the file has another content.
 * A power loss leaves such a file after libcni's plain write.
 */
export function readCached(dir: string, key: Key): Cached | undefined {
  const path = pathOf(dir, key)
  const text = readText(path)
  if (text === undefined) return undefined
  const found = entry(text)
  if (!found)
    throw new CniError(
      CODE.decode,
      `Cannot read the cached result ${path}`,
      text === '' ? 'it is empty' : `it is not of kind cniCacheV1: ${shown(text)}`,
    )
  return found
}

/** Writes an entry completely or not at all. Folders have mode 0700 and the file 0600, as libcni's. */
export function writeCached(dir: string, cached: Cached): void {
  const { network, containerId, ifname, netns, args, capabilityArgs, config, result } = cached
  const body = {
    kind: 'cniCacheV1',
    containerId,
    config: Buffer.from(config).toString('base64'),
    ifName: ifname,
    networkName: network,
    ...(netns !== '' && { netns }),
    ...(args.length > 0 && { cniArgs: args }),
    ...(Object.keys(capabilityArgs).length > 0 && { capabilityArgs }),
    ...(result && { result }),
  }
  mkdirSync(`${dir}/results`, { recursive: true, mode: 0o700 })
  writeAtomic(pathOf(dir, cached), JSON.stringify(body))
}

/** Removes the entry of an attachment. A missing entry is no error. */
export function removeCached(dir: string, key: Key): void {
  remove(pathOf(dir, key))
}

/** Every readable entry, sorted by file name, and the names of unreadable files. */
export function listCached(dir: string): {
  readonly entries: readonly Cached[]
  readonly unreadable: readonly string[]
} {
  const files = listFiles(`${dir}/results`)
    .filter((name) => !name.startsWith('.'))
    .sort()
  const found = files.map((name) => ({ name, cached: entry(readText(`${dir}/results/${name}`) ?? '') }))
  return {
    entries: found.flatMap(({ cached }) => cached ?? []),
    unreadable: found.flatMap(({ name, cached }) => (cached ? [] : [name])),
  }
}

/**
 * Runs `work` under the cache's lock. ADD and DEL share the lock. GC has it alone, because GC must not run beside them
 * (CNI spec 1.1.0 "GC"). The lock is on the folder itself, so libcni's folder gets no further file. Throws CniError 11
 * when the lock is not free in time. Throws CniError 5 when the folder cannot be made. DEL then works without the lock.
 */
export async function withCache<T>(
  dir: string,
  verb: 'add' | 'del' | 'gc',
  timeoutMs: number,
  work: () => Promise<T>,
): Promise<T> {
  if (verb === 'del' && !existsSync(`${dir}/results`)) return work()
  const fd = folder(`${dir}/results`)
  try {
    for (
      const end = performance.now() + timeoutMs;
      !flock(fd, { shared: verb !== 'gc', wait: false });
      await Bun.sleep(10)
    ) {
      if (performance.now() >= end)
        throw new CniError(
          CODE.tryLater,
          `Cannot lock ${dir}/results: timed out after ${timeoutMs / 1000} s`,
          verb === 'gc' ? 'an ADD or DEL is running' : 'a GC is running',
        )
    }
    if (verb === 'gc') sweep(`${dir}/results`)
    return await work()
  } finally {
    closeSync(fd)
  }
}

function folder(path: string): number {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
    return openSync(path, 'r')
  } catch (cause) {
    throw new CniError(CODE.io, `Cannot open the cache ${path}`, (cause as Error).message, { cause })
  }
}

// Drafts of a writer that was killed. No other process writes now.
function sweep(results: string): void {
  for (const name of listFiles(results)) if (/^\.\d+-\d+\.draft$/.test(name)) remove(`${results}/${name}`)
}

function pathOf(dir: string, { network, containerId, ifname }: Key): string {
  return `${dir}/results/${network}-${containerId}-${ifname}`
}

function entry(text: string): Cached | undefined {
  try {
    const {
      kind,
      containerId,
      config,
      ifName,
      networkName,
      netns = '',
      cniArgs = [],
      capabilityArgs = {},
      result,
    } = parseJson(text, 'the entry') as Partial<Record<string, unknown>>
    if (kind !== 'cniCacheV1' || typeof config !== 'string') return undefined
    return {
      network: parse.network(networkName),
      containerId: parse.containerId(containerId),
      ifname: parse.ifname(ifName),
      netns: netns === '' ? '' : parse.netns(netns),
      args: pairs(cniArgs),
      capabilityArgs: isObject(capabilityArgs) ? capabilityArgs : {},
      config: Buffer.from(config, 'base64').toString(),
      result: isObject(result) ? result : undefined,
    }
  } catch {
    return undefined
  }
}

// An entry that is not a pair of texts cannot be passed to a plugin.
function pairs(value: unknown): Cached['args'] {
  const isPair = (one: unknown): one is [string, string] =>
    Array.isArray(one) && one.length === 2 && one.every((word) => typeof word === 'string' && !word.includes('\0'))
  return Array.isArray(value) ? value.filter(isPair) : []
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
