// lane: netns
// Tests agent/store and agent/parts.
import assert from 'node:assert/strict'
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { flow, gatewayOf, stand } from '../support/etcd-networks.ts'
import { ping, until } from '../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'

const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const OTHER = { Network: '10.245.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:245::/48', Backend: { Type: 'host-gw' } }

describe('plumb agent', () => {
  it(
    'begins again at SIGHUP when the store has another network configuration: other subnets, other ways, nothing of the old; a wrong one changes nothing and is named',
    inCluster(
      2,
      (cluster) => fileStore(cluster, NETWORK),
      async (cluster, test) => {
        test.timeout(60_000)
        const { nodes, dir } = cluster
        const [one, two] = nodes as [Node, Node]
        const agents = [one.agent(), two.agent()] as const
        for (const agent of agents) await agent.ready(30_000)
        await until(async () => (await agents[0].status())?.peers.length === 1)
        const had = subnetEnv(one)
        writeFileSync(join(dir, 'store/config'), '{"Network":"10.245.0.0/29"}')
        process.kill(agents[0].pid, 'SIGHUP')
        await until(async () => /going on with the one before: .*Network/.test(await agents[0].readyz()), 5000)
        assert.deepEqual(subnetEnv(one), had)
        fileStore(cluster, OTHER)
        for (const { pid } of agents) process.kill(pid, 'SIGHUP')
        for (const node of nodes)
          await until(() => /^10\.245\./.test(subnetEnv(node)?.['FLANNEL_SUBNET'] ?? ''), 10_000)
        for (const agent of agents) {
          assert.match(
            agent.log(),
            /the store has another network configuration, with backend host-gw instead of vxlan; starting again with it/,
          )
          await until(async () => {
            const seen = await agent.status()
            return seen?.ready && seen.backend === 'host-gw' && seen.peers.length === 1
          }, 10_000)
        }
        const routes = await one.ns.ip('route', 'show', 'proto', '112')
        const peer = (subnetEnv(two)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0/24')
        assert.match(
          routes,
          new RegExp(`^${peer.replaceAll('.', '\\.')} (nhid \\d+ )?via 172\\.30\\.0\\.2 dev eth0 $`, 'm'),
        )
        assert.doesNotMatch(routes, /10\.244\./)
        assert.deepEqual(
          (await one.ns.json('link')).map(({ ifname }) => ifname).filter((name) => name !== 'lo'),
          ['eth0'],
        )
        assert.ok((await one.ns.ip('-6', 'route', 'show', 'proto', '112')).includes('fd00:245:'))
        assert.equal(subnetEnv(one)?.['FLANNEL_MTU'], '1500')
        for (const agent of agents) assert.equal(await agent.stop(), 0)
      },
    ),
  )

  it(
    'names keys of the configuration that nothing reads, with the nearest one, and an MTU that the uplink does not have; it is degraded and works, until they are gone',
    inCluster(
      1,
      (cluster) => fileStore(cluster, NETWORK),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const agent = one.agent()
        await agent.ready(30_000)
        assert.equal(await agent.readyz(), '200 ready\n')
        await agent.stop()
        const typo = { ...NETWORK, Netwrok: '10.9.0.0/16', Backend: { Type: 'vxlan', Prot: 8473, MTU: 9000 } }
        const again = one.agent(...fileStore({ ...cluster, dir: one.dir }, typo))
        const { degraded } = await again.ready(30_000)
        const key = "The network's configuration has a key without effect: unknown key"
        const wanted = [
          `${key} "Netwrok", did you mean "Network"?`,
          `${key} "Backend.Prot", did you mean "Port"?`,
          "Backend.MTU 9000 of the network's configuration has no effect: the uplink eth0 has 1500; want at most 1500, or a link with that MTU",
        ]
        assert.deepEqual(degraded, wanted)
        for (const text of ['unknown key "Netwrok"', 'unknown key "Backend.Prot"', 'Backend.MTU 9000'])
          assert.equal(again.log().split(text).length, 2, again.log())
        assert.equal(subnetEnv(one)?.['FLANNEL_MTU'], '1450')
        fileStore({ ...cluster, dir: one.dir }, { ...NETWORK, Backend: { Type: 'vxlan', MTU: 1400 } })
        process.kill(again.pid, 'SIGHUP')
        await until(async () => (await again.readyz()) === '200 ready\n', 20_000)
        assert.equal(subnetEnv(one)?.['FLANNEL_MTU'], '1350')
      },
    ),
  )

  it(
    'goes on as it was when SIGHUP finds a configuration that cannot be used: it is degraded and says why, until the store has another one',
    inCluster(
      2,
      (cluster) => fileStore(cluster, NETWORK),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two] = cluster.nodes as [Node, Node]
        const agents = [one.agent(), two.agent()] as const
        for (const agent of agents) await agent.ready(30_000)
        await until(async () => (await agents[0].status())?.peers.length === 1)
        const had = subnetEnv(one)
        for (const [conf, why] of [
          [{ ...NETWORK, Backend: { Type: 'ipsec' } }, /Backend\.Type "ipsec": not supported/],
          [
            { ...NETWORK, Backend: { Type: 'wireguard', PSK: 'hush' } },
            /Backend\.PSK \(not shown\): want 32 bytes in base64/,
          ],
          [
            { ...NETWORK, Backend: { Type: 'wireguard', Mode: 'both' } },
            /Backend\.Mode "both": want one of separate, auto/,
          ],
          [{ ...NETWORK, Backend: { Type: 'vxlan', VNI: 'one' } }, /VNI "one"/],
          [{ ...NETWORK, SubnetLen: 12 }, /SubnetLen/],
        ] as const) {
          fileStore(cluster, conf)
          process.kill(agents[0].pid, 'SIGHUP')
          await until(async () => why.test(await agents[0].readyz()), 10_000)
          assert.equal((await agents[0].status())?.state, 'degraded')
          assert.ok(await ping(one.ns, (subnetEnv(two)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0')))
        }
        fileStore(cluster, NETWORK)
        process.kill(agents[0].pid, 'SIGHUP')
        await until(async () => (await agents[0].status())?.state === 'ready', 10_000)
        assert.deepEqual(subnetEnv(one), had)
        assert.doesNotMatch(agents[0].log(), /beginning anew/)
      },
    ),
  )

  it(
    'begins again at SIGHUP when the file of --net-config-path says something else',
    inCluster(
      1,
      (cluster) => {
        fileStore(cluster, NETWORK)
        renameSync(join(cluster.dir, 'store/config'), join(cluster.dir, 'net-conf.json'))
        return [
          '--store',
          'file',
          '--file-store-dir',
          join(cluster.dir, 'store'),
          '--net-config-path',
          join(cluster.dir, 'net-conf.json'),
        ]
      },
      async (cluster, test) => {
        test.timeout(60_000)
        const [one] = cluster.nodes as [Node]
        const agent = one.agent()
        await agent.ready(30_000)
        writeFileSync(join(cluster.dir, 'net-conf.json'), JSON.stringify({ ...NETWORK, Network: '10.245.0.0/16' }))
        process.kill(agent.pid, 'SIGHUP')
        await until(() => /^10\.245\./.test(subnetEnv(one)?.['FLANNEL_SUBNET'] ?? ''), 20_000)
      },
    ),
  )

  it(
    'a ConfigMap that is swapped counts by itself where nodes may differ, without a lost packet; other keys are named and wait; a broken file leaves the last good one, and is named with its line',
    inCluster(
      2,
      (cluster) => {
        fileStore(cluster, NETWORK)
        renameSync(join(cluster.dir, 'store/config'), join(cluster.dir, 'config'))
        const path = join(cluster.dir, 'map/net-conf.json')
        return ['--store', 'file', '--file-store-dir', join(cluster.dir, 'store'), '--net-config-path', path]
      },
      async (cluster, test) => {
        test.timeout(120_000)
        const nodes = cluster.nodes as [Node, Node]
        const [one, two] = nodes
        const write = configMap(join(cluster.dir, 'map'))
        write(JSON.stringify(NETWORK))
        const agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(30_000)
        for (const node of nodes) await stand(node)
        const [own, peer] = [one, two].map((node) => gatewayOf(node).v4 as string) as [string, string]
        await until(() => ping(one.ns, peer), 10_000)
        const index = async () => (await one.ns.json('link', 'show', 'flannel.1'))[0]?.['ifindex']
        const before = await index()
        const pings = await flow(one.ns, own, peer)
        const live = { ...NETWORK, PeerNetworks: ['10.246.0.0/16'], Backend: { Type: 'vxlan', MTU: 1400 } }
        write(JSON.stringify(live))
        for (const node of nodes)
          await until(() => assert.equal(subnetEnv(node)?.['FLANNEL_MTU'], '1350') === undefined, 20_000)
        for (const agent of agents) {
          const [seen] = await Promise.all([agent.ready(20_000), until(() => agent.log().includes('starting again'))])
          assert.equal(seen.mtu, 1350)
          assert.match(
            agent.log(),
            /another network configuration \(PeerNetworks, Backend\.MTU\); starting again with it/,
          )
        }
        assert.equal(await index(), before)
        assert.match((await one.ns.exec(['nft', 'list', 'ruleset'])).stdout, /10\.246\.0\.0\/16/)
        const had = subnetEnv(one)
        const first = agents[0] as (typeof agents)[0]
        for (const [keys, conf] of [
          ['Network, SubnetLen', { ...live, Network: '10.247.0.0/16', SubnetLen: 26 }],
          ['Backend.mtu, Backend.vni', { ...live, Backend: { type: 'vxlan', vni: 5, mtu: 1300 } }],
        ] as const) {
          write(JSON.stringify(conf))
          const text = `the store has another network configuration (${keys}); it counts after a restart`
          await until(async () => (await first.status())?.lastError?.what.includes(text), 10_000)
          assert.ok(first.log().includes(text))
        }
        for (const [text, why] of [
          ['{\n  "Network": "10.244.0.0/16"\n  "Backend": {}\n}', /net-conf\.json:3: .*comma expected/],
          [
            '{\n  "Network": "10.244.0.0/16",\n  "subnetlen": 12\n}',
            /net-conf\.json:3: Cannot read SubnetLen 12: want 18/,
          ],
          [
            '{ "Network": "10.244.0.0/16",\n  "Backend": {\n    "VNI": 0 } }',
            /net-conf\.json:3: Cannot read Backend\.VNI 0/,
          ],
          ['', /net-conf\.json:1: /],
        ] as const) {
          write(text)
          await until(async () => why.test(await first.readyz()), 10_000)
          assert.match(await first.readyz(), /^200 [\s\S]*going on with the one before/)
        }
        assert.deepEqual(subnetEnv(one), had)
        write(JSON.stringify(live))
        await until(async () => (await first.status())?.state === 'ready', 10_000)
        assert.equal((await pings.end()).lost, 0)
        for (const agent of agents) assert.equal(await agent.stop(), 0)
      },
    ),
  )

  it(
    'a network moves node by node: while "PeerNetworks" names the other one, a moved node and one that has not moved reach each other, unmasqueraded',
    inCluster(
      2,
      (cluster) => fileStore(cluster, { ...NETWORK, PeerNetworks: ['10.245.0.0/16'] }),
      async (cluster, test) => {
        test.timeout(60_000)
        const [one, two] = cluster.nodes as [Node, Node]
        const agents = [one.agent(), two.agent()] as const
        for (const agent of agents) await agent.ready(30_000)
        fileStore(cluster, { ...NETWORK, Network: '10.245.0.0/16', PeerNetworks: ['10.244.0.0/16'] })
        process.kill(agents[0].pid, 'SIGHUP')
        await until(() => /^10\.245\./.test(subnetEnv(one)?.['FLANNEL_SUBNET'] ?? ''), 20_000)
        const first = (node: Node) => (subnetEnv(node)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0')
        await until(() => ping(one.ns, first(two)), 20_000)
        await until(() => ping(two.ns, first(one)), 20_000)
        for (const { ns } of [one, two]) {
          const rules = (await ns.exec(['nft', 'list', 'ruleset'])).stdout
          // nft joins the two.
          assert.match(rules, /elements = \{ 10\.244\.0\.0(\/15|-10\.245\.255\.255) \}/)
        }
        // It has moved for good.
        fileStore(cluster, { ...NETWORK, Network: '10.245.0.0/16' })
        for (const { pid } of agents) process.kill(pid, 'SIGHUP')
        await until(() => /^10\.245\./.test(subnetEnv(two)?.['FLANNEL_SUBNET'] ?? ''), 20_000)
        for (const agent of agents) await until(async () => (await agent.status())?.state === 'ready', 20_000)
        await until(() => ping(one.ns, first(two)), 20_000)
        for (const { ns } of [one, two]) assert.doesNotMatch(await ns.ip('route', 'show', 'proto', '112'), /10\.244\./)
      },
    ),
  )
})

// A ConfigMap as the kubelet mounts it: each version is a folder, and one link is replaced (`..data`).
function configMap(dir: string): (text: string) => void {
  let serial = 0
  mkdirSync(dir)
  symlinkSync('..data/net-conf.json', join(dir, 'net-conf.json'))
  return (text) => {
    const version = `..${++serial}`
    mkdirSync(join(dir, version))
    writeFileSync(join(dir, version, 'net-conf.json'), text)
    symlinkSync(version, join(dir, '..data_tmp'))
    renameSync(join(dir, '..data_tmp'), join(dir, '..data'))
  }
}
