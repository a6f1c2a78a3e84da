import { log, warn } from '../../lib/os/log.ts'
import { bridgeEvent, type Event, ipEvent, MONITORS } from '../kernel/events.ts'
import { follow } from '../kernel/monitor.ts'
import { markedAs } from '../kernel/monitor-processes.ts'
import { followRules, type RuleChange } from '../kernel/rule-events.ts'
import { watchFile } from '../node/file-watch.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import { pause } from '../scheduler/pause.ts'
import { TABLE as SERVICES_TABLE, SOURCES } from '../services/table.ts'
import type { SubnetStore } from '../store/store.ts'
import type { Context } from './context.ts'
import type { Parts } from './index.ts'

/** Links and addresses change in groups, so a change of the uplink waits this long. Milliseconds. */
const UPLINK_MS = 100
/** Changes of rules come in groups, also those of the agent itself. Milliseconds. */
const RULES_MS = 20
/** Changes of the tables of Services are looked at after so long. Milliseconds. */
const SERVICES_MS = 50
/** The pause after an error of the store, in milliseconds. */
const STORE_MS = 1000

/** Wakes the parts after events of the kernel, the store and other programs, until the signal. */
export async function followEvents(parts: Parts, context: Context, signal: AbortSignal): Promise<void> {
  await Promise.all([
    followKernel(parts, context, signal),
    followLeases(parts, context.store, signal),
    watchFile(context.subnetEnv, () => parts.files.wakes.poke('files'), signal),
    context.objects?.run(signal),
  ])
}

async function followKernel(parts: Parts, context: Context, signal: AbortSignal): Promise<void> {
  const { converger, firewall, facts, failures } = context
  const { uplink, table, forward, pluginRules, peers, dataPath, policy, services } = parts
  function heard(event: Event | undefined): void {
    if (!event) return
    const afterMs = converger.heard(event)
    if (afterMs !== undefined) peers.wakes.poke('drift', afterMs)
    dataPath.heard(event)
    if (uplink.concerns(event)) uplink.wakes.poke('uplink', UPLINK_MS)
  }
  function ruleChanged(change: RuleChange): void {
    // Elements of sets change with each pod, so they do not wake this part.
    if (change.family === 'inet' && change.table === 'plumb' && change.gone && change.what !== 'other')
      pluginRules.wakes.poke(pluginRules.name)
    if (isOfTable(change, firewall.table)) {
      table.doubt()
      table.wakes.poke(table.name)
    }
    if (policy && (isOfTable(change, POLICY_TABLE) || change.table === GUARD)) {
      policy.doubt()
      policy.wakes.poke('rules', RULES_MS)
    }
    if (services && (isOfTable(change, SERVICES_TABLE) || isOfTable(change, SOURCES))) {
      services.doubt()
      // The part's own transactions are heard, too: a large one for a long time. A delayed wake holds back no other
      // wake.
      services.wakes.poke(services.name, SERVICES_MS)
    }
    dataPath.ruleHeard(change)
    if (isOfForward(change)) forward.wakes.poke(forward.name)
  }
  // Changes are unknown from before a listener began, or while it had no room for messages.
  const lostRules = () => {
    table.doubt()
    policy?.doubt()
    services?.doubt()
    for (const part of [
      table,
      forward,
      pluginRules,
      dataPath,
      ...(policy ? [policy] : []),
      ...(services ? [services] : []),
    ])
      part.wakes.poke('listening')
  }
  const lostAll = () => {
    converger.invalidate()
    for (const part of [uplink, peers, dataPath]) part.wakes.poke('listening')
  }
  const lostTunnels = () => {
    converger.invalidate('tunnel')
    peers.wakes.poke('listening')
  }
  const failing = (name: string) => (why: string | undefined) =>
    failures.report(name, why === undefined ? [] : [{ scope: 'node', text: why }])
  const tools = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)), lost: lostAll },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)), lost: lostTunnels },
  ]
  await Promise.all([
    followRules({ heard: ruleChanged, lost: lostRules, failing: failing('nft') }, signal, log),
    ...tools.map((one) =>
      follow({ ...one, env: markedAs(facts.instance), failing: failing(one.argv.join(' ')) }, signal, log),
    ),
  ])
}

// Objects in the kernel stay unchanged when the store fails.
async function followLeases(parts: Parts, store: SubnetStore, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      for await (const snapshot of store.leases(signal)) parts.take(snapshot)
    } catch (cause) {
      if (!signal.aborted) warn(`agent: Cannot follow the leases, trying again in 1 s: ${(cause as Error).message}`)
    }
    await pause(STORE_MS, signal)
  }
}

function isOfTable({ family, table }: RuleChange, own: string): boolean {
  return family === 'inet' && table === own
}

// Whether a change concerns the iptables chain that pods' packets must pass.
function isOfForward({ family, table, what, chain }: RuleChange): boolean {
  if (family === 'inet' || family === undefined || table !== 'filter' || what === 'other') return false
  return chain === undefined || /^(FORWARD$|PLUMB-F)/.test(chain)
}
