// lane: long
// Tests agent/backend/probes.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Probe } from '../../../agent/backend/probes.ts'
import { makeProbes } from '../../../agent/backend/probes.ts'
import type { SubnetKey } from '../../../agent/lease/lease.ts'
import { openEchoes } from '../../../lib/os/echo.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { exposition, value } from '../../support/exposition.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { type Agent, fileStore, inCluster, type Node } from '../../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48' }
const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('plumb agent and whether peers answer', () => {
  for (const Type of ['vxlan', 'host-gw'])
    it(
      `${Type}: a peer is reachable when it answers, with the round trip; one whose link is down is programmed without an answer, which degrades the node, until it is back`,
      inCluster(
        3,
        (cluster) => [...fileStore(cluster, { ...NETWORK, Backend: { Type } }), '--probe-interval=2'],
        async ({ hub, nodes }, test) => {
          test.timeout(90_000)
          const agents = nodes.map((node) => node.agent())
          const [agent, one] = [agents[0] as Agent, nodes[0] as Node]
          for (const each of agents) await each.ready(30_000)
          await until(
            async () =>
              (await probeOf(agent, 'n2'))?.state === 'answers' && (await probeOf(agent, 'n3'))?.state === 'answers',
            20_000,
          )
          assert.match(await leases(one), /^n2 .* reachable, [\d.]+ ms(, \d+ of \d+ probes lost)?$/m)
          assert.equal(await agent.readyz(), '200 ready\n')
          await hub.ip('link', 'set', 'port2', 'down')
          await until(async () => (await probeOf(agent, 'n2'))?.state === 'silent', 30_000)
          // The samples that were lost first give way to what the probes say.
          const said = /^200 degraded: 1 peer does not answer over the overlay: \S+ \S+ of node "n2"\n$/
          await until(async () => said.test(await agent.readyz()), 15_000).catch(async () =>
            assert.match(await agent.readyz(), said),
          )
          assert.match(await leases(one), /^n2 .* programmed, but no answer: \d+ of \d+ probes lost$/m)
          assert.match(await leases(one), /^n3 .* reachable, [\d.]+ ms(, \d+ of \d+ probes lost)?$/m)
          const { stdout } = await one.ns.exec([
            process.execPath,
            '-e',
            "process.stdout.write(await (await fetch('http://127.0.0.1:9469/metrics')).text())",
          ])
          const found = exposition(stdout)
          assert.deepEqual(
            [
              value(found, 'plumb_peers', { state: 'reachable' }),
              value(found, 'plumb_peers', { state: 'silent' }),
              value(found, 'plumb_degraded'),
            ],
            [1, 1, 1],
          )
          assert.ok(
            value(found, 'plumb_peer_probe_loss_ratio', { node: 'n2' }) > 0 &&
              value(found, 'plumb_peer_round_trip_seconds', { node: 'n3' }) < 1,
          )
          await hub.ip('link', 'set', 'port2', 'up')
          await until(async () => (await agent.readyz()) === '200 ready\n', 30_000)
          assert.match(
            agent.log(),
            /no answer over the overlay from \S+ \S+ of node "n2"\n[\s\S]*answering again: \S+ \S+ of node "n2"/,
          )
        },
      ),
    )

  it(
    'plumb_peer_mtu_bytes is the largest packet that a peer got: that of pods, then what a narrow link lets pass, and that of pods again',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, { ...NETWORK, Backend: { Type: 'vxlan' } }), '--probe-interval=1'],
      async ({ nodes }, test) => {
        test.timeout(120_000)
        const agents = nodes.map((node) => node.agent())
        const [agent, two] = [agents[0] as Agent, nodes[1] as Node]
        for (const each of agents) await each.ready(30_000)
        const pods = (await agent.status())?.mtu as number
        const sizes = async () => {
          const found = exposition(await (await fetch('http://plumb/metrics', { unix: socketOf(nodes[0]) })).text())
          return [value(found, 'plumb_mtu_bytes'), value(found, 'plumb_peer_mtu_bytes', { node: 'n2' })]
        }
        const are = (expected: readonly number[], ms: number) =>
          until(async () => (await probeOf(agent, 'n2'))?.mtu === expected[1], ms)
            .catch(async () => assert.equal((await probeOf(agent, 'n2'))?.mtu, expected[1]))
            .then(async () => assert.deepEqual(await sizes(), expected))
        await are([pods, pods], 20_000)
        // IP, UDP, VXLAN and Ethernet of the tunnel have 50 bytes.
        const filter =
          'add table inet narrow; add chain inet narrow in { type filter hook input priority -400; }; add rule inet narrow in udp dport 8472 ip length > 1350 drop'
        await two.ns.exec(['nft', filter])
        await are([pods, 1300], 70_000)
        assert.equal((await probeOf(agent, 'n2'))?.state, 'narrow')
        await two.ns.exec(['nft', 'delete', 'table', 'inet', 'narrow'])
        await are([pods, pods], 20_000)
        assert.equal((await probeOf(agent, 'n2'))?.state, 'answers')
      },
    ),
  )

  for (const [what, Type, options] of [
    ['with --probe-interval=0', 'vxlan', ['--probe-interval=0']],
    ['of backend alloc', 'alloc', ['--probe-interval=1']],
  ] as const)
    it(
      `an agent ${what} asks nobody, and calls nobody reachable`,
      inCluster(
        2,
        (cluster) => [...fileStore(cluster, { ...NETWORK, Backend: { Type } }), ...options],
        async ({ nodes }) => {
          const [one] = nodes as [Node]
          const [agent] = nodes.map((node) => node.agent()) as [Agent]
          await agent.ready(20_000)
          await until(async () => (await agent.status())?.peers.length === 1)
          const sent = async () =>
            /^Icmp: .*\nIcmp: (.*)$/m.exec((await one.ns.exec(['cat', '/proc/net/snmp'])).stdout)?.[1]
          const before = await sent()
          await Bun.sleep(2500)
          assert.equal(await sent(), before)
          assert.match(await leases(one), /^n2 .* programmed, not probed$/m)
        },
      ),
    )

  it(
    'a round trip is measured by when the kernel got the answer, not by when it was read; an answer to somebody else is not heard',
    inNamespaces(['a'], async ({ a }) => {
      await a.ip('link', 'set', 'lo', 'up')
      for (const ip of ['127.0.0.1', '::1'] as Ip[])
        await inside(parse.netns(a.path), () => {
          const [echoes, other] = [openEchoes(ip), openEchoes(ip)]
          try {
            let heard: ReturnType<typeof echoes.hear>
            for (let serial = 1; serial < 50 && (heard?.ms ?? 100) > 40; serial++) {
              assert.ok(echoes.send(ip, 7, serial))
              Bun.sleepSync(50)
              heard = echoes.hear()
              assert.deepEqual([heard?.target, heard?.serial], [7, serial])
            }
            assert.ok((heard?.ms ?? 100) < 40, `${heard?.ms}`)
            assert.equal(other.hear(), undefined)
          } finally {
            echoes.close()
            other.close()
          }
        })
    }),
  )

  it('what cannot be sent from is told of, and a peer that is asked no more is forgotten', () => {
    const said: (string | undefined)[] = []
    const probes = makeProbes(1000, (why) => said.push(why))
    const key = '10.244.9.0-24' as SubnetKey
    probes.aim([{ key, from: { v4: '203.0.113.9' as Ip }, to: { v4: '203.0.113.1' as Ip }, mtu: 1500 }])
    probes.tick(performance.now() + 5000)
    assert.deepEqual(said, ['Cannot send from 203.0.113.9: the node does not have this address'])
    assert.equal(probes.of(key)?.state, 'unknown')
    probes.aim([])
    assert.equal(probes.of(key), undefined)
    probes.close()
  })
})

function socketOf(node: Node | undefined): string {
  return join(node?.dir ?? '', 'agent.sock')
}

async function probeOf(agent: Agent, name: string): Promise<Probe | undefined> {
  return (await agent.status())?.peers.find(({ node }) => node === name)?.probe
}

async function leases({ ns, dir }: Node): Promise<string> {
  return (await ns.exec([PLUMB, 'leases', '--socket', join(dir, 'agent.sock')])).stdout
}
