import { log } from '../../lib/os/log.ts'
import { isThere } from '../../lib/os/nftables.ts'
import { areOthersRunning } from '../node/instance-lock.ts'
import { GUARD } from '../policy/guard.ts'
import { TABLE as POLICY } from '../policy/table.ts'
import type { Failure } from '../scheduler/failures.ts'
import type { Outcome } from '../scheduler/part.ts'
import { kubeProxyRules } from '../services/kube-proxy.ts'
import { removeServices } from '../services/removal.ts'
import { TABLE as SERVICES, SOURCES } from '../services/table.ts'
import { BasePart } from './base.ts'
import type { ClusterInputs, KernelInputs, NetworkInputs } from './inputs.ts'

/** The tables of a task that an agent may have or not, and the setting for it. */
const TASKS = [
  { setting: '--service-proxy', tables: [SERVICES, SOURCES], frozen: 'Services stay as they were then' },
  { setting: '--network-policy', tables: [POLICY, GUARD], frozen: 'policies and pods stay as they were then' },
] as const

/** What the part needs of the agent. */
export type LeftTablesPartOptions = Pick<ClusterInputs, 'services' | 'policy'> &
  Pick<NetworkInputs, 'facts'> &
  Pick<KernelInputs, 'run'>

/**
 * Finds tables that an agent with another setting left. Nobody keeps them up to date, and packets meet them all the
 * same. So the node is not ready while they are there. To remove them would end all Services of the node, or open its
 * pods. Tables of Services go when kube-proxy has taken over.
 */
export class LeftTablesPart extends BasePart<LeftTablesPartOptions> {
  readonly name = 'left tables'
  readonly trouble = 'Cannot look for tables that an agent with other settings left'
  readonly quietMs = 0

  async step(): Promise<Outcome> {
    const { services, policy, facts, run } = this.given
    const isOn = (setting: (typeof TASKS)[number]['setting']) =>
      (setting === '--service-proxy' ? services : policy) !== undefined
    const left = TASKS.filter(({ setting, tables }) => !isOn(setting) && tables.some((one) => whereIs(one).length > 0))
    // Another agent of this node may have the task.
    if (left.length === 0 || areOthersRunning(facts.instance)) return {}
    const failures: Failure[] = []
    for (const { setting, tables, frozen } of left) {
      const isTakenOver = setting === '--service-proxy' && (await kubeProxyRules(run)).length > 0
      if (isTakenOver) {
        for (const what of await removeServices(run)) log(`agent: kube-proxy serves Services: ${what}`)
        continue
      }
      const commands = tables.flatMap((one) => whereIs(one).map((family) => `nft delete table ${family} ${one}`))
      const what = `nft table ${tables[0]} is of an agent with ${setting}, and this one has none: ${frozen}`
      failures.push({ scope: 'node', text: `${what}; want ${setting}, or: ${commands.join('; ')}` })
    }
    return { failures }
  }
}

function whereIs(table: string): ('inet' | 'bridge')[] {
  return (['inet', 'bridge'] as const).filter((family) => isThere(family, table))
}
