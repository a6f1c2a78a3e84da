import { isSix } from '../../../lib/text/cidr.ts'
import { type Cidr, parseCidr, split } from '../../../lib/text/ip.ts'
import { both } from '../../lease/families.ts'
import { nameOf } from '../../state/reachability.ts'
import { defineCheck, type SeenFault } from '../check.ts'
import type { Facts } from '../facts/index.ts'
import type { Route, Rule } from '../facts/routes.ts'

/** The priority of the rule that leads to the table `main` (man ip-rule(8)). */
const MAIN = 32_766

/**
 * Packets to pods of another node leave by a route that is not the agent's. It is a more specific one in `main`, or it
 * is in a table that a rule asks before `main`. VPNs have such rules.
 */
export const check = defineCheck({
  code: 'DR32',
  title: 'packets of pods take another route',
  severity: 'error',
  reads: ['status', 'routes', 'rules'],
  detect(facts) {
    const { status } = facts
    if (!status) return []
    const all = status.peers.flatMap((peer) => both(peer.subnets).map((subnet) => ({ peer, subnet })))
    return [...inMain(facts, all), ...beforeMain(facts, all, both(status.network))]
  },
})

type Target = { readonly peer: Parameters<typeof nameOf>[0]; readonly subnet: Cidr }

function inMain({ routes }: Pick<Facts, 'routes'>, targets: readonly Target[]): SeenFault[] {
  const main = routes.filter(({ table, type }) => table === 'main' && type !== 'unreachable')
  const byFirst = new Map(targets.map((one) => [split(one.subnet).first, one] as const))
  return main.flatMap((route): SeenFault[] => {
    const { length } = split(route.dst)
    const target = byFirst.get(split(route.dst).first) ?? targets.find(({ subnet }) => isWithin(route.dst, subnet))
    if (!target || !isWithin(route.dst, target.subnet) || length <= split(target.subnet).length) return []
    const named = textOf(route)
    return [seenOf(target, route.dev, `the route ${named}`, [`ip route del ${named}`])]
  })
}

function beforeMain(
  { rules, routes }: Pick<Facts, 'rules' | 'routes'>,
  targets: readonly Target[],
  networks: readonly Cidr[],
): SeenFault[] {
  const early = rules.filter(({ priority, table, text }) => isForAll(text) && priority < MAIN && table !== 'local')
  return early.flatMap((rule): SeenFault[] => {
    const ofTable = routes.filter(
      ({ table, family, type }) => table === rule.table && family === rule.family && type !== 'throw',
    )
    for (const route of ofTable) {
      const isCaught = ({ subnet }: Target) => isWithin(subnet, route.dst) && !isSentToMain(subnet, rule, rules)
      const target = targets.find(isCaught)
      if (!target) continue
      const how = `rule ${rule.priority} (${rule.text}) finds ${textOf(route)} first`
      // The pods of this node and of all others are in one network.
      const whole = networks.find((network) => isWithin(target.subnet, network)) ?? target.subnet
      return [seenOf(target, route.dev, how, [addRule(whole, rule)])]
    }
    return []
  })
}

// Whether an earlier rule sends packets to a subnet to the table `main`.
function isSentToMain(subnet: Cidr, { priority }: Rule, rules: readonly Rule[]): boolean {
  return rules.some((one) => {
    const [, to] = /^from all to (\S+) lookup main\b/.exec(one.text) ?? []
    if (to === undefined || one.priority > priority) return false
    return isWithin(subnet, parseCidr(to.includes('/') ? to : `${to}/${isSix(subnet) ? 128 : 32}`))
  })
}

// A rule that selects marked packets, or those of some links, may be for others.
function isForAll(text: string): boolean {
  return /^from all lookup \S+( proto \S+)?$/.test(text)
}

function addRule(subnet: Cidr, { family, priority }: Rule): string {
  return `ip -${family} rule add to ${subnet} lookup main priority ${Math.max(1, priority - 1)}`
}

function seenOf({ peer, subnet }: Target, dev: string, how: string, commands: string[]): SeenFault {
  const by = dev === '' ? '' : ` by ${dev}`
  const what = `Packets to ${subnet} of ${nameOf(peer)} leave${by}: ${how}`
  return { what, effect: 'its pods are not reached', commands }
}

function textOf({ dst, via, dev, table }: Route): string {
  const parts = [dst, ...(via === undefined ? [] : ['via', via]), ...(dev === '' ? [] : ['dev', dev])]
  return [...parts, ...(table === 'main' ? [] : ['table', table])].join(' ')
}

function isWithin(inner: Cidr, outer: Cidr): boolean {
  const [a, b] = [split(inner), split(outer)]
  return a.family === b.family && a.first >= b.first && a.last <= b.last
}
