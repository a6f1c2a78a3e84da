import { log, warn } from '../../lib/os/log.ts'
import { bridgeEvent, type Event, ipEvent, MONITORS } from '../kernel/events.ts'
import { follow } from '../kernel/monitor.ts'
import { markedAs } from '../kernel/monitor-processes.ts'
import { followRules, type RuleChange } from '../kernel/rule-events.ts'
import { type Program, undoerOf } from '../kernel/undoer.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import { watchFile } from '../scheduler/folder-watch.ts'
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

/** Triggers the parts after events of the kernel, the store and other programs, until the signal. */
export async function followEvents(parts: Parts, context: Context, signal: AbortSignal): Promise<void> {
  await Promise.all([
    followKernel(parts, context, signal),
    followLeases(parts, context.store, signal),
    watchFile(context.subnetEnv, () => parts.files.queue.add('files'), signal),
    context.objects?.run(signal),
  ])
}

async function followKernel(parts: Parts, context: Context, signal: AbortSignal): Promise<void> {
  const { converger, firewall, facts, failures } = context
  const { uplink, table, forward, tunnels, pluginRules, peers, dataPath, policy, services } = parts
  function heard(event: Event | undefined): void {
    if (!event) return
    const afterMs = converger.note(event)
    if (afterMs !== undefined) peers.queue.add('drift', afterMs)
    dataPath.heard(event)
    if (uplink.concerns(event)) uplink.queue.add('uplink', UPLINK_MS)
  }
  // The changes of a transaction come before the program that made it.
  let isUndone = false
  function ruleChanged(change: RuleChange): void {
    const isOurs = isOfTable(change, firewall.table) || isOfTable(change, firewall.tunnels.table)
    isUndone ||= change.gone && (isOurs || isOfTable(change, POLICY_TABLE) || isOfForward(change))
    // Elements of sets change with each pod, so they do not trigger this part.
    if (change.family === 'inet' && change.table === 'plumb' && change.gone && change.what !== 'other')
      pluginRules.queue.add(pluginRules.name)
    if (isOfTable(change, firewall.table)) {
      table.invalidate()
      table.queue.add(table.name)
    }
    if (isOfTable(change, firewall.tunnels.table)) {
      tunnels.invalidate()
      tunnels.queue.add(tunnels.name)
    }
    if (policy && (isOfTable(change, POLICY_TABLE) || change.table === GUARD)) {
      policy.invalidate()
      policy.queue.add('rules', RULES_MS)
    }
    if (services && (isOfTable(change, SERVICES_TABLE) || isOfTable(change, SOURCES))) {
      services.invalidate()
      // The part's own transactions arrive here, too: a large one for a long time. A delayed trigger delays no other.
      services.queue.add(services.name, SERVICES_MS)
    }
    dataPath.ruleHeard(change)
    if (isOfForward(change)) forward.queue.add(forward.name)
  }
  function made(program: Program): void {
    const undoer = isUndone ? undoerOf(program) : undefined
    isUndone = false
    if (undoer) parts.report.undone(undoer)
  }
  // Changes are unknown from before a listener began, or while it had no room for messages.
  const lostRules = () => {
    table.invalidate()
    tunnels.invalidate()
    policy?.invalidate()
    services?.invalidate()
    for (const part of [table, forward, tunnels, pluginRules, dataPath, policy, services]) part?.queue.add('listening')
  }
  const lostAll = () => {
    converger.invalidate()
    for (const part of [uplink, peers, dataPath]) part.queue.add('listening')
  }
  const lostTunnels = () => {
    converger.invalidate('tunnel')
    peers.queue.add('listening')
  }
  const failing = (name: string) => (why: string | undefined) =>
    failures.report(name, why === undefined ? [] : [{ scope: 'node', text: why }])
  const tools = [
    { argv: MONITORS.ip, line: (text: string) => heard(ipEvent(text)), lost: lostAll },
    { argv: MONITORS.bridge, line: (text: string) => heard(bridgeEvent(text)), lost: lostTunnels },
  ]
  await Promise.all([
    followRules({ changed: ruleChanged, made, lost: lostRules, failing: failing('nft') }, signal, log),
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
