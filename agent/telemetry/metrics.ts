import type { Status } from '../state/status.ts'
import type { Additions, Labels, Metric, Sample, Scene, Usage } from './metric.ts'
import { METRICS } from './table.ts'

/** Without a wish for more, so many peers and BGP sessions have series of their own. */
const WORST = 100

/**
 * Formats a status in Prometheus' text exposition format 0.0.4. `now` is in milliseconds since 1970. `table.ts` has what
 * is in it.
 */
export function metrics(status: Status, usage: Usage, now: number, additions: Additions = {}): string {
  const most = additions.isPerPeer ? Number.POSITIVE_INFINITY : WORST
  const scene: Scene = { ...additions, status, usage, now, most }
  return METRICS.map((one) => family(one, one.read(scene))).join('')
}

// One value has no labels.
function family({ name, type, help }: Metric, value: ReturnType<Metric['read']> = []): string {
  const samples: readonly Sample[] = typeof value === 'number' ? [[{}, value]] : value
  if (samples.length === 0) return ''
  return [
    `# HELP ${name} ${help}`,
    `# TYPE ${name} ${type}`,
    ...samples.map(([labels, value, suffix = '']) => `${name}${suffix}${braces(labels)} ${value}`),
    '',
  ].join('\n')
}

function braces(labels: Labels): string {
  const escaped = (value: string | number) => String(value).replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n')
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`)
  return pairs.length > 0 ? `{${pairs.join(',')}}` : ''
}
