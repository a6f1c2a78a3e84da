import { span } from '../state/phrases.ts'
import { useWidth } from './hooks.ts'

interface Props {
  /** Values in equal steps of time, the oldest first. Null is unknown. */
  values: readonly (number | null)[]
  /** The least top of the scale. */
  least: number
  height: number
  /** What it shows, for a screen reader. */
  label: string
  /** Writes a value. */
  shown(value: number): string
}

/** A small chart of values over time, with its highest value. */
export function Spark({ values, least, height, label, shown }: Props) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const known = values.filter((value) => value !== null)
  const most = Math.max(...known, 0)
  const top = Math.max(most, least)
  const x = (i: number) => ((i + 0.5) / values.length) * width
  const y = (value: number) => height - 2 - (value / top) * (height - 4)
  const now = known.at(-1)
  const words =
    known.length === 0 ? `${label}: nothing known yet` : `${label}: now ${shown(now as number)}, at most ${shown(most)}`
  return (
    <div class="spark" ref={ref}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={words}>
          <line class="floor" x1="0" x2={width} y1={height - 1} y2={height - 1} />
          <path d={runs(values, x, y)} />
        </svg>
      )}
      <p aria-hidden="true">{words}</p>
    </div>
  )
}

// A line for each run of known values. A single one is a short stroke.
function runs(values: readonly (number | null)[], x: (i: number) => number, y: (value: number) => number): string {
  let path = ''
  for (const [i, value] of values.entries()) {
    if (value === null) continue
    const isFirst = i === 0 || values[i - 1] === null
    const at = `${x(i).toFixed(1)} ${y(value).toFixed(1)}`
    path += isFirst ? `M${at}h.1` : `L${at}`
  }
  return path
}

const WORDS = { r: 'ready', d: 'degraded', n: 'not ready', '-': 'not known' } as const

/** How the node was, minute by minute. `states` has a letter of WORDS each, the oldest first. */
export function States({ states }: { states: string }) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const bands: { letter: keyof typeof WORDS; from: number; count: number }[] = []
  for (const [i, letter] of [...states].entries()) {
    const last = bands.at(-1)
    if (last?.letter === letter) last.count++
    else bands.push({ letter: letter as keyof typeof WORDS, from: i, count: 1 })
  }
  const sums = Map.groupBy([...states], (letter) => letter as keyof typeof WORDS)
  const words = [...sums].map(([letter, all]) => `${WORDS[letter]} for ${span(all.length * 60_000)}`).join(', ')
  const step = width / Math.max(states.length, 1)
  return (
    <div class="states" ref={ref}>
      {width > 0 && (
        <svg width={width} height="18" role="img" aria-label={`The last ${span(states.length * 60_000)}: ${words}`}>
          {bands.map(({ letter, from, count }) => (
            <rect
              key={from}
              class={`band ${letter === '-' ? 'none' : letter}`}
              x={from * step}
              y={{ r: 6, d: 3, n: 0, '-': 10 }[letter]}
              width={Math.max(count * step, 1)}
              height={{ r: 12, d: 15, n: 18, '-': 8 }[letter]}
            />
          ))}
        </svg>
      )}
      <p>{words}</p>
    </div>
  )
}
