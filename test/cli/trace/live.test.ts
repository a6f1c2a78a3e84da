// lane: netns
// Tests cli/trace/live.ts: packets of programs, which a trace waits for.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { patient } from '../../support/patience.ts'
import {
  arrives,
  isLostAt,
  listening,
  live,
  loadElements,
  onNodeWithPods as onNode,
  sh,
  TCP,
  traced,
  waiting,
} from '../../support/traces.ts'

const [A, B, OUT] = ['10.1.0.2', '10.1.0.3', '192.0.2.9'] as const

describe('plumb trace --live', () => {
  it(
    '--live sends nothing, and follows a packet of a program: TCP, UDP, echo requests, both families',
    onNode(async ({ node, a, b }) => {
      const end = await listening(b, TCP)
      try {
        const client = `require('node:net').connect({ host: '${B}', port: 80 }).on('connect', function () { this.destroy() })`
        arrives(await live(node, [A, B, '80'], () => a.exec([process.execPath, '-e', client])))
      } finally {
        end()
      }
      const echo = await live(node, [A, B], () => a.exec(['ping', '-c1', '-W1', B]))
      arrives(echo)
      assert.deepEqual([echo.protocol, echo.port], ['ICMP', 0])
      arrives(await live(node, ['fd01::2', 'fd01::3'], () => a.exec(['ping', '-c1', '-W1', 'fd01::3'])))
      arrives(await live(node, ['node', OUT], () => node.exec(['ping', '-c1', '-W1', OUT])))
      // A datagram without data has no number of its own.
      const datagram = (to: string, port: number, text: string) =>
        `require('node:dgram').createSocket('udp4').send('${text}', ${port}, '${to}', function () { this.close() })`
      for (const text of ['', 'hello, receiver'])
        isLostAt(
          await live(node, [A, B, '54/udp'], () => a.exec([process.execPath, '-e', datagram(B, 54, text)])),
          'receiver',
          /no program listens on UDP port 54/,
          /refuses UDP port 54/,
        )
      // The kernel tells of few packets of a flood, and of the same ones everywhere.
      const flood = Bun.spawn(['nsenter', `--net=${a.path}`, '--', 'ping', '-q', '-f', '-w', '30', B], {
        stdout: 'ignore',
      })
      try {
        arrives(await live(node, [A, B], async () => undefined))
      } finally {
        flood.kill('SIGKILL')
      }
      // Packets to others do not count.
      const other = await live(node, [A, B, '--for', '2'], () => a.exec(['ping', '-c1', '-W1', OUT]))
      assert.deepEqual([other.status, other.hops.length], [4, 0])
      assert.match(other.conclusion, /^No packet from 10\.1\.0\.2 to 10\.1\.0\.3 came within 2 s$/)
    }),
  )
  it(
    '--live says at which hop a packet of a program is lost, and why',
    onNode(async ({ node, a }) => {
      // Links of other tests on this machine have the same names. The size tells these packets from theirs.
      const ping = () => a.exec(['ping', '-c1', '-W1', '-s', '91', OUT])
      const words = [A, OUT, 'icmp'] as const
      await sh(node, 'sysctl -qw net.ipv4.ip_forward=0')
      // The kernel tells of the drops of the whole machine, where other tests drop packets, too.
      const told = async () => {
        const said = await live(node, words, ping)
        return /IP_INADDRERRORS/.test(said.hops.at(-1)?.seen?.says ?? '') ? said : undefined
      }
      const said = (await told()) ?? (await told()) ?? (await live(node, words, ping))
      isLostAt(said, 'route', /does not forward/, /IP_INADDRERRORS/)
      await sh(node, 'sysctl -qw net.ipv4.ip_forward=1; iptables -I FORWARD -s 10.1.0.2 -j DROP')
      isLostAt(
        await live(node, words, ping),
        'rules',
        /chain ip filter FORWARD/,
        /FORWARD drops it: .*10\.1\.0\.2 drop$/,
      )
      await sh(node, 'iptables -F FORWARD; iptables-legacy -I FORWARD -s 10.1.0.2 -j DROP')
      const old = await live(node, words, ping)
      assert.match(old.conclusion, /at exit: .*a rule outside of nft drops it \(NETFILTER_DROP/, JSON.stringify(old))
      await sh(node, 'iptables-legacy -F FORWARD')
      arrives(await live(node, words, ping))
    }),
  )
  it(
    'beside a map of 50,000 elements --live waits after at most 2 seconds, and ends within 2 of the packet',
    onNode(async ({ node, a }) => {
      await loadElements(node, B)
      const started = performance.now()
      let sent = 0
      arrives(
        await live(node, [A, B], async () => {
          sent = performance.now()
          await a.exec(['ping', '-c1', '-W1', B])
        }),
      )
      const times = [sent - started, performance.now() - sent]
      assert.ok(
        times.every((ms) => ms < patient(2000)),
        times.join(),
      )
    }),
  )
  it(
    'a --live that is killed while it waits leaves nothing that the next trace does not remove',
    onNode(async ({ node, a }) => {
      const child = waiting(node, ['--live', A, B])
      await until(async () => (await a.exec(['nft', 'list', 'tables'])).stdout.includes('plumb_trace'))
      child.kill('SIGKILL')
      await child.exited
      arrives(await traced(node, B, A))
    }),
  )
})
