// lane: soak
// Tests agent/page: a page that is open for as many messages as come in eight hours. They come faster here.
import assert from 'node:assert/strict'
import type { Browser, Page } from 'playwright-core'
import { serveHealth } from '../../../agent/http/server.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { present } from '../../../scripts/packages.ts'
import { until } from '../../support/harness.ts'
import { peers, type Scripted, scripted } from '../../support/scripted.ts'
import { skip } from '../../support/skip.ts'
import { CHROMIUM, launch, text } from '../../support/status-page.ts'

const PORT = 10_271
const PLACES = { address: '127.0.0.1', port: PORT, socket: '/run/plumb/page-soak.sock' }
/** The agent tells at most four changes a second. Eight hours have 2,880: one in 10 s. */
const EVERY_MS = 260
const PATCHES = Math.round(4 * Number(process.env['PLUMB_SOAK_S'] ?? 720))
const [PEERS, AWAY_MS, ROWS] = [1000, 60_000, 50]
const VIEWS = ['#/', '#/peers', '#/events'] as const
/** How often a page may try to reach an agent that is away for a minute: after 1, 1, 2, 5, and then each 10 s. */
const TRIES = 14

interface Size {
  readonly heap: number
  readonly nodes: number
  readonly listeners: number
}

describe('a page that is open', () => {
  before(function () {
    if (!present(CHROMIUM)) skip(this, `no ${CHROMIUM}: npm run setup installs it where it can be had`)
  })

  it(`for ${PATCHES} messages does not grow, and asks calmly for an agent that is away`, async function () {
    this.timeout(PATCHES * EVERY_MS * 3 + 300_000)
    const source = scripted({ peers: probed(peers(PEERS), 0) })
    let served = await serveHealth(PLACES, source)
    const browser = await launch()
    try {
      const pages = await opened(browser)
      const news = async (from: number, to: number) => {
        for (let i = from; i < to; i++) {
          change(source, i)
          await Bun.sleep(EVERY_MS)
        }
        const mtu = 1400 + (to % 50)
        source.set({ mtu })
        await until(async () => (await text(pages[0] as Page, '.own')).includes(`MTU ${mtu}`), 60_000)
      }
      // The log fills its table first.
      const warm = Math.round(PATCHES / 5)
      await news(0, warm)
      for (let i = 25; (await (pages[2] as Page).locator('tbody tr').count()) < ROWS; i = 25 + ((i + 1) % 25))
        await news(i, i + 1)
      const first = await Promise.all(pages.map(sizeOf))
      const half = Math.round((warm + PATCHES) / 2)
      await news(warm, half)
      const middle = await Promise.all(pages.map(sizeOf))
      await news(half, PATCHES)
      const last = await Promise.all(pages.map(sizeOf))
      for (const [i, view] of VIEWS.entries())
        console.log(`${view}: ${[first[i], middle[i], last[i]].map(line).join('; ')}`)
      served.stop()
      const tries = await triesWhileAway(pages)
      console.log(`${tries} connections of ${pages.length} pages in ${AWAY_MS / 1000} s`)
      served = await serveHealth(PLACES, source)
      for (const page of pages) await until(async () => (await text(page, '.link')) === 'live', 60_000)
      for (const [i, view] of VIEWS.entries()) {
        const [one, other] = [first[i] as Size, last[i] as Size]
        assert.ok(other.heap <= one.heap * 1.1 + 1e6, `${view}: heap ${one.heap}, later ${other.heap}`)
        assert.ok(other.nodes <= one.nodes * 1.1 + 100, `${view}: nodes ${one.nodes}, later ${other.nodes}`)
        assert.ok(other.listeners <= one.listeners * 1.1 + 20, `${view}: ${one.listeners}, later ${other.listeners}`)
      }
      assert.ok(tries <= TRIES * pages.length, `${tries} connections`)
    } finally {
      await browser.close()
      served.stop()
    }
  })
})

function opened(browser: Browser): Promise<Page[]> {
  return Promise.all(
    VIEWS.map(async (view) => {
      const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage()
      await page.goto(`http://127.0.0.1:${PORT}/${view}`)
      await page.waitForSelector('.sentence')
      return page
    }),
  )
}

async function sizeOf(page: Page): Promise<Size> {
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('HeapProfiler.collectGarbage')
  const { usedSize } = await devtools.send('Runtime.getHeapUsage')
  const { nodes, jsEventListeners } = await devtools.send('Memory.getDOMCounters')
  await devtools.detach()
  return { heap: usedSize, nodes, listeners: jsEventListeners }
}

function line(size: Size | undefined): string {
  const { heap, nodes, listeners } = size ?? { heap: 0, nodes: 0, listeners: 0 }
  return `${(heap / 1e6).toFixed(2)} MB, ${nodes} nodes, ${listeners} listeners`
}

/** Stands where the agent was, takes each connection and ends it. Gives their number. */
async function triesWhileAway(pages: readonly Page[]): Promise<number> {
  let count = 0
  const server = Bun.listen({
    hostname: '127.0.0.1',
    port: PORT,
    socket: {
      open(socket) {
        count++
        socket.end()
      },
      data() {},
    },
  })
  const begun = performance.now()
  await until(() => performance.now() - begun >= AWAY_MS, 2 * AWAY_MS)
  for (const page of pages) assert.equal(await text(page, '.link'), 'connection lost')
  server.stop(true)
  return count
}

/** The round trips differ in each message. Now and then a peer is lost and back, and an object is repaired. */
function change(source: Scripted, i: number): void {
  const { kinds, repairs } = source.status()
  const at = Date.now()
  source.set({
    peers: probed(source.status().peers, i),
    ...(i % 20 === 0 && { repairs: [...repairs, { at, what: `route 10.64.${i % 250}.0/24` }].slice(-100) }),
    kinds: { ...kinds, route: { wanted: 2000, programmed: 2000, repaired: Math.floor(i / 20) } },
  })
}

function probed(all: readonly Peer[], i: number): Peer[] {
  return all.map((peer, n): Peer => {
    const isLost = i % 50 >= 25 && n === i % 7
    const ms = 0.2 + ((n * 31 + i * 17) % 90) / 10
    return {
      ...peer,
      probe: isLost ? { state: 'silent', sent: 10, lost: 10 } : { state: 'answers', sent: 10, lost: 0, ms },
    }
  })
}
