import type { PeerState } from '../state/rows.ts'

/** A cell to draw: the state and the round trip (milliseconds) of a way, and its place and size in pixels. */
interface Cell {
  readonly state: PeerState
  readonly ms: number | null | undefined
  readonly x: number
  readonly y: number
  readonly size: number
}
/** What draws cells on a canvas, in the colours of the page. */
export interface Pen {
  readonly context: CanvasRenderingContext2D
  readonly font: string
  /** The value of a variable of the style sheet, such as `soft`. */
  colour(name: string): string
  /** Draws a cell: the state by colour and sign, the round trip by the lightness of the colour. */
  cell(cell: Cell): void
}

/** The colours of round trips, from the shortest to the longest, are `--rtt-0` to `--rtt-5`. */
const SHADES = 6
/** The round trips of the first and the last shade, in milliseconds. */
const [FAST, SLOW] = [0.1, 100]
/** Smaller cells have no sign, and still smaller ones no tick. Pixels. */
const [SIGNED, TICKED] = [6, 16]

/** Makes a canvas so wide and high, in pixels of the page, and empties it. Undefined where the browser cannot draw. */
export function openPen(canvas: HTMLCanvasElement, width: number, height: number): Pen | undefined {
  const context = canvas.getContext('2d')
  if (!context) return undefined
  const scale = devicePixelRatio
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)]
  // Another size makes another canvas, which takes as long as drawing thousands of cells.
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across
    canvas.height = down
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
  }
  context.setTransform(scale, 0, 0, scale, 0, 0)
  context.clearRect(0, 0, width, height)
  const style = getComputedStyle(canvas)
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim()
  const shades = Array.from({ length: SHADES }, (_, i) => colour(`rtt-${i}`))
  const known = new Map<PeerState, string>()
  const ink = colour('sign')
  const colourOf = (state: PeerState) => {
    const found = known.get(state) ?? colour(`cell-${state}`)
    known.set(state, found)
    return found
  }
  return {
    context,
    font: style.fontFamily,
    colour,
    cell({ state, ms, x, y, size }) {
      context.fillStyle = state === 'reachable' ? (shades[shadeOf(ms)] as string) : colourOf(state)
      context.fillRect(x, y, size, size)
      if (size >= SIGNED) sign(context, state, x, y, size, ink)
    },
  }
}

// On a logarithmic scale. A way without a round trip has the first shade.
function shadeOf(ms: number | null | undefined): number {
  if (ms === null || ms === undefined) return 0
  const share = Math.log(Math.max(ms, FAST) / FAST) / Math.log(SLOW / FAST)
  return Math.min(Math.floor(share * SHADES), SHADES - 1)
}

// A cross, a dash, a triangle or a dot. A reachable peer has a tick where there is room.
function sign(
  context: CanvasRenderingContext2D,
  state: PeerState,
  x: number,
  y: number,
  size: number,
  ink: string,
): void {
  const [a, b, middle] = [size * 0.25, size * 0.75, size / 2]
  context.strokeStyle = ink
  context.fillStyle = ink
  context.lineWidth = Math.max(size / 9, 1.2)
  context.beginPath()
  if (state === 'silent' || state === 'unreachable') {
    context.moveTo(x + a, y + a)
    context.lineTo(x + b, y + b)
    context.moveTo(x + b, y + a)
    context.lineTo(x + a, y + b)
    context.stroke()
  } else if (state === 'away') {
    context.moveTo(x + a, y + middle)
    context.lineTo(x + b, y + middle)
    context.stroke()
  } else if (state === 'narrow') {
    context.moveTo(x + middle, y + a)
    context.lineTo(x + b, y + b)
    context.lineTo(x + a, y + b)
    context.fill()
  } else if (state === 'unknown') {
    context.arc(x + middle, y + middle, size / 6, 0, 7)
    context.fill()
  } else if (size >= TICKED) {
    context.moveTo(x + a, y + middle)
    context.lineTo(x + size * 0.43, y + size * 0.68)
    context.lineTo(x + b, y + size * 0.32)
    context.stroke()
  }
}
