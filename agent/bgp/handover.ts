import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { PROTO } from '../kernel/marks.ts'

/** The number of BIRD's routes in the kernel (rt_protos). */
export const BIRD_PROTO = '12'

interface RouteRow {
  readonly dst: string
  readonly protocol?: string
  /** Absent for a route that leads somewhere. */
  readonly type?: string
}

/** The destinations for which the kernel has a route of the agent and none of BIRD. Throws ExecError. */
export async function withoutBird(run: Run): Promise<ReadonlySet<string>> {
  const all = await Promise.all(
    ['-4', '-6'].map(async (family) => {
      // Without this family in the kernel there is no route of it.
      const shown = await listed(['ip', family, '-N', '-j', 'route', 'show', 'table', '254'], run)
      return JSON.parse(shown.trim() || '[]') as RouteRow[]
    }),
  )
  const by = (program: string) =>
    new Set(all.flat().flatMap(({ dst, protocol, type }) => (protocol === program && !type ? [dst] : [])))
  return by(String(PROTO)).difference(by(BIRD_PROTO))
}
