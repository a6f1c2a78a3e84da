// lane: netns
// Tests agent/page: what people see of the cells who see no red, no green, no blue, or no colour at all.
import assert from 'node:assert/strict'
import type { Page } from 'playwright-core'
import type { PeerState } from '../../../agent/state/rows.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { until } from '../../support/harness.ts'
import { peers } from '../../support/scripted.ts'
import { statusPage } from '../../support/status-page.ts'

/** As browsers simulate them (CDP, `Emulation.setEmulatedVisionDeficiency`). */
const VISIONS = ['none', 'deuteranopia', 'protanopia', 'tritanopia', 'achromatopsia'] as const
const SIZE = 28
/**
 * Colours so far apart are clearly different (2.3 is the smallest difference that people see). Signs differ in such a
 * share of the pixels of a cell, and cover such a share. All pixels of two cells differ by so much on average.
 */
const [CLEAR, SHAPE, INK, MEAN] = [10, 0.06, 0.04, 5]
const PROBED = { sent: 10, lost: 0, ms: 1 }
const STATES: readonly (readonly [PeerState, Partial<Peer>])[] = [
  ...[0.05, 0.5, 2, 9, 30, 200].map((ms): readonly [PeerState, Partial<Peer>] => [
    'reachable',
    { probe: { ...PROBED, state: 'answers', ms } },
  ]),
  ['silent', { probe: { ...PROBED, state: 'silent', lost: 10 } }],
  ['away', { isAway: true, probe: { ...PROBED, state: 'silent', lost: 10 } }],
  ['narrow', { probe: { ...PROBED, state: 'narrow' } }],
  ['unknown', { probe: { ...PROBED, state: 'unknown', sent: 0 } }],
  ['unreachable', { problem: 'no route' }],
]

interface Cell {
  readonly state: PeerState
  /** The pixels, row by row: L*, a* and b* of CIE 1976. */
  readonly pixels: readonly (readonly [number, number, number])[]
}

describe('the cells of the grid', () => {
  const served = statusPage(10_268, {
    peers: peers(20).map((peer, i) => ({ ...peer, ...STATES[i % STATES.length]?.[1] })),
  })

  for (const colorScheme of ['light', 'dark'] as const)
    it(`show each state by sign and by colour for every kind of colour blindness, ${colorScheme}`, async () => {
      const page = await served.visit('#/peers?group=none', { colorScheme })
      await until(async () => (await page.locator('tbody tr').count()) === 20)
      const devtools = await page.context().newCDPSession(page)
      const wrong: string[] = []
      for (const type of VISIONS) {
        await devtools.send('Emulation.setEmulatedVisionDeficiency', { type })
        const cells = await cellsOf(page)
        wrong.push(...cells.filter((one) => inkOf(one) < INK).map(({ state }) => `${type}: ${state} has no sign`))
        for (const [i, one] of cells.entries())
          for (const other of cells.slice(i + 1)) {
            if (one.state === other.state) continue
            const [colour, shape] = [distance(backOf(one), backOf(other)), shapeDistance(one, other)]
            const words = `${type}: ${one.state} and ${other.state}: colour ${colour.toFixed(1)}, shape ${shape.toFixed(3)}`
            if (colour < CLEAR && shape < SHAPE) wrong.push(words)
            if (meanDistance(one, other) < MEAN) wrong.push(`${words}, mean ${meanDistance(one, other).toFixed(1)}`)
            const isAlarm = one.state === 'reachable' && /silent|unreachable/.test(other.state)
            if (isAlarm && type !== 'achromatopsia' && colour < CLEAR) wrong.push(words)
          }
      }
      assert.deepEqual(wrong, [])
    })
})

/** The first cell of each state and shade, as a screenshot has it. */
async function cellsOf(page: Page): Promise<Cell[]> {
  const box = await page.locator('[role=grid] canvas').boundingBox()
  assert.ok(box)
  const clip = { x: Math.round(box.x), y: Math.round(box.y), width: STATES.length * (SIZE + 2), height: SIZE }
  const png = (await page.screenshot({ clip })).toString('base64')
  // The page itself may load no picture of another place.
  const blank = await page.context().newPage()
  const pixels = (await blank.evaluate(`(async () => {
    const image = await createImageBitmap(await (await fetch('data:image/png;base64,${png}')).blob())
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d')
    pen.drawImage(image, 0, 0)
    return Array.from({ length: ${STATES.length} }, (_, i) => [...pen.getImageData(i * ${SIZE + 2}, 0, ${SIZE}, ${SIZE}).data])
  })()`)) as number[][]
  await blank.close()
  return pixels.map((data, i) => ({
    state: STATES[i]?.[0] ?? 'unknown',
    pixels: Array.from({ length: data.length / 4 }, (_, at) => lab(data.slice(4 * at, 4 * at + 3))),
  }))
}

// CIE 1976 L*a*b* of an sRGB colour, white D65.
function lab([r = 0, g = 0, b = 0]: readonly number[]): readonly [number, number, number] {
  const [x, y, z] = [r, g, b].map((n) => (n / 255 <= 0.04045 ? n / 255 / 12.92 : ((n / 255 + 0.055) / 1.055) ** 2.4))
  const to = (row: readonly number[], white: number) => {
    const t = ((row[0] ?? 0) * (x ?? 0) + (row[1] ?? 0) * (y ?? 0) + (row[2] ?? 0) * (z ?? 0)) / white
    return t > 216 / 24_389 ? Math.cbrt(t) : (t * 24_389) / 3132 + 16 / 116
  }
  const fx = to([0.4124, 0.3576, 0.1805], 0.9505)
  const fy = to([0.2126, 0.7152, 0.0722], 1)
  const fz = to([0.0193, 0.1192, 0.9505], 1.089)
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)]
}

function distance(a: readonly number[], b: readonly number[]): number {
  return Math.hypot(...a.map((value, i) => value - (b[i] ?? 0)))
}

// The corner of a cell has no sign.
function backOf({ pixels }: Cell): readonly number[] {
  return pixels[2 * SIZE + 2] ?? []
}

// Which pixels are a part of the sign: those that are much lighter or darker than the cell.
function signOf(cell: Cell): boolean[] {
  const [light = 0] = backOf(cell)
  return cell.pixels.map(([l]) => Math.abs(l - light) > 20)
}

function inkOf(cell: Cell): number {
  const sign = signOf(cell)
  return sign.filter(Boolean).length / sign.length
}

// The share of pixels that are a part of one sign only.
function shapeDistance(one: Cell, other: Cell): number {
  const [a, b] = [signOf(one), signOf(other)]
  return a.filter((is, i) => is !== b[i]).length / a.length
}

function meanDistance(one: Cell, other: Cell): number {
  return one.pixels.reduce((sum, pixel, i) => sum + distance(pixel, other.pixels[i] ?? []), 0) / one.pixels.length
}
