import type { Level } from '../../lib/os/log.ts'
import type { Settings } from '../settings/settings.ts'

const LETTER = { info: 'I', warning: 'W', error: 'E' } as const

/**
 * A line of a format. `plain` is the fact alone, for systemd, whose journal has the time. `text` begins as klog's lines
 * do, without file and line: `I1127 05:50:00.123456    1234 agent] FACT`. `json` has the keys of Kubernetes' components
 * (component-base/logs/json), and the level.
 */
export function logLine(format: Settings['logFormat']): (fact: string, level: Level) => string {
  if (format === 'plain') return (fact) => fact
  return (fact, level) => {
    const now = performance.timeOrigin + performance.now()
    const [, logger = 'agent', msg = fact] = /^([a-z-]+): (.*)$/.exec(fact) ?? []
    if (format === 'json') return JSON.stringify({ ts: Math.round(now * 1000) / 1000, level, v: 0, logger, msg })
    return `${LETTER[level]}${timeOf(now)} ${String(process.pid).padStart(7)} ${logger}] ${msg}`
  }
}

// Local time with microseconds, `1127 05:50:00.123456`.
function timeOf(ms: number): string {
  const at = new Date(ms)
  const two = (n: number) => String(n).padStart(2, '0')
  const date = [at.getMonth() + 1, at.getDate()].map(two).join('')
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')
  const micros = String(Math.floor((ms % 1000) * 1000)).padStart(6, '0')
  return `${date} ${time}.${micros}`
}
