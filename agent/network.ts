// The network's configuration as this node takes it: asked of the store, opened as a backend, and compared later with what
// the store has then.
import { log } from '../lib/os/log.ts'
import { readText } from '../lib/os/reading.ts'
import { ValueError } from '../lib/text/errors.ts'
import { jsonLine } from '../lib/text/json-place.ts'
import type { Backend } from './backend/backend.ts'
import { openBackend, unreadKeys } from './backend/open.ts'
import { changedKeys, LIVE_KEYS, type NetworkConf } from './lease/network-configuration.ts'
import type { Failure, Failures } from './scheduler/failures.ts'
import { pause } from './scheduler/pause.ts'
import type { Settings } from './settings/settings.ts'
import { type LastKnown, whyUncertain } from './store/last-known.ts'
import { StoreError, type SubnetStore } from './store/store.ts'

const NO_CONFIG = 'the network’s configuration is not known yet'
/** How long the agent waits between two tries of what it needs, in milliseconds. */
export const WAIT_MS = 1000
/** How long a look at the store's configuration may take, in milliseconds. */
const LOOK_MS = 30_000

const NOT_ALLOWED =
  'Cannot use backend extension: the author of the network configuration can then run any command as root on every node; ' +
  'want --allow-extension on each node where that is right, or another backend'

/**
 * Asks the store for the network configuration until it answers. A store that does not answer leaves what was known last,
 * which the caller gives with `recalled`. Calls `awaiting` with the reason as long as it waits. Throws ValueError for an
 * unusable configuration.
 */
export async function takeConfiguration(
  { store, accepted }: { readonly store: SubnetStore; readonly accepted: NetworkConf | undefined },
  recalled: () => LastKnown | undefined,
  signal: AbortSignal,
  awaiting: (text: string) => void,
): Promise<LastKnown | Pick<LastKnown, 'conf'>> {
  if (accepted) return { conf: accepted }
  awaiting(NO_CONFIG)
  let known: { readonly found: LastKnown | undefined } | undefined
  for (let announced = ''; ; ) {
    try {
      return { conf: await store.config(AbortSignal.any([signal, AbortSignal.timeout(WAIT_MS)])) }
    } catch (cause) {
      if (cause instanceof ValueError) throw located(cause, store)
      if (signal.aborted || !(cause instanceof StoreError)) throw cause
      known ??= { found: recalled() }
      const { found } = known
      const uncertain = found && whyUncertain(found)
      // A connected store that gives no configuration has none. This answer counts, so the agent does not use the copy
      // on disk.
      if (found && uncertain === undefined && !store.state().connected) {
        const at = new Date(found.at).toISOString()
        log(`agent: the store does not answer, starting with what was known at ${at}: ${cause.message}`)
        return found
      }
      const why = `${NO_CONFIG}: ${cause.message}`
      announced = announceWait(uncertain === undefined ? why : `${why}; ${uncertain}`, announced, awaiting)
    }
  }
}

/** Logs a reason for waiting once, until the reason changes. `before` is the last one. Gives the reason. */
export function announceWait(text: string, before: string, awaiting: (text: string) => void): string {
  if (text === before) return before
  log(`agent: waiting: ${text}`)
  awaiting(text)
  return text
}

/** A backend, and its options as it has read them. */
export interface OpenedBackend {
  readonly backend: Backend
  readonly options: unknown
}

/** The configuration that a run works with, and who is told of another one. */
export interface FollowedConf {
  readonly store: SubnetStore
  readonly conf: NetworkConf
  readonly backend: Backend
  readonly failures: Failures
}

/** Opens the backend that a configuration names, and reads its options. Throws ValueError. */
export async function openBackendOf(
  { backend: { type, options } }: NetworkConf,
  { network }: Settings,
): Promise<OpenedBackend> {
  const backend = await openBackend(type)
  if (backend.commands && !network.allowExtension) throw new ValueError(NOT_ALLOWED)
  const offload = network.txChecksumOffload === 'auto' ? {} : { TxChecksumOffload: network.txChecksumOffload === 'on' }
  return { backend, options: backend.conf({ ...options, ...offload }) }
}

/**
 * Waits until the store gives its network configuration, after a start without the store. True when it has another one
 * now. An unusable configuration is reported.
 */
export async function confirmed(
  { store, conf, failures }: Omit<FollowedConf, 'backend'>,
  settings: Settings,
  signal: AbortSignal,
): Promise<boolean> {
  for (; ; await pause(WAIT_MS, signal)) {
    signal.throwIfAborted()
    try {
      const now = await store.config(AbortSignal.any([signal, AbortSignal.timeout(LOOK_MS)]))
      const { backend } = await openBackendOf(now, settings)
      failures.report(CONFIGURATION, [])
      reportKeys(failures, now, backend)
      return changedKeys(conf, now).length > 0
    } catch (cause) {
      // The state of the store already reports a store that does not answer.
      if (cause instanceof ValueError) failures.report(CONFIGURATION, [unusable(cause, store)])
    }
  }
}

const CONFIGURATION = 'configuration'

/** Reports keys without effect. A misspelt key means that a setting does not have the wanted value. */
export function reportKeys(failures: Failures, conf: NetworkConf, backend: Backend): void {
  const textOf = (key: string) => `The network's configuration has a key without effect: ${key}`
  const found = unreadKeys(conf, backend).map((key): Failure => ({ scope: 'part', text: textOf(key) }))
  failures.report('keys of the configuration', found)
}

function unusable(cause: ValueError, store: SubnetStore): Failure {
  const text = 'Cannot use the network configuration that the store has now, going on with the one before'
  return { scope: 'part', text: `${text}: ${located(cause, store).message}` }
}

// The key in the message of a configuration that cannot be used.
const KEY = /^Cannot read (\w+(?:\.\w+)*)/

// The same error with file and line, where the store has a file.
function located(cause: ValueError, { configFile }: SubnetStore): ValueError {
  const text = configFile === undefined ? undefined : readText(configFile)
  if (text === undefined) return cause
  const [, key = ''] = KEY.exec(cause.message) ?? []
  const line = jsonLine(text, key) ?? Number(/\(line (\d+)/.exec(cause.message)?.[1] ?? 1)
  return new ValueError(`${configFile}:${line}: ${cause.message}`, { cause })
}

/** The store's network configuration, where it is not that of the agent. */
export interface Difference {
  readonly conf: NetworkConf
  /** The keys that differ. */
  readonly keys: readonly string[]
  /**
   * This node may take the change at once. Other keys need the same value on all nodes that reach each other, or pods
   * that start again. As with flannel, an administrator chooses the moment for these, node by node.
   */
  readonly isLive: boolean
}

/**
 * Compares the store's network configuration with that of the agent. Undefined when both are the same, and when the
 * store does not answer. An unusable configuration is reported, and changes nothing.
 */
export async function differs(
  { store, conf, backend, failures }: FollowedConf,
  settings: Settings,
  signal: AbortSignal,
): Promise<Difference | undefined> {
  try {
    const now = await store.config(AbortSignal.any([signal, AbortSignal.timeout(LOOK_MS)]))
    reportKeys(failures, now, (await openBackendOf(now, settings)).backend)
    failures.report(CONFIGURATION, [])
    const keys = changedKeys(conf, now)
    const live = [...LIVE_KEYS, ...(backend.live ?? []).map((key) => `Backend.${key}`)].map((key) => key.toLowerCase())
    const isLive = keys.every((key) => live.includes(key.toLowerCase()))
    return keys.length > 0 ? { conf: now, keys, isLive } : undefined
  } catch (cause) {
    // The state of the store already reports a store that does not answer.
    if (cause instanceof ValueError) failures.report(CONFIGURATION, [unusable(cause, store)])
    return undefined
  }
}
