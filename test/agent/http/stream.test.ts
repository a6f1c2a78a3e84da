// lane: netns
// Tests agent/http: the stream of the page, and who may ask.
import assert from 'node:assert/strict'
import { serveHealth } from '../../../agent/http/server.ts'
import type { Patch } from '../../../agent/state/messages.ts'
import { peerOf } from '../../../agent/state/rows.ts'
import type { Summary } from '../../../agent/state/summary.ts'
import { type Reader, readEvents } from '../../support/event-reader.ts'
import { until } from '../../support/harness.ts'
import { peers, type Scripted, scripted } from '../../support/scripted.ts'

const PORT = 10_256
const places = { address: '127.0.0.1', port: PORT, socket: '/run/plumb/agent.sock' }

describe('the stream of the page', () => {
  let source: Scripted
  let served: { stop(): void }
  const readers: Reader[] = []
  beforeEach(async () => {
    source = scripted({ peers: peers(5) })
    served = await serveHealth(places, source)
  })
  afterEach(() => {
    for (const one of readers.splice(0)) one.close()
    served.stop()
  })
  async function listen(headers: Record<string, string> = {}): Promise<Reader> {
    const one = await readEvents(PORT, headers)
    readers.push(one)
    return one
  }

  it('begins with everything, and then tells what differs', async () => {
    const one = await listen()
    const first = await until(() => one.state)
    assert.deepEqual(first?.status, JSON.parse(JSON.stringify(baseOf(source))))
    assert.deepEqual([...(first?.peers.values() ?? [])].map(peerOf), JSON.parse(JSON.stringify(source.status().peers)))
    source.set({ mtu: 1400 })
    await until(() => one.state?.status.mtu === 1400)
    assert.deepEqual(one.names, ['whole', 'patch'])
  })
  it('asks proxies not to hold it back, and says at once that the way is open', async () => {
    const one = await listen()
    await until(() => one.state)
    assert.equal(one.headers['x-accel-buffering'], 'no')
    assert.match(`${one.headers['cache-control']}`, /no-transform/)
    const end = new AbortController()
    const path = `/events?after=${one.ids.at(-1)}`
    const { body } = await fetch(`http://127.0.0.1:${PORT}${path}`, { signal: end.signal })
    const seen = await body?.getReader().read()
    end.abort()
    assert.equal(new TextDecoder().decode(seen?.value), 'retry: 1000\n\nevent: beat\ndata: {}\n\n')
  })
  it('who asks with `once` gets everything, and then what differs, without a stream', async () => {
    const ask = async (after = '') => {
      const answer = await fetch(`http://127.0.0.1:${PORT}/events?once${after && `&after=${after}`}`)
      return (await answer.json()) as { event: string; id: string; data: Patch }[]
    }
    const [whole, ...none] = await ask()
    assert.deepEqual([whole?.event, none.length, source.followers], ['whole', 0, 0])
    assert.deepEqual(await ask(whole?.id), [])
    source.set({ mtu: 1400 })
    const [patch] =
      (await until(async () => {
        const news = await ask(whole?.id)
        return news.length > 0 ? news : undefined
      })) ?? []
    assert.deepEqual([patch?.event, patch?.data.status], ['patch', { mtu: 1400 }])
    assert.equal((await ask('other.7'))[0]?.event, 'whole')
  })
  it('goes on after the last message that a reader has, also when nobody has listened since', async () => {
    const one = await listen()
    await until(() => one.state)
    const last = one.ids.at(-1) as string
    one.close()
    await until(() => source.followers === 0)
    source.set({ mtu: 1401 })
    const two = await listen({ 'Last-Event-ID': last })
    await until(() => two.names.length > 0)
    assert.deepEqual(two.names, ['patch'])
    const three = await listen({ 'Last-Event-ID': 'another.7' })
    await until(() => three.state?.status.mtu === 1401)
    assert.deepEqual(three.names, ['whole'])
  })
  it('an agent that has started again sends everything', async () => {
    const one = await listen()
    await until(() => one.state)
    served.stop()
    served = await serveHealth(places, source)
    const two = await listen({ 'Last-Event-ID': one.ids.at(-1) as string })
    await until(() => two.state)
    assert.deepEqual(two.names, ['whole'])
    assert.notEqual(two.ids[0], one.ids[0])
  })
  it('a reader that takes nothing gets all that it missed when it does; the others wait for none', async () => {
    const slow = await listen()
    const quick = await listen()
    await until(() => slow.state && quick.state)
    slow.pause()
    source.set({ peers: peers(5000) })
    for (let i = 0; i < 4; i++) {
      source.set({ mtu: 1300 + i })
      await until(() => quick.state?.status.mtu === 1300 + i, 60_000)
    }
    slow.resume()
    await until(() => slow.state?.status.mtu === 1303, 60_000)
    assert.equal(slow.state?.peers.size, 5000)
  })
  it('is compressed for who takes gzip, each message at once', async () => {
    source.set({ peers: peers(1000) })
    const [one, two] = [await listen({ 'Accept-Encoding': 'gzip, deflate, br' }), await listen()]
    await until(() => one.state && two.state)
    assert.deepEqual([one.headers['content-encoding'], two.headers['content-encoding']], ['gzip', undefined])
    assert.ok(one.bytes < 25_000 && two.bytes > 2 * one.bytes, `${one.bytes} of ${two.bytes} bytes`)
    source.set({ mtu: 1234 })
    await until(() => one.state?.status.mtu === 1234 && two.state?.status.mtu === 1234)
    assert.equal((await listen({ 'Accept-Encoding': 'br, gzip;q=0' })).headers['content-encoding'], undefined)
  })
  it('sixteen listen at once, with gzip and without; the next one is told to come again', async () => {
    for (let i = 0; i < 16; i++) await listen(i % 2 ? { 'Accept-Encoding': 'gzip' } : {})
    await until(() => readers.every((one) => one.state))
    const more = await fetch(`http://127.0.0.1:${PORT}/events`)
    assert.deepEqual([more.status, more.headers.get('retry-after')], [503, '5'])
    source.set({ mtu: 1299 })
    await until(() => readers.every((one) => one.state?.status.mtu === 1299))
  })
})

describe('the summary of a node over HTTP', () => {
  it('is small and the same for a second, and has the row for who asks for it', async () => {
    const source = scripted({ peers: peers(5) })
    const served = await serveHealth(places, source)
    try {
      const ask = async (path: string) => (await (await fetch(`http://127.0.0.1:${PORT}${path}`)).json()) as Summary
      const first = await ask('/summary')
      assert.deepEqual(
        [first.node, first.state, first.peers, first.row],
        ['node-0', 'ready', { reachable: 5 }, undefined],
      )
      assert.deepEqual((await ask('/summary?row')).row?.state, 'rrrrr')
      source.set({ degraded: ['something'] })
      await until(async () => (await ask('/summary')).cause === 'something')
      source.set({ peers: peers(501), degraded: [] })
      await until(async () => (await ask('/summary?row')).peers.reachable === 501)
      assert.equal((await ask('/summary?row')).row, undefined)
    } finally {
      served.stop()
    }
  })
})

describe('who may ask the status server', () => {
  let served: { stop(): void }
  before(async () => {
    served = await serveHealth(
      places,
      scripted({ node: '<b>nodé</b>', reasons: ['no "uplink" & no route'], ready: false }),
    )
  })
  after(() => served.stop())
  const ask = async (path: string, headers: Record<string, string>, method = 'GET') => {
    const answer = await fetch(`http://127.0.0.1:${PORT}${path}`, { headers, method })
    return [answer.status, (await answer.text()).trim()] as const
  }

  it('pages of another origin get no list and no stream', async () => {
    for (const path of ['/status', '/summary', '/services', '/policy', '/log', '/past', '/events']) {
      for (const headers of [
        { Origin: 'https://evil.example' },
        { Origin: 'null' },
        { 'Sec-Fetch-Site': 'cross-site' },
        { 'Sec-Fetch-Site': 'same-site', Origin: 'http://127.0.0.1:1' },
      ]) {
        const [status, text] = await ask(path, headers as unknown as Record<string, string>)
        assert.equal(status, 403, `${path} ${JSON.stringify(headers)}`)
        assert.match(text, /is not for pages of ".*": open the page of this agent$|another site/)
      }
    }
    assert.equal(
      (await ask('/status', { 'Sec-Fetch-Site': 'same-origin', Origin: `http://127.0.0.1:${PORT}` }))[0],
      200,
    )
    assert.equal((await ask('/status', { 'Sec-Fetch-Site': 'none' }))[0], 200)
  })
  it('a link elsewhere opens the page, under its own name only, and nothing is posted', async () => {
    assert.equal((await ask('/', { 'Sec-Fetch-Site': 'cross-site' }))[0], 200)
    assert.equal((await ask('/', { Host: 'rebound.example' }))[0], 421)
    assert.equal((await ask('/status', {}, 'POST'))[0], 405)
  })
  it('without a script, the page has the state, its reasons and the counts', async () => {
    const [, html] = await ask('/', {})
    assert.match(html, /<noscript><h1>&#60;b&#62;nodé&#60;\/b&#62;: not ready<\/h1>/)
    assert.match(html, /3 peers, 0 of them unreachable/)
    assert.match(html, /<li>no &#34;uplink&#34; &#38; no route<\/li>/)
  })
  it('allows no script of another origin, nor one made of text', async () => {
    const answer = await fetch(`http://127.0.0.1:${PORT}/`)
    const policy = answer.headers.get('content-security-policy') ?? ''
    for (const part of ["default-src 'self'", "require-trusted-types-for 'script'", "frame-ancestors 'none'"])
      assert.ok(policy.includes(part), policy)
    assert.equal(answer.headers.get('cross-origin-opener-policy'), 'same-origin')
    await answer.text()
  })
  it('what a browser has already is not sent again', async () => {
    for (const path of ['/', '/page.js', '/page.css', '/icon.svg']) {
      const first = await fetch(`http://127.0.0.1:${PORT}${path}`)
      await first.text()
      const tag = first.headers.get('etag') ?? ''
      const again = await fetch(`http://127.0.0.1:${PORT}${path}`, { headers: { 'If-None-Match': tag } })
      assert.equal(path === '/' ? again.status === 200 || again.status === 304 : again.status === 304, true, path)
      await again.text()
    }
  })
  it('the page is at most 40 kB on the way', async () => {
    let bytes = 0
    for (const path of ['/', '/page.js', '/page.css', '/icon.svg']) {
      const options = { headers: { 'Accept-Encoding': 'gzip' }, decompress: false }
      const answer = await fetch(`http://127.0.0.1:${PORT}${path}`, options)
      bytes += (await answer.arrayBuffer()).byteLength
      assert.equal(answer.headers.get('content-encoding'), path === '/' ? null : 'gzip', path)
    }
    assert.ok(bytes <= 40_000, `${bytes} bytes`)
  })
})

function baseOf(source: Scripted): object {
  const { peers: _, repairs: __, ...base } = source.status()
  return base
}
