/** Where something stands, in pixels from the top left; `angle` in degrees, 0 to the right, clockwise. */
export interface Place {
  readonly x: number
  readonly y: number
  readonly angle: number
}
/** How nodes are drawn: each as a card, as a spoke with its name along it, or as a dot; `none` when they are too many for a picture. */
export interface Layout {
  readonly look: 'cards' | 'spokes' | 'dots' | 'none'
  readonly height: number
  readonly centre: Place
  readonly places: readonly Place[]
}

/** More are counted, not drawn. */
const MOST = 1000
const CARD = { width: 132, narrow: 104, height: 48 }
const SELF = { width: 132, height: 82 }
const GAP = 8
const MOST_CARDS = 16
/** Room for a name along its spoke, and between two of them. */
const NAME = 112
const SPOKE = 11.5
/** Between two dots, and between their rings. */
const DOT = 15
const RING = 22
/** As far does this node's own card reach. */
const CENTRE = 72

/** Places for nodes around a centre, clockwise from the top, in a picture of a width in pixels. The same for the same numbers. */
export function layout(count: number, width: number): Layout {
  const drawn = count > MOST ? undefined : (cards(count, width) ?? spokes(count, width) ?? dots(count, width))
  return drawn ?? { look: 'none', height: 0, centre: { x: 0, y: 0, angle: 0 }, places: [] }
}

// On the flattest ellipse on which the cards, and the centre's, leave each other room.
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
  return places.every((a, i) => places.slice(i + 1).every((b) => Math.abs(a.x - b.x) >= wide + GAP || Math.abs(a.y - b.y) >= CARD.height + GAP))
}

function clear(places: readonly Place[], centre: Place, wide: number): boolean {
  return places.every(({ x, y }) => Math.abs(x - centre.x) >= (wide + SELF.width) / 2 + GAP || Math.abs(y - centre.y) >= (CARD.height + SELF.height) / 2 + GAP)
}

// Three nodes stand higher than they hang: the picture is as high as what is in it.
function framed(centre: Place, places: readonly Place[]): Pick<Layout, 'height' | 'centre' | 'places'> {
  const ys = [centre, ...places].map(({ y }) => y)
  const pad = SELF.height / 2 + 8
  const down = (place: Place) => ({ ...place, y: round(place.y - Math.min(...ys) + pad) })
  return { height: Math.round(Math.max(...ys) - Math.min(...ys) + 2 * pad), centre: down(centre), places: places.map(down) }
}

function spokes(count: number, width: number): Layout | undefined {
  const radius = Math.min(width / 2 - NAME, 250)
  if (radius < CENTRE || (2 * Math.PI * radius) / count < SPOKE) return undefined
  const height = Math.round(2 * (radius + NAME))
  const centre = { x: width / 2, y: height / 2, angle: 0 }
  return { look: 'spokes', height, centre, places: circle(count, radius, radius, centre) }
}

// Rings from the outside in; as many as it takes, each with its share.
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
