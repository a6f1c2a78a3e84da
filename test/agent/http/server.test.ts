// lane: netns
// Tests agent/http.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { deflateRawSync } from 'node:zlib'
import { execa } from 'execa'
import { serveHealth } from '../../../agent/http/server.ts'
import { NoAnswerError } from '../../../agent/node/own-program.ts'
import { keepFailures } from '../../../agent/scheduler/failures.ts'
import { listen } from '../../../lib/os/http.ts'
import type { CniError } from '../../../lib/text/errors.ts'
import { exposition, value } from '../../support/exposition.ts'
import { until } from '../../support/harness.ts'
import { peers, type Scripted, scripted } from '../../support/scripted.ts'

const SOCKET = '/run/plumb/agent.sock'
const PORT = 10_256
const URL = `http://127.0.0.1:${PORT}`
/** An address of the node that other machines reach. */
const OUTER = '192.0.2.77'
const OUTER_URL = `http://${OUTER}:${PORT}`
const places = { address: '127.0.0.1', port: PORT, socket: SOCKET }

describe('serveHealth()', () => {
  let source: Scripted
  let served: { stop(): void }
  beforeEach(async () => {
    source = scripted()
    served = await serveHealth(places, source)
  })
  afterEach(() => served.stop())

  it('/healthz says in its first line what flannel says, as long as every part lives', async () => {
    const answer = await fetch(`${URL}/healthz`)
    assert.deepEqual([answer.status, await answer.text()], [200, 'flanneld is running\nplumb 0.1.0\n'])
    source.set({ ready: false })
    source.stuck(performance.now() - 30_000)
    assert.equal((await fetch(`${URL}/healthz`)).status, 200)
    source.stuck(performance.now() - 61_000)
    const dead = await fetch(`${URL}/healthz`)
    assert.deepEqual([dead.status, await dead.text()], [503, 'the part peers has been in one step for 61 s\n'])
    assert.equal((await fetch(`${URL}/readyz`)).status, 503)
  })
  it('/readyz is 503 until the first full sync, and with reasons, one a line, when the data path is not what it should be', async () => {
    const ask = async () => {
      const answer = await fetch(`${URL}/readyz`)
      return [answer.status, await answer.text()]
    }
    source.set({ ready: false })
    assert.deepEqual(await ask(), [503, 'the first full sync is not done\n'])
    source.set({ ready: true })
    assert.deepEqual(await ask(), [200, 'ready\n'])
    source.set({ ready: false, reasons: ['2 routes are missing', 'ip said:\nnot permitted'] })
    assert.deepEqual(await ask(), [503, '2 routes are missing\nip said: not permitted\n'])
  })
  it('/readyz is 200 for a node that is degraded, with what is wrong, one a line; and says that too of one that is not ready', async () => {
    const ask = async () => {
      const answer = await fetch(`${URL}/readyz`)
      return [answer.status, await answer.text()]
    }
    source.set({ degraded: ['a peer does\nnot answer', 'the store is away'] })
    assert.deepEqual(await ask(), [200, 'degraded: a peer does not answer\ndegraded: the store is away\n'])
    source.set({ ready: false, reasons: ['no uplink'] })
    assert.deepEqual(await ask(), [503, 'no uplink\ndegraded: a peer does not answer\ndegraded: the store is away\n'])
  })
  it('/metrics is valid exposition of what is so now, with the process’s own figures', async () => {
    const answer = await fetch(`${URL}/metrics`)
    assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8')
    const found = exposition(await answer.text())
    assert.equal(value(found, 'plumb_leases'), 4)
    assert.ok(
      value(found, 'process_resident_memory_bytes') > 1e6 &&
        value(found, 'process_open_fds') >= 3 &&
        value(found, 'process_max_fds') > value(found, 'process_open_fds') &&
        value(found, 'process_virtual_memory_bytes') > value(found, 'process_resident_memory_bytes') &&
        value(found, 'process_cpu_seconds_total') > 0,
    )
    source.set({ peers: [] })
    assert.equal(value(exposition(await (await fetch(`${URL}/metrics`)).text()), 'plumb_leases'), 1)
  })
  it('/status is the status as JSON, on the port and on the socket', async () => {
    const all = [
      await (await fetch(`${URL}/status`)).json(),
      await (await fetch('http://agent/status', { unix: SOCKET })).json(),
    ]
    for (const found of all) assert.deepEqual(found, JSON.parse(JSON.stringify(source.status())))
  })
  it('a status that cannot be had is a 500 that says so, and the next one is answered', async () => {
    const status = source.status
    source.status = () => {
      throw new Error('no memory')
    }
    const answer = await fetch(`${URL}/status`)
    assert.deepEqual([answer.status, await answer.text()], [500, 'Cannot answer: no memory\n'])
    source.status = status
    assert.equal((await fetch(`${URL}/status`)).status, 200)
  })
  it('every answer forbids what a page does not need, and everything but GET is refused', async () => {
    for (const path of ['/', '/page.js', '/page.css', '/icon.svg', '/status', '/metrics', '/healthz', '/nothing']) {
      const { status, headers } = await fetch(`${URL}${path}?x=1`)
      assert.equal(status, path === '/nothing' ? 404 : 200, path)
      assert.match(headers.get('content-security-policy') ?? '', /^default-src 'self';/)
      assert.equal(headers.get('x-content-type-options'), 'nosniff')
    }
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD']) {
      const answer = await fetch(`${URL}/status`, { method, ...(method === 'POST' && { body: 'x'.repeat(1_000_000) }) })
      assert.deepEqual([answer.status, answer.headers.get('allow')], [405, 'GET'], method)
    }
  })
  it('the port refuses what changes something, also with metrics alone; the socket takes it', async () => {
    let turned = 0
    source.rotate = () => `key ${++turned}`
    const post = { method: 'POST' }
    const order = '/wireguard/rotate'
    const answer = await fetch(`${URL}${order}`, post)
    assert.deepEqual([answer.status, answer.headers.get('allow')], [405, 'GET'])
    const probes = await serveHealth({ ...places, port: PORT + 1, probesOnly: true, socket: '/run/other.sock' }, source)
    try {
      assert.equal((await fetch(`http://127.0.0.1:${PORT + 1}${order}`, post)).status, 405)
    } finally {
      probes.stop()
    }
    assert.equal(turned, 0)
    const taken = await fetch(`http://agent${order}`, { ...post, unix: SOCKET })
    assert.deepEqual([taken.status, await taken.json()], [200, { publicKey: 'key 1' }])
  })
  it('a page of another name that leads to 127.0.0.1 gets nothing (DNS rebinding)', async () => {
    const status = async (host: string) => (await fetch(`${URL}/status`, { headers: { Host: host } })).status
    assert.deepEqual(
      await Promise.all(['evil.example', 'evil.example:10256', '127.0.0.1.evil.example', '10.0.0.1'].map(status)),
      [421, 421, 421, 421],
    )
    assert.deepEqual(
      await Promise.all(['localhost', 'LOCALHOST:80', '127.0.0.1:10256', '[::1]:10256'].map(status)),
      [200, 200, 200, 200],
    )
  })
  it('requests that are none are refused, and nothing else is disturbed', async () => {
    const wrong: [string, RegExp][] = [
      ['\x00\x01\x02\x03\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET / HTTP/9\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['get / HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET http://[ HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET /status HTTP/1.1\r\nHost : evil.example\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET /status HTTP/1.1\r\nHost:\r\n evil.example\r\n\r\n', /^HTTP\/1\.1 400 /],
      ['GET /__proto__ HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 404 /],
      ['GET /%00%zz/../../etc/passwd HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 404 /],
      [`GET /${'a'.repeat(100_000)} HTTP/1.1\r\n\r\n`, /^HTTP\/1\.1 431 /],
      [`GET / HTTP/1.1\r\n${'X: y\r\n'.repeat(5000)}`, /^HTTP\/1\.1 431 /],
      ['GET /readyz HTTP/1.0\n\n', /^HTTP\/1\.1 200 [\s\S]*\r\nready\n$/],
      ['GET /readyz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 200 (?:(?!HTTP)[\s\S])*\r\nready\n$/],
    ]
    for (const [text, answer] of wrong) assert.match(await raw(text), answer, JSON.stringify(text.slice(0, 60)))
    assert.equal((await fetch(`${URL}/healthz`)).status, 200)
  })
  it('two thousand silent connections shut nobody out and take few file descriptors; one that says nothing is closed', async () => {
    const flood = Bun.spawn([process.execPath, '-e', FLOOD, `${PORT}`, '2000'], { stdout: 'pipe', stderr: 'inherit' })
    try {
      const { value: said } = await flood.stdout.getReader().read()
      assert.match(new TextDecoder().decode(said), /flooded/)
      const before = readdirSync('/proc/self/fd').length
      assert.ok(before < 320, `${before} file descriptors`)
      assert.deepEqual(
        [(await fetch(`${URL}/readyz`)).status, (await fetch('http://agent/readyz', { unix: SOCKET })).status],
        [200, 200],
      )
      await until(() => readdirSync('/proc/self/fd').length < 40, 10_000)
    } finally {
      flood.kill()
    }
  })
  it('a crowd that asks at once is answered, beside clients that are slow to ask and clients that say nothing', async () => {
    const silent = Array.from({ length: 30 }, () => connect(PORT, '127.0.0.1').on('error', () => {}))
    const slow = Array.from({ length: 30 }, () => slowly('GET /readyz HTTP/1.1\r\n', '\r\n'))
    try {
      for (const socket of silent) await until(() => !socket.connecting)
      const begun = await Promise.all(slow.map(({ begun }) => begun))
      for (let round = 0; round < 3; round++) {
        const crowd = Bun.spawn([process.execPath, '-e', CROWD, `${PORT}`, '100'], {
          stdout: 'pipe',
          stderr: 'inherit',
        })
        assert.equal(await new Response(crowd.stdout).text(), '100 answered, 0 not\n')
      }
      for (const finish of begun) assert.match(await finish(), /^HTTP\/1\.1 200 [\s\S]*\r\nready\n$/)
    } finally {
      for (const socket of silent) socket.destroy()
    }
  })
  it('a crowd that takes nothing of a long answer gets 64 of them at most, the others are told to come again, and short ones are answered', async () => {
    const long = 'x'.repeat(16 * 1024 * 1024)
    const bytes = new TextEncoder().encode(long)
    const reply = (body: string | Uint8Array) => ({ status: 200, type: 'text/plain', body })
    const { stop } = listen({ hostname: '127.0.0.1', port: PORT + 1 }, ({ path }) =>
      reply(path === '/long' ? bytes : 'short'),
    )
    const crowd = Array.from({ length: 100 }, () => unread(PORT + 1, '/long'))
    try {
      await until(() => crowd.every(({ socket }) => !socket.connecting))
      for (let i = 0; i < 5; i++) assert.equal(await (await fetch(`http://127.0.0.1:${PORT + 1}/`)).text(), 'short')
      await until(async () => (await (await fetch(`http://127.0.0.1:${PORT + 1}/long`)).text()) === long)
      for (const { socket } of crowd) socket.resume()
      const answers = await Promise.all(crowd.map(({ answer }) => answer))
      const whole = answers.filter((text) => text.endsWith(long))
      const told = answers.filter((text) => /^HTTP\/1\.1 503 [\s\S]*\r\nRetry-After: 1\r\n/.test(text))
      assert.ok(whole.length <= 64, `${whole.length} whole, ${told.length} told to come again`)
    } finally {
      for (const { socket } of crowd) socket.destroy()
      stop()
    }
  })
  it('connections that have their answer and stay open, and those that do not receive it, shut nobody out', async () => {
    for (const path of ['/healthz', '/status']) {
      source.set({ peers: peers(5000) })
      const sockets = Array.from({ length: 150 }, () => {
        const socket = connect(PORT, '127.0.0.1', () => socket.write(`GET ${path} HTTP/1.1\r\n\r\n`))
        return socket.on('error', () => {}).pause()
      })
      try {
        await until(() => sockets.every(({ connecting }) => !connecting))
        for (let i = 0; i < 5; i++) {
          assert.equal((await fetch(`${URL}/healthz`)).status, 200, path)
          // Until one of the others has taken nothing for a moment.
          await until(async () => {
            const answer = await fetch(`${URL}/status`)
            return answer.status === 200 && JSON.parse(await answer.text()).peers.length === 5000
          })
        }
      } finally {
        for (const socket of sockets) socket.destroy()
      }
    }
  })
  it('comparisons and cells of policies take turns and a tenth of a core, and a crowd that asks for them is told to come again', async () => {
    const { promise: asked, resolve } = Promise.withResolvers<number>()
    let done = 0
    // The work is done elsewhere, and the agent waits for it.
    const work = async () => {
      if (done++ === 0) resolve(performance.now())
      await new Promise((over) => setTimeout(over, 30))
    }
    Object.assign(source, { policyComparison: work, policyCell: work })
    const draft = 'kind: NetworkPolicy\nmetadata: {name: a, namespace: x}\nspec: {podSelector: {}}'
    const paths = [`/policy/compare?drafts=${deflateRawSync(draft).toString('base64url')}`, '/policy/cell?from=x&to=y']
    const crowd = Array.from({ length: 20 }, async (_, i) => (await fetch(`${URL}${paths[i % 2]}`)).status)
    const begun = await asked
    assert.equal((await fetch(`${URL}/healthz`)).status, 200)
    const statuses = (await Promise.all(crowd)).sort()
    const tookMs = performance.now() - begun
    const told = statuses.filter((status) => status === 200).length
    assert.ok(told >= 8 && told < 20, `${statuses}`)
    assert.deepEqual([...new Set(statuses)], [200, 503])
    assert.equal(done, told)
    // Each but the last one is followed by a pause of nine times its 30 ms.
    assert.ok(tookMs > (told - 1) * 300, `${tookMs} ms for ${told}`)
  })
  it('a question about policies without an answer is told why, and what helps', async () => {
    source.policyMatrix = () => Promise.reject(new NoAnswerError('it takes longer than 60 s', 'want fewer policies'))
    const reply = await fetch(`${URL}/policy/matrix`)
    assert.equal(reply.status, 503)
    assert.equal(await reply.text(), 'Cannot compute the answer: it takes longer than 60 s; want fewer policies\n')
  })
  it('the socket is for root alone, in a folder that all may see, and goes when the agent goes', () => {
    assert.deepEqual([statSync(SOCKET).mode & 0o777, statSync('/run/plumb').mode & 0o777], [0o600, 0o755])
    served.stop()
    assert.equal(existsSync(SOCKET), false)
  })
  it('a second agent is refused, and the first one goes on', async () => {
    await assert.rejects(
      serveHealth(places, source),
      (cause: CniError) =>
        cause.code === 11 &&
        /^Cannot listen on \/run\/plumb\/agent.sock: an agent answers there already$/.test(cause.message),
    )
    assert.equal((await fetch('http://agent/readyz', { unix: SOCKET })).status, 200)
  })
})

describe('serveHealth() at its places', () => {
  before(() => execa('ip', ['addr', 'replace', `${OUTER}/32`, 'dev', 'lo']))
  it('port 0 is no port, the socket of a killed agent is taken over', async () => {
    const dead = Bun.spawn(
      [process.execPath, '-e', `Bun.listen({ unix: '/run/dead.sock', socket: { data() {} } }); console.log('up')`],
      { stdout: 'pipe' },
    )
    await dead.stdout.getReader().read()
    dead.kill('SIGKILL')
    await dead.exited
    assert.ok(existsSync('/run/dead.sock'))
    const served = await serveHealth({ ...places, port: 0, socket: '/run/dead.sock' }, scripted())
    try {
      assert.equal((await fetch('http://agent/readyz', { unix: '/run/dead.sock' })).status, 200)
      await assert.rejects(fetch(`${URL}/readyz`))
    } finally {
      served.stop()
    }
  })
  for (const [what, address, message] of [
    ['another program has', '127.0.0.1', 'Cannot listen on 127.0.0.1 port 10256: another program listens there'],
    [
      'is at an address that the node does not have',
      '203.0.113.9',
      'Cannot listen on 203.0.113.9 port 10256: the node does not have this address',
    ],
  ] as const)
    it(`a status port that ${what} is reported, the socket answers, and the port does as soon as it can be had`, async () => {
      const other = address === '127.0.0.1' ? createServer().listen(PORT, address) : undefined
      const failures = keepFailures(() => {})
      const served = await serveHealth({ ...places, address }, scripted(), failures)
      try {
        assert.equal((await fetch('http://agent/readyz', { unix: SOCKET })).status, 200)
        assert.deepEqual(failures.all(), [{ scope: 'part', text: message }])
        if (!other) return
        other.close()
        await until(() => failures.all().length === 0, 20_000)
        assert.equal((await fetch(`${URL}/readyz`)).status, 200)
      } finally {
        other?.close()
        served.stop()
      }
      assert.equal(existsSync(SOCKET), false)
    })
  it('where flannel’s flags let it listen on any address it serves probes and metrics, and not the page', async () => {
    const served = await serveHealth({ ...places, address: '0.0.0.0', probesOnly: true }, scripted())
    try {
      for (const path of ['/healthz', '/readyz', '/metrics'])
        assert.equal((await fetch(`${OUTER_URL}${path}`)).status, 200, path)
      for (const path of ['/', '/page.js', '/status']) {
        const answer = await fetch(`${OUTER_URL}${path}`)
        assert.equal(answer.status, 403, path)
        assert.match(
          await answer.text(),
          /is not served at this address, only \/healthz, \/readyz, \/metrics; --status-token-file=FILE serves all to a client/,
        )
      }
      assert.equal((await fetch('http://agent/status', { unix: SOCKET })).status, 200)
    } finally {
      served.stop()
    }
  })
  it('at another address the token opens everything, and without it there are metrics alone', async () => {
    const token = 'a-token-of-some-length'
    const served = await serveHealth({ ...places, address: '0.0.0.0', probesOnly: true, token }, scripted())
    try {
      const ask = async (path: string, authorization?: string) => {
        const headers = authorization === undefined ? {} : { Authorization: authorization }
        const answer = await fetch(`${OUTER_URL}${path}`, { headers })
        await answer.text()
        return [answer.status, answer.headers.get('www-authenticate')]
      }
      for (const path of ['/healthz', '/readyz', '/metrics']) assert.deepEqual(await ask(path), [200, null], path)
      for (const path of ['/', '/status', '/pods', '/log', '/events'])
        for (const given of [undefined, 'Bearer wrong', `Basic ${token}`, `Bearer ${token}x`, 'Bearer'])
          assert.deepEqual(await ask(path, given), [401, 'Bearer realm="plumb"'], `${path} ${given}`)
      assert.deepEqual(await ask('/status', `Bearer ${token}`), [200, null])
      assert.deepEqual(await ask('/', `bearer ${token}`), [200, null])
    } finally {
      served.stop()
    }
  })
  it('also there, who asks on the loopback address gets all, as of a port there; under another name, or with a loopback address as only one end, it is metrics alone', async () => {
    for (const address of ['0.0.0.0', '::']) {
      const served = await serveHealth({ ...places, address, probesOnly: true }, scripted())
      try {
        for (const at of [URL, `http://127.0.0.9:${PORT}`]) {
          assert.equal((await fetch(`${at}/summary`)).status, 200, `${address} ${at}`)
          for (const host of ['evil.example', OUTER])
            assert.equal((await fetch(`${at}/summary`, { headers: { Host: host } })).status, 403, `${at} ${host}`)
        }
        if (address === '::') assert.equal((await fetch(`http://[::1]:${PORT}/summary`)).status, 200)
        const headers = { Host: '127.0.0.1' }
        assert.equal((await fetch(`${OUTER_URL}/summary`, { headers })).status, 403)
        const half = await execa('curl', [
          '-s',
          '--interface',
          '127.0.0.1',
          '-H',
          'Host: localhost',
          `${OUTER_URL}/summary`,
        ])
        assert.match(half.stdout, /^\/summary is not served at this address/)
      } finally {
        served.stop()
      }
    }
  })
  it('says what is wrong with a socket, and leaves nothing open', async () => {
    writeFileSync('/run/file', '')
    const wrong: [Partial<typeof places>, RegExp][] = [
      [{ socket: '/run/file/agent.sock' }, /^Cannot listen on \/run\/file\/agent\.sock: /],
      [{ socket: `/run/${'a'.repeat(200)}` }, /^Cannot listen on \/run\/a+: /],
    ]
    try {
      for (const [change, message] of wrong) {
        await assert.rejects(serveHealth({ ...places, ...change }, scripted()), { name: 'CniError', message })
        assert.equal(existsSync(SOCKET), false)
      }
    } finally {
      rmSync('/run/file')
    }
  })
})

function raw(text: string): Promise<string> {
  return new Promise((resolve) => {
    let said = ''
    const socket = connect(PORT, '127.0.0.1', () => socket.write(text))
    socket.on('data', (bytes) => {
      said += bytes
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(said))
  })
}

// A client that sends the first part of its request, and the rest when it is told to.
function slowly(first: string, rest: string): { readonly begun: Promise<() => Promise<string>> } {
  return {
    begun: new Promise((resolve) => {
      let said = ''
      const socket = connect(PORT, '127.0.0.1', () => socket.write(first, () => resolve(finish)))
      const ended = new Promise<string>((done) => socket.on('close', () => done(said)))
      socket.on('data', (bytes) => {
        said += bytes
      })
      socket.on('error', () => {})
      const finish = () => {
        socket.write(rest)
        return ended
      }
    }),
  }
}

// A client that asks and reads nothing until it is told to.
function unread(port: number, path: string): { readonly socket: Socket; readonly answer: Promise<string> } {
  const socket = connect(port, '127.0.0.1', () => socket.write(`GET ${path} HTTP/1.1\r\n\r\n`))
  socket.on('error', () => {}).pause()
  const pieces: Buffer[] = []
  const answer = new Promise<string>((resolve) => {
    socket.on('close', () => resolve(Buffer.concat(pieces).toString()))
  })
  socket.on('data', (bytes) => pieces.push(Buffer.from(bytes))).pause()
  return { socket, answer }
}

const CROWD = `
const [port, count] = process.argv.slice(1)
const net = require('node:net')
let [answered, left] = [0, Number(count)]
for (let i = 0; i < count; i++) {
  let said = ''
  const socket = net.connect(port, '127.0.0.1', () => socket.write('GET /readyz HTTP/1.1\\r\\n\\r\\n'))
  socket.on('data', (bytes) => { said += bytes })
  socket.on('error', () => {})
  socket.on('close', () => {
    if (/^HTTP.1.1 200 (.|\\s)*ready\\n$/.test(said)) answered++
    if (--left === 0) console.log(answered + ' answered, ' + (count - answered) + ' not')
  })
}`

const FLOOD = `
const [port, count] = process.argv.slice(1)
const net = require('node:net')
let left = Number(count)
const done = () => { if (--left === 0) console.log('flooded') }
for (let i = 0; i < count; i++) { const socket = net.connect(port, '127.0.0.1'); socket.on('error', () => {}); let once = () => { once = () => {}; done() }; socket.on('connect', () => once()); socket.on('close', () => once()) }
setInterval(() => {}, 1000)`
