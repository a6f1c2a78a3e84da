// Which packets the tables of a trace select, in each namespace.
import type { Whose } from '../../lib/os/drop-reasons.ts'
import {
  type AwaitedPackets,
  conditionsOf,
  familyOf,
  type Probe,
  tunnelledCondition,
  tunnelledWish,
  wishConditions,
} from './packet.ts'
import type { Marks } from './watch.ts'

/** Selects the packet that a trace sends. `tunnel` is the UDP port of VXLAN. */
export function probeMarks(probe: Probe, tunnel: number | undefined, drops: Whose): Marks {
  const own = conditionsOf(probe)
  const carriers = tunnel === undefined ? [] : [tunnelledCondition(probe, tunnel)]
  return {
    conditions: (_, family) =>
      family === 'inet' ? [...own, ...carriers] : own.map((one) => `${etherOf(probe)} ${one}`),
    drops,
  }
}

/** Selects packets of programs, from a second since 1970 on. */
export function wishMarks(wish: AwaitedPackets, from: number, tunnel: number | undefined, drops: Whose): Marks {
  const carriers = tunnel === undefined ? [] : tunnelledWish(wish, from, tunnel)
  return {
    conditions({ name }, family) {
      const own = wishConditions(wish, from, name === 'target')
      return family === 'inet' ? [...own, ...carriers] : own.map((one) => `${etherOf(wish)} ${one}`)
    },
    drops,
  }
}

function etherOf(ends: Pick<Probe, 'destination'>): string {
  return `ether type ${familyOf(ends) === 6 ? 'ip6' : 'ip'}`
}
