// lane: netns
// Tests agent/http.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { execa } from 'execa'
import { serveHealth } from '../../agent/http/server.ts'
import { until } from '../support/harness.ts'
import { conforms } from '../support/schemas.ts'
import { peers, type Scripted, scripted } from '../support/scripted.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const SOCKET = '/run/plumb/agent.sock'

describe('plumb status and plumb leases', () => {
  let source: Scripted
  let served: { stop(): void } | undefined
  async function serve(): Promise<void> {
    source = scripted({
      peers: peers(2).map((peer, i) => (i === 1 ? { ...peer, problem: 'not on a link of this node' } : peer)),
    })
    served = await serveHealth({ address: '127.0.0.1', port: 0, socket: SOCKET }, source)
  }
  afterEach(() => {
    served?.stop()
    served = undefined
  })

  it('ask the agent of the node, and exit 0 when it is ready, 1 when it is not, 3 when it is degraded', async () => {
    await serve()
    const ready = await plumb('status')
    assert.equal(ready.exitCode, 0)
    assert.match(ready.stdout, /^node-0 is ready\n\nagent .*\npeers +2, 1 unreachable \(see: plumb leases\)\n/s)
    source.set({ degraded: ['node-2 does not answer'] })
    const degraded = await plumb('status')
    assert.deepEqual(
      [degraded.exitCode, degraded.stdout.split('\n\n')[0]],
      [3, 'node-0 is degraded:\n  node-2 does not answer'],
    )
    source.set({ ready: false, degraded: [], reasons: ['2 routes are missing'] })
    const not = await plumb('status')
    assert.equal(not.exitCode, 1)
    assert.match(not.stdout, /^node-0 is not ready:\n {2}2 routes are missing\n/)
    const leases = await plumb('leases')
    assert.equal(leases.exitCode, 1)
    assert.match(leases.stdout, /^node-2 .* unreachable: not on a link of this node$/m)
  })
  it('on a terminal lines fit its width and severity has a colour, with NO_COLOR none; a pipe gets whole lines', async () => {
    await serve()
    const sentence =
      'packets of full size do not reach 3 peers, small ones do: a link between the nodes has a smaller MTU'
    source.set({ degraded: [sentence] })
    const onTerminal = async (env: string) =>
      (
        await execa('script', ['-qec', `stty cols 60; exec env ${env} ${PLUMB} status`, '/dev/null'], { reject: false })
      ).stdout.replaceAll('\r', '')
    const [coloured, plain] = [await onTerminal('TERM=xterm'), await onTerminal('NO_COLOR=1')]
    const broken = `  packets of full size do not reach 3 peers, small ones do:\n    a link between`
    assert.ok(coloured.startsWith(`node-0 \x1b[33mis degraded\x1b[0m:\n${broken}`), coloured)
    assert.ok(plain.startsWith(`node-0 is degraded:\n${broken}`), plain)
    for (const text of [plain, stripVTControlCharacters(coloured)])
      assert.deepEqual(
        text.split('\n').filter((line) => line.length > 60),
        [],
      )
    assert.ok((await plumb('status')).stdout.includes(`\n  ${sentence}\n`))
  })
  it('--json is the status as it is, and the leases with this node’s own first', async () => {
    await serve()
    const status = await plumb('status', '--json')
    assert.deepEqual([status.exitCode, JSON.parse(status.stdout)], [0, JSON.parse(JSON.stringify(source.status()))])
    // As kubectl has it.
    for (const words of [['-o', 'json'], ['-ojson'], ['-o=json'], ['--output', 'json'], ['--output=json']])
      assert.deepEqual([...words, (await plumb('status', ...words)).stdout], [...words, status.stdout])
    const yaml = await plumb('status', '-o', 'yaml')
    assert.deepEqual([yaml.exitCode, yaml.stderr.split(';')[0]], [2, 'plumb status has no option -o'])
    const leases = JSON.parse((await plumb('leases', '--json')).stdout)
    conforms('leases', leases)
    assert.deepEqual(
      leases.map(({ node, self, problem, ips }: Record<string, unknown>) => ({ node, self, problem, ips })),
      [
        { node: 'node-0', self: true, problem: undefined, ips: { v4: '192.0.2.1' } },
        { node: 'node-1', self: undefined, problem: undefined, ips: { v4: '198.51.0.1' } },
        { node: 'node-2', self: undefined, problem: 'not on a link of this node', ips: { v4: '198.51.0.2' } },
      ],
    )
  })
  it('exit 2 when no agent answers, with how to start one, on a proxy’s machine too', async () => {
    const none = await plumb('status')
    assert.deepEqual(
      [none.exitCode, none.stderr],
      [2, `Cannot reach the agent at ${SOCKET}: socket not found. Is it running? systemctl start plumb-agent`],
    )
    const json = await plumb('leases', '--json')
    assert.deepEqual([json.exitCode, JSON.parse(json.stdout).code], [2, 7])
    await serve()
    const proxied = await execa(PLUMB, ['status'], {
      reject: false,
      env: { http_proxy: 'http://127.0.0.1:9', HTTP_PROXY: 'http://127.0.0.1:9', ALL_PROXY: 'http://127.0.0.1:9' },
    })
    assert.equal(proxied.exitCode, 0, proxied.stderr)
  })
  it('exit 2 when the agent hangs, after 5 s, or is another program', async () => {
    const other = Bun.listen({
      unix: '/run/other.sock',
      socket: { open: (socket) => void socket.end('SSH-2.0-hello\r\n'), data() {} },
    })
    const mute = Bun.listen({ unix: '/run/mute.sock', socket: { data() {} } })
    const [wrong, hung] = await Promise.all([
      plumb('status', '--socket', '/run/other.sock'),
      plumb('status', '--socket', '/run/mute.sock'),
    ])
    other.stop(true)
    mute.stop(true)
    assert.deepEqual([wrong.exitCode, hung.exitCode], [2, 2])
    assert.match(wrong.stderr, /^Cannot reach the agent at \/run\/other\.sock: /)
    assert.equal(hung.stderr, 'Cannot reach the agent at /run/mute.sock: it has not answered for 5 s; look at its log')
  })
  it('exit 2 when what answers is no status, with --json too; the doctor makes the checks that need none', async () => {
    const path = '/run/stranger.sock'
    for (const [body, why] of [
      ['null', 'no status of plumb: node is missing or wrong'],
      ['[]', 'no status of plumb: node is missing or wrong'],
      ['{"node":"n1","version":"9","state":"well"}', 'no status of plumb: reasons is missing or wrong'],
      ['{"node":', 'no JSON'],
    ] as const) {
      const stranger = Bun.serve({ unix: path, fetch: () => new Response(body) })
      const [text, json, alone] = await Promise.all([
        plumb('status', '--socket', path),
        plumb('leases', '--json', '--socket', path),
        plumb('doctor', 'DR9', '--socket', path),
      ])
      await stranger.stop(true)
      const want = `Cannot reach the agent at ${path}: its answer is ${why}; look which program has made the socket`
      assert.deepEqual([text.exitCode, text.stderr], [2, want])
      assert.deepEqual([json.exitCode, JSON.parse(json.stdout).msg], [2, want])
      assert.deepEqual([alone.exitCode, alone.stdout], [3, `No check was made\n\nnot checked: DR9: ${want}`])
    }
    const gone = Bun.listen({ unix: path, socket: { data: (socket) => void socket.end() } })
    const { exitCode, stderr } = await plumb('status', '--socket', path)
    gone.stop(true)
    assert.equal(exitCode, 2)
    assert.match(stderr, /: it ends the connection without an answer; look at its log$/)
  })
  it('--wait: asks an agent that hangs no second time behind the end of the time', async () => {
    const mute = Bun.listen({ unix: '/run/mute.sock', socket: { data: () => void asked++ } })
    let asked = 0
    const { exitCode } = await plumb('status', '--wait', '1', '--socket', '/run/mute.sock')
    mute.stop(true)
    assert.deepEqual([exitCode, asked], [2, 1])
  })
  it('control characters in the words of others are escaped', async () => {
    await serve()
    source.set({ degraded: ['peer \x1b[2Jx\u202e is silent'] })
    const { stdout } = await plumb('status')
    assert.equal(stdout.split('\n')[1], '  peer \\u001b[2Jx\\u202e is silent')
  })
  it('--wait: ends as soon as the node is ready, also when the agent comes later, and at the end of the time', async () => {
    let isEnded = false
    const coming = plumb('status', '--wait', '30').finally(() => {
      isEnded = true
    })
    await Bun.sleep(700)
    await serve()
    source.set({ ready: false, state: 'not ready', reasons: ['2 routes are missing'] })
    const begun = performance.now()
    const late = await plumb('status', '--wait', '1.2')
    assert.deepEqual([late.exitCode, late.stdout.split('\n')[1]], [1, '  2 routes are missing'])
    assert.ok(performance.now() - begun >= 700)
    assert.ok(!isEnded)
    source.set({ ready: true, state: 'degraded', reasons: [], degraded: ['node-2 does not answer'] })
    assert.equal((await coming).exitCode, 3)
    for (const [words, why] of [
      [['--wait', 'long'], 'Cannot read --wait: "long" is wrong; want a number of seconds from 0 to 86400'],
      [['--wait', '5', '--watch'], 'plumb status takes --wait or --watch, not both; see plumb status --help'],
    ] as const) {
      const wrong = await plumb('status', ...words)
      assert.deepEqual([wrong.exitCode, wrong.stderr], [2, why])
    }
  })
  it('--watch: answers at once and at every change, and tells of an agent that ends and comes back', async () => {
    await serve()
    const watching = plumb('status', '--watch', '--json')
    const [heard, told]: [string[], string[]] = [[], []]
    watching.stdout.on('data', (text) => heard.push(String(text)))
    watching.stderr.on('data', (text) => told.push(String(text)))
    const lines = () => heard.join('').split('\n')
    const states = () => lines().flatMap((text) => (text === '' ? [] : [JSON.parse(text).state]))
    try {
      await until(() => states().length === 1, 10_000)
      source.set({ ready: false, state: 'not ready', reasons: ['2 routes are missing'] })
      await until(() => states().join() === 'ready,not ready', 10_000)
      served?.stop()
      await until(() => /^Cannot reach the agent at .*\n$/.test(told.join('')), 10_000)
      await serve()
      await until(() => states().join() === 'ready,not ready,ready', 10_000)
      assert.equal(told.join('').split('\n').length, 2, told.join(''))
    } finally {
      watching.kill('SIGINT')
    }
    assert.equal((await watching).signal, 'SIGINT')
    const text = plumb('leases', '--watch')
    const shown: string[] = []
    text.stdout.on('data', (piece) => shown.push(String(piece)))
    await until(() => /^\d{4}-\d\d-\d\dT[\d:.]+Z {2}NODE .*\n\n$/s.test(shown.join('')), 10_000)
    text.kill('SIGINT')
    await text
  })
  it('plumb wireguard rotate: prints the new key, and exits 2 with the sentence of an agent that refuses', async () => {
    await serve()
    const none = await plumb('wireguard', 'rotate')
    const said = `The agent at ${SOCKET} answers 404: the backend of this node has no keys; want wireguard`
    assert.deepEqual([none.exitCode, none.stderr], [2, said])
    let turns = 0
    source.rotate = () => `key ${++turns}`
    const done = await plumb('wireguard', 'rotate', '--json')
    assert.deepEqual([done.exitCode, JSON.parse(done.stdout)], [0, { publicKey: 'key 1' }])
    source.rotate = () => {
      throw new Error('Cannot write /var/lib/plumb/wireguard-n1.key: no space left on device')
    }
    const full = await plumb('wireguard', 'rotate')
    assert.deepEqual(
      [full.exitCode, full.stderr],
      [2, `The agent at ${SOCKET} answers 500: Cannot write /var/lib/plumb/wireguard-n1.key: no space left on device`],
    )
    assert.equal(turns, 1)
  })
  it('exit 2 for a command line that is wrong, and tell how they are used', async () => {
    for (const name of ['status', 'leases']) {
      const wrong = await plumb(name, '--sokcet', 'x')
      assert.deepEqual(
        [wrong.exitCode, wrong.stderr],
        [2, `plumb ${name} has no option --sokcet, did you mean "--socket"?; see plumb ${name} --help`],
      )
      const word = await plumb(name, 'now')
      assert.deepEqual([word.exitCode, word.stderr], [2, `plumb ${name} takes no "now"; see plumb ${name} --help`])
      const help = await plumb(name, '--help')
      assert.equal(help.exitCode, 0)
      assert.match(
        help.stdout,
        new RegExp(`^usage: plumb ${name} .*--socket PATH.*\nexit status: 0 the node is ready`, 's'),
      )
    }
  })
})

describe('an agent that nobody asks', () => {
  it('uses no CPU for it, and at most 64 MB in all, the page having been looked at', async () => {
    const child = Bun.spawn([process.execPath, '-e', AGENTLIKE], { stdout: 'pipe', stderr: 'inherit' })
    try {
      await child.stdout.getReader().read()
      for (const path of ['/', '/page.js', '/metrics', '/status'])
        assert.equal((await fetch(`http://agent${path}`, { unix: '/run/idle.sock' })).status, 200)
      const events = await fetch('http://agent/events', { unix: '/run/idle.sock' })
      await events.body?.cancel()
      const ticks = () =>
        Number(readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(' ')[13]) +
        Number(readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(' ')[14])
      // The engine tidies up after it was used; then there is nothing to do.
      const used = await until(async () => {
        const before = ticks()
        await Bun.sleep(3000)
        return ticks() === before && 'none'
      }, 30_000)
      assert.equal(used, 'none')
      const kb = Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1])
      assert.ok(kb <= 64 * 1024, `${kb} kB`)
    } finally {
      child.kill()
    }
  })
})

const AGENTLIKE = `
import { serveHealth } from '${join(import.meta.dir, '../../agent/http/server.ts')}'
import { scripted } from '${join(import.meta.dir, '../support/scripted.ts')}'
await serveHealth({ address: '127.0.0.1', port: 0, socket: '/run/idle.sock' }, scripted())
console.log('ready')`

function plumb(...argv: string[]) {
  return execa(PLUMB, argv, { reject: false })
}
