// lane: netns
// Tests plumb trace --size: links that take smaller packets, in the open and silently.
import assert from 'node:assert/strict'
import { arrives, isLostAt, onNodeWithPods as onNode, PLUMB, sh, traced } from '../../support/traces.ts'

const [A, B, OUT, FAR] = ['10.1.0.2', '10.1.0.3', '192.0.2.9', '10.9.0.9'] as const

describe('plumb trace --size', () => {
  it(
    'a link of the sender or of the node takes smaller packets: its name and its MTU',
    onNode(async ({ node, a }) => {
      for (const [to, ...words] of [[OUT], [B], ['node'], [OUT, '99/udp'], ['10.1.0.1', '99']] as const) {
        const said = await traced(node, A, to, ...words, '--size', '1500')
        assert.ok(said.lostAt === undefined || said.lostAt === 'receiver', JSON.stringify(said))
        assert.equal(said.differsAt, undefined, JSON.stringify(said))
      }
      isLostAt(
        await traced(node, A, OUT, '--size', '1501'),
        'sender',
        /it has 1501 bytes, and eth0 takes 1500/,
        /too large for the link of the sender/,
      )
      await sh(node, 'ip link set up0 mtu 1400')
      isLostAt(await traced(node, A, OUT, '--size', '1500'), 'route', /has 1500 bytes, and up0 takes 1400/, /too large/)
      arrives(await traced(node, A, OUT, '--size', '1400'))
      arrives(await traced(node, A, OUT))
      const six = await traced(node, 'fd01::2', '2001:db8:9::9', '--size', '1401')
      assert.deepEqual([six.lostAt, six.differsAt], ['route', undefined], JSON.stringify(six))
      await sh(a, 'ip link set eth0 mtu 1300')
      isLostAt(await traced(node, 'fd01::2', 'fd01::1', '--size', '1400'), 'sender', /eth0 takes 1300/, /too large/)
    }),
  )
  it(
    'DR18: the MTU of a tunnel is too large for the uplink: its packet is sent in pieces, which get lost',
    onNode(async ({ node, outside }) => {
      const tunnel = (local: string, remote: string, ip: string) =>
        `ip link add vx0 mtu 1500 type vxlan id 9 dstport 8472 local ${local} remote ${remote}
         ip addr add ${ip}/24 dev vx0; ip link set vx0 up`
      await sh(node, tunnel('192.0.2.1', OUT, '10.9.0.1'))
      await sh(outside, tunnel(OUT, '192.0.2.1', FAR))
      arrives(await traced(node, A, FAR))
      const pieces = await traced(node, A, FAR, '--size', '1500')
      arrives(pieces)
      assert.match(pieces.conclusion, /arrives, in pieces: it has 1550 bytes, and up0 takes 1500, and the answer/)
      await sh(
        outside,
        'nft add table ip f; nft add chain ip f early "{ type filter hook prerouting priority -500; }"; nft add rule ip f early ip frag-off \\& 0x3fff != 0 drop',
      )
      const lost = await traced(node, A, FAR, '--size', '1500')
      // The outside is a namespace of this machine, in which the oracle expects an answer.
      assert.deepEqual([lost.status, lost.lostAt], [3, 'receiver'], JSON.stringify(lost))
      assert.match(lost.conclusion, /the path loses packets of 1500 bytes and does not say so; small ones arrive$/)
      assert.match(lost.hops.find(({ hop }) => hop === 'tunnel')?.seen?.says ?? '', /in pieces: it has 1550 bytes/)
      arrives(await traced(node, A, FAR, '--size', '1450'))
    }),
  )
  it(
    'DR19: a path loses large packets and nobody says so, and a path that loses all',
    onNode(async ({ node, outside }) => {
      await sh(
        outside,
        'nft add table ip f; nft add chain ip f early "{ type filter hook prerouting priority -500; }"; nft add rule ip f early ip length \\> 1400 drop',
      )
      for (const words of [[], ['99']] as const) {
        const said = await traced(node, A, OUT, ...words, '--size', '1401')
        assert.equal(said.lostAt, 'receiver', JSON.stringify(said))
        // The small packet to a port is refused: it gets there, and is lost all the same.
        if (words.length === 0) assert.match(said.conclusion, /the path loses packets of 1401 bytes/)
      }
      arrives(await traced(node, A, OUT, '--size', '1400'))
      await sh(outside, 'nft flush chain ip f early; nft add rule ip f early ip saddr 10.1.0.2 drop')
      assert.match((await traced(node, A, OUT, '--size', '1401')).conclusion, /it did not arrive: [^:]*$/)
      for (const [words, says] of [
        [['--size', '99'], /Cannot read --size: "99" is wrong; want bytes from 100 to 65000/],
        [['--size', '1400', '--live'], /takes --size or --live, not both/],
      ] as const) {
        const { status, stderr } = await node.exec([PLUMB, 'trace', A, OUT, ...words])
        assert.equal(status, 2, stderr)
        assert.match(stderr, says)
      }
    }),
  )
})
