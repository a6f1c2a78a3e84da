// lane: netns
// Tests cli/trace/dropped.ts: the packets that a node drops, by reason.
import assert from 'node:assert/strict'
import { until } from '../../support/harness.ts'
import { arrives, dropped, onNodeWithPods as onNode, PLUMB, sh, traced, waiting } from '../../support/traces.ts'

const [A, B, OUT] = ['10.1.0.2', '10.1.0.3', '192.0.2.9'] as const
/** Links of other tests on this machine have the same names. The size tells the packets of this file from theirs. */
const SIZE = ['-s', '33'] as const
/** Tries a connection, and gives up soon. */
const connect = (host: string, port: number) =>
  `const s = require('node:net').connect({ host: '${host}', port: ${port} }); s.on('error', () => {}); setTimeout(() => s.destroy(), 500)`

describe('plumb trace --dropped', () => {
  it(
    'names the hop and the rule for packets that a rule drops, once for each two ends, and counts them',
    onNode(async ({ node, a, b }) => {
      await sh(
        node,
        `iptables -I FORWARD -d ${OUT} -p icmp -j DROP
         nft add table ip strict; nft add chain ip strict in "{ type filter hook input priority 0; }"
         nft add rule ip strict in tcp dport 99 counter drop`,
      )
      const send = async () => {
        for (const pod of [a, b]) await pod.exec(['ping', '-c2', '-i0.2', '-W1', ...SIZE, OUT])
        await a.exec([process.execPath, '-e', connect('10.1.0.1', 99)])
        // This one is not dropped.
        await a.exec(['ping', '-c1', '-W1', ...SIZE, B])
      }
      const all = await dropped(node, ['--for', '5'], send)
      const lines = all.dropped.map(({ source, destination, protocol, port, hop, reason }) =>
        [source, destination, protocol, port, hop, reason].join(' '),
      )
      assert.deepEqual(lines.sort(), [
        '10.1.0.2 10.1.0.1 TCP 99 rules the chain ip strict in drops it: tcp dport 99 drop',
        ...[A, B].map(
          (pod) => `${pod} ${OUT} ICMP 0 rules the chain ip filter FORWARD drops it: ${lines[1]?.split(': ')[1]}`,
        ),
      ])
      assert.match(lines[1] ?? '', /192\.0\.2\.9 .*drop$/)
      assert.deepEqual([all.status, all.seconds, all.others], [1, 5, 0])
      assert.ok(all.dropped.filter(({ protocol }) => protocol === 'ICMP').every(({ count }) => count === 2))
      const one = await dropped(node, ['--for', '3', B, OUT, 'icmp'], send)
      assert.deepEqual(
        one.dropped.map(({ source, count }) => [source, count]),
        [[B, 2]],
      )
    }),
  )
  it(
    "names the kernel's reason where no rule drops the packets, and nothing on a healthy node",
    onNode(async ({ node, a, b }) => {
      const send = async () => {
        await Promise.all([a, b].map((pod) => pod.exec(['ping', '-c2', '-i0.2', '-W1', ...SIZE, OUT])))
        await a.exec(['ping', '-c1', '-W1', ...SIZE, B])
      }
      const none = await dropped(node, ['--for', '3'], send)
      assert.deepEqual([none.status, none.dropped], [0, []])
      await sh(node, 'sysctl -qw net.ipv4.conf.br0.rp_filter=1; ip route add 10.1.0.2/32 via 192.0.2.9')
      await thrice(async () => {
        const filtered = await dropped(node, ['--for', '4'], send)
        assert.deepEqual(
          filtered.dropped.map(({ source, destination, hop, count }) => [source, destination, hop, count]),
          [[A, OUT, 'route', 2]],
        )
        assert.match(filtered.dropped[0]?.reason ?? '', /the reverse path filter/)
      })
      await sh(node, 'ip route del 10.1.0.2/32; iptables-legacy -I FORWARD -s 10.1.0.3 -j DROP')
      await thrice(async () => {
        const old = await dropped(node, ['--for', '4'], send)
        assert.match(old.dropped[0]?.reason ?? '', /a rule outside of nft drops it \(NETFILTER_DROP/)
        // The answer to a as well: frames between pods meet the rules of IP.
        assert.deepEqual(
          old.dropped.map(({ source, destination, count }) => [source, destination, count]),
          [
            [B, OUT, 2],
            [B, A, 1],
          ],
        )
      })
      await sh(node, 'iptables-legacy -F; sysctl -qw net.ipv6.conf.all.forwarding=0')
      const six = await dropped(node, ['--for', '4'], () =>
        a.exec(['ping', '-c2', '-i0.2', '-W1', ...SIZE, '2001:db8:9::9']),
      )
      assert.match(six.dropped[0]?.reason ?? '', /does not forward|IP_/, JSON.stringify(six))
    }),
  )
  it(
    'leaves nothing after a kill, and refuses what it cannot do',
    onNode(async ({ node }) => {
      const child = waiting(node, ['--dropped'])
      await until(async () => (await node.exec(['nft', 'list', 'tables'])).stdout.includes('plumb_trace'))
      child.kill('SIGKILL')
      await child.exited
      arrives(await traced(node, B, A))
      for (const [words, says] of [
        [['--dropped', '--live', A, B], /--dropped takes \[FROM/],
        [['--dropped', 'x/a'], /Cannot find "x\/a"/],
        [['--dropped', '--for', '0'], /Cannot read --for: "0" is wrong; want a number of seconds from 1 to 600/],
        [[A, B, '--for', '9'], /takes --for only with --live or --dropped/],
      ] as const) {
        const { status, stderr } = await node.exec([PLUMB, 'trace', ...words])
        assert.equal(status, 2, stderr)
        assert.match(stderr, says)
      }
    }),
  )
})

/**
 * Tries what the kernel says of its drops three times: it tells of those of the whole machine, where other tests drop
 * packets, too.
 */
async function thrice(work: () => Promise<void>): Promise<void> {
  for (let tries = 0; tries < 2; tries++)
    try {
      await work()
      return
    } catch (cause) {
      if (!(cause instanceof assert.AssertionError)) throw cause
    }
  await work()
}
