// needs: browser
import assert from 'node:assert/strict'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { serveHealth } from '../../agent/http/server.ts'
import { present } from '../../scripts/packages.ts'
import { type Scripted, scripted } from './scripted.ts'
import { skip } from './skip.ts'

/** The browser of the tests. `npm run setup` installs it. */
export const CHROMIUM = '/usr/bin/chromium-headless-shell'

/** Starts the browser, or a program that becomes it. */
export function launch(executablePath = CHROMIUM): Promise<Browser> {
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
}

/** A page that is open, and all that a browser had to say of it. */
interface Visit {
  readonly page: Page
  /** Errors and warnings of the console, and errors of the page's script. */
  readonly complaints: string[]
  readonly requests: string[]
}

/** A real browser, with the pages that a test opens. */
export interface Browsing {
  readonly visits: readonly Visit[]
  /** Opens the page at an address such as `#/peers`, in a browser of its own. */
  visit(hash?: string, options?: BrowserContextOptions): Promise<Page>
}

/**
 * Opens a browser before the tests of a suite. After each test it fails when a browser complained of anything, or asked
 * anybody else than `url`. Skips without the browser.
 */
export function browsing(url: string): Browsing {
  const visits: Visit[] = []
  let browser: Browser
  before(async function () {
    if (!present(CHROMIUM)) skip(this, `no ${CHROMIUM}: npm run setup installs it where it can be had`)
    browser = await launch()
  })
  after(() => browser?.close())
  afterEach(async () => {
    const all = visits.splice(0)
    await Promise.all(all.map(({ page }) => page.context().close()))
    for (const { complaints, requests } of all) {
      assert.deepEqual(complaints, [])
      assert.deepEqual(
        requests.filter((one) => !one.startsWith(url)),
        [],
      )
    }
  })
  return {
    visits,
    async visit(hash = '', options = {}) {
      const page = await (await browser.newContext(options)).newPage()
      const one: Visit = { page, complaints: [], requests: [] }
      page.on('console', (message) => /error|warning/.test(message.type()) && one.complaints.push(message.text()))
      page.on('pageerror', (error) => one.complaints.push(error.message))
      page.on('request', (request) => one.requests.push(request.url()))
      visits.push(one)
      await page.goto(`${url}${hash}`)
      if (options.javaScriptEnabled !== false) await page.waitForSelector('.sentence')
      return page
    },
  }
}

/** The status page of a node in a real browser, with an agent whose status a test sets. */
export interface StatusPage extends Browsing {
  readonly url: string
  readonly source: Scripted
  /** Ends the agent's server, and starts it. */
  stop(): void
  start(): Promise<void>
}

/** The same with a new agent before each test. `first` is its first status. */
export function statusPage(port: number, first: Parameters<typeof scripted>[0] = {}): StatusPage {
  const url = `http://127.0.0.1:${port}/`
  const opened = browsing(url)
  let served: { stop(): void } | undefined
  let source: Scripted
  const start = async () => {
    served = await serveHealth({ address: '127.0.0.1', port, socket: `/run/plumb/page-${port}.sock` }, source)
  }
  beforeEach(() => {
    source = scripted(first)
    return start()
  })
  afterEach(() => served?.stop())
  return {
    ...opened,
    url,
    get source() {
      return source
    },
    stop: () => served?.stop(),
    start,
  }
}

/** What is seen of an element, with its lines. */
export async function text(page: Page, selector: string): Promise<string> {
  // biome-ignore lint/performance/useDomNodeTextContent: what is seen, with its lines
  return (await page.locator(selector).first().innerText()).trim()
}

/** The cells of the rows of a table that are seen. */
export async function rowsOf(page: Page, selector: string): Promise<string[][]> {
  const rows = await page.locator(`${selector} tbody tr`).allInnerTexts()
  return rows.map((row) => row.split(/\s*[\t\n]\s*/))
}
