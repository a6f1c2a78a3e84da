// lane: long
// Tests agent/page/live.ts: the page behind a proxy that holds messages back.
import assert from 'node:assert/strict'
import { serveHealth } from '../../../agent/http/server.ts'
import { until } from '../../support/harness.ts'
import { type HoldingProxy, holdingProxy } from '../../support/holding-proxy.ts'
import { peers, type Scripted, scripted } from '../../support/scripted.ts'
import { browsing, text } from '../../support/status-page.ts'

const [PORT, PROXY] = [10_269, 10_270]
const URL = `http://127.0.0.1:${PROXY}/`
const LATE = 20_000

describe('the page behind a proxy', () => {
  const { visit, visits } = browsing(URL)
  let source: Scripted
  let served: { stop(): void }
  let proxy: HoldingProxy
  beforeEach(async () => {
    source = scripted({ peers: peers(5) })
    served = await serveHealth({ address: '127.0.0.1', port: PORT, socket: '/run/plumb/page-proxy.sock' }, source)
  })
  afterEach(() => {
    proxy.stop()
    served.stop()
  })

  for (const [words, holding] of [
    [
      'the whole answer until its end, and gives it up',
      { bytes: Number.POSITIVE_INFINITY, holdsHead: true, limitMs: 3000 },
    ],
    ['64 kB, and cuts', { bytes: 65_536, holdsHead: false, limitMs: 500 }],
  ] as const)
    it(`a proxy that holds ${words}: the page says that it is not live, and asks again and again`, async () => {
      proxy = await holdingProxy(PROXY, `http://127.0.0.1:${PORT}`, holding)
      const page = await visit()
      assert.equal(await text(page, '.sentence'), 'node-0 is ready: all 5 peers answer')
      assert.equal(await text(page, '.link'), 'not live: asks every 2 s')
      assert.match((await page.getAttribute('.link', 'title')) ?? '', /proxy .* must not buffer the path events/)
      assert.equal(await page.locator('.lost').count(), 0)
      source.set({ node: 'node-7', peers: peers(6) })
      await until(async () => (await text(page, '.sentence')) === 'node-7 is ready: all 6 peers answer', LATE)
      const streams = source.followers
      const before = proxy.asked('/events')
      await until(() => proxy.asked('/events') >= before + 3, LATE)
      assert.equal(source.followers, streams, 'asking opens no stream')
      visits[0]?.complaints.splice(0)
    })
  it('it says when the agent is away, and goes on when it is back', async () => {
    proxy = await holdingProxy(PROXY, `http://127.0.0.1:${PORT}`, { bytes: 65_536, holdsHead: false, limitMs: 60_000 })
    const page = await visit()
    await until(async () => /not live/.test(await text(page, '.link')), LATE)
    served.stop()
    await until(async () => (await text(page, '.link')) === 'connection lost', LATE)
    source.set({ node: 'node-back' })
    served = await serveHealth({ address: '127.0.0.1', port: PORT, socket: '/run/plumb/page-proxy.sock' }, source)
    await until(async () => /^node-back/.test(await text(page, '.sentence')), 30_000)
    visits[0]?.complaints.splice(0)
  })
  it('it tries the stream again after five minutes, and is live when the proxy passes it on', async () => {
    proxy = await holdingProxy(PROXY, `http://127.0.0.1:${PORT}`, { bytes: 65_536, holdsHead: false, limitMs: 60_000 })
    const page = await visit()
    await until(async () => /not live/.test(await text(page, '.link')), LATE)
    proxy.release()
    await page.evaluate('const now = performance.now.bind(performance); performance.now = () => now() + 301000')
    await until(async () => (await text(page, '.link')) === 'live', LATE)
    source.set({ node: 'node-9' })
    await until(async () => /^node-9/.test(await text(page, '.sentence')), LATE)
  })
})
