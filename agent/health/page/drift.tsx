import type { Bin, History } from './history.ts'
import { useWidth } from './hooks.ts'

const HEIGHT = 132
const FLOOR = HEIGHT - 20
const LEFT = 26
/** The shortest time span of the chart. Without it, the first seconds would fill the whole width. */
const SPAN_MS = 60_000
const clock = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' })

/** A chart of the drift and the repairs since the opening of the page. `now` is by the browser's clock. */
export function Drift({ history, now }: { history: History; now: number }) {
  const [ref, width] = useWidth<HTMLDivElement>()
  const { bins } = history
  const repairs = bins.reduce((sum, bin) => sum + bin.repairs, 0)
  const worst = Math.max(...bins.map(({ drift }) => drift), 0)
  const counts = `${repairs} repaired; not as wanted now ${history.drift}, at most ${worst}`
  const words = `Since ${clock.format(history.start)}: ${counts}`
  return (
    <section class="card" aria-labelledby="drift">
      <h2 id="drift">Drift and repairs</h2>
      <p class="legend">
        <span class="drifted">not as wanted</span>
        <span class="repaired">repaired</span>
      </p>
      <div ref={ref} class="chart">
        {width > 0 && (
          <svg width={width} height={HEIGHT} role="img" aria-label={words}>
            <Plot history={history} width={width} now={now} />
          </svg>
        )}
      </div>
    </section>
  )
}

function Plot({ history, width, now }: { history: History; width: number; now: number }) {
  const { start, binMs, bins, drift } = history
  const end = Math.max(now, start + bins.length * binMs, start + SPAN_MS)
  const top = ceiling(Math.max(...bins.map(({ drift, repairs }) => Math.max(drift, repairs)), 0))
  const x = (at: number) => LEFT + ((at - start) / (end - start)) * (width - LEFT)
  const y = (n: number) => FLOOR - (n / top) * (FLOOR - 8)
  const past = steps(bins, (i) => x(Math.min(start + i * binMs, Math.max(now, start))), y)
  const line = `${past}V${y(drift).toFixed(1)}H${x(Math.max(now, start)).toFixed(1)}`
  const wide = Math.max(x(start + binMs) - LEFT - 1, 2)
  return (
    <>
      {[0, top / 2, top].map((n) => (
        <g key={n} class="grid">
          <line x1={LEFT} x2={width} y1={y(n)} y2={y(n)} />
          <text x={LEFT - 6} y={y(n) + 3.5} text-anchor="end">
            {n}
          </text>
        </g>
      ))}
      <path class="drifted" d={`M${x(start)} ${FLOOR}${line}V${FLOOR}`} />
      <path class="drift" d={`M${x(start)} ${FLOOR}${line}`} />
      {bins.map(({ repairs }, i) => {
        const above = y(repairs)
        const bar = { x: x(start + i * binMs), width: wide, y: above, height: FLOOR - above }
        return repairs > 0 && <rect key={i} class="repaired" {...bar} rx="1" />
      })}
      <text class="time" x={LEFT} y={HEIGHT - 4}>
        {clock.format(start)}
      </text>
      <text class="time" x={width} y={HEIGHT - 4} text-anchor="end">
        {clock.format(end)}
      </text>
    </>
  )
}

// Draws a line with steps, because a count jumps from one value to the next.
function steps(bins: readonly Bin[], x: (bin: number) => number, y: (n: number) => number): string {
  return bins.map(({ drift }, i) => `V${y(drift).toFixed(1)}H${x(i + 1).toFixed(1)}`).join('')
}

// The top of the scale. It is even and at least 4, because the chart also labels half of it.
function ceiling(n: number): number {
  const step = 10 ** Math.max(Math.floor(Math.log10(Math.max(n, 1))), 0)
  return [4, 10, ...[2, 4, 6, 8, 10].map((k) => k * step)].sort((a, b) => a - b).find((nice) => nice >= n) ?? n
}
