// lane: vm
// Tests agent with agent/backend/types/wireguard.ts and agent/node/wireguard-keys.ts.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { assertReach } from '../../support/etcd-networks.ts'
import { until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../../support/nodes.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } }
const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('plumb agent with wireguard', () => {
  it(
    'a deleted device comes back with its key, its peers and its routes, and no packet is in clear meanwhile',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const [first] = nodes as [Node]
        assert.equal(subnetEnv(first)?.['FLANNEL_MTU'], '1420')
        await until(async () => {
          const answer = await fetch('http://agent/metrics', { unix: join(first.dir, 'agent.sock') })
          const [, age] =
            /^plumb_wireguard_handshake_age_seconds\{node="n2"\} ([\d.]+)$/m.exec(await answer.text()) ?? []
          return Number(age) < 180
        }, 30_000)
        const before = await shape(first)
        const clear = await inClear(first)
        await first.ns.ip('link', 'delete', 'flannel-wg')
        await until(async () => (await shape(first)) === before, 30_000)
        await assertReach(nodes, { v4: 1420 })
        assert.equal(await clear(), 0)
      },
    ),
  )

  it(
    'a killed agent, a stopped one and one after a reboot: no packet is lost, and the key stays',
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
        const lost = await during(second, first, async () => {
          for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGTERM'] as const) {
            await agent.stop(signal)
            agent = first.agent()
            await agent.ready(60_000)
          }
        })
        assert.equal(lost, 0)
        await agent.stop()
        await first.ns.ip('link', 'delete', 'flannel-wg')
        await first.agent().ready(60_000)
        assert.equal(await publicKey(first), key)
        await assertReach(nodes, { v4: 1420 })
      },
    ),
  )

  it(
    'plumb wireguard rotate: another key, and at most two seconds of packets are lost',
    inCluster(
      2,
      (one) => fileStore(one, CONF),
      async ({ nodes }, test) => {
        test.timeout(300_000)
        const [first, second] = nodes as [Node, Node]
        for (const agent of nodes.map((node) => node.agent())) await agent.ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const before = await publicKey(first)
        const lost = await during(second, first, async () => {
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
        assert.ok(lost <= 40, `${lost} of twenty packets a second were lost`)
        await assertReach(nodes, { v4: 1420 })
        const refused = await execa(PLUMB, ['wireguard', 'turn', '--socket', join(first.dir, 'agent.sock')], {
          reject: false,
        })
        assert.deepEqual([refused.exitCode, refused.stderr], [2, 'plumb wireguard wants the word rotate, not "turn"'])
      },
    ),
  )

  it(
    'while the store is away the former key serves, also after a SIGKILL, and a second rotation is refused; the new key counts when the store has it',
    inCluster(
      2,
      (one) => {
        if (existsSync(join(one.dir, 'away'))) return ['--store', 'file', '--file-store-dir', join(one.dir, 'store')]
        return fileStore(one, CONF)
      },
      async ({ nodes, dir }, test) => {
        test.timeout(300_000)
        const [first, second] = nodes as [Node, Node]
        let agent = first.agent()
        await agent.ready(60_000)
        await second.agent().ready(60_000)
        await assertReach(nodes, { v4: 1420 })
        const before = await publicKey(first)
        const rotate = () =>
          execa(PLUMB, ['wireguard', 'rotate', '--socket', join(first.dir, 'agent.sock')], { reject: false })
        const isAway = async () => (await agent.status())?.store.connected === false
        const lost = await during(second, first, async () => {
          renameSync(join(dir, 'store'), join(dir, 'away'))
          await until(isAway, 60_000)
          const [, made] = /public key (\S{44})$/.exec((await rotate()).stdout) ?? []
          assert.ok(made)
          const again = await rotate()
          assert.match(again.stderr, /answers 500: Cannot give this node another key: the store does not have the key/)
          await agent.stop('SIGKILL')
          agent = first.agent()
          await agent.ready(60_000)
          assert.match((await rotate()).stderr, /answers 500: Cannot give this node another key/)
          assert.equal(await publicKey(first), before)
          assert.ok(await passes(second, first))
        })
        assert.equal(lost, 0)
        renameSync(join(dir, 'away'), join(dir, 'store'))
        await until(async () => (await publicKey(first)) !== before, 60_000)
        await until(() => passes(second, first), 30_000)
        await until(async () => (await rotate()).exitCode === 0, 30_000)
      },
    ),
  )

  it(
    'only root can read the private key, and it is in no log, status, metric, process list or other file',
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

// Sends twenty packets a second meanwhile, and gives how many were lost.
async function during(from: Node, to: Node, work: () => Promise<void>): Promise<number> {
  const pid = join(from.dir, 'ping.pid')
  const command = `echo $$ >${pid}; exec ping -n -i 0.05 ${await subnetOf(to)}`
  const running = from.ns.exec(['sh', '-c', command])
  await until(() => existsSync(pid))
  try {
    await work()
  } finally {
    await from.ns.exec(['sh', '-c', `kill -INT "$(cat ${pid})"`])
  }
  const { stdout } = await running
  // Those after the last answer were under way when ping was stopped.
  const answered = new Set([...stdout.matchAll(/icmp_seq=(\d+) /g)].map(([, number]) => Number(number)))
  assert.ok(answered.size > 3, stdout)
  return Math.max(...answered) - answered.size
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

// What there is of the backend's.
async function shape({ ns }: Node): Promise<string> {
  const shown = [
    'ip -o -4 addr show dev flannel-wg | cut -d" " -f2-',
    'ip -4 route show proto 112',
    'for what in public-key listen-port allowed-ips; do wg show flannel-wg $what; done',
  ]
  return (await ns.exec(['sh', '-c', shown.join('; ')])).stdout
}
