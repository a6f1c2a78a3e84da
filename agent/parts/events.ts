import { log, warn } from '../../lib/os/log.ts'
import { TABLE as FAST_PATH } from '../fast-path/table.ts'
import { bridgeEvent, type Event, ipEvent, MONITORS } from '../kernel/events.ts'
import { follow } from '../kernel/monitor.ts'
import { markedAs } from '../kernel/monitor-processes.ts'
import { followRules, type RuleChange } from '../kernel/rule-events.ts'
import { type Undoer, undoerOf } from '../kernel/undoer.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY_TABLE } from '../policy/table.ts'
import { watchFile } from '../scheduler/folder-watch.ts'
import type { Part } from '../scheduler/part.ts'
import { pause } from '../scheduler/pause.ts'
import { TABLE as SERVICES_TABLE, SOURCES } from '../services/table.ts'
import type { SubnetStore } from '../store/store.ts'
import type { Parts } from './index.ts'
import type { FirewallInputs, Inputs } from './inputs.ts'
import type { PartSet } from './make.ts'

/** Links and addresses change in groups, so a change of the uplink waits this long. Milliseconds. */
const UPLINK_MS = 100
/** Changes of rules come in groups, also those of the agent itself. Milliseconds. */
const RULES_MS = 20
/** Changes of the tables of Services are looked at after so long. Milliseconds. */
const SERVICES_MS = 50
/** The pause after an error of the store, in milliseconds. */
const STORE_MS = 1000

/** Triggers the parts after events of the kernel, the store and other programs, until the signal. */
export async function followEvents(parts: Parts, inputs: Inputs, signal: AbortSignal): Promise<void> {
  await Promise.all([
    followKernel(parts, inputs, signal),
    followLeases(parts, inputs.leases.store, signal),
    watchFile(inputs.files.subnetEnv, () => parts.all.files.queue.add('files'), signal),
    inputs.cluster.objects?.run(signal),
  ])
}

async function followKernel({ all, report }: Parts, inputs: Inputs, signal: AbortSignal): Promise<void> {
  const { failures } = inputs.reports
  const { converger } = inputs.kernel
  const { uplink, peers, dataPath, fastPath } = all
  function changed(event: Event | undefined): void {
    if (!event) return
    const afterMs = converger.note(event)
    if (afterMs !== undefined) peers.queue.add('drift', afterMs)
    dataPath.linkChanged(event)
    fastPath.linkChanged(event)
    if (uplink.concerns(event)) uplink.queue.add('uplink', UPLINK_MS)
  }
  const lostAll = () => {
    converger.invalidate()
    for (const part of [uplink, peers, dataPath, fastPath]) part.queue.add('listening')
  }
  const lostTunnels = () => {
    converger.invalidate('tunnel')
    peers.queue.add('listening')
  }
  const failing = (name: string) => (why: string | undefined) =>
    failures.report(name, why === undefined ? [] : [{ scope: 'node', text: why }])
  const env = markedAs(inputs.network.facts.instance)
  const tools = [
    { argv: MONITORS.ip, line: (text: string) => changed(ipEvent(text)), lost: lostAll },
    { argv: MONITORS.bridge, line: (text: string) => changed(bridgeEvent(text)), lost: lostTunnels },
  ]
  const rules = rulesListener(all, inputs.firewall, (by) => report.undone(by))
  await Promise.all([
    followRules({ ...rules, failing: failing('nft') }, signal, log),
    ...tools.map((one) => follow({ ...one, env, failing: failing(one.argv.join(' ')) }, signal, log)),
  ])
}

// Triggers the parts after changes of nft tables. `undone` gets the program that removed rules of the agent.
function rulesListener(
  { table, forward, tunnels, pluginRules, dataPath, fastPath, policy, services }: PartSet,
  firewall: FirewallInputs,
  undone: (by: Undoer) => void,
): Pick<Parameters<typeof followRules>[0], 'changed' | 'made' | 'lost'> {
  // The changes of a transaction come before the program that made it.
  let isUndone = false
  const check = (part: Part | undefined, why = part?.name ?? '', afterMs = 0) => {
    part?.invalidate?.()
    part?.queue.add(why, afterMs)
  }
  return {
    changed(change) {
      const isOf = (...tables: string[]) => change.family === 'inet' && tables.includes(change.table ?? '')
      isUndone ||= change.gone && (isOf(firewall.table, firewall.tunnels.table, POLICY_TABLE) || isOfForward(change))
      // Elements of sets change with each pod, so they do not trigger this part.
      if (isOf('plumb') && change.gone && change.what !== 'other') pluginRules.queue.add(pluginRules.name)
      if (isOf(firewall.table)) check(table)
      if (isOf(firewall.tunnels.table)) check(tunnels)
      if (isOf(FAST_PATH)) check(fastPath, 'rules', RULES_MS)
      if (isOf(POLICY_TABLE) || change.table === GUARD) check(policy, 'rules', RULES_MS)
      // The part's own transactions arrive here, too: a large one for a long time. A delayed trigger delays no other.
      if (isOf(SERVICES_TABLE, SOURCES)) check(services, services?.name, SERVICES_MS)
      dataPath.ruleChanged(change)
      if (isOfForward(change)) forward.queue.add(forward.name)
    },
    made(program) {
      const undoer = isUndone ? undoerOf(program) : undefined
      isUndone = false
      if (undoer) undone(undoer)
    },
    // Changes are unknown from before a listener began, or while it had no room for messages.
    lost() {
      for (const part of [table, tunnels, fastPath, policy, services]) part?.invalidate()
      for (const part of [table, forward, tunnels, pluginRules, dataPath, fastPath, policy, services])
        part?.queue.add('listening')
    },
  }
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

// Whether a change concerns the iptables chain that pods' packets must pass.
function isOfForward({ family, table, what, chain }: RuleChange): boolean {
  if (family === 'inet' || family === undefined || table !== 'filter' || what === 'other') return false
  return chain === undefined || /^(FORWARD$|PLUMB-F)/.test(chain)
}
