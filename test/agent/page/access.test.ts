// lane: netns
// Tests agent/page: the status page for every reader: keys, addresses, screen readers, widths, hostile names.
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { source as AXE } from 'axe-core'
import type { PodView } from '../../../agent/state/details.ts'
import type { Peer } from '../../../agent/state/status.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { viewsOfPage } from '../../../scripts/docs.ts'
import { certificates } from '../../support/certificates.ts'
import { until } from '../../support/harness.ts'
import { peers } from '../../support/scripted.ts'
import { rowsOf, statusPage, text } from '../../support/status-page.ts'

const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const
const VIEWS = [
  '#/',
  ...(await viewsOfPage()).slice(1).map(({ key }) => `#/${key}`),
  '#/peers/node-3',
  '#/pods/shop%2Fcart',
]

describe('the status page for every reader', () => {
  const served = statusPage(10_262, { peers: zoned(40) })

  it('a link shows the same in another browser, and Back goes back', async () => {
    const page = await served.visit('#/peers', { viewport: { width: 1280, height: 900 } })
    await page.fill('main input[type=search]', 'state:bad zone:b')
    await page.click('thead button:has-text("Round trip")')
    await page.keyboard.press('j')
    await until(async () => (await page.locator('tr.selected').count()) === 1)
    const link = page.url()
    assert.match(link, /#\/peers\?q=state:bad\+zone:b&sort=-rtt&sel=node-/)
    const other = await served.visit(link.slice(served.url.length))
    for (const one of [page, other]) {
      await until(async () => (await one.locator('tbody tr').count()) > 0)
      assert.equal(await one.inputValue('main input[type=search]'), 'state:bad zone:b')
      assert.equal(await one.getAttribute('thead th[aria-sort=descending]', 'class'), 'number')
    }
    assert.deepEqual(await rowsOf(page, 'main'), await rowsOf(other, 'main'))
    await page.keyboard.press('Enter')
    await page.waitForSelector('.peer')
    await page.goBack()
    await until(async () => (await page.inputValue('main input[type=search]')) === 'state:bad zone:b')
    assert.equal(page.url(), link)
  })
  it('marks a word that cannot be searched for, with the nearest', async () => {
    const page = await served.visit('#/peers?q=stat:silent')
    assert.equal(await text(page, '.mistakes'), '“stat” cannot be searched for; do you mean state?')
    assert.equal(await text(page, '.found'), '40 peers')
  })
  it('each key does what the help says, and none does in a field', async () => {
    const page = await served.visit('', { permissions: ['clipboard-read', 'clipboard-write'] })
    const at = async (hash: string) => until(async () => page.url().replace(/^[^#]*/, '') === hash)
    const keys = page.keyboard
    await keys.press('2')
    await at('#/peers')
    await keys.press('/')
    await keys.type('1?!jc y')
    assert.equal(await page.inputValue('main input[type=search]'), '1?!jc y')
    assert.equal(await page.locator('dialog[open]').count(), 0)
    await keys.press('Escape')
    await keys.press('Escape')
    await at('#/peers')
    await keys.press('!')
    await at('#/peers?q=state:bad')
    await keys.press('!')
    await at('#/peers')
    await keys.press('j')
    await keys.press('j')
    await keys.press('k')
    await at('#/peers?sel=node-2')
    await keys.press('Enter')
    await at('#/peers/node-2?sel=node-2')
    await keys.press('c')
    await until(async () => (await page.evaluate('navigator.clipboard.readText()')) === 'plumb trace node-0 node-2')
    await keys.press('y')
    await until(async () => (await page.evaluate('navigator.clipboard.readText()')) === page.url())
    await keys.press('Escape')
    await page.waitForSelector('[role=grid]')
    await keys.press('?')
    assert.equal(await page.locator('dialog[open] kbd').count(), 10)
    await keys.press('Escape')
    await until(async () => (await page.locator('dialog[open]').count()) === 0)
    await keys.press('Control+1')
    await page.waitForSelector('[role=grid]')
    await keys.press('1')
    await page.waitForSelector('main.overview')
  })
  it('Space holds the page still, and lets it go on', async () => {
    served.source.set({ peers: peers(3) })
    const page = await served.visit()
    await page.keyboard.press(' ')
    await until(async () => /^paused, as of /.test(await text(page, '.link')))
    served.source.set({ degraded: ['something'] })
    await Bun.sleep(1000)
    assert.match(await text(page, '.sentence'), /^node-0 is ready/)
    assert.match(page.url(), /#\/\?paused$/)
    await page.keyboard.press(' ')
    await until(async () => (await text(page, '.sentence')) === 'node-0 is degraded: something')
  })
  it('the arrow keys go through the grid, and Enter opens a peer', async () => {
    const page = await served.visit('#/peers')
    await page.locator('[role=grid]').focus()
    const here = () => page.textContent('[role=gridcell]')
    for (const [key, name] of [
      ['ArrowRight', 'node-4'],
      ['ArrowRight', 'node-7'],
      ['ArrowLeft', 'node-4'],
      ['ArrowDown', 'node-5'],
      ['ArrowUp', 'node-4'],
      ['End', 'node-39'],
      ['Home', 'node-1'],
    ] as const) {
      await page.keyboard.press(key)
      await until(async () => (await here())?.startsWith(`${name}: `), 5000)
    }
    assert.equal(await page.getAttribute('[role=grid]', 'aria-activedescendant'), 'cell')
    await page.keyboard.press('Enter')
    await page.waitForSelector('.peer')
    assert.equal(await text(page, '.peer h2'), 'node-1')
  })
  it('no rule of axe is broken, in each view, light and dark, at three widths', async function () {
    this.timeout(120_000)
    everything()
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const width of [320, 768, 1280]) {
        const page = await served.visit('', { colorScheme, viewport: { width, height: 900 }, bypassCSP: true })
        await page.evaluate(AXE)
        for (const view of VIEWS) {
          await page.evaluate(`location.hash = ${JSON.stringify(view)}`)
          await page.waitForSelector(`main.${view.split('/')[1] || 'overview'} .card`)
          const broken = await page.evaluate(
            "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then(({ violations }) => violations.map((one) => one.id + ': ' + one.nodes.map(({ target, failureSummary }) => target + ' ' + failureSummary).slice(0, 3).join('; ')))",
          )
          assert.deepEqual(broken, [], `${view} ${colorScheme} ${width}`)
          // A page of 320 pixels is one of 1280 at 400 %.
          const isWide = await page.evaluate('document.documentElement.scrollWidth > innerWidth')
          assert.equal(isWide, false, `${view} is wider than ${width}`)
        }
        await page.context().close()
      }
    }
  })
  it('states are told apart without colours', async () => {
    served.source.set({ peers: [...zoned(16)].map((peer, i) => ({ ...peer, ...STATES[i % 5] })) })
    const page = await served.visit('#/peers?group=none')
    await until(async () => (await page.locator('tbody tr').count()) === 16)
    const signs = await page.locator('tbody .sign').allTextContents()
    const states = (await rowsOf(page, 'main')).map((row) => row[1] ?? '')
    assert.equal(new Set(signs).size, 4)
    assert.ok(
      states.every((state) => /[✓✕▲?]/.test(state)),
      states.join(),
    )
    // Each state is a pattern of its own: how many of its pixels have the colour of the sign.
    const patterns = new Set((await page.evaluate(PATTERNS)) as string[])
    assert.equal(patterns.size, 4)
  })
  it('nothing moves when less motion is wanted, and the colours of the system are used', async () => {
    const page = await served.visit('#/peers', { reducedMotion: 'reduce', forcedColors: 'active' })
    served.source.set({ peers: zoned(40).map((peer, i) => (i === 20 ? { ...peer, ...SILENT } : peer)) })
    await until(async () => /3 of 40|node-21/.test(await text(page, '.sentence')))
    const moving = await page.evaluate('document.getAnimations().length')
    assert.equal(moving, 0)
    const colour = await page.evaluate(
      "getComputedStyle(document.querySelector('canvas')).getPropertyValue('--cell-silent').trim()",
    )
    assert.equal(colour, 'Highlight')
  })
  it('hostile names do nothing: markup is text, bidi is shown, 10 kB do not break the page', async () => {
    const names = [
      '<img src=x onerror=alert(1)>',
      '\u202egnp.exe',
      'עברית-node',
      'x'.repeat(253),
      `${'y'.repeat(10_000)}`,
    ]
    served.source.set({
      peers: zoned(40).map((peer, i) => ({
        ...peer,
        ...SILENT,
        ...(names[i] !== undefined && { node: names[i] }),
        zone: names[i % 5] as string,
      })),
      degraded: [`no answer from ${names[0]}`],
    })
    const page = await served.visit('', { viewport: { width: 360, height: 800 } })
    for (const view of ['#/', '#/peers', `#/peers/${encodeURIComponent(names[0] as string)}`, '#/events']) {
      await page.evaluate(`location.hash = ${JSON.stringify(view)}`)
      await page.waitForSelector(`main.${view.split('/')[1] || 'overview'} .card`)
      assert.equal(await page.locator('main img').count(), 0)
      assert.equal((await page.textContent('main'))?.includes('\u202e'), false, view)
      assert.equal(await page.evaluate('document.documentElement.scrollWidth > innerWidth'), false, view)
    }
  })
  it('runs no script that somebody put in', async () => {
    const page = await served.visit()
    await page
      .evaluate("document.body.append(Object.assign(document.createElement('script'), { textContent: '' }))")
      .catch(() => {})
    const blocked = await page.evaluate(
      "(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()",
    )
    assert.equal(blocked, true)
    assert.equal(
      await page.evaluate(
        "new Promise((done) => { const one = document.createElement('img'); one.onerror = () => done(true); one.onload = () => done(false); one.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw='; document.body.append(one) })",
      ),
      true,
    )
    served.visits[0]?.complaints.splice(0)
    served.visits[0]?.requests.splice(0)
  })
  it('without a script, the page has the state and its reasons', async () => {
    served.source.set({ degraded: ['node-2 does not answer'] })
    const page = await served.visit('', { javaScriptEnabled: false })
    assert.match(
      await text(page, 'body'),
      /node-0: degraded[\s\S]*40 peers, 2 of them unreachable[\s\S]*node-2 does not answer/,
    )
  })
  it('works below the path of a proxy, by http and by https', async () => {
    for (const scheme of ['http', 'https'] as const) {
      const proxied = await proxy(served.url, scheme)
      try {
        const page = await served.visit('', { ignoreHTTPSErrors: true })
        await page.goto(`${proxied.url}nodes/node-0/#/peers`)
        await until(async () => (await page.locator('tbody tr').count()) === 40, 15_000)
        served.source.set({ peers: zoned(41) })
        await until(async () => (await text(page, '.found')) === '41 peers')
        await page.locator('tbody tr button').first().click()
        await page.waitForSelector('.peer .spark svg')
        assert.deepEqual(
          served.visits.at(-1)?.requests.filter((one) => !one.startsWith(proxied.url) && !one.startsWith(served.url)),
          [],
        )
        served.visits.at(-1)?.requests.splice(0)
        await page.context().close()
        served.source.set({ peers: zoned(40) })
      } finally {
        proxied.stop()
      }
    }
  })
  it('what is copied or printed is the text of the page', async () => {
    const page = await served.visit('#/peers?q=state:bad')
    await until(async () => (await page.locator('tbody tr').count()) === 2)
    await page.emulateMedia({ media: 'print' })
    assert.equal(await page.locator('nav').isVisible(), false)
    const copied = String(
      await page.evaluate(
        "(() => { getSelection().selectAllChildren(document.querySelector('tbody')); return getSelection().toString() })()",
      ),
    )
    assert.match(copied, /node-2\s+✕\s*programmed, but no answer: 6 of 10 probes lost[\s\S]*node-5/)
  })

  function everything(): void {
    const pod: PodView = {
      pod: 'shop/cart',
      container: 'c'.repeat(64),
      ifname: 'eth0',
      addresses: [parseIp('10.64.0.2')],
      link: 'veth1',
      isUp: true,
      sent: 1,
      received: 1,
      dropped: 0,
      hostPorts: [],
    }
    const session = { kind: 'peer', asn: 65_000, state: 'Active', received: 2, sent: 1, name: 'tor' } as const
    Object.assign(served.source, {
      pods: async () => [pod],
      peer: async () => ({ objects: [{ wanted: 'route 10.64.3.0/24' }] }),
      services: () => [],
      policyMatrix: () => ({ namespaces: ['shop', 'web'], rows: ['op', '-c'] }),
    })
    served.source.set({
      degraded: ['no answer from node-2', 'a table of the node drops packets; run nft list ruleset'],
      findings: [
        {
          code: 'DR9',
          title: '',
          severity: 'error',
          text: 'a table of the node drops packets',
          commands: ['nft list ruleset'],
        },
      ],
      policy: {
        policies: 1,
        clusterPolicies: 0,
        pods: 1,
        selected: { ingress: 1, egress: 0 },
        closed: 0,
        refused: 0,
        steps: { count: 1, sum: 0, buckets: [] },
      },
      services: {
        services: 0,
        frontends: 0,
        endpoints: 0,
        forgotten: 0,
        programming: { count: 0, sum: 0, buckets: [] },
        sync: { took: { count: 0, sum: 0, buckets: [] }, services: 0, slices: 0 },
      },
      bgp: { asn: 1, restarts: 0, announced: 1, sessions: [{ ...session, address: parseIp('192.0.2.1') }] },
    })
  }
})

/** Peers in three zones. The second and the fifth, both of zone b, do not answer. */
function zoned(count: number): Peer[] {
  return peers(count).map((peer, i) => ({
    ...peer,
    zone: 'abc'[i % 3] as string,
    probe: { state: 'answers', sent: 10, lost: 0, ms: 0.2 + i / 10 },
    ...(i === 1 || i === 4 ? SILENT : {}),
  }))
}

/** A proxy that shows an agent below `/nodes/node-0/`. */
async function proxy(to: string, scheme: 'http' | 'https'): Promise<{ readonly url: string; stop(): void }> {
  const dir = mkdtempSync(join(tmpdir(), 'proxy-'))
  await certificates(dir, [{ name: 'proxy', ip: '127.0.0.1' }])
  const tls =
    scheme === 'https' ? { tls: { cert: Bun.file(join(dir, 'proxy.pem')), key: Bun.file(join(dir, 'proxy.key')) } } : {}
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    idleTimeout: 60,
    ...tls,
    fetch(asked) {
      const { pathname, search } = new URL(asked.url)
      const path = /^\/nodes\/node-0\/(.*)$/.exec(pathname)?.[1]
      if (path === undefined) return new Response('not here', { status: 404 })
      const headers = new Headers(asked.headers)
      headers.delete('host')
      return fetch(`${to}${path}${search}`, { headers, signal: asked.signal, decompress: false })
    },
  })
  return { url: `${scheme}://127.0.0.1:${server.port}/`, stop: () => void server.stop(true) }
}

const STATES: readonly Partial<Peer>[] = [
  {},
  SILENT,
  { probe: { state: 'narrow', sent: 10, lost: 0, ms: 1 } },
  { probe: { state: 'unknown', sent: 0, lost: 0 } },
  { problem: 'no route' },
]

// The shape of the sign of each cell, whatever its colour.
const PATTERNS = `(() => {
  const canvas = document.querySelector('[role=grid] canvas')
  const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
  const size = 28, step = 30
  const shapes = []
  const colour = (x, y) => data.slice(4 * (y * width + x), 4 * (y * width + x) + 4).join()
  for (let y = 0; y + size <= height; y += step)
    for (let x = 0; x + size <= width; x += step) {
      if (colour(x + 1, y + 1).endsWith(',0')) continue
      shapes.push([[14, 14], [8, 8], [14, 10], [19, 19], [17, 11], [10, 20]].map(([px, py]) => Number(colour(x + px, y + py) !== colour(x + 1, y + 1))).join(''))
    }
  return shapes
})()`
