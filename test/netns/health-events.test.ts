// Tests agent/http.
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { serveHealth } from '../../agent/http/server.ts'
import type { Status } from '../../agent/state/status.ts'
import { until } from '../support/harness.ts'
import { peers, type Scripted, scripted } from '../support/scripted.ts'

const PORT = 10_256
const places = { address: '127.0.0.1', port: PORT, socket: '/run/plumb/agent.sock' }

/** A client that keeps what it gets; `pause` leaves it in the kernel. */
interface Client {
  readonly socket: Socket
  /** The beginning of it, as it came. */
  text(): string
  readonly events: readonly Event[]
  /** The server has ended it, and not within an event. */
  readonly ended: boolean
}
interface Event {
  readonly name: string
  readonly id: number
  readonly data: Status
}

describe('/events', () => {
  let source: Scripted
  let served: { stop(): void }
  const clients: Client[] = []
  beforeEach(async () => {
    source = scripted({ node: 'first' })
    served = await serveHealth(places, source)
  })
  afterEach(() => {
    for (const { socket } of clients.splice(0)) socket.destroy()
    served.stop()
  })
  function listen(): Client {
    const one = client()
    clients.push(one)
    return one
  }

  it('tells the status at once, with the time, and then every change', async () => {
    const before = Date.now()
    const one = listen()
    const first = await until(() => one.events[0])
    assert.ok(first)
    assert.equal(first.name, 'status')
    assert.deepEqual(first.data, JSON.parse(JSON.stringify(source.status())))
    assert.ok(first.id >= before && first.id <= Date.now())
    source.set({ node: 'second' })
    await until(() => one.events.at(-1)?.data.node === 'second')
    assert.equal(one.events.length, 2)
    assert.match(one.text(), /^HTTP\/1\.1 200 OK\r\nContent-Type: text\/event-stream\r\n/)
  })
  it('tells at most four a second, and the last of them always', async () => {
    const one = listen()
    await until(() => one.events.length === 1)
    const started = performance.now()
    for (let i = 0; i < 200; i++) {
      source.set({ mtu: 2000 + i })
      await Bun.sleep(5)
    }
    await until(() => one.events.at(-1)?.data.mtu === 2199)
    const seconds = (performance.now() - started) / 1000
    const count = one.events.length
    assert.ok(count >= 3 && count <= 4 * seconds + 2, `${count} events in ${seconds} s`)
  })
  it('tells nothing again that it has told, and beats when there is nothing to tell', async () => {
    const one = listen()
    await until(() => one.events.length === 1)
    source.set({})
    const second = await until(() => one.events[1], 20_000)
    assert.equal(second?.name, 'beat')
    assert.match(one.text(), /^: still here$/m)
  })
  it('a client that takes nothing gets the newest when it does, not all that was meanwhile; the others wait for none', async () => {
    const slow = listen()
    const quick = listen()
    await until(() => slow.events.length === 1 && quick.events.length === 1)
    slow.socket.pause()
    source.set({ peers: peers(20_000) })
    for (let i = 0; i < 5; i++) {
      source.set({ mtu: 3000 + i })
      await until(() => quick.events.at(-1)?.data.mtu === 3000 + i, 15_000)
    }
    slow.socket.resume()
    await until(() => slow.events.at(-1)?.data.mtu === 3004, 15_000)
    assert.ok(slow.events.length < quick.events.length, `${slow.events.length} of ${quick.events.length}`)
  })
  it('follows the source once for all who listen, and not at all when the last one has gone', async () => {
    assert.equal(source.followers, 0)
    const [one, two] = [listen(), listen()]
    await until(() => one.events.length === 1 && two.events.length === 1)
    assert.equal(source.followers, 1)
    one.socket.destroy()
    source.set({ node: 'later' })
    await until(() => two.events.at(-1)?.data.node === 'later')
    assert.equal(source.followers, 1)
    two.socket.destroy()
    await until(() => source.followers === 0)
    const three = listen()
    await until(() => three.events[0]?.data.node === 'later' && source.followers === 1)
  })
  it('the seventeenth is refused, and let in when another has gone', async () => {
    for (let i = 0; i < 16; i++) listen()
    await until(() => clients.every((one) => one.events.length === 1))
    const more = await fetch(`http://127.0.0.1:${PORT}/events`)
    assert.deepEqual([more.status, more.headers.get('retry-after')], [503, '5'])
    clients[0]?.socket.destroy()
    await until(async () => {
      const again = await fetch(`http://127.0.0.1:${PORT}/events`)
      await again.body?.cancel()
      return again.status === 200
    })
  })
  it('ends cleanly with the agent, and when the source ends', async () => {
    const one = listen()
    await until(() => one.events.length === 1)
    source.end()
    await until(() => one.ended)
    const two = listen()
    await until(() => two.events.length === 1)
    served.stop()
    await until(() => two.ended)
    assert.equal(source.followers, 0)
  })
})

function client(): Client {
  const events: Event[] = []
  let text = ''
  let rest = ''
  let ended = false
  const socket = connect(PORT, '127.0.0.1', () => socket.write('GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'))
  socket.setEncoding('utf8')
  socket.on('data', (more) => {
    text = (text + more).slice(0, 100_000)
    const parts = (rest + more).split('\n\n')
    rest = parts.pop() ?? ''
    for (const part of parts) {
      const [, name = '', id, data = ''] = /^event: (.*)\nid: (.*)\ndata: (.*)$/m.exec(part) ?? []
      events.push({ name, id: Number(id), data: JSON.parse(data) })
    }
  })
  socket.on('end', () => {
    ended = rest === ''
  })
  socket.on('error', () => {})
  return {
    socket,
    events,
    text: () => text,
    get ended() {
      return ended
    },
  }
}
