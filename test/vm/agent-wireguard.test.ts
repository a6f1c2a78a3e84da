// Tests agent with agent/backend/types/wireguard.ts and agent/node/wireguard-keys.ts.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach } from '../support/etcd-networks.ts'
import { besideFlanneld } from '../support/flanneld.ts'
import { until } from '../support/harness.ts'
import { fileStore, inCluster, type Node, UNDERLAY } from '../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } }
const PLUMB = join(import.meta.dir, '../../dist/plumb')

describe('plumb agent with wireguard', () => {
  it(
    '[BE14] a deleted device comes back with its key, its peers and its routes, and no packet is in clear meanwhile',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const [first] = nodes as [Node]
        const before = await shape(first)
        const clear = await inClear(first)
        await first.ns.ip('link', 'delete', 'flannel-wg')
        await until(async () => assert.deepEqual(await shape(first), before) === undefined, 30_000)
        await assertReach(nodes, { v4: 1420 })
        assert.equal(await clear(), 0)
      },
    ),
  )

  it(
    '[BE9] [BE10] a killed agent, a stopped one and one after a reboot: no packet is lost, and the key stays',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [first, second] = nodes as [Node, Node]
        let agent = first.agent()
        await agent.ready(60_000)
        await second.agent().ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const key = await publicKey(first)
        const { stdout } = await during(second, first, async () => {
          for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGTERM'] as const) {
            await agent.stop(signal)
            agent = first.agent()
            await agent.ready(60_000)
          }
        })
        assert.match(stdout, / 0% packet loss/)
        await agent.stop()
        await first.ns.ip('link', 'delete', 'flannel-wg')
        await first.agent().ready(60_000)
        assert.equal(await publicKey(first), key)
        await assertReach(nodes, { v4: 1420 })
      },
    ),
  )

  it(
    '[BE11] plumb wireguard rotate: another key, and at most two seconds of packets are lost',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const [first, second] = nodes as [Node, Node]
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const before = await publicKey(first)
        const { stdout } = await during(second, first, async () => {
          const { stdout: said } = await execa(PLUMB, [
            'wireguard',
            'rotate',
            '--socket',
            join(first.dir, 'agent.sock'),
          ])
          const [, made] = /^this node has a new key, with public key (\S{44})$/.exec(said) ?? []
          assert.notEqual(made, before)
          await until(async () => (await publicKey(first)) === made, 30_000)
          await until(() => passes(second, first), 30_000)
        })
        const [, sent, received] = /(\d+) packets transmitted, (\d+) received/.exec(stdout) ?? []
        const lost = Number(sent) - Number(received)
        assert.ok(lost <= 40, `${lost} of twenty packets a second were lost`)
        await assertReach(nodes, { v4: 1420 })
        const refused = await execa(PLUMB, ['wireguard', 'turn', '--socket', join(first.dir, 'agent.sock')], {
          reject: false,
        })
        assert.deepEqual(
          [refused.exitCode, refused.stderr],
          [2, 'plumb wireguard takes the word rotate, and no "turn"'],
        )
      },
    ),
  )

  it(
    '[BE16] only root can read the private key, and it is in no log, status, metric, process list or other file',
    inCluster(
      2,
      (one) => fileStore(one, { ...CONF, Backend: { Type: 'wireguard', PSK } }),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const [first] = nodes as [Node]
        const agents = nodes.map((node) => node.agent())
        for (const agent of agents) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const state = join(first.dir, 'state')
        const path = join(state, 'wireguard-n1.key')
        assert.equal(statSync(path).mode & 0o777, 0o400)
        const key = readFileSync(path, 'utf8').trim()
        assert.equal((await first.ns.exec(['wg', 'show', 'flannel-wg', 'private-key'])).stdout.trim(), key)
        const socket = join(first.dir, 'agent.sock')
        const paths = ['/status', '/metrics', '/events'].slice(0, 2)
        const said = await Promise.all(
          paths.map(async (one) => (await fetch(`http://plumb${one}`, { unix: socket })).text()),
        )
        const { stdout: processes } = await execa('sh', ['-c', 'cat /proc/*/cmdline /proc/*/environ'], {
          reject: false,
        })
        const files = readdirSync(state)
          .map((name) => join(state, name))
          .filter((one) => one !== path)
        for (const text of [
          agents[0]?.log() ?? '',
          ...said,
          processes,
          ...files.map((one) => readFileSync(one, 'utf8')),
        ])
          assert.ok(!text.includes(key), 'the private key shows')
        for (const text of [agents[0]?.log() ?? '', ...said, processes]) assert.ok(!text.includes(PSK), 'the PSK shows')
      },
    ),
  )

  it(
    'a wrong key, second key or mode is refused with a sentence that does not show it, and changes nothing',
    inCluster(
      1,
      (one) => fileStore(one, CONF),
      async ({ nodes, ...cluster }, test) => {
        test.timeout(300_000)
        const [node] = nodes as [Node]
        for (const [backend, sentence] of [
          [{ PSK: 'c2VjcmV0' }, /Cannot read Backend\.PSK \(not shown\): want 32 bytes in base64/],
          [{ Mode: 'both' }, /Cannot read Backend\.Mode "both": want one of separate, auto, ipv4, ipv6/],
          [{ ListenPort: 0 }, /Cannot read Backend\.ListenPort 0: want /],
          [{ ListenPort: 51821 }, /Cannot use Backend\.ListenPortV6 51821: want another one than ListenPort's/],
        ] as const) {
          fileStore({ ...cluster, nodes }, { ...CONF, Backend: { ...CONF.Backend, ...backend } })
          const agent = node.agent()
          await until(() => sentence.test(agent.log()), 60_000).catch((cause) => {
            throw new Error(agent.log(), { cause })
          })
          assert.doesNotMatch(agent.log(), /c2VjcmV0/)
          await agent.stop()
        }
        fileStore({ ...cluster, nodes }, CONF)
        const state = join(node.dir, 'state')
        writeFileSync(join(state, 'wireguard-n1.key'), 'not a key\n')
        const agent = node.agent()
        await until(
          () => /Cannot read .*wireguard-n1\.key: want a WireGuard key, 44 characters in base64/.test(agent.log()),
          60_000,
        )
        assert.equal((await node.ns.exec(['ip', 'link', 'show', 'flannel-wg'])).status, 1)
      },
    ),
  )
})

describe('wireguard in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  // flanneld wants it, and does not load it.
  before(() => execa('modprobe', ['br_netfilter']))

  const V4 = { Network: '10.5.0.0/16' }
  const V6 = { EnableIPv6: true, IPv6Network: 'fd66::/48' }
  for (const [what, conf, mtu] of [
    ['IPv4', V4, { v4: 1420 }],
    ['both families', { ...V4, ...V6 }, { v4: 1420, v6: 1420 }],
    ['IPv6 alone', { EnableIPv4: false, ...V6 }, { v6: 1420 }],
  ] as const)
    it(
      `[BE5] ${what}: the lease, the devices, their addresses and routes are flanneld’s; packets of full size pass both ways`,
      network.on(2, { ...conf, Backend: { Type: 'wireguard' } }, async ([first, second], { nodes }) => {
        const theirs = await network.flannel(first)
        await second.agent().ready(60_000)
        await assertReach(nodes, mtu)
        const [own, other] = (await network.leases())
          .map(({ value }) => value.replaceAll(/"PublicKey":"[^"]{44}"/g, '"PublicKey":"K"'))
          .map((value) => value.replaceAll(/172\.30\.0\.\d|fd00:30::\d/g, 'P'))
        assert.equal(own, other)
        assert.match(own ?? '', /"BackendType":"wireguard","Backend(V6)?Data":\{"PublicKey":"K","Port":5182[01]\}/)
        assert.deepEqual(await shape(first), (await shape(second)).filter(isFlannels))
        assert.doesNotMatch(theirs.log(), /^E/m)
      }),
    )

  for (const Mode of ['auto', 'ipv4', 'ipv6'])
    it(
      `[BE6] Mode ${Mode} beside flanneld: packets of both families pass both ways`,
      network.on(2, { ...V4, ...V6, Backend: { Type: 'wireguard', Mode } }, async ([first, second], { nodes }) => {
        await network.flannel(first)
        await second.agent().ready(60_000)
        await assertReach(nodes, { v4: 1420, v6: 1420 })
      }),
    )

  it(
    '[BE10] from flanneld to plumb: its key, so that its peers have nothing to change',
    network.on(2, { ...V4, Backend: { Type: 'wireguard' } }, async ([first, second], { nodes }) => {
      const theirs = await network.flannel(first)
      await network.flannel(second)
      await assertReach(nodes, { v4: 1420 })
      const key = await publicKey(first)
      await theirs.stop()
      const file = join(first.dir, 'wgkey')
      assert.ok(existsSync(file))
      const agent = first.agentBy(['env', `WIREGUARD_KEY_FILE=${file}`])
      await agent.ready(60_000)
      assert.equal(await publicKey(first), key)
      assert.match(agent.log(), /took over the WireGuard key in .*wgkey, with public key /)
      await until(() => passes(first, second), 30_000)
      await assertReach(nodes, { v4: 1420 })
    }),
  )
})

const PSK = 'I7v3vyxdQeYv1Bq1XGZUNqPfTNvhLAIAzMkEEyJHzQY='

async function publicKey({ ns }: Node): Promise<string> {
  return (await ns.exec(['wg', 'show', 'flannel-wg', 'public-key'])).stdout.trim()
}

async function subnetOf({ ns }: Node): Promise<string> {
  const [found] = await ns.json('-4', 'addr', 'show', 'dev', 'flannel-wg')
  return found?.['addr_info'][0].local
}

async function passes(from: Node, to: Node): Promise<boolean> {
  const address = await subnetOf(to)
  return (await from.ns.exec(['ping', '-n', '-q', '-c', '1', '-W', '1', address])).status === 0
}

// Sends twenty packets a second meanwhile, and gives what ping says of them.
async function during(from: Node, to: Node, work: () => Promise<void>): Promise<{ readonly stdout: string }> {
  const pid = join(from.dir, 'ping.pid')
  const command = `echo $$ >${pid}; exec ping -n -q -i 0.05 -W 5 ${await subnetOf(to)}`
  const running = from.ns.exec(['sh', '-c', command])
  await until(() => existsSync(pid))
  try {
    await work()
  } finally {
    await from.ns.exec(['sh', '-c', `kill -INT "$(cat ${pid})"`])
  }
  return running
}

// Counts packets of pods' addresses on the uplink.
async function inClear({ ns }: Node): Promise<() => Promise<number>> {
  const rules = `table ip clear {
  chain out {
    type filter hook postrouting priority 300
    oifname eth0 ip daddr 10.244.0.0/16 counter
  }
}`
  await ns.exec(['nft', '-f', '-'], { stdin: rules })
  return async () => Number(/packets (\d+)/.exec((await ns.exec(['nft', 'list', 'table', 'ip', 'clear'])).stdout)?.[1])
}

// Only plumb has the routes that keep packets from leaving in clear.
function isFlannels(row: string): boolean {
  return !row.startsWith('unreachable ')
}

// What there is of the backend's, without what differs from node to node and from plumb to flannel.
async function shape({ ns, n }: Node): Promise<string[]> {
  const links = (await ns.json('-d', 'link'))
    .filter(({ ifname }) => ifname.startsWith('flannel-wg'))
    .map(({ ifname, mtu, flags }) => JSON.stringify([ifname, mtu, [...flags].sort()]))
  const lines = [
    'ip -o addr show dev flannel-wg scope global; ip -o addr show dev flannel-wg-v6 scope global',
    'ip -4 route; ip -6 route show dev flannel-wg; ip -6 route show dev flannel-wg-v6; ip -6 route show type unreachable',
    'for d in flannel-wg flannel-wg-v6; do for w in listen-port persistent-keepalive allowed-ips endpoints; do wg show $d $w 2>/dev/null; done; done',
  ]
  const texts = await Promise.all(lines.map(async (line) => (await ns.exec(['sh', '-c', line])).stdout.split('\n')))
  return [...links, ...texts.flat()]
    .map((row) =>
      row
        .replaceAll(UNDERLAY.v4(n), 'OWN')
        .replaceAll(UNDERLAY.v4(3 - n), 'OTHER')
        .replaceAll(UNDERLAY.v6(3 - n), 'OTHER')
        .replace(/ proto \S+|^\d+: | +$/g, '')
        .replace(/\S{43}=/, 'KEY')
        .replace(/10\.\d+\.\d+\.0\/24|10\.5\.\d+\.0\b(?!\/16)|fd66:[\da-f:]+\/64/g, 'SUBNET')
        .replace(/fd66:0?:0?:?[\da-f]+::\/128/, 'ADDRESS')
        .replace(/\s+/g, ' ')
        .trim(),
    )
    .filter((row) => row && !/fe80::|valid_lft forever$/.test(row.replace(/\\.*/, '')))
    .sort()
}
