// lane: netns
// Tests docs/pictures, scripts/pictures.ts: what the pictures of the docs show.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { present } from '../../scripts/packages.ts'
import { differences, digestOf, eachPicture, FOLDER, SEEN, type Seen, type Shown } from '../support/pictures.ts'
import { skip } from '../support/skip.ts'
import { CHROMIUM, launch } from '../support/status-page.ts'

const PORTS = [10_266, 10_267] as const
/** All files together, in bytes. */
const MOST = 600_000

describe('docs/pictures', () => {
  const known: Seen = existsSync(SEEN) ? JSON.parse(readFileSync(SEEN, 'utf8')) : {}
  let browser: Browser
  before(async function () {
    if (!present(CHROMIUM)) skip(this, `no ${CHROMIUM}: npm run setup installs it where it can be had`)
    browser = await launch()
  })
  after(() => browser?.close())

  it('the pictures of the docs look like the page', async function () {
    this.timeout(120_000)
    const names: string[] = []
    const wrong: string[] = []
    await eachPicture(browser, PORTS, async ({ name, shown }) => {
      names.push(`${name}.webp`)
      wrong.push(...differences(known[name], shown).map((line) => `${name}: ${line}`))
    })
    assert.deepEqual(wrong, [], `run npm run pictures, and look at what it makes:\n${wrong.join('\n')}`)
    assert.deepEqual(readdirSync(FOLDER).sort(), [...names, 'pictures.json'].sort(), 'run npm run pictures')
  })
  it('the files are those that were made then, and small', () => {
    const files = readdirSync(FOLDER).filter((file) => file.endsWith('.webp'))
    for (const file of files) {
      const bytes = readFileSync(join(FOLDER, file))
      assert.equal(digestOf(bytes), known[file.replace('.webp', '')]?.sha256, `${file}: run npm run pictures`)
    }
    const all = files.reduce((sum, file) => sum + statSync(join(FOLDER, file)).size, 0)
    assert.ok(all > 0 && all <= MOST, `${all} bytes`)
  })
  it('another text, another colour and a moved card are differences, and a pixel is none', async () => {
    const change = async (script: string) => {
      const found: Shown[] = []
      await eachPicture(browser, PORTS, async ({ shown }) => void found.push(shown), {
        only: 'peers',
        change: (page) => page.evaluate(script),
      })
      return differences(known['peers-light'], found[0] as Shown)
    }
    assert.deepEqual(await change('0'), [])
    assert.deepEqual(await change("document.querySelector('.pill').style.marginRight = '1px'"), [])
    assert.match((await change("document.querySelector('h1').textContent = 'other'")).join(), /worker-a-07.*other/)
    assert.match(
      (await change("document.querySelector('.pill').style.color = 'green'")).join(),
      /^p\.pill\S* 1 has #008000 instead of #[0-9a-f]{6}$/,
    )
    assert.match(
      (await change("document.querySelector('.cells').style.marginTop = '40px'")).join(),
      /canvas 1 at \S+ is now at/,
    )
    const paint = "Object.assign(document.querySelector('canvas').getContext('2d'), { fillStyle: '#ff00ff' })"
    assert.match((await change(`${paint}.fillRect(0, 0, 300, 100)`)).join(), /^canvas 1 has #ff00ff instead of/)
  })
})
