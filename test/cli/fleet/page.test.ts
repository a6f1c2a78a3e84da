// lane: netns
// Tests cli/fleet: the page of a fleet.
import assert from 'node:assert/strict'
import { source as AXE } from 'axe-core'
import { type Fleet, judge, type KnownAgent } from '../../../cli/fleet/fleet.ts'
import { servePage } from '../../../cli/fleet/page-server.ts'
import { cluster, knownOf, type Member, silent } from '../../support/fleet.ts'
import { until } from '../../support/harness.ts'
import { browsing, rowsOf, text } from '../../support/status-page.ts'

const PORT = 10_264
const URL = `http://127.0.0.1:${PORT}/`

describe('the page of a fleet', () => {
  const { visit, visits } = browsing(URL)
  let fleet: Fleet
  let changes = 0
  let served: { stop(): void }
  beforeEach(() => {
    show(cluster(12))
    served = servePage(PORT, {
      fleet: () => fleet,
      get changes() {
        return changes
      },
    })
  })
  afterEach(() => served.stop())
  function show(
    members: readonly Member[],
    failures: Readonly<Record<string, KnownAgent['failure']>> = {},
    note?: string,
  ): void {
    const now = Date.now()
    fleet = judge(
      members.map((one) => knownOf(one, now, failures[one.name])),
      now,
      note,
    )
    changes++
  }
  function lose(members: readonly Member[], isLost: (from: string, to: string) => boolean): readonly Member[] {
    for (const { name, source } of members) {
      const all = source.status().peers.map((peer) => (isLost(name, peer.node ?? '') ? silent(peer) : peer))
      if (all.some(({ probe }) => probe?.state === 'silent'))
        source.set({ peers: all, degraded: ['some peers do not answer'] })
    }
    return members
  }

  it('300 nodes, 10 of them dead: one sentence, the matrix, and the nodes with the reason', async () => {
    const members = cluster(300)
    const dead = Object.fromEntries(
      members.slice(100, 110).map(({ name }) => [name, { why: 'no answer within 5 s', since: Date.now() - 60_000 }]),
    )
    show(members, dead)
    const page = await visit('', { viewport: { width: 1280, height: 900 } })
    assert.match(
      await text(page, '.sentence'),
      /^290 of 300 nodes are ready; 10 do not answer \(node-103, node-106, node-109 and 7 more: no answer within 5 s\)$/,
    )
    assert.match(await text(page, '.counts'), /290 ready/)
    await page.keyboard.press('2')
    await page.waitForSelector('#matrix')
    await until(async () => Number(await page.evaluate("document.querySelector('.scroll canvas').clientWidth")) >= 1010)
    await page.keyboard.press('3')
    await until(async () => (await page.locator('tbody tr').count()) === 50)
    await page.keyboard.press('!')
    await until(async () => (await text(page, '.found')) === '10 of 300 nodes')
    assert.match(
      (await rowsOf(page, 'main'))[0]?.join(' ') ?? '',
      /^node-\d+ \?\s*dead since \d\d:\d\d: no answer within 5 s/,
    )
  })
  it('a way that is lost in one direction is marked, with both directions side by side', async () => {
    show(lose(cluster(12), (from, to) => from === 'node-4' && to === 'node-9'))
    const page = await visit('#/matrix?sel=node-4>node-9')
    assert.match(await text(page, '.sentence'), /packets from node-4 to node-9 are lost one way only/)
    const words = await text(page, '.both-ways')
    assert.match(words, /node-4 → node-9: silent, 100 % lost/)
    assert.match(words, /node-9 → node-4: reachable, 400 µs/)
    assert.match(words, /one way only/)
    await page.locator('[role=group]').focus()
    await page.keyboard.press('ArrowDown')
    await until(async () => !/node-4 → node-9/.test(await text(page, '.both-ways')))
  })
  it('the matrix is drawn in the colours of the other theme when that changes', async () => {
    show(cluster(12))
    const page = await visit('#/matrix', { colorScheme: 'light' })
    const colour = () =>
      page.evaluate(`(() => {
        const canvas = document.querySelector('.scroll canvas')
        const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
        pen.drawImage(canvas, 0, 0)
        return [...pen.getImageData(canvas.width - 30, 3, 1, 1).data].join()
      })()`)
    await page.waitForSelector('.scroll canvas')
    await until(async () => String(await colour()).endsWith(',255'))
    const light = await colour()
    await page.emulateMedia({ colorScheme: 'dark' })
    await until(async () => (await colour()) !== light)
  })
  it('a lost zone is one sentence and one block, also between zones', async () => {
    const members = cluster(12)
    const zone = (name: string) => members.find((one) => one.name === name)?.zone
    show(lose(members, (from, to) => (zone(from) === 'b') !== (zone(to) === 'b')))
    const page = await visit('#/matrix')
    assert.match(await text(page, '.sentence'), /zone b and the other zones do not reach each other: 4 nodes$/)
    assert.deepEqual(
      (await rowsOf(page, '.matrix-of-zones')).map((row) => row.map((one) => one.replace(/^[✓✕]\s*/, ''))),
      [
        ['a', '400 µs', '16 of 16 lost', '400 µs'],
        ['b', '16 of 16 lost', '400 µs', '16 of 16 lost'],
        ['c', '400 µs', '16 of 16 lost', '400 µs'],
      ],
    )
  })
  it('a refused role is one sentence', async () => {
    show([], {}, 'the Kubernetes API does not allow it to User "ann": want a role with list of pods')
    const page = await visit()
    assert.equal(
      await text(page, '.sentence'),
      'the Kubernetes API does not allow it to User "ann": want a role with list of pods',
    )
  })
  it('goes on by itself, and says when its server is away', async () => {
    const page = await visit()
    show(cluster(13))
    await until(async () => (await text(page, '.sentence')) === '13 of 13 nodes are ready', 15_000)
    served.stop()
    await until(async () => (await page.locator('.lost').count()) === 1, 15_000)
    served = servePage(PORT, {
      fleet: () => fleet,
      get changes() {
        return changes
      },
    })
    await until(async () => (await page.locator('.lost').count()) === 0, 15_000)
    visits[0]?.complaints.splice(0)
  })
  it('no rule of axe is broken, and nothing is wider than a phone but the matrix', async function () {
    this.timeout(60_000)
    show(
      lose(cluster(40), (from, to) => from === 'node-4' && to === 'node-9'),
      {
        'node-2': { why: 'no answer within 5 s', since: Date.now() },
      },
    )
    for (const colorScheme of ['light', 'dark'] as const)
      for (const width of [320, 1280]) {
        const page = await visit('', { colorScheme, viewport: { width, height: 900 }, bypassCSP: true })
        await page.evaluate(AXE)
        for (const view of ['#/', '#/matrix?sel=node-4>node-9', '#/nodes', '#/pairs']) {
          await page.evaluate(`location.hash = ${JSON.stringify(view)}`)
          await page.waitForSelector(`main.${/\w+/.exec(view)?.[0] ?? 'overview'} .card`)
          const broken = await page.evaluate(
            "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then(({ violations }) => violations.map((one) => one.id + ': ' + one.nodes.map(({ target, failureSummary }) => target + ' ' + failureSummary).slice(0, 3).join('; ')))",
          )
          assert.deepEqual(broken, [], `${view} ${colorScheme} ${width}`)
          assert.equal(
            await page.evaluate('document.documentElement.scrollWidth > innerWidth'),
            false,
            `${view} ${width}`,
          )
        }
        await page.context().close()
      }
  })
  it('refuses other names, other origins and everything but GET', async () => {
    const ask = async (path: string, init: RequestInit) => (await fetch(`${URL}${path}`, init)).status
    assert.equal(await ask('', { headers: { Host: 'rebound.example' } }), 421)
    assert.equal(await ask('fleet', { headers: { Origin: 'https://evil.example' } }), 403)
    assert.equal(await ask('fleet', { method: 'POST' }), 405)
    const first = await fetch(`${URL}fleet`)
    const tag = first.headers.get('etag') ?? ''
    assert.equal(((await first.json()) as Fleet).nodes.length, 12)
    assert.equal(await ask('fleet', { headers: { 'If-None-Match': tag } }), 304)
  })
})
