// lane: netns
// Tests cli/top.ts, in a terminal, with agents of the test at the socket and at addresses.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { execa } from 'execa'
import { serveHealth } from '../../../agent/http/server.ts'
import { Recorder } from '../../../agent/state/recorder.ts'
import type { Fleet } from '../../../cli/fleet/fleet.ts'
import { cluster, type Member, silent } from '../../support/fleet.ts'
import { until } from '../../support/harness.ts'
import { kubeServer, refusal } from '../../support/kube-server.ts'
import { inTerminal, type Screen } from '../../support/screen.ts'
import { peers, type Scripted, scripted } from '../../support/scripted.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const SOCKET = '/run/plumb/agent.sock'
const PORT = 9469
const DOWN = '\x1b[B'

describe('plumb top', () => {
  const ends: (() => void)[] = []
  afterEach(() => {
    for (const end of ends.splice(0).reverse()) end()
  })
  function top(argv: readonly string[], options?: Parameters<typeof inTerminal>[1]): Screen {
    const screen = inTerminal([PLUMB, 'top', ...argv], options)
    ends.push(() => screen.close())
    return screen
  }
  /** Waits until the screen has this text. */
  async function sees(screen: Screen, text: string | RegExp): Promise<void> {
    const has = () => (typeof text === 'string' ? screen.text.includes(text) : text.test(screen.text))
    await until(has).catch(() => assert.fail(`no ${text} on the screen:\n${screen.text}`))
  }
  async function lacks(screen: Screen, text: string): Promise<void> {
    await until(() => !screen.text.includes(text)).catch(() => assert.fail(`${text} stays:\n${screen.text}`))
  }

  describe('of one node', () => {
    let source: Scripted
    let recorder: Recorder
    beforeEach(async () => {
      recorder = new Recorder()
      source = scripted({ peers: peers(40), zone: 'a' })
      const pods = [
        { pod: 'shop/web', addresses: [], isClosed: false, ingress: ['shop/allow-web'], egress: [] },
        { pod: 'shop/new', addresses: [], isClosed: true, ingress: [], egress: [] },
      ]
      const served = await serveHealth(
        { address: '127.0.0.1', port: 0, socket: SOCKET },
        { ...source, policy: () => pods, recorder },
      )
      ends.push(() => served.stop())
    })
    const lose = (name: string) =>
      source.set({
        peers: source.status().peers.map((peer) => (peer.node === name ? silent(peer) : peer)),
        degraded: [`no answer over the overlay from ${name}`],
      })

    it('shows the node and its peers, and a lost peer first, within a moment', async () => {
      const screen = top([])
      await sees(screen, 'node-0 is ready; 40 peers, 0 with a problem')
      assert.match(screen.lines[0] ?? '', /^plumb top {2}node-0 {2}\d\d:\d\d:\d\d {2}nodes$/)
      assert.match(screen.text, /^ {2}NODE +STATE +LOST +RTT/m)
      lose('node-33')
      await sees(screen, 'node-0 is degraded: no answer over the overlay from node-33; 40 peers, 1 with a problem')
      await sees(screen, /NODE.*\n. node-0 .*\n✕ node-33 +silent +10 of 10/)
      source.set({ peers: peers(40), degraded: [] })
      await sees(screen, 'node-0 is ready; 40 peers')
      await lacks(screen, '✕')
    })
    it('has the keys: rows, search, problems, sort, views, details, help, pause', async () => {
      lose('node-33')
      const screen = top([])
      await sees(screen, '✕ node-33')
      screen.type('/node-2 !node-2')
      await sees(screen, 'nothing has these words')
      screen.type('\x1b')
      await lacks(screen, 'nothing has these words')
      screen.type('/state:silent\r')
      await sees(screen, '1 of 41 (/state:silent)')
      screen.type('\x1b')
      await sees(screen, /^41 {3}/m)
      screen.type('!')
      await sees(screen, '2 of 41 (problems only)')
      screen.type('!j\r')
      await sees(screen, /state +programmed, but no answer: 10 of 10 probes lost/)
      await sees(screen, 'plumb doctor DR17')
      screen.type('\x1b')
      await sees(screen, '41   ? help')
      screen.type('ssS')
      await sees(screen, 'STATE▼')
      screen.type(':pods\r')
      await sees(screen, /✕ shop\/new +closed +open +open\n {2}shop\/web +known +shop\/allow-web +open/)
      screen.type(':nothing\r')
      await sees(screen, 'there is no view "nothing": want one of nodes, pairs, pods, drops')
      screen.type('4')
      await sees(screen, 'no refused packet in the log')
      recorder.refused('TCP 10.64.1.2:1 → shop/web:80 is refused')
      await sees(screen, /▲ \d\d:\d\d:\d\d +1 +TCP 10\.64\.1\.2:1 → shop\/web:80 is refused/)
      screen.type('2')
      await sees(screen, /✕ node-0 +node-33 +silent/)
      screen.type('?')
      await sees(screen, 'Ctrl-C')
      screen.type('q')
      await lacks(screen, 'Ctrl-C')
      screen.type(' ')
      await sees(screen, 'pairs, paused')
      lose('node-9')
      screen.type('1')
      await sees(screen, 'nodes, paused')
      assert.ok(!screen.text.includes('from node-9'))
      screen.type(' ')
      await sees(screen, 'from node-9')
      screen.type(`gG${DOWN}k`)
      await sees(screen, 'node-40')
      screen.type('q')
      assert.equal(await screen.process.exited, 0)
    })
    it('sends only what differs, follows the size, and needs a size', async () => {
      const screen = top([], { columns: 100, rows: 20 })
      await sees(screen, 'node-0 is ready')
      await sees(screen, 'node-12')
      const before = screen.raw.length
      source.set({ peers: source.status().peers.map((peer) => (peer.node === 'node-3' ? withMs(peer, 77) : peer)) })
      await sees(screen, '77 ms')
      const sent = screen.raw.slice(before)
      assert.ok(!sent.includes('\x1b[2J') && !sent.includes('node-12 '), JSON.stringify(sent))
      screen.resize(60, 10)
      await until(() => screen.lines.length === 10 && /^\d+ {3}/.test(screen.lines[9] ?? ''))
      for (const line of screen.lines) assert.ok(Bun.stringWidth(line) <= 60, line)
      screen.resize(15, 4)
      await sees(screen, 'the terminal i…')
      screen.resize(120, 30)
      await sees(screen, 'node-25')
    })
    it('gives the terminal back, whatever ends it', async () => {
      for (const end of ['q', '\x03', 'SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
        const screen = inTerminal(['sh', '-c', `${PLUMB} top; echo status $?; read line`])
        ends.push(() => screen.close())
        await sees(screen, 'node-0 is ready')
        assert.deepEqual([screen.isOther, screen.isCursorShown], [true, false])
        assert.match(await screen.flags(), /-icanon/)
        if (end.startsWith('SIG')) process.kill(childOf(screen), end as NodeJS.Signals)
        else screen.type(end)
        await until(() => /status \d+/.test(screen.raw))
        assert.deepEqual([screen.isOther, screen.isCursorShown], [false, true], end)
        const status = { q: 0, '\x03': 0, SIGTERM: 143, SIGINT: 130, SIGHUP: 129 }[end]
        assert.match(screen.raw, new RegExp(`status ${status}`))
        const flags = await screen.flags()
        assert.match(flags, / icanon/, end)
        assert.match(flags, / echo /, end)
      }
    }).timeout(60_000)
    it('has no colour with NO_COLOR, and names cannot move the cursor', async () => {
      const hostile = { ...peers(1)[0], node: 'a\x1b[2J\u202eb' }
      source.set({ peers: [hostile as never], degraded: ['x'] })
      const plain = top([], { env: { NO_COLOR: '1' } })
      await sees(plain, 'a\\u001b[2J\\u202eb')
      assert.ok(!plain.raw.includes('\x1b[33m') && !plain.raw.includes('\x1b[31m'))
      const colored = top([])
      await sees(colored, 'a\\u001b')
      assert.ok(colored.raw.includes('\x1b[33m'))
    })
    it('says when the agent is gone, and goes on when it is back', async () => {
      const screen = top([])
      await sees(screen, 'node-0 is ready')
      ends.shift()?.()
      await sees(screen, /as of \d\d:\d\d:\d\d: /)
      const served = await serveHealth({ address: '127.0.0.1', port: 0, socket: SOCKET }, source)
      ends.push(() => served.stop())
      await lacks(screen, 'as of')
    })
    it('prints one look with --once, as text or JSON, and needs a terminal without', async () => {
      lose('node-33')
      const [text, json, piped] = await Promise.all([plumb('--once', 'pairs'), plumb('--once', '--json'), plumb()])
      assert.equal(text.exitCode, 3)
      assert.match(
        text.stdout,
        /^node-0 is degraded: no answer over the overlay from node-33; 40 peers, 1 with a problem\n\n +FROM +TO/,
      )
      assert.match(text.stdout, /\n✕ +node-0 +node-33 +silent +10 of 10/)
      const fleet = JSON.parse(json.stdout) as Fleet
      assert.deepEqual([fleet.nodes[0]?.name, fleet.nodes[0]?.worst?.[0]?.name], ['node-0', 'node-33'])
      assert.deepEqual(
        [piped.exitCode, piped.stderr],
        [2, 'plumb top needs a terminal: --once prints one look as text, --once --json as JSON'],
      )
    })
  })

  it('watches a fleet by addresses: the sentence, the dead first, one way only', async () => {
    const members = cluster(6)
    const [first, , third] = members as [Member, Member, Member]
    first.source.set({
      peers: first.source.status().peers.map((peer) => (peer.node === 'node-3' ? silent(peer) : peer)),
      degraded: ['no answer over the overlay from node-3'],
    })
    for (const { ip, source, name } of members.slice(0, 5)) {
      const served = await serveHealth({ address: ip, port: PORT, socket: `/run/${name}.sock` }, source)
      ends.push(() => served.stop())
    }
    const list = members.map(({ ip }) => ip).join(',')
    const screen = top(['--agents', list], { columns: 160 })
    await sees(screen, '4 of 6 nodes are ready; 1 degraded; 1 does not answer (127.0.1.6:9469: no agent listens there')
    await sees(screen, /packets from node-1 to node-3 are\s+lost one way only/)
    await sees(screen, /NODE.*\n✕ 127\.0\.1\.6:9469 +dead .*connection is refused\n▲ node-1 +a +degraded +4 of 5/)
    screen.type('2')
    await sees(screen, /✕ node-1 +node-3 +silent +10 of 10 .*one way only/)
    screen.type('\r')
    await sees(screen, /back +answers: packets are lost one way only/)
    assert.equal(third.source.status().state, 'ready')
    const done = await plumb('--agents', list, '--once')
    assert.equal(done.exitCode, 3)
    assert.match(done.stdout, /\n✕ +127\.0\.1\.6:9469 +dead/)
  })

  it('watches a cluster by its kubeconfig, and what the role refuses is one sentence', async () => {
    const server = await kubeServer()
    const [member] = cluster(1) as [Member]
    const served = await serveHealth({ address: member.ip, port: PORT, socket: '/run/one.sock' }, member.source)
    ends.push(() => served.stop())
    server.forward = (_, port) => ({ hostname: member.ip, port })
    const headers = { Authorization: 'Bearer secret-of-the-test' }
    const post = (path: string, body: object) =>
      fetch(`${server.url}${path}`, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
        tls: { rejectUnauthorized: false },
      })
    await post('/api/v1/nodes', { metadata: { name: member.name } })
    await post('/api/v1/pods', {
      metadata: { name: 'plumb-agent-x', namespace: 'plumb', labels: { app: 'plumb-agent' } },
      spec: { nodeName: member.name },
    })
    const screen = top(['--kubeconfig', server.kubeconfig, '--context', 'test'], { columns: 160 })
    await sees(screen, '1 of 1 node is ready')
    server.fault = ({ url }) =>
      url.pathname.endsWith('/pods') ? refusal(403, 'Forbidden', 'pods is forbidden') : undefined
    const { exitCode, stdout } = await plumb('--kubeconfig', server.kubeconfig, '--once')
    assert.equal(exitCode, 1)
    assert.match(
      stdout,
      /^0 of 1 node is ready; 1 does not answer \(node-1: its agent is not known\); The Kubernetes API/,
    )
    const wrongContext = await plumb('--kubeconfig', server.kubeconfig, '--context', 'none', '--once')
    assert.match(wrongContext.stderr, /contexts: there is none of the name "none"$/)
  })

  const wrong: [string, RegExp][] = [
    ['podz', /^plumb top takes one of nodes, pairs, pods, drops, not "podz", did you mean "pods"\?; see/],
    ['nodes pods', /not "nodes pods"/],
    ['--json', /^plumb top takes --json with --once only/],
    ['--agents x --socket y', /^plumb top takes one of --agents, --kubeconfig and --socket/],
    ['--agents a:b', /^Cannot read --agents "a:b": want HOST:PORT/],
    ['--kubeconfig /none', /^Cannot use the kubeconfig \/none: Cannot read \/none/],
  ]
  for (const [line, message] of wrong)
    it(`exits 2 for: plumb top ${line}`, async () => {
      const { exitCode, stderr } = await plumb(...line.split(' '))
      assert.equal(exitCode, 2)
      assert.match(stderr, message)
    })
})

async function plumb(...argv: string[]) {
  return execa(PLUMB, ['top', ...argv], { reject: false })
}

function withMs<P extends { readonly probe?: object }>(peer: P, ms: number): P {
  return { ...peer, probe: { ...peer.probe, ms } }
}

// The process that the shell in the terminal waits for.
function childOf({ process: { pid } }: Screen): number {
  const { stdout } = Bun.spawnSync(['ps', '-o', 'pid=', '--ppid', `${pid}`])
  return Number(stdout.toString().trim().split('\n')[0])
}
