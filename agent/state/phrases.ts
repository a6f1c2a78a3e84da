import type { Durations } from '../scheduler/durations.ts'
import { BUCKETS, type FastPathStatus, type Finding, type Status } from './status.ts'

/** Formats a duration in one or two units: `3 s`, `12 min`, `3 h 12 min`, `2 d 4 h`. */
export function span(ms: number): string {
  const s = Math.max(Math.round(ms / 1000), 0)
  const [min, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86_400)]
  if (s < 60) return `${s} s`
  if (h < 1) return `${min} min`
  return d < 1 ? both(h, 'h', min % 60, 'min') : both(d, 'd', h % 24, 'h')
}

/** Formats the values of both address families in one line. `-` when there is no value. */
export function line(values: { readonly v4?: string; readonly v6?: string }): string {
  return [values.v4, values.v6].filter(Boolean).join(', ') || '-'
}

/**
 * Describes the store's connection: `connected`, or the length and the reason of the outage. `now` is in milliseconds
 * since 1970.
 */
export function storeWords({ store, started }: Pick<Status, 'store' | 'started'>, now: number): string {
  if (store.connected) return 'connected'
  const away =
    store.heard === undefined
      ? `never heard of in ${span(now - started)}`
      : `not heard of for ${span(now - store.heard)}`
  return store.error === undefined ? away : `${away}: ${store.error}`
}

/**
 * Describes durations, of steps for example: `half within 5 ms, 99 % within 50 ms`. Empty before the first one. `bounds`
 * are those of the histogram, in seconds.
 */
export function durationWords(all: Durations, bounds = BUCKETS): string {
  return all.count === 0 ? '' : `half within ${within(all, bounds, 0.5)}, 99 % within ${within(all, bounds, 0.99)}`
}

function within({ count, buckets }: Durations, bounds: readonly number[], share: number): string {
  const seconds = bounds[buckets.findIndex((n) => n >= count * share)]
  if (seconds === undefined) return `more than ${bounds.at(-1)} s`
  return seconds < 1 ? `${seconds * 1000} ms` : `${seconds} s`
}

function both(large: number, unit: string, small: number, smaller: string): string {
  return `${large} ${unit}${small > 0 ? ` ${small} ${smaller}` : ''}`
}

/** The sentence of a finding with the first command that mends it, for a log and a status. */
export function sentenceOf({ text, commands }: Finding): string {
  return commands[0] === undefined ? text : `${text}; run ${commands[0]}`
}

/** What the fast path of a node does, in one line. Undefined before its first step. */
export function fastPathWords(fastPath: FastPathStatus | undefined): string | undefined {
  if (!fastPath) return undefined
  const { state, why, pods = 0, slowPods = 0, flows } = fastPath
  if (state === 'off') return `off${why === undefined ? '' : `: ${why}`}`
  if (state === 'unavailable') return `not in this kernel: ${why ?? ''}`
  const slow = slowPods > 0 ? `, ${slowPods} do not` : ''
  return `${pods} pods take part${slow}${flows === undefined ? '' : `, ${flows} connections take it`}`
}
