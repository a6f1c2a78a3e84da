import { warn } from '../lib/os/log.ts'
import { accessOf } from './cluster/access.ts'
import { Api } from './cluster/api.ts'
import { nodeOfPod } from './cluster/pod-node.ts'
import { instanceOf, knownPlace, storeWish } from './instance.ts'
import { endOrphans } from './kernel/monitor-processes.ts'
import type { NetworkConf } from './lease/network-configuration.ts'
import { type Ends, work } from './network-change.ts'
import { type NodeSubnet, remembered, writeSubnetEnv } from './node/files.ts'
import { lockInstance, runningFlanneld } from './node/instance-lock.ts'
import { Parts } from './parts/index.ts'
import { prepare } from './prepare.ts'
import { traced } from './scheduler/spans.ts'
import type { Settings } from './settings/settings.ts'
import { Recorder } from './state/recorder.ts'
import { openCheckpoint, readCheckpoint, whyUncertain } from './store/last-known.ts'
import { openStore } from './store/open.ts'
import { tracedStore } from './store/store.ts'
import { type Records, Surface } from './surface.ts'
import { openTelemetry } from './telemetry/telemetry.ts'

/**
 * Runs the agent until the signal. After SIGHUP it starts again when the store has another network configuration.
 * Throws the error that ends the agent otherwise. Examples are another agent of the same name, unusable settings or
 * configuration, and a subnet of another node.
 */
export async function serve(given: Settings, version: string, signal: AbortSignal): Promise<void> {
  const settings = await named(given, version, signal)
  const unlock = lockInstance(instanceOf(settings), settings.files.subnetEnv)
  const flanneld = runningFlanneld()
  if (flanneld !== undefined) {
    const why = `both write routes, devices and ${settings.files.subnetEnv}`
    warn(`agent: flanneld runs on this node, process ${flanneld}: ${why}; stop it, or delete its DaemonSet`)
  }
  const records = { all: new Recorder(), ...(settings.status?.isRedacted && { redacted: new Recorder() }) }
  try {
    for (let accepted: NetworkConf | undefined; !signal.aborted; ) {
      const changed = new AbortController()
      const run = { version, accepted, records, signal: AbortSignal.any([signal, changed.signal]) }
      accepted = undefined
      await serveOne(settings, run, (conf) => {
        accepted = conf
        changed.abort()
      })
    }
  } finally {
    unlock()
  }
}

// A pod without NODE_NAME asks the API for its node, as flannel does.
async function named(settings: Settings, version: string, signal: AbortSignal): Promise<Settings> {
  const { store } = settings
  if (store.kind !== 'kube' || !store.pod) return settings
  const api = new Api(accessOf(store), `plumb-agent/${version}`)
  return { ...settings, node: await nodeOfPod(api, store.pod, signal) }
}

/** One run of the agent. `accepted` is its configuration, when the previous run ended because of a change. */
interface Run {
  readonly version: string
  readonly accepted: NetworkConf | undefined
  readonly records: Records
  readonly signal: AbortSignal
}

async function serveOne(settings: Settings, run: Run, again: Ends['again']): Promise<void> {
  const { version, records, signal } = run
  const before = recallSubnet(settings)
  endOrphans(instanceOf(settings))
  const telemetry = openTelemetry(settings.spans?.endpoint, { node: settings.node, version })
  const store = tracedStore(await openStore(storeWish(settings, version)))
  const surface = new Surface(settings, { version, records, store, telemetry })
  const checkpoint = openCheckpoint(knownPlace(settings), (why) =>
    surface.failures.report('last known', why === undefined ? [] : [{ scope: 'part', text: why }]),
  )
  // Every end of this run stops all of its work.
  const ended = new AbortController()
  const life = AbortSignal.any([signal, ended.signal])
  try {
    const stop = await surface.serve(life)
    try {
      const ground = { settings, version, store, before, accepted: run.accepted, checkpoint }
      const { failures, changed, refused, waiting } = surface
      // Keeps nothing in memory: the file may hold ten thousand leases, and the store sends them again.
      const known = () => readCheckpoint(knownPlace(settings))
      const wish = { ...ground, failures, changed, refused, known, signal: life }
      const inputs = await traced('start', {}, () => prepare(wish, waiting))
      const parts = new Parts(inputs, life)
      surface.show(parts)
      await work(parts, inputs, settings, { life, end: () => ended.abort(), again })
    } finally {
      stop()
    }
  } finally {
    ended.abort()
    checkpoint.flush()
    await store.close()
  }
}

// Writes the remembered subnet.env before the store answers. Pods that start now get the same subnet as before.
function recallSubnet(settings: Settings): NodeSubnet | undefined {
  const { node, files } = settings
  const before = remembered(files.stateDir, node, instanceOf(settings))
  if (!before) return undefined
  const last = readCheckpoint(knownPlace(settings))
  if (last !== undefined && whyUncertain(last) !== undefined) return before
  try {
    writeSubnetEnv(files.subnetEnv, before)
  } catch (cause) {
    // The parts report it later, and try again.
    warn(`agent: ${(cause as Error).message}`)
  }
  return before
}
