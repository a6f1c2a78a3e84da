// Tests agent/health.
import assert from 'node:assert/strict'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { type Service, type Slice, serviceOf, sliceOf } from '../../agent/cluster/services.ts'
import { serveHealth } from '../../agent/health/health.ts'
import { viewOf } from '../../agent/services/view.ts'
import { parseIp } from '../../lib/text/ip.ts'
import { present } from '../../scripts/packages.ts'
import { until } from '../support/harness.ts'
import { peers, type Scripted, scripted } from '../support/scripted.ts'
import { skip } from '../support/skip.ts'

const PORT = 10_256
const URL = `http://127.0.0.1:${PORT}/`
const CHROMIUM = '/usr/bin/chromium-headless-shell'
const NODES = '.picture li button'

/** A page that is open, and all that a browser had to say of it. */
interface Visit {
  readonly page: Page
  /** Errors and warnings of the console, and errors of the page's script. */
  readonly complaints: string[]
  readonly requests: string[]
}

describe('the status page in a real browser', () => {
  let browser: Browser
  let source: Scripted
  let served: { stop(): void }
  const open: Visit[] = []
  before(async function () {
    if (!present(CHROMIUM)) skip(this, `no ${CHROMIUM}: npm run setup installs it where it can be had`)
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] })
  })
  after(() => browser?.close())
  beforeEach(async () => {
    source = scripted({ peers: peers(3) })
    served = await serve()
  })
  afterEach(async () => {
    const visits = open.splice(0)
    await Promise.all(visits.map(({ page }) => page.context().close()))
    served.stop()
    for (const { complaints, requests } of visits) {
      assert.deepEqual(complaints, [])
      assert.deepEqual(
        requests.filter((url) => !url.startsWith(URL)),
        [],
      )
      assert.ok(requests.length >= 4)
    }
  })
  function serve(): Promise<{ stop(): void }> {
    return serveHealth({ address: '127.0.0.1', port: PORT, socket: '/run/plumb/agent.sock' }, source)
  }
  async function visit(options: BrowserContextOptions = {}): Promise<Page> {
    const page = await (await browser.newContext(options)).newPage()
    const one: Visit = { page, complaints: [], requests: [] }
    page.on('console', (message) => /error|warning/.test(message.type()) && one.complaints.push(message.text()))
    page.on('pageerror', (error) => one.complaints.push(error.message))
    page.on('request', (request) => one.requests.push(request.url()))
    open.push(one)
    await page.goto(URL)
    await page.waitForSelector('h1')
    return page
  }

  it('shows this node in the middle, its peers around it, and a line to each', async () => {
    const page = await visit()
    assert.equal(await page.textContent('h1'), 'node-0')
    assert.equal(await page.textContent('.pill'), 'Ready')
    assert.match(await text(page, '.self'), /node-0\s*10\.64\.0\.0\/24\s*fd00:64::\/64/)
    await page.waitForSelector(NODES)
    assert.deepEqual(await page.locator(NODES).allInnerTexts(), [
      'node-1\n10.64.1.0/24',
      'node-2\n10.64.2.0/24',
      'node-3\n10.64.3.0/24',
    ])
    assert.equal(await page.locator('.picture .edge.tunnel').count(), 3)
    const [middle, around] = [
      await centre(page, '.self'),
      await Promise.all([1, 2, 3].map((i) => centre(page, `.picture li:nth-child(${i}) button`))),
    ]
    for (const { x, y } of around) assert.ok(Math.hypot(x - middle.x, y - middle.y) > 100, 'a peer stands on this node')
    assert.equal(await page.title(), 'node-0 · plumb')
  })
  it('changes as the agent does, without a reload', async () => {
    const page = await visit()
    await page.waitForSelector(NODES)
    await page.evaluate('window.still = true')
    const repaired = { at: Date.now(), what: 'link flannel.1 was gone, made again' }
    source.set({
      peers: peers(5),
      ready: false,
      reasons: ['2 routes are missing'],
      repairs: [...source.status().repairs, repaired],
      kinds: { route: { wanted: 10, programmed: 8, repaired: 5 } },
    })
    await until(async () => (await page.locator(NODES).count()) === 5)
    assert.deepEqual(
      [await page.textContent('.pill'), await text(page, '.reasons'), await page.title()],
      ['Not ready', '2 routes are missing', 'not ready · node-0 · plumb'],
    )
    assert.match(await text(page, '.repairs li:first-child'), /^link flannel\.1 was gone, made again/)
    assert.match(
      (await page.getAttribute('.chart svg', 'aria-label')) ?? '',
      /: 2 repaired; not as wanted now 2, at most 2$/,
    )
    assert.equal(await text(page, '.kinds .off >> nth=0'), '8')
    // [FU5]
    source.set({ ready: true, reasons: [], degraded: ['node-3 does not answer'] })
    await page.waitForSelector('.pill.warn')
    assert.deepEqual(
      [await page.textContent('.pill'), await text(page, '.reasons.warn'), await page.title()],
      ['Degraded', 'node-3 does not answer', 'degraded · node-0 · plumb'],
    )
    source.set({ degraded: [], kinds: { route: { wanted: 10, programmed: 10, repaired: 7 } } })
    await page.waitForSelector('.pill.good')
    assert.match(
      (await page.getAttribute('.chart svg', 'aria-label')) ?? '',
      /: 4 repaired; not as wanted now 0, at most 2$/,
    )
    assert.ok((await page.locator('.chart rect').count()) >= 1)
    assert.equal(await page.evaluate('window.still'), true)
  })
  it('says that the connection is lost, and goes on by itself when the agent is back', async () => {
    const page = await visit()
    await page.waitForSelector('.link.good')
    await page.evaluate('window.still = true')
    served.stop()
    await page.waitForSelector('.lost')
    assert.match(await text(page, '.lost'), /^Connection lost \d+ s ago\./)
    assert.equal(await text(page, '[role=status] >> nth=0'), 'The connection to the agent is lost')
    assert.equal(await text(page, 'h1'), 'node-0')
    // While nobody listens a browser says so on its console.
    await until(() => open[0]?.complaints.length)
    source.set({ node: 'node-back', started: Date.now() })
    served = await serve()
    await until(async () => (await page.textContent('h1')) === 'node-back', 15_000)
    assert.equal(await page.locator('.lost').count(), 0)
    assert.equal(await page.evaluate('window.still'), true)
    const complaints = open[0]?.complaints.splice(0) ?? []
    assert.deepEqual([...new Set(complaints)], ['Failed to load resource: net::ERR_CONNECTION_REFUSED'])
  })
  it('[F 30] a peer that cannot be reached is red, with the reason on hover and on focus, and first in the table', async () => {
    source.set({
      peers: peers(10).map((peer, i) =>
        i === 6 ? { ...peer, backend: 'host-gw', problem: '198.51.0.7 is not on a link of this node' } : peer,
      ),
    })
    const page = await visit()
    await page.waitForSelector(NODES)
    const bad = page.locator(`${NODES}.bad`)
    assert.equal(await bad.count(), 1)
    assert.equal(
      await bad.getAttribute('aria-label'),
      'node-7: pods 10.64.7.0/24, fd00:64:7::/64, at 198.51.0.7, by host-gw, unreachable: 198.51.0.7 is not on a link of this node',
    )
    await bad.hover()
    assert.match(await text(page, '.tip'), /198\.51\.0\.7 is not on a link of this node/)
    await page.mouse.move(0, 0)
    await page.waitForSelector('.tip', { state: 'detached' })
    await page.locator(NODES).first().focus()
    for (let i = 0; i < 6; i++) await page.keyboard.press('ArrowRight')
    assert.match(await text(page, '.tip'), /node-7[\s\S]*198\.51\.0\.7 is not on a link/)
    assert.match(await text(page, '.peers tbody tr:first-child'), /^node-7[\s\S]*198\.51\.0\.7 is not on a link/)
    await page.keyboard.press('Enter')
    assert.equal(await page.inputValue('input[type=search]'), 'node-7')
    assert.equal(await page.locator('.peers tbody tr').count(), 1)
  })
  it('has a picture for 1, 3, 100 and 1,000 nodes, and counts for more; the table finds any of them', async () => {
    const page = await visit({ viewport: { width: 1280, height: 900 } })
    for (const [count, look] of [
      [0, 'cards'],
      [3, 'cards'],
      [100, 'spokes'],
      [1000, 'dots'],
      [5000, 'none'],
    ] as const) {
      source.set({ peers: peers(count) })
      await found(page, `${count} in all`)
      assert.equal(await page.getAttribute('.picture', 'class'), `picture ${look}`)
      assert.equal(await page.locator(NODES).count(), look === 'none' ? 0 : count)
      if (count > 0) assert.equal(await page.locator('.peers tbody tr').count(), Math.min(count, 25))
    }
    assert.match(await text(page, '.counts tbody'), /vxlan\s+5000\s+5000\s+0/)
    await page.fill('input[type=search]', '10.83.135.0')
    await found(page, '1 of 5000')
    assert.match(await text(page, '.peers tbody tr'), /^node-4999/)
    await page.fill('input[type=search]', 'no such node')
    assert.match(await text(page, '.peers .empty'), /No peer matches/)
    await page.fill('input[type=search]', '')
    await page.click('.more')
    assert.equal(await page.locator('.peers tbody tr').count(), 125)
  })
  it('fits a phone and a large screen, light and dark, with text that can be told from what is behind it', async () => {
    source.set({
      peers: peers(40).map((peer, i) => (i === 3 ? { ...peer, problem: 'not on a link of this node' } : peer)),
      ready: false,
      reasons: ['2 routes are missing'],
    })
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const viewport of [
        { width: 360, height: 740 },
        { width: 1600, height: 1000 },
      ]) {
        const page = await visit({ viewport, colorScheme })
        await page.waitForSelector(NODES)
        assert.equal(
          await page.evaluate('document.documentElement.scrollWidth <= innerWidth'),
          true,
          `it is wider than ${viewport.width}`,
        )
        const faint = (await page.evaluate(CONTRAST)) as string[]
        assert.deepEqual(faint, [], `${colorScheme} ${viewport.width}`)
      }
    }
  })
  it('has a table of Services with their addresses, their endpoints, and why one is left out; a search finds them', async () => {
    const service = (name: string, ip: string) =>
      serviceOf({
        metadata: { namespace: 'shop', name },
        spec: { type: 'NodePort', clusterIPs: [ip], ports: [{ port: 80, nodePort: 30_080 }] },
      }) as Service
    const endpoint = (ip: string, ready: boolean) => ({ addresses: [ip], nodeName: 'node-0', conditions: { ready } })
    const slice = sliceOf({
      metadata: { namespace: 'shop', name: 'cart', labels: { 'kubernetes.io/service-name': 'cart' } },
      addressType: 'IPv4',
      ports: [{ name: '', port: 8080 }],
      endpoints: [endpoint('10.64.0.2', true), endpoint('10.64.0.3', false)],
    }) as Slice
    const views = [
      viewOf(service('cart', '10.96.0.1'), [slice], { name: 'node-0' }),
      viewOf(service('empty', '10.96.0.2'), [], { name: 'node-0' }),
    ]
    Object.assign(source, { services: () => views })
    source.set({
      services: {
        services: 2,
        frontends: 4,
        endpoints: 2,
        programming: { count: 0, sum: 0, buckets: [] },
        forgotten: 0,
      },
    })
    const page = await visit()
    const card = page.locator('section[aria-labelledby=services]')
    await card.locator('tbody tr').first().waitFor()
    assert.equal(await card.locator('.found').textContent(), '2 in all')
    assert.deepEqual(
      (await card.locator('tbody tr').allInnerTexts()).map((row) => row.split(/\s*[\t\n]\s*/)),
      [
        ['shop/cart', '10.96.0.1:80/TCP, node port 30080', '1, 1 of this node', '10.64.0.3:8080: it is not ready'],
        ['shop/empty', '10.96.0.2:80/TCP, node port 30080', '0, 0 of this node', ''],
      ],
    )
    assert.equal(await card.locator('tbody tr.bad').count(), 1)
    await card.locator('input[type=search]').fill('10.64.0.3')
    await until(async () => (await card.locator('.found').textContent()) === '1 of 2 ports')
    assert.match((await card.locator('tbody').textContent()) ?? '', /^shop\/cart/)
    // All Services go, and the table with them.
    Object.assign(source, { services: () => [] })
    source.set({
      services: {
        services: 0,
        frontends: 0,
        endpoints: 0,
        programming: { count: 1, sum: 0, buckets: [] },
        forgotten: 0,
      },
    })
    await until(
      async () =>
        (await card.locator('.empty').count()) === 1 &&
        (await card.locator('.empty').textContent()) === 'There are no Services',
    )
  })
  it('[BE40] has a table of the sessions of BGP: those that are away first, with the reason; a search finds them', async () => {
    const session = { kind: 'peer', asn: 65_000, state: 'Established', received: 2, sent: 1 } as const
    const address = (text: string) => ({ name: text, address: parseIp(text) })
    const bgp = {
      asn: 64_512,
      pid: 4711,
      restarts: 0,
      announced: 1,
      sessions: [
        { ...session, ...address('192.0.2.1'), name: 'tor', since: Date.now() - 180_000 },
        { ...session, ...address('192.0.2.2'), state: 'Active', reason: 'Socket: Connection refused', received: 0 },
      ],
    }
    source.set({ bgp })
    const page = await visit()
    const card = page.locator('section[aria-labelledby=bgp]')
    await card.locator('tbody tr').first().waitFor()
    assert.equal(await card.locator('.found').textContent(), 'AS 64512, prefixes announced: 1, 1 of 2 established')
    assert.deepEqual(
      (await card.locator('tbody tr').allInnerTexts()).map((row) => row.split(/\s*[\t\n]\s*/)),
      [
        ['192.0.2.2', '192.0.2.2', '65000', '0 in, 1 out', 'Active: Socket: Connection refused'],
        ['tor', '192.0.2.1', '65000', '2 in, 1 out', 'Established for 3 min'],
      ],
    )
    assert.equal(await card.locator('tbody tr.bad').count(), 1)
    await card.locator('input[type=search]').fill('refused')
    await until(async () => (await card.locator('.found').textContent()) === '1 of 2')
    await card.locator('input[type=search]').fill('')
    const { pid: _, ...ended } = bgp
    source.set({ bgp: { ...ended, sessions: [] } })
    await until(async () => (await card.locator('.found').textContent())?.endsWith('BIRD does not run'))
    assert.equal(await card.locator('.empty').textContent(), 'There are no sessions')
  })
  it('can be read by a screen reader: what can be pressed has a name, tables have headings', async () => {
    const page = await visit()
    await page.waitForSelector(NODES)
    const tree = await page.locator('body').ariaSnapshot()
    for (const part of [
      /heading "node-0" \[level=1\]/,
      /heading "Network" \[level=2\]/,
      /button "node-1: pods /,
      /searchbox "Search peers"/,
      /columnheader "State"/,
      /rowheader "node-1"/,
      /img "Since .*: 0 repaired/,
    ])
      assert.match(tree, part)
    assert.doesNotMatch(tree, /- (button|searchbox|link|table|img)$/m)
  })
})

async function text(page: Page, selector: string): Promise<string> {
  // biome-ignore lint/performance/useDomNodeTextContent: what is seen, with its lines
  return (await page.locator(selector).first().innerText()).trim()
}

async function found(page: Page, words: string): Promise<void> {
  await until(async () => (await page.textContent('.found')) === words)
}

async function centre(page: Page, selector: string): Promise<{ x: number; y: number }> {
  const box = await page.locator(selector).boundingBox()
  assert.ok(box, selector)
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 }
}

// WCAG 2.1 contrast of each text with what is painted behind it: 4.5 for text of this size.
const CONTRAST = `(() => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
  const rgba = (color) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = color; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data] }
  const over = ([r, g, b, a], [R, G, B]) => [r, g, b].map((c, i) => (c * a + [R, G, B][i] * (255 - a)) / 255)
  const behind = (element) => { const chain = []; for (let e = element; e; e = e.parentElement) chain.unshift(rgba(getComputedStyle(e).backgroundColor)); return chain.reduce((below, color) => over(color, below), [255, 255, 255]) }
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim() !== '')
  return [...document.querySelectorAll('body *')].filter((e) => own(e) && e.checkVisibility() && !e.closest('svg, .heard-only, noscript')).flatMap((e) => {
    const back = behind(e), [a, b] = [light(over(rgba(getComputedStyle(e).color), back)), light(back)]
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
    return ratio < 4.5 ? [e.className + ' "' + e.textContent.trim().slice(0, 40) + '" ' + ratio.toFixed(2)] : []
  })
})()`
