/** A position in pixels from the top left. */
export interface PagePoint {
  readonly x: number
  readonly y: number
}
/** The picture of a few nodes around this one. Undefined when there is no room for it. */
export interface Layout {
  readonly height: number
  readonly centre: PagePoint
  readonly places: readonly PagePoint[]
}

/** The most peers that are drawn as cards. More of them are cells of a grid. */
export const MOST_CARDS = 12
const CARD = { width: 132, narrow: 104, height: 48 }
const SELF = { width: 132, height: 82 }
const GAP = 8

/**
 * Places cards around a centre, clockwise from the top, on the flattest ellipse on which none touches another one.
 * `width` is the width of the picture in pixels. Equal arguments give an equal layout.
 */
export function layout(count: number, width: number): Layout | undefined {
  const wide = width < 480 ? CARD.narrow : CARD.width
  const rx = Math.min((width - wide) / 2, 340)
  for (let ry = Math.max(rx * 0.62, 110); ry <= 250 && count <= MOST_CARDS; ry += 10) {
    const centre = { x: width / 2, y: 0 }
    const places = circle(count, rx, ry, centre)
    if (apart(places, wide) && clear(places, centre, wide)) return framed(centre, places)
  }
  return undefined
}

function apart(places: readonly PagePoint[], wide: number): boolean {
  const isApart = (a: PagePoint, b: PagePoint) =>
    Math.abs(a.x - b.x) >= wide + GAP || Math.abs(a.y - b.y) >= CARD.height + GAP
  return places.every((a, i) => places.slice(i + 1).every((b) => isApart(a, b)))
}

function clear(places: readonly PagePoint[], centre: PagePoint, wide: number): boolean {
  const [across, down] = [(wide + SELF.width) / 2 + GAP, (CARD.height + SELF.height) / 2 + GAP]
  return places.every(({ x, y }) => Math.abs(x - centre.x) >= across || Math.abs(y - centre.y) >= down)
}

// Fits the picture's height to its content. Three nodes, for example, extend further above the centre than below it.
function framed(centre: PagePoint, places: readonly PagePoint[]): Layout {
  const ys = [centre, ...places].map(({ y }) => y)
  const pad = SELF.height / 2 + 8
  const down = (place: PagePoint) => ({ ...place, y: round(place.y - Math.min(...ys) + pad) })
  return {
    height: Math.round(Math.max(...ys) - Math.min(...ys) + 2 * pad),
    centre: down(centre),
    places: places.map(down),
  }
}

function circle(count: number, rx: number, ry: number, centre: PagePoint): PagePoint[] {
  return Array.from({ length: count }, (_, i) => {
    const at = ((i * 360) / count - 90) * (Math.PI / 180)
    return { x: round(centre.x + rx * Math.cos(at)), y: round(centre.y + ry * Math.sin(at)) }
  })
}

function round(n: number): number {
  return Math.round(n * 10) / 10
}
