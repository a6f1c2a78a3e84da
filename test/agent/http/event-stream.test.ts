// lane: netns
// Tests agent/http/event-stream.ts: when the agent sends what, and to how many.
import assert from 'node:assert/strict'
import { serveHealth } from '../../../agent/http/server.ts'
import { type Reader, readEvents } from '../../support/event-reader.ts'
import { until } from '../../support/harness.ts'
import { type Scripted, scripted } from '../../support/scripted.ts'

const PORT = 10_256
const places = { address: '127.0.0.1', port: PORT, socket: '/run/plumb/agent.sock' }

describe('/events', () => {
  let source: Scripted
  let served: { stop(): void }
  const readers: Reader[] = []
  beforeEach(async () => {
    source = scripted({ node: 'first' })
    served = await serveHealth(places, source)
  })
  afterEach(() => {
    for (const one of readers.splice(0)) one.close()
    served.stop()
  })
  async function listen(): Promise<Reader> {
    const one = await readEvents(PORT)
    readers.push(one)
    await until(() => one.state)
    return one
  }

  it('sends at most four changes a second, and the last of them always', async () => {
    const one = await listen()
    const started = performance.now()
    for (let i = 0; i < 200; i++) {
      source.set({ mtu: 2000 + i })
      await Bun.sleep(5)
    }
    await until(() => one.state?.status.mtu === 2199)
    const seconds = (performance.now() - started) / 1000
    const count = one.names.length
    assert.ok(count >= 3 && count <= 4 * seconds + 2, `${count} messages in ${seconds} s`)
  })
  it('sends nothing again, and a beat when nothing has changed', async () => {
    const one = await listen()
    source.set({})
    await until(() => one.names.length > 1, 20_000)
    assert.deepEqual(one.names, ['whole', 'beat'])
  })
  it('follows the source once for all who listen, and not at all when the last one has gone', async () => {
    assert.equal(source.followers, 0)
    const [one, two] = [await listen(), await listen()]
    assert.equal(source.followers, 1)
    one.close()
    source.set({ node: 'later' })
    await until(() => two.state?.status.node === 'later')
    assert.equal(source.followers, 1)
    two.close()
    await until(() => source.followers === 0)
    const three = await listen()
    assert.deepEqual([three.state?.status.node, source.followers], ['later', 1])
  })
  it('refuses the seventeenth who listens, until another has gone', async () => {
    for (let i = 0; i < 16; i++) await listen()
    const more = await fetch(`http://127.0.0.1:${PORT}/events`)
    assert.deepEqual([more.status, more.headers.get('retry-after')], [503, '5'])
    readers[0]?.close()
    await until(async () => {
      const again = await fetch(`http://127.0.0.1:${PORT}/events`)
      await again.body?.cancel()
      return again.status === 200
    })
  })
  it('ends cleanly with the agent, and when the source ends', async () => {
    const one = await listen()
    source.end()
    await until(() => one.hasEnded)
    const two = await listen()
    served.stop()
    await until(() => two.hasEnded)
    assert.equal(source.followers, 0)
  })
})
