// lane: vmlong
// Tests agent/backend/types/udp.ts with agent/kernel/fou.ts.
import assert from 'node:assert/strict'
import udp from '../../../agent/backend/types/udp.ts'
import { answers, assertReached, cluster, held, type Wiring } from '../../support/cluster.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { testBackend } from '../../support/suites/testBackend.ts'

const WIRING: Wiring = { backend: udp, families: ['v4'] }
const SIZE = { v4: 1472 }

testBackend(udp, true, ['v4'])

describe('udp', () => {
  it(
    'the packets between nodes are IPv4 in UDP from port 8285 to port 8285, without a further header',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const nodes = await cluster(ns, WIRING)
      for (const one of nodes) await one.reach(nodes)
      const [a, b] = nodes
      // Drops what is of the pods and comes otherwise: no such packet passes by.
      const rules = `table netdev wire { chain in { type filter hook ingress device eth0 priority 0;
        udp sport 8285 udp dport 8285 @th,64,8 0x45 @th,160,32 0x0af40101 counter accept; ip saddr 10.244.0.0/16 drop; ip protocol 4 drop; }; }`
      assert.equal((await b.ns.exec(['nft', rules])).status, 0)
      await assertReached(a, [b], SIZE)
      const counted = (await b.ns.exec(['nft', 'list', 'ruleset'])).stdout
      assert.doesNotMatch(counted, /counter packets 0 /)
      assert.match(counted, /counter packets \d+ /)
    }),
  )

  it(
    'another port: the old one is closed, and packets pass',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const nodes = await cluster(ns, WIRING)
      for (const one of nodes) await one.reach(nodes)
      const others = nodes.map((one) => one.restarted({ options: { Port: 9000 } }))
      for (const one of others) assert.deepEqual((await one.reach(others)).failed, [])
      const [a, b] = others as [(typeof nodes)[0], (typeof nodes)[0]]
      assert.deepEqual(await ports(a.ns), [9000])
      await assertReached(a, [b], SIZE)
    }),
  )

  it(
    'a port that another program closed is open again after the next look at the links; one of another program stays as it is',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const nodes = await cluster(ns, WIRING)
      for (const one of nodes) await one.reach(nodes)
      const [a, b] = nodes
      await a.ns.ip('fou', 'add', 'port', '5555', 'gue')
      await a.ns.ip('fou', 'del', 'port', '8285')
      a.converger.invalidate()
      const { failed, changed } = await a.reach(nodes)
      assert.deepEqual({ failed, changed }, { failed: [], changed: 1 })
      assert.ok(await answers(b, a))
      assert.deepEqual((await a.converger.step([])).failed, [])
      assert.deepEqual(await held(a), [])
      assert.deepEqual(await ports(a.ns), [5555])
    }),
  )

  it(
    'a port that another program has is said, nothing is made, and it works when that program ends',
    inNamespaces(['lan', 'a', 'b'], async (ns) => {
      const nodes = await cluster(ns, WIRING)
      const [a, b] = nodes
      await b.reach(nodes)
      const other = Bun.spawn(
        [
          'nsenter',
          `--net=${a.ns.path}`,
          '--',
          process.execPath,
          '-e',
          'await Bun.udpSocket({ port: 8285 }); setInterval(() => {}, 1e6)',
        ],
        { stdin: 'ignore', stdout: 'ignore', stderr: 'inherit' },
      )
      try {
        await until(async () => /:8285 /.test((await a.ns.exec(['ss', '-uan'])).stdout), 20_000)
        const { failed } = await a.reach(nodes)
        assert.match(
          failed.join(),
          /Cannot make link flannel0: another program has UDP port 8285 \(see: ss -uanp; ip fou show\); want another Backend\.Port/,
        )
        assert.deepEqual(await held(a), [])
      } finally {
        other.kill()
        await other.exited
      }
      assert.deepEqual((await a.reach(nodes)).failed, [])
      await assertReached(a, [b], SIZE)
    }),
  )
})

async function ports(ns: Namespace): Promise<number[]> {
  return (await ns.json('fou', 'show')).map(({ port }) => port)
}
