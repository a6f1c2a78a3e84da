// The pictures of the docs: how a browser shows the scenes, and what is remembered of each beside its files.
import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { serveHealth } from '../../agent/http/server.ts'
import { servePage } from '../../cli/fleet/page-server.ts'
import { fleetScene, NOW, type NodeScene, nodeScene } from './picture-scenes.ts'

/** The folder of the pictures. */
export const FOLDER = join(import.meta.dir, '../../docs/pictures')
/** The file beside them: what the page showed when they were made. */
export const SEEN = join(FOLDER, 'pictures.json')
/** Both have a file of each picture. */
export const SCHEMES = ['light', 'dark'] as const
const WIDTH = 1120
/** The space below the last part that a picture shows, in pixels. */
const BELOW = 12
/** How far a part may be from where it was, in pixels, and how far a channel of a colour (of 255). */
const [AWAY, OTHER] = [10, 6]

type Scheme = (typeof SCHEMES)[number]
interface Picture {
  readonly name: string
  readonly page: 'node' | 'fleet'
  /** The address of the view. */
  readonly hash: string
  /** The last part that the picture shows. */
  readonly last: string
  /** A selector of the data that the view waits for. */
  readonly there: string
}

const PICTURES: readonly Picture[] = [
  { name: 'overview', page: 'node', hash: '#/', last: '.card.own', there: '.spark path' },
  { name: 'peers', page: 'node', hash: '#/peers', last: 'main .cells', there: 'main canvas' },
  { name: 'pods', page: 'node', hash: '#/pods', last: 'main .card', there: 'main tbody tr' },
  { name: 'policy', page: 'node', hash: '#/policy', last: 'main .card', there: 'main .cell' },
  { name: 'events', page: 'node', hash: '#/events', last: 'main .card', there: 'main tbody tr' },
  {
    name: 'fleet',
    page: 'fleet',
    hash: '#/matrix?sel=worker-a-03>worker-c-05',
    last: '.card.matrix',
    there: 'main canvas',
  },
]

/** What is seen of a part of the page. */
interface Part {
  /** Left, top, width and height in pixels. */
  readonly box: readonly [number, number, number, number]
  /** Of the text, and of what is behind it; of a canvas, all that cover much of it. As `#rrggbb`. */
  readonly colours: readonly string[]
}
/** What a picture shows. */
export interface Shown {
  /** The texts in their order. */
  readonly text: readonly string[]
  readonly size: readonly [width: number, height: number]
  /** By a selector and a number. */
  readonly parts: Readonly<Record<string, Part>>
}
/** What is remembered of each file. */
export type Seen = Readonly<Record<string, Shown & { readonly sha256: string }>>
/** A picture that was made. */
export interface Taken {
  /** The name of its file without the ending, such as `overview-dark`. */
  readonly name: string
  readonly shown: Shown
  /** Makes its file. `format` is `webp` or `png`. */
  image(format: 'webp' | 'png'): Promise<Buffer>
}

/**
 * Opens all pictures one after the other and gives each to `use`. Its page is open so long. `ports` are two free ports
 * of 127.0.0.1. `change` may do something to the page before.
 */
export async function eachPicture(
  browser: Browser,
  ports: readonly [node: number, fleet: number],
  use: (taken: Taken) => Promise<void>,
  { only, change }: { readonly only?: string; change?(page: Page): Promise<unknown> } = {},
): Promise<void> {
  const socket = join(tmpdir(), `plumb-pictures-${process.pid}.sock`)
  const fleet = fleetScene()
  const served = servePage(ports[1], { fleet: () => fleet, changes: 1 })
  try {
    for (const picture of PICTURES.filter(({ name }) => only === undefined || name === only))
      for (const scheme of SCHEMES) {
        const scene = nodeScene()
        const agent = await serveHealth({ address: '127.0.0.1', port: ports[0], socket }, scene.source)
        const page = await opened(browser, scheme)
        try {
          await page.goto(`http://127.0.0.1:${ports[picture.page === 'node' ? 0 : 1]}/${picture.hash}`)
          await page.waitForSelector(picture.there)
          if (picture.name === 'pods') await withTraffic(page, scene)
          await page.evaluate('document.fonts.ready')
          await change?.(page)
          await use(await take(page, picture, scheme))
        } finally {
          await page.context().close()
          agent.stop()
        }
      }
  } finally {
    served.stop()
    rmSync(socket, { force: true })
  }
}

async function opened(browser: Browser, colorScheme: Scheme): Promise<Page> {
  const context = await browser.newContext({
    colorScheme,
    viewport: { width: WIDTH, height: 900 },
    reducedMotion: 'reduce',
    timezoneId: 'UTC',
    locale: 'en-GB',
  })
  const page = await context.newPage()
  await page.clock.setFixedTime(NOW)
  return page
}

// A rate needs two answers, and the time between them. The clock of the page goes on by a second exactly.
async function withTraffic(page: Page, scene: NodeScene): Promise<void> {
  scene.hold()
  const asked = scene.asked + 2
  while (scene.asked < asked) await Bun.sleep(50)
  await page.clock.setFixedTime(NOW + 1000)
  scene.release()
  await page.locator('main tbody tr', { hasText: 'bit/s' }).first().waitFor()
}

async function take(page: Page, { name, last }: Picture, scheme: Scheme): Promise<Taken> {
  // The clock of the page stands still. What it draws, such as a canvas, is there after two frames.
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
  const height = (await page.evaluate(
    `Math.ceil(document.querySelector(${JSON.stringify(last)}).getBoundingClientRect().bottom + scrollY) + ${BELOW}`,
  )) as number
  const { text, parts } = (await page.evaluate(`(${LOOK})(${height})`)) as Omit<Shown, 'size'>
  return {
    name: `${name}-${scheme}`,
    shown: { text, size: [WIDTH, height], parts },
    async image(format) {
      const devtools = await page.context().newCDPSession(page)
      const { data } = await devtools.send('Page.captureScreenshot', {
        format,
        ...(format === 'webp' && { quality: 64 }),
        clip: { x: 0, y: 0, width: WIDTH, height, scale: 1 },
        captureBeyondViewport: true,
      })
      return Buffer.from(data, 'base64')
    },
  }
}

/** The digest of a file, in hexadecimal digits. */
export function digestOf(bytes: Uint8Array): string {
  return new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
}

/** What is different from a picture as it was, a line each. Another font may move parts by a few pixels. */
export function differences(before: Shown | undefined, now: Shown): string[] {
  if (!before) return ['there is no such picture']
  const lines: string[] = []
  const [gone, come] = [without(before.text, now.text), without(now.text, before.text)]
  if (gone.length + come.length > 0) lines.push(`text ${JSON.stringify(gone)} is now ${JSON.stringify(come)}`)
  else if (before.text.join() !== now.text.join()) lines.push('the texts are in another order')
  if (before.size.some((one, i) => isAway(one, now.size[i])))
    lines.push(`size ${before.size.join(' × ')} is now ${now.size.join(' × ')}`)
  for (const name of new Set([...Object.keys(before.parts), ...Object.keys(now.parts)])) {
    const [was, is] = [before.parts[name], now.parts[name]]
    if (!was || !is) lines.push(`${name} is ${is ? 'new' : 'gone'}`)
    else {
      if (was.box.some((one, i) => isAway(one, is.box[i]))) lines.push(`${name} at ${was.box} is now at ${is.box}`)
      const [faded, fresh] = [withoutColours(was.colours, is.colours), withoutColours(is.colours, was.colours)]
      if (faded.length + fresh.length > 0) lines.push(`${name} has ${fresh} instead of ${faded}`)
    }
  }
  return lines
}

function isAway(one: number, other = 0): boolean {
  return Math.abs(one - other) > AWAY
}

// What one list has more of than the other one.
function without(all: readonly string[], others: readonly string[]): string[] {
  const left = [...others]
  return all.filter((one) => {
    const at = left.indexOf(one)
    if (at >= 0) left.splice(at, 1)
    return at < 0
  })
}

function withoutColours(all: readonly string[], others: readonly string[]): string[] {
  const channels = (colour: string) => [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16))
  const isLike = (one: string, other: string) =>
    channels(one).every((value, i) => Math.abs(value - (channels(other)[i] ?? 0)) <= OTHER)
  return all.filter((one) => !others.some((other) => isLike(one, other)))
}

// Runs in the page. Texts, places and colours down to `height`.
const LOOK = `(height) => {
  const hex = (...rgb) => '#' + rgb.map((n) => n.toString(16).padStart(2, '0')).join('')
  const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true })
  const plain = (colour) => {
    pen.clearRect(0, 0, 1, 1)
    pen.fillStyle = colour
    pen.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data
    return a === 0 ? undefined : hex(r, g, b)
  }
  const isSeen = ({ width, height: tall, top }) => width > 1 && tall > 1 && top + scrollY < height - ${BELOW / 2}
  const text = []
  for (const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walker.nextNode(); ) {
    const node = walker.currentNode
    const words = node.data.trim()
    const range = document.createRange()
    range.selectNode(node)
    if (words !== '' && !node.parentElement.closest('.heard-only, .voice, dialog') && isSeen(range.getBoundingClientRect())) text.push(words)
  }
  const parts = {}
  const count = {}
  const selector = 'header, nav, .sentence, .pill, .card, h2, table, canvas, .bar, .command, .spark, .cell, .sign, main a'
  for (const one of document.querySelectorAll(selector)) {
    const rect = one.getBoundingClientRect()
    if (!isSeen(rect)) continue
    const name = one.localName + (one.classList.length > 0 ? '.' + [...one.classList].join('.') : '')
    count[name] = (count[name] ?? 0) + 1
    const style = getComputedStyle(one)
    let colours = [plain(style.color), plain(style.backgroundColor)].filter(Boolean)
    if (one.localName === 'canvas') {
      const { data } = one.getContext('2d').getImageData(0, 0, one.width, one.height)
      const known = new Map()
      for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] === 255) {
          const key = hex(data[at], data[at + 1], data[at + 2])
          known.set(key, (known.get(key) ?? 0) + 1)
        }
      colours = [...known].filter(([, many]) => many > data.length / 4 / 400).map(([key]) => key).sort()
    }
    const box = [rect.x, rect.y + scrollY, rect.width, rect.height].map(Math.round)
    parts[name + ' ' + count[name]] = { box, colours }
  }
  return { text, parts }
}`
