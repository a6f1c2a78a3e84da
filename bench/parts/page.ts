import { constants, deflateRawSync } from 'node:zlib'
import { type Browser, type CDPSession, chromium, type Page } from 'playwright-core'
import { serveHealth } from '../../agent/http/server.ts'
import { Patches } from '../../agent/state/patches.ts'
import { Recorder } from '../../agent/state/recorder.ts'
import type { Peer, Status } from '../../agent/state/status.ts'
import { peers, type Scripted, scripted } from '../../test/support/scripted.ts'
import { most } from '../agent/cold.ts'
import { median } from '../paired.ts'
import type { Bench } from '../part.ts'
import { short, type Table } from '../report.ts'

const CHROMIUM = '/usr/bin/chromium-headless-shell'
const PORT = 10_263
const COUNTS = [1000, 5000] as const
/** The agent tells round trips so often, in seconds. It probes each peer about once in 30 s. */
const [TOLD_S, PROBED_S] = [10, 30]
const COMPRESSED = { finishFlush: constants.Z_SYNC_FLUSH, level: 1 }

/** What the page takes of the agent, of the way to it, and of the browser. */
export async function page(bench: Bench): Promise<Table> {
  const times = bench.times(20)
  const agents = COUNTS.map((count) => agentSide(count, times))
  const seen = await inBrowser(times)
  const [small, large] = agents as [Agent, Agent]
  const bars = [
    most('≤ 25 kB', small.first, 25, 'kB'),
    most('≤ 120 kB', large.first, 120, 'kB'),
    most('≤ 6 kB/s', small.later, 6, 'kB/s'),
    most('≤ 15 kB/s', large.later, 15, 'kB/s'),
    most('≤ 1 % of a core', small.share, 1, '%'),
    most('≤ 2 % of a core', large.share, 2, '%'),
    most('≤ 5 MB', large.memory, 5, 'MB'),
    most('≤ 300 ms', seen.sentenceMs, 300, 'ms'),
    most('≤ 16 ms', seen.patchMs, 16, 'ms'),
    most('≤ 50 ms', seen.searchMs, 50, 'ms'),
    most('≤ 60 MB', seen.memory, 60, 'MB'),
  ]
  const figures = [
    ['first message, 1,000 peers, kB', small.first],
    ['first message, 5,000 peers, kB', large.first],
    ['then, 1,000 peers, kB/s', small.later],
    ['then, 5,000 peers, kB/s', large.later],
    ['the agent, 1,000 peers, % of a core', small.share],
    ['the agent, 5,000 peers, % of a core', large.share],
    ['its memory, 5,000 peers, MB more', large.memory],
    ['first sentence in the browser, ms', seen.sentenceMs],
    ['work of the browser for a message, 5,000 peers, ms', seen.patchMs],
    ['a search among 5,000 peers, ms', seen.searchMs],
    ['memory of the page, 5,000 peers, MB', seen.memory],
  ] as const
  return {
    title: 'The status page',
    method: `An agent that is scripted, both families, three zones. Messages are compressed. Each peer is probed every ${PROBED_S} s, and the agent tells of it every ${TOLD_S} s. The browser is Chromium without a screen, on this machine; its work is the time of its main thread. Medians of ${times}.`,
    head: ['what', 'figure', 'bar'],
    rows: figures.map(([what, figure], i) => [what, short(figure), bars[i]?.text ?? '']),
    bars,
  }
}

interface Agent {
  readonly first: number
  readonly later: number
  readonly share: number
  readonly memory: number
}

// The work for one reader, without the socket.
function agentSide(count: number, times: number): Agent {
  const source = scripted({ peers: zoned(count) })
  Bun.gc(true)
  const before = process.memoryUsage().heapUsed
  const patches = new Patches(new Recorder())
  patches.take(source.status())
  const first = deflateRawSync(patches.whole().data, COMPRESSED).length / 1000
  const [sizes, works]: [number[], number[]] = [[], []]
  for (let i = 0; i < times; i++) {
    const status: Status = { ...source.status(), peers: probed(source.status().peers, i) }
    source.set(status)
    const started = process.cpuUsage()
    const message = patches.take(source.status())
    const bytes = deflateRawSync(message?.data ?? '', COMPRESSED).length
    const { user, system } = process.cpuUsage(started)
    sizes.push(bytes / 1000 / TOLD_S)
    works.push((user + system) / 1e6 / TOLD_S)
  }
  Bun.gc(true)
  const memory = Math.max(process.memoryUsage().heapUsed - before, 0) / 1e6
  return { first, later: median(sizes), share: median(works) * 100, memory }
}

async function inBrowser(times: number) {
  const source = scripted({ peers: zoned(5000) })
  const socket = `/run/plumb-bench-page-${process.pid}.sock`
  const served = await serveHealth({ address: '127.0.0.1', port: PORT, socket }, source)
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] })
  try {
    return await measured(browser, source, times)
  } finally {
    await browser.close()
    served.stop()
  }
}

async function measured(browser: Browser, source: Scripted, times: number) {
  const firsts: number[] = []
  for (let i = 0; i < Math.min(times, 5); i++) {
    const one = await open(browser, '')
    firsts.push(await one.evaluate<number>('performance.now()'))
    await one.context().close()
  }
  const opened = await open(browser, '#/peers')
  const session = await opened.context().newCDPSession(opened)
  await session.send('Performance.enable')
  const [patchTimes, searches]: [number[], number[]] = [[], []]
  for (let i = 0; i < times; i++) {
    const before = await busySeconds(session)
    source.set({ peers: probed(source.status().peers, i), mtu: 1400 + i })
    await opened.waitForTimeout(600)
    patchTimes.push(((await busySeconds(session)) - before) * 1000)
  }
  for (let i = 0; i < times; i++) searches.push(await opened.evaluate<number>(search(`node-${i + 1}`)))
  await opened.evaluate(search(''))
  await session.send('HeapProfiler.collectGarbage')
  const { metrics } = await session.send('Performance.getMetrics')
  const heap = metrics.find(({ name }) => name === 'JSHeapUsedSize')?.value ?? 0
  return { sentenceMs: median(firsts), patchMs: median(patchTimes), searchMs: median(searches), memory: heap / 1e6 }
}

async function open(browser: Browser, hash: string): Promise<Page> {
  const one = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage()
  await one.goto(`http://127.0.0.1:${PORT}/${hash}`)
  await one.waitForSelector('.sentence', { timeout: 60_000 })
  return one
}

async function busySeconds(session: CDPSession): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics')
  return metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0
}

// From the key to the next picture.
function search(words: string): string {
  return `new Promise((done) => {
    const input = document.querySelector('main input[type=search]')
    const started = performance.now()
    input.value = ${JSON.stringify(words)}
    input.dispatchEvent(new InputEvent('input', { bubbles: true }))
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - started)))
  })`
}

function zoned(count: number): Peer[] {
  return peers(count).map((peer, i) => ({ ...peer, zone: 'abc'[i % 3] as string, version: '0.1.0' }))
}

// A third of the peers have another round trip.
function probed(all: readonly Peer[], round: number): Peer[] {
  const every = PROBED_S / TOLD_S
  return all.map((peer, i) => {
    if (i % every !== round % every || !peer.probe) return peer
    return { ...peer, probe: { ...peer.probe, ms: 0.3 + ((i * 7919 + round * 104_729) % 1000) / 1000 } }
  })
}
