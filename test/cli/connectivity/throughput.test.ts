// lane: netns
// Tests cli/connectivity/throughput.ts and sink.ts: what streams carry between two nodes, with real agents.
import assert from 'node:assert/strict'
import { judge } from '../../../cli/connectivity/throughput.ts'
import { connectivity, failures, type Member, onNodes, wordsOf } from '../../support/connectivity.ts'
import { sh } from '../../support/doctor.ts'

/** Pods take TCP of other nodes at the ports of the cases alone. */
const NO_SINKS = `nft 'add table ip no_sinks; add chain ip no_sinks one { type filter hook forward priority -10; }; add rule ip no_sinks one iifname "flannel*" tcp dport 1024-65535 tcp dport != { 7070, 7071 } ct direction original drop'`

describe('plumb connectivity --throughput', () => {
  it(
    'measures each way, names a tunnel that is slower than its nodes, fails when a stream does not pass, and measures nothing unasked',
    onNodes(2, async (members) => {
      const [{ node }] = members as [Member, Member]
      const unasked = await connectivity(members, '--from', 'nodes')
      assert.deepEqual([unasked.status, unasked.throughput], [0, undefined])

      await sh(node.ns, 'tc qdisc replace dev flannel.1 root tbf rate 20mbit burst 64kb latency 50ms')
      const slow = await connectivity(members, '--quick', '--throughput')
      assert.deepEqual([failures(slow), slow.status], [[], 0], JSON.stringify(slow.throughput))
      const rows = slow.throughput ?? []
      assert.deepEqual(
        rows.map(({ from, to }) => [from.place, to.place]),
        [
          ['pod 1', 'pod 1'],
          ['pod 1', 'pod 1'],
        ],
      )
      assert.ok(rows.every(({ mbits = 0 }) => mbits > 0))
      const way = rows.find(({ to }) => to.node === 'n2')
      const { mbits = 0, nodesMbits = 0, says = '' } = way ?? {}
      assert.ok(mbits > 5 && mbits < 40 && nodesMbits > 2 * mbits, JSON.stringify(way))
      assert.match(says, /^\d+ Mbit\/s arrive, and from node to node \d+: the tunnel is slow; .* off on n1$/)
      await sh(node.ns, 'tc qdisc delete dev flannel.1 root')

      const { status, stdout } = await node.ns.exec(wordsOf(members, '--from', 'nodes', '--throughput'))
      assert.equal(status, 0, stdout)
      assert.match(stdout, /^FROM +TO +ONE TCP STREAM *\nn1 +n2 +\d+ Mbit\/s arrive *\nn2 +n1 +\d+ Mbit\/s arrive *$/m)

      await sh(node.ns, NO_SINKS)
      const refused = await connectivity(members, '--quick', '--throughput')
      assert.deepEqual([failures(refused), refused.status], [[], 1])
      const lost = (refused.throughput ?? []).filter((one) => one.mbits === undefined)
      assert.deepEqual(
        lost.map(({ to }) => to.node),
        ['n1'],
      )
      assert.match(lost[0]?.says ?? '', /^no answer from 10\.244\.\d+\.\d+ port \d+ in 6 s$/)
    }),
  )

  it('calls a tunnel slow that carries 300 Mbit/s at most where the nodes carry twice as much', () => {
    const isSlow = (pods: number, nodes?: number) => judge('n1', pods, nodes).includes('slow')
    assert.deepEqual(
      [isSlow(300, 600), isSlow(50, 9000), isSlow(301, 9000), isSlow(200, 399), isSlow(200)],
      [true, true, false, false, false],
    )
    assert.equal(judge('n1', 9400, undefined), '9400 Mbit/s arrive')
    assert.equal(judge('n1', 200, 210), '200 Mbit/s arrive; from node to node 210')
  })
})
