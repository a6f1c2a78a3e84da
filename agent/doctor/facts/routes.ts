import type { Run } from '../../../lib/os/run.ts'
import { listed } from '../../../lib/os/show.ts'
import { type Cidr, parseCidr } from '../../../lib/text/ip.ts'
import type { Fact } from './facts.ts'
import { jsonOf } from './tools.ts'

/** A route. `dst` has host bits cleared. */
export interface Route {
  readonly family: 4 | 6
  readonly dst: Cidr
  /** Empty for a route that drops packets, and for one over several links. */
  readonly dev: string
  readonly via?: string
  /** `unicast`, or what the kernel does instead, such as `blackhole`. */
  readonly type: string
  /** The table's name or number: `main`. */
  readonly table: string
  /** The program that made it, as in rt_protos: `kernel`, `112`. */
  readonly proto: string
}
/** A rule of policy routing. */
export interface Rule {
  readonly family: 4 | 6
  readonly priority: number
  readonly table: string
  /** The rule as `ip rule` takes it, without its priority: `from all fwmark 0x80000/0xff0000 lookup 52`. */
  readonly text: string
}

interface RouteRow {
  readonly dst: string
  readonly dev?: string
  readonly gateway?: string
  readonly type?: string
  readonly table?: string
  readonly protocol?: string
}

/** All routes of all tables but `local`. */
export const routes: Fact<readonly Route[]> = { read: ({ run }) => readRoutes(run), inAgent: { missing: 'the routes' } }

/** The rules that select the tables of routes. */
export const rules: Fact<readonly Rule[]> = {
  read: ({ run }) => readRules(run),
  inAgent: { missing: 'the rules of routing' },
}

/** Reads the routes of all tables but `local`. Throws Error when `ip` fails. */
export async function readRoutes(run: Run): Promise<Route[]> {
  const [four, six] = await Promise.all(
    ([4, 6] as const).map(async (family) => {
      const argv = ['ip', `-${family}`, '-json', '-details', 'route', 'show', 'table', 'all']
      return ((await jsonOf(run, argv)) as RouteRow[]).flatMap((row) => routeOf(row, family) ?? [])
    }),
  )
  return [...(four ?? []), ...(six ?? [])]
}

function routeOf({ dst, dev = '', gateway, type = 'unicast', table = 'main', protocol = '' }: RouteRow, family: 4 | 6) {
  if (table === 'local' || type === 'local' || type === 'broadcast' || type === 'multicast') return undefined
  const any = family === 4 ? '0.0.0.0/0' : '::/0'
  const whole = family === 4 ? 32 : 128
  const text = dst === 'default' ? any : dst.includes('/') ? dst : `${dst}/${whole}`
  const route: Route = {
    family,
    dst: parseCidr(text),
    dev,
    type,
    table,
    proto: protocol,
    ...(gateway !== undefined && { via: gateway }),
  }
  return route
}

/** Reads the rules of both families, in their order. Throws Error when `ip` fails. */
export async function readRules(run: Run): Promise<Rule[]> {
  const [four, six] = await Promise.all(
    ([4, 6] as const).map(async (family) => {
      const argv = ['ip', `-${family}`, 'rule', 'show']
      return (await listed(argv, run)).split('\n').flatMap((line): Rule[] => {
        const [, priority, text = ''] = /^(\d+):\s+(.*?)\s*$/.exec(line) ?? []
        if (priority === undefined) return []
        const [, table = ''] = /\blookup (\S+)/.exec(text) ?? []
        return [{ family, priority: Number(priority), table, text }]
      })
    }),
  )
  return [...(four ?? []), ...(six ?? [])]
}
