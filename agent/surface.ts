import { log, warn } from '../lib/os/log.ts'
import { accessOf } from './cluster/access.ts'
import { Api } from './cluster/api.ts'
import { ClusterEvents } from './cluster/events.ts'
import { readToken } from './http/guard.ts'
import { REDACTED, REFUSED, redactedFailures, redactedSource } from './http/redaction.ts'
import { type ServerAddresses, type Source, serveHealth } from './http/server.ts'
import { watchMemory } from './node/memory-limit.ts'
import type { Parts } from './parts/index.ts'
import { figuresReader } from './parts/node-figures.ts'
import { keepFailures } from './scheduler/failures.ts'
import type { Settings } from './settings/settings.ts'
import { announce } from './state/announcing.ts'
import { waitingStatus } from './state/condition.ts'
import { makeStatusFeed } from './state/current-status.ts'
import { keepRecord, type Recorder } from './state/recorder.ts'
import type { Status } from './state/status.ts'
import { watchStore } from './state/store-outages.ts'
import type { SubnetStore } from './store/store.ts'
import type { Telemetry } from './telemetry/telemetry.ts'

/** What was, also in earlier runs of the agent: for everybody, and for who gets a redacted status. */
export interface Records {
  readonly all: Recorder
  readonly redacted?: Recorder
}

/** What a surface shows besides the parts. */
export interface Shown {
  readonly version: string
  readonly records: Records
  readonly store: SubnetStore
  readonly telemetry: Telemetry
}

/**
 * What people and programs see of one run of the agent: its status, the servers that answer, the record of what was, and
 * what the cluster is told. It is there from the start, and shows what the agent waits for until the parts are there.
 */
export class Surface {
  readonly #settings: Settings
  readonly #shown: Shown
  readonly #feed = makeStatusFeed()
  /** The failures of all parts. */
  readonly failures = keepFailures(() => this.#publish())
  #parts: Parts | undefined
  #waitingFor = ''

  constructor(settings: Settings, shown: Shown) {
    this.#settings = settings
    this.#shown = shown
  }

  /** Shows the parts from now on. */
  show(parts: Parts): void {
    this.#parts = parts
  }

  /** Shows what the agent waits for. */
  readonly waiting = (why: string): void => {
    this.#waitingFor = why
    this.#publish()
  }

  /** Shows a possible change. `look` makes the status, and is called only when somebody reads it. */
  readonly changed = (look: () => Status): void => this.#feed.publish(look)

  /** Notes a packet that policy refused, described in one line. */
  readonly refused = (text: string): void => {
    const { all, redacted } = this.#shown.records
    all.refused(text)
    redacted?.refused(REFUSED)
  }

  /** Starts the servers. Returns what stops them. Throws Error for an address or a token that cannot be used. */
  async serve(life: AbortSignal): Promise<() => void> {
    const { telemetry } = this.#shown
    const source = this.#source()
    const overTcp = this.#overTcp(source)
    const health = await serveHealth(addressesOf(this.#settings), source, this.failures, overTcp)
    const recording = await telemetry.run(this.#settings.files.socket, life)
    this.#record(source, overTcp, life)
    return () => {
      recording.stop()
      health.stop()
    }
  }

  // Keeps until the signal what was, watches store and memory, and tells the cluster.
  #record(source: Source, overTcp: Source | undefined, life: AbortSignal): void {
    const { store, version, records } = this.#shown
    const { all, redacted } = records
    void watchStore(store, life, () => this.#publish(), log, warn)
    void watchMemory(this.failures, life)
    void keepRecord(all, source, life)
    if (redacted && overTcp) void keepRecord(redacted, overTcp, life)
    const events = eventsOf(this.#settings, version)
    void events?.run(life)
    const announcement = () => this.#parts?.report.announcement() ?? { ...this.#status(), closed: [] }
    void announce(announcement, { store, ...(events && { events }) }, life)
  }

  #publish(): void {
    this.#feed.publish(() => this.#status())
  }

  #status(): Status {
    const { node } = this.#settings
    const { version, store } = this.#shown
    return (
      this.#parts?.report.status() ?? waitingStatus({ node, version, store, failures: this.failures }, this.#waitingFor)
    )
  }

  #redactedStatus(): Status {
    const { node } = this.#settings
    const { version, store } = this.#shown
    const waiting = { node, version, store, failures: redactedFailures(this.failures, []) }
    return this.#parts?.report.redactedStatus() ?? { redacted: REDACTED, ...waitingStatus(waiting, this.#waitingFor) }
  }

  #overTcp(source: Source): Source | undefined {
    const { redacted } = this.#shown.records
    return redacted && redactedSource(source, { status: () => this.#redactedStatus(), recorder: redacted })
  }

  #source(): Source {
    const { records, telemetry } = this.#shown
    const figures = figuresReader(this.#settings)
    const policy = () => this.#parts?.all.policy?.answers
    return {
      status: () => this.#status(),
      changes: this.#feed.changes,
      recorder: records.all,
      busy: () => this.#parts?.busy(),
      services: () => this.#parts?.all.services?.view(this.#parts.all.bgp?.announced),
      policy: () => policy()?.view(),
      peer: async (key: string) => this.#parts?.all.peers.objects(key),
      pods: async () => this.#parts?.report.pods(),
      pod: (name: string) => policy()?.detail(name),
      policyMatrix: () => policy()?.matrix(),
      policyCell: (from: string, to: string) => policy()?.cell(from, to),
      policyComparison: (text: string) => (policy()?.isComplete ? policy()?.comparison({ text }) : undefined),
      policyCounts: () => policy()?.counts(),
      calls: telemetry.calls,
      spans: telemetry.spans,
      figures: () => (this.#parts ? figures(this.#status().subnets) : undefined),
      isPerPeer: this.#settings.metricsPerPeer,
      rotate: () => {
        if (this.#parts) return this.#parts.rotate()
        throw new Error(
          'Cannot give this node another key: the agent still waits for what it needs (see: plumb status)',
        )
      },
    }
  }
}

function addressesOf({ status, files }: Settings): ServerAddresses {
  return {
    address: status?.host ?? '127.0.0.1',
    port: status?.port ?? 0,
    ...(status?.probesOnly && { probesOnly: true as const }),
    ...(status?.tokenFile !== undefined && { token: readToken(status.tokenFile) }),
    socket: files.socket,
  }
}

// Events go where the leases or the objects of the cluster come from. An unusable way there ends the agent elsewhere.
function eventsOf({ node, store, policy, services }: Settings, version: string): ClusterEvents | undefined {
  const from = policy ?? services?.objects
  const wish = store.kind === 'kube' ? store : from?.from === 'api' ? from : undefined
  try {
    return wish && new ClusterEvents(new Api(accessOf(wish), `plumb-agent/${version}`), node)
  } catch {
    return undefined
  }
}
