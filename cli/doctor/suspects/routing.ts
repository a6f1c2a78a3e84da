// Rules and routes that lead packets elsewhere.
import { readRules } from '../../../agent/doctor/facts/routes.ts'
import { jsonOf } from '../../../agent/doctor/facts/tools.ts'
import { PROTO } from '../../../agent/kernel/marks.ts'
import type { Run } from '../../../lib/os/run.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { isAbout, isIn } from './about.ts'
import type { Scope, Suspect } from './suspect.ts'

/** The rules that the kernel has from the start, and the one of VRFs. */
const KERNELS = /^from all lookup (local|main|default)$|\[l3mdev-table\]/

/** The rules of routing, except those of the kernel. Throws Error. */
export async function foreignRules(run: Run, scope: Scope): Promise<Suspect[]> {
  const families = new Set(scope.ips.map((ip) => (isSix(ip) ? 6 : 4)))
  return (await readRules(run))
    .filter(({ family, text }) => families.has(family) && !KERNELS.test(text) && isAbout(text, scope))
    .map(({ family, priority, text }) => ({
      text: `the rule of routing ${priority}: ${text}`,
      undo: `ip -${family} rule del priority ${priority}`,
    }))
}

interface RouteRow {
  readonly dst: string
  readonly dev?: string
  readonly gateway?: string
  readonly type?: string
  readonly protocol?: string
  readonly metric?: number
}

/** Routes to the ends that plumb did not make, closer than those of links. In a pod, all that do not lead to its node. Throws Error. */
export async function foreignRoutes(run: Run, scope: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  for (const family of [4, 6] as const) {
    const ips = scope.ips.filter((ip) => isSix(ip) === (family === 6))
    if (ips.length === 0) continue
    const argv = ['ip', `-${family}`, '-json', '-details', '-N', 'route', 'show', 'table', 'main']
    const rows = (await jsonOf(run, argv)) as RouteRow[]
    for (const row of rows) {
      const text = textOf(row, ips, scope)
      if (text !== undefined)
        found.push({ text: `the route ${text}, which plumb did not make`, undo: undoOf(row, text, family, scope) })
    }
    const gateway = scope.gateways.find((ip) => isSix(ip) === (family === 6))
    if (scope.isPod && !rows.some(({ dst }) => dst === 'default'))
      found.push({
        text: `the pod has no default route of IPv${family}`,
        ...(gateway !== undefined && { undo: `ip -${family} route replace default via ${gateway} dev eth0` }),
      })
  }
  return found
}

// The route as ip takes it. Undefined for one of the kernel or of plumb, and for one to others.
function textOf(row: RouteRow, ips: readonly Ip[], { isPod, gateways, ways }: Scope): string | undefined {
  const { dst, dev, gateway, type = '1', protocol } = row
  // A pod's own link, which its plugin has led to it.
  if (!isPod && dev !== undefined && gateway === undefined && ways.get(dst as Ip) === dev) return undefined
  if (protocol === '2' || protocol === 'kernel' || protocol === String(PROTO)) return undefined
  const word = TYPES[type] ?? type
  const isToNode =
    word === 'unicast' && (gateway === undefined || gateways.includes(gateway as Ip) || gateways.length === 0)
  if (isPod ? isToNode : dst === 'default') return undefined
  if (dst !== 'default' && !ips.some((ip) => isIn(ip, dst))) return undefined
  const way = [gateway === undefined ? '' : ` via ${gateway}`, dev === undefined ? '' : ` dev ${dev}`].join('')
  return `${word === 'unicast' ? '' : `${word} `}${dst}${way}`
}

// A pod needs a default route: its gateway takes the place of another one.
function undoOf({ dst, metric }: RouteRow, text: string, family: 4 | 6, { isPod, gateways }: Scope): string {
  const gateway = gateways.find((ip) => isSix(ip) === (family === 6))
  if (isPod && dst === 'default' && gateway !== undefined)
    return `ip -${family} route replace default via ${gateway} dev eth0`
  return `ip -${family} route del ${text}${metric === undefined ? '' : ` metric ${metric}`}`
}
const TYPES: Readonly<Record<string, string>> = {
  1: 'unicast',
  6: 'blackhole',
  7: 'unreachable',
  8: 'prohibit',
  9: 'throw',
}
