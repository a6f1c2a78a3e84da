// lane: netns
// Tests agent/kernel.
import assert from 'node:assert/strict'
import vxlan from '../../../agent/backend/types/vxlan.ts'
import { cluster, held, type Member } from '../../support/cluster.ts'
import { inNamespaces } from '../../support/harness.ts'
import { listening } from '../../support/listening.ts'
import fc from '../../support/properties.ts'

// What somebody with root may do by hand. MAC and ID are those of node b's entries when there are any.
const TAMPERING = [
  'ip route flush proto 112',
  'ip -6 route flush proto 112',
  'ip route delete 10.244.2.0/24',
  'ip route replace 10.244.2.0/24 via 192.0.2.9 dev eth0 proto 112',
  'ip route add 10.244.50.0/24 via 10.244.50.0 dev flannel.1 onlink',
  'ip -6 route delete fd00:244:2::/64',
  'ip neigh flush dev flannel.1 nud permanent',
  'ip neigh delete fd00:244:2:: dev flannel-v6.1',
  'ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent',
  'ip neigh replace 10.244.50.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent',
  'ip nexthop flush proto 112',
  'ip nexthop delete id ID',
  'ip nexthop replace id ID via 10.244.50.0 dev flannel.1 onlink proto 112',
  'bridge fdb delete MAC dev flannel.1 self',
  'bridge fdb replace MAC dev flannel.1 dst 192.0.2.9 self permanent',
  'bridge fdb add 02:00:00:00:00:01 dev flannel.1 dst 192.0.2.9 self permanent',
  'ip address flush dev flannel.1',
  'ip address add 10.244.50.1/24 dev flannel.1',
  'ip link set flannel.1 down',
  'ip link set flannel-v6.1 mtu 1300',
  'ip link set flannel.1 address 02:00:00:00:00:01',
  'ip link delete flannel.1',
  'ip link delete flannel-v6.1',
] as const

describe('Converger, at random', () => {
  it(
    'whatever is changed by hand, and whatever comes and goes: told by the monitors alone, the next steps leave exactly what a fresh start would',
    inNamespaces(['lan', 'a', 'b', 'c'], async (ns, test) => {
      test.timeout(120_000)
      const [a, b, c] = await cluster(ns, { backend: vxlan })
      const subsets = [[], [b], [c], [b, c]] as const
      const right: string[][] = []
      for (const peers of subsets) {
        await a.restarted().reach(peers)
        right.push(await held(a))
      }
      const id = a.want([b]).resources.find((one) => one.kind === 'nexthop' && one.via === '10.244.2.0')
      const mac = (b.lease.data as { v4: { VtepMAC: string } }).v4.VtepMAC
      const tamper = async (line: string) =>
        void (await a.ns.exec(
          line
            .replace('MAC', mac)
            .replace('ID', String(id?.kind === 'nexthop' && id.id))
            .split(' '),
        ))
      await listening(a, [b, c], async ({ caughtUp }) => {
        const moves = fc.array(
          fc.record({
            hands: fc.array(fc.constantFrom(...TAMPERING), { maxLength: 4 }),
            peers: fc.integer({ min: 0, max: 3 }),
          }),
          { minLength: 1, maxLength: 4 },
        )
        const property = fc.asyncProperty(moves, async (all) => {
          for (const { hands, peers } of all) {
            for (const line of hands) await tamper(line)
            await caughtUp()
            await settle(a, subsets[peers] as readonly Member[], caughtUp)
            assert.deepEqual(await held(a), right[peers])
          }
        })
        await fc.assert(property, { numRuns: 25, interruptAfterTimeLimit: 60_000, markInterruptAsFailure: false })
      })
      assert.equal((await a.restarted().reach([b, c])).failed.length, 0)
    }),
  )
})

// As the agent's loop: one step, and another for what that one told of itself.
async function settle(a: Member, peers: readonly Member[], caughtUp: () => Promise<void>): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await a.reach(peers)
    await caughtUp()
  }
}
