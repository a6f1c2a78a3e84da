/** A position in pixels from the top left. `angle` is in degrees, clockwise, and 0 points to the right. */
export interface Place {
  readonly x: number
  readonly y: number
  readonly angle: number
}
/**
 * The drawing of the nodes. Each node is a card, a spoke with its name along the spoke, or a dot.
 * The look is `none` when there are too many nodes for a picture.
 */
export interface Layout {
  readonly look: 'cards' | 'spokes' | 'dots' | 'none'
  readonly height: number
  readonly centre: Place
  readonly places: readonly Place[]
}

/** The maximum number of drawn nodes. For more nodes the page shows only counts. */
const MOST = 1000
const CARD = { width: 132, narrow: 104, height: 48 }
const SELF = { width: 132, height: 82 }
const GAP = 8
const MOST_CARDS = 16
/**
 * The space for a name along its spoke (NAME), and the distance between two spokes at the circle (SPOKE), in pixels.
 */
const NAME = 112
const SPOKE = 11.5
/** The distance between two dots (DOT), and between two rings of dots (RING), in pixels. */
const DOT = 15
const RING = 22
/** The radius that this node's card covers in the centre, in pixels. */
const CENTRE = 72

/**
 * Places nodes around a centre, clockwise from the top. `width` is the width of the picture in pixels.
 * Equal arguments give an equal layout.
 */
export function layout(count: number, width: number): Layout {
  const drawn = count > MOST ? undefined : (cards(count, width) ?? spokes(count, width) ?? dots(count, width))
  return drawn ?? { look: 'none', height: 0, centre: { x: 0, y: 0, angle: 0 }, places: [] }
}

// Uses the flattest ellipse on which no card touches another card or the centre's card.
function cards(count: number, width: number): Layout | undefined {
  const wide = width < 480 ? CARD.narrow : CARD.width
  const rx = Math.min((width - wide) / 2, 340)
  for (let ry = Math.max(rx * 0.62, 110); ry <= 250 && count <= MOST_CARDS; ry += 10) {
    const centre = { x: width / 2, y: 0, angle: 0 }
    const places = circle(count, rx, ry, centre)
    if (apart(places, wide) && clear(places, centre, wide)) return { look: 'cards', ...framed(centre, places) }
  }
  return undefined
}

function apart(places: readonly Place[], wide: number): boolean {
  const isApart = (a: Place, b: Place) => Math.abs(a.x - b.x) >= wide + GAP || Math.abs(a.y - b.y) >= CARD.height + GAP
  return places.every((a, i) => places.slice(i + 1).every((b) => isApart(a, b)))
}

function clear(places: readonly Place[], centre: Place, wide: number): boolean {
  const [across, down] = [(wide + SELF.width) / 2 + GAP, (CARD.height + SELF.height) / 2 + GAP]
  return places.every(({ x, y }) => Math.abs(x - centre.x) >= across || Math.abs(y - centre.y) >= down)
}

// Fits the picture's height to its content. Three nodes, for example, extend further above the centre than below it.
function framed(centre: Place, places: readonly Place[]): Pick<Layout, 'height' | 'centre' | 'places'> {
  const ys = [centre, ...places].map(({ y }) => y)
  const pad = SELF.height / 2 + 8
  const down = (place: Place) => ({ ...place, y: round(place.y - Math.min(...ys) + pad) })
  return {
    height: Math.round(Math.max(...ys) - Math.min(...ys) + 2 * pad),
    centre: down(centre),
    places: places.map(down),
  }
}

function spokes(count: number, width: number): Layout | undefined {
  const radius = Math.min(width / 2 - NAME, 250)
  if (radius < CENTRE || (2 * Math.PI * radius) / count < SPOKE) return undefined
  const height = Math.round(2 * (radius + NAME))
  const centre = { x: width / 2, y: height / 2, angle: 0 }
  return { look: 'spokes', height, centre, places: circle(count, radius, radius, centre) }
}

// Fills rings of dots from the outside to the inside. Each ring gets a share of the nodes in proportion to its radius.
function dots(count: number, width: number): Layout | undefined {
  const outer = Math.min(width / 2 - 12, 340)
  const rings: number[] = []
  let room = 0
  for (let radius = outer; room < count; radius -= RING) {
    if (radius < CENTRE) return undefined
    rings.push(radius)
    room += Math.floor((2 * Math.PI * radius) / DOT)
  }
  const height = Math.round(2 * outer + 28)
  const centre = { x: width / 2, y: height / 2, angle: 0 }
  const all = rings.reduce((sum, radius) => sum + radius, 0)
  let left = count
  const places = rings.flatMap((radius, i) => {
    const share = i === rings.length - 1 ? left : Math.min(left, Math.round((count * radius) / all))
    left -= share
    return circle(share, radius, radius, centre)
  })
  return { look: 'dots', height, centre, places }
}

function circle(count: number, rx: number, ry: number, centre: Place): Place[] {
  return Array.from({ length: count }, (_, i) => {
    const angle = (i * 360) / count - 90
    const at = (angle * Math.PI) / 180
    return { x: round(centre.x + rx * Math.cos(at)), y: round(centre.y + ry * Math.sin(at)), angle: round(angle) }
  })
}

function round(n: number): number {
  return Math.round(n * 10) / 10
}
