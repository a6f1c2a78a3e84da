import { dirname } from 'node:path'
import type { NetworkConf } from './lease/network-configuration.ts'
import { confirmed, type Difference, differs, type FollowedConf } from './network.ts'
import { followEvents } from './parts/events.ts'
import type { Parts } from './parts/index.ts'
import type { Inputs } from './parts/inputs.ts'
import { watchFolders } from './scheduler/folder-watch.ts'
import { makeNotification, type Notification, pause } from './scheduler/pause.ts'
import type { Settings } from './settings/settings.ts'
import type { SubnetStore } from './store/store.ts'

/** How often the agent compares the store's network configuration with its own, in milliseconds. */
const CONF_MS = 60_000
/** A file is written in several steps. A look at it waits this long, in milliseconds. */
const FILE_MS = 100
/** How often the agent looks whether the folder of the configuration is another one, in milliseconds. */
const FOLDER_MS = 1000
const ANOTHER = 'the store has another network configuration'

/**
 * The ways to end one run. `life` is the signal of its end. `end` ends it. `again` ends it and lets the next run start.
 * The next run has the given configuration, or asks the store.
 */
export interface Ends {
  readonly life: AbortSignal
  end(): void
  again(accepted?: NetworkConf): void
}

/**
 * Lets the parts work until the signal, and follows the store. Ends the run when the store has another network
 * configuration that a living agent can take, and after SIGHUP with any other.
 */
export async function work(parts: Parts, inputs: Inputs, settings: Settings, ends: Ends): Promise<void> {
  const { life, end } = ends
  const watch = new ConfigurationWatch(parts, inputs, settings, ends)
  const touched = makeNotification()
  const looking = setInterval(() => touched.notify(), CONF_MS)
  const onHangup = () => watch.hangup()
  process.on('SIGHUP', onHangup)
  void watch.confirm()
  try {
    await Promise.all([
      followEvents(parts, inputs, life),
      followFile(inputs.leases.store, touched, () => watch.look(), life),
      parts.run(life, end),
    ])
  } finally {
    process.off('SIGHUP', onHangup)
    clearInterval(looking)
  }
}

/** Compares the store's network configuration with that of the run. */
class ConfigurationWatch {
  readonly #parts: Parts
  readonly #inputs: Inputs
  readonly #followed: FollowedConf
  readonly #settings: Settings
  readonly #ends: Ends
  /** The store has said that the configuration counts that the agent has started with. */
  #isConfirmed: boolean

  constructor(parts: Parts, inputs: Inputs, settings: Settings, ends: Ends) {
    this.#parts = parts
    this.#inputs = inputs
    this.#settings = settings
    this.#ends = ends
    const { leases, network, reports } = inputs
    this.#followed = { ...leases, ...network, ...reports }
    this.#isConfirmed = leases.stale === undefined
  }

  /** A run without the store started with what was known last. Asks the store once it answers. */
  async confirm(): Promise<void> {
    if (this.#isConfirmed) return
    try {
      const isOther = await confirmed(this.#followed, this.#settings, this.#ends.life)
      this.#isConfirmed = true
      if (isOther) this.#begin(ANOTHER)
      else this.#parts.all.lease.confirm()
    } catch {
      // The run ends, or `look` reports it.
    }
  }

  /** SIGHUP: checks everything, and takes any other configuration. */
  hangup(): void {
    this.#parts.resync('SIGHUP')
    void differs(this.#followed, this.#settings, this.#ends.life).then((found) => {
      if (found) this.#begin(`${ANOTHER}${this.#backendOf(found)}`)
    })
  }

  /** Looks at the store's configuration. */
  async look(): Promise<void> {
    const found = await differs(this.#followed, this.#settings, this.#ends.life)
    if (!found || !this.#isConfirmed || this.#ends.life.aborted) return
    const text = `${ANOTHER} (${found.keys.join(', ')})${this.#backendOf(found)}`
    if (found.isLive) this.#begin(text, found.conf)
    else this.#parts.report.note(`${text}; it counts after a restart of the agent or SIGHUP`)
  }

  #begin(text: string, accepted?: NetworkConf): void {
    this.#inputs.reports.log(`agent: ${text}; starting again with it`)
    this.#ends.again(accepted)
  }

  #backendOf({ conf }: Difference): string {
    const [now, own] = [conf.backend.type, this.#inputs.network.conf.backend.type]
    return now === own ? '' : `, with backend ${now} instead of ${own}`
  }
}

// A ConfigMap is a folder of symbolic links, and a change replaces one of them (`..data`). So each change in the folder of
// the file counts.
async function followFile(
  { configFile }: SubnetStore,
  touched: Notification,
  look: () => Promise<void>,
  life: AbortSignal,
): Promise<void> {
  const looks = async () => {
    for (;;) {
      await touched.notified(life)
      await pause(FILE_MS, life)
      if (life.aborted) return
      await look()
    }
  }
  const ignore = () => {}
  const watching =
    configFile !== undefined && watchFolders([dirname(configFile)], () => touched.notify(), ignore, FOLDER_MS, life)
  await Promise.all([looks(), watching])
}
