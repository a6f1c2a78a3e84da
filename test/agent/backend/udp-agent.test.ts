// lane: vmlong
// Tests agent with agent/backend/types/udp.ts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach, gatewayOf } from '../../support/etcd-networks.ts'
import { besideFlanneld } from '../../support/flanneld.ts'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { arrivals, inject, refusedBy } from '../../support/stranger.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'udp' } }
const VXLAN = { ...CONF, Backend: { Type: 'vxlan' } }
const SIZE = { v4: 1472 }
const FOU = 'encap fou encap-sport 8285 encap-dport 8285'

describe('plumb agent with udp', () => {
  it(
    'nodes reach each other; a restart changes nothing, a deleted device comes back, and cleanup leaves nothing',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [first] = nodes as [Node]
        const agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(60_000)
        await assertReach(nodes, SIZE)
        const before = await traces(first)
        assert.match(before, /flannel0/)
        assert.match(before, /"port":8285/)
        await agents[0]?.stop()
        const again = first.agent()
        await again.ready(60_000)
        assert.equal(await traces(first), before)
        const index = await indexOf(first)
        await first.ns.ip('link', 'delete', 'flannel0')
        await until(async () => (await traces(first)) === before, 30_000)
        assert.notEqual(await indexOf(first), index)
        await assertReach(nodes, SIZE)
        assert.deepEqual(
          (await again.status())?.peers.map(({ backend, problem }) => ({ backend, problem })),
          [{ backend: 'udp', problem: undefined }],
        )
        await again.stop()
        const { status, stderr } = await first.ns.exec([PLUMB, 'agent', 'cleanup', ...first.options])
        assert.equal(status, 0, stderr)
        assert.doesNotMatch(await traces(first), /flannel0|8285/)
      },
    ),
  )

  it(
    'packets from an address without a lease reach no pod, in UDP and as protocol 4; they are counted and named, and peers reach each other',
    inCluster(
      3,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [first, second, third] = nodes as [Node, Node, Node]
        await second.agent().ready(60_000)
        const open = first.agent('--tunnel-sources', 'any')
        await open.ready(60_000)
        // The kernel has one device for the same ends at a time.
        const ends = `local ${UNDERLAY.v4(3)} remote ${UNDERLAY.v4(1)}`
        await third.ns.ip(...`link add name plain up type ipip ${ends}`.split(' '))
        const count = await arrivals(first, 'flannel0')
        await inject(third.ns, 'plain', first)
        assert.equal(await count(), 5)
        await third.ns.ip('link', 'delete', 'plain')
        await third.ns.ip(...`link add name wrapped up type ipip ${ends} ${FOU}`.split(' '))
        await inject(third.ns, 'wrapped', first)
        assert.equal(await count(), 10)
        await open.stop()
        await first.agent().ready(60_000)
        const now = await arrivals(first, 'flannel0')
        await inject(third.ns, 'wrapped', first)
        await third.ns.ip('link', 'delete', 'wrapped')
        await third.ns.ip(...`link add name plain up type ipip ${ends}`.split(' '))
        await inject(third.ns, 'plain', first)
        assert.equal(await now(), 0)
        assert.deepEqual(await refusedBy(first), { refused: 10, strangers: [UNDERLAY.v4(3)] })
        await assertReach([first, second], SIZE)
        assert.deepEqual(await refusedBy(first), { refused: 10, strangers: [UNDERLAY.v4(3)] })
      },
    ),
  )

  let isFirst = true
  it(
    'another backend instead: device and port go',
    inCluster(
      1,
      // Each start of an agent writes the configuration again.
      (one) => fileStore(one, isFirst ? CONF : VXLAN),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const [node] = nodes as [Node]
        const agent = node.agent()
        await agent.ready(60_000)
        assert.match(await traces(node), /"port":8285/)
        await agent.stop()
        isFirst = false
        await node.agent().ready(60_000)
        assert.doesNotMatch(await traces(node), /flannel0|8285/)
      },
    ),
  )

  it(
    'with IPv6 in the configuration the agent says that udp carries IPv4 alone',
    inCluster(
      1,
      (one) => fileStore(one, { ...CONF, EnableIPv6: true, IPv6Network: 'fd66::/48' }),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const agent = (nodes[0] as Node).agent()
        await until(() => /Cannot use backend udp with IPv6: it carries IPv4 alone/.test(agent.log()), 60_000)
      },
    ),
  )
})

describe('udp in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  // flanneld wants both, and does not load them.
  before(() => execa('modprobe', ['-a', 'br_netfilter', 'tun']))

  it(
    'the leases are equal to the byte; packets of full size and TCP pass both ways',
    network.on(2, { ...CONF, Network: '10.5.0.0/16' }, async (pair, { nodes }) => {
      const [first, second] = pair
      const theirs = await network.flannel(first)
      const ours = second.agent()
      await ours.ready(60_000)
      await assertReach(nodes, SIZE)
      const leases = (await network.leases()).map(({ value }) => value).sort()
      assert.deepEqual(
        leases,
        [first, second].map(({ n }) => `{"PublicIP":"${UNDERLAY.v4(n)}","PublicIPv6":null}`),
      )
      for (const [from, to] of [pair, [second, first]] as const) await assertTransfer(from, to)
      assert.doesNotMatch(theirs.log(), /^E/m)
      assert.deepEqual((await ours.status())?.degraded, [])
    }),
  )

  it(
    'subnet.env is flanneld’s to the byte, but for the subnet',
    network.on(2, { ...CONF, Network: '10.5.0.0/16' }, async ([first, second]) => {
      await network.flannel(first)
      await second.agent().ready(60_000)
      const [theirs, ours] = [first, second].map((node) => readFileSync(join(node.dir, 'subnet.env'), 'utf8'))
      const plain = (text = '') => text.replace(/^(FLANNEL_SUBNET=10\.5)\.\d+\.1\/24$/m, '$1.N.1/24')
      assert.equal(plain(ours), plain(theirs))
      assert.equal(
        plain(ours),
        'FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.N.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n',
      )
    }),
  )

  it(
    'on one node plumb waits for the device of flanneld and takes its place when it ends, and the other way round: each reaches the peer',
    network.on(2, { ...CONF, Network: '10.5.0.0/16' }, async ([first, second], { nodes }) => {
      await network.flannel(first)
      const theirs = await network.flannel(second)
      await assertReach(nodes, SIZE)
      const before = gatewayOf(second)
      const agent = second.agent()
      const said = /flannel0: a link of that name is there already, of type tun/
      await until(async () => said.test((await agent.status())?.reasons.join() ?? ''), 60_000)
      await assertReach(nodes, SIZE)
      await theirs.stop()
      await agent.ready(60_000)
      assert.deepEqual(gatewayOf(second), before)
      await assertReach(nodes, SIZE)
      await agent.stop()
      const { status, stderr } = await second.ns.exec([PLUMB, 'agent', 'cleanup', ...second.options])
      assert.equal(status, 0, stderr)
      await network.flannel(second)
      await assertReach(nodes, SIZE)
    }),
  )
})

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

async function indexOf({ ns }: Node): Promise<number> {
  return (await ns.json('link', 'show', 'flannel0'))[0]?.['ifindex']
}

// The agent's device, its address, the routes on it, and the ports, without what changes from one to the next.
async function traces({ ns }: Node): Promise<string> {
  const lines = ['ip -o link', 'ip -4 -o addr', 'ip -4 route', 'ip nexthop', 'ip -j fou show']
  const texts = lines.map(async (line) => (await ns.exec(['sh', '-c', line])).stdout.split('\n'))
  return (await Promise.all(texts))
    .flat()
    .filter((row) => /flannel0|"port"/.test(row))
    .map((row) => row.replace(/^\d+: /, ''))
    .sort()
    .join('\n')
}

// A megabyte by TCP, which the far end counts.
async function assertTransfer(from: Node, to: Node): Promise<void> {
  const [source, target] = [gatewayOf(from).v4 as string, gatewayOf(to).v4 as string]
  const server = to.ns.exec([process.execPath, '-e', SERVER, target])
  const client = await from.ns.exec([process.execPath, '-e', CLIENT, target, source])
  assert.equal(client.status, 0, `${from.name} to ${to.name}: ${client.stderr}`)
  assert.equal((await server).stdout, `${1 << 20}`)
}

const SERVER = `
let got = 0
Bun.listen({ hostname: process.argv.at(-1), port: 4242, socket: {
  data: (_, bytes) => void (got += bytes.length),
  close: () => { process.stdout.write(String(got)); process.exit(0) },
} })
setTimeout(() => process.exit(1), 120000)`
// Tries until the server is there. Bun cannot choose the source of a connection, so node:net does.
const CLIENT = `
const net = require('node:net')
const [host, localAddress] = process.argv.slice(-2)
const call = () => {
  const socket = net.connect({ host, port: 4242, localAddress })
  socket.on('connect', () => socket.end(Buffer.alloc(1 << 20)))
  socket.on('error', () => setTimeout(call, 100))
  socket.on('finish', () => socket.on('close', () => process.exit(0)))
}
call()
setTimeout(() => process.exit(1), 110000)`
