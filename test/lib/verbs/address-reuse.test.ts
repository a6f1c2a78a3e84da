// lane: netns
// Tests lib/os/conntrack.ts and lib/verbs/add.ts: addresses that are used again, and connections to them.
import assert from 'node:assert/strict'
import { rmSync } from 'node:fs'
import { execa } from 'execa'
import {
  connectionCount,
  connectionPieces,
  connections,
  connectionsOf,
  forget,
  type Sought,
} from '../../../lib/os/conntrack.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { forgetsThoseOfAnAddress } from '../../support/forgotten.ts'
import { inNamespaces, type Namespace, type Row, until } from '../../support/harness.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'
import { addresses } from '../../support/pool.ts'

const LATE = 30_000
// Two addresses of each family: the second one is the next pod's when its pod goes.
const RANGES = [
  [{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.2', rangeEnd: '10.1.0.3' }],
  [{ subnet: 'fd00:1::/64', rangeStart: 'fd00:1::2', rangeEnd: 'fd00:1::3' }],
]
const HOSTS = { 4: ['10.1.0.2', '10.1.0.3'], 6: ['fd00:1::2', 'fd00:1::3'] } as const
const [PORT, OTHER] = [7000, 5000]

describe('an address that is used again', () => {
  for (const family of [4, 6] as const)
    for (const [what, turned] of Object.entries({
      'the former owner was the server': false,
      'the former owner was the client': true,
    }))
      it(
        `IPv${family}: a UDP flow of the former owner does not pass as established to or from the next one: ${what}`,
        inNamespaces(['node', 'one', 'former', 'next'], async ({ node, one, former, next }) => {
          const [fixed, reused] = HOSTS[family]
          const net = network(node, {
            ...bridgeConf({ type: 'ptp', bridge: undefined }),
            ipam: {
              type: 'host-local',
              dataDir: `/run/reuse-${node.name}`,
              ranges: RANGES,
              routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
            },
          })
          await net.add(one)
          await net.add(former)
          // Accepts what is established, and refuses what begins later.
          const word = family === 4 ? 'ip' : 'ip6'
          await nft(
            node,
            `table inet deny { chain forward { type filter hook forward priority 0; ct state established accept; jump new; }; chain new { counter; }; }`,
          )
          const [client, server] = turned ? [former, one] : [one, former]
          const [from, to] = turned ? [reused, fixed] : [fixed, reused]
          const running = [process(server, ECHO, to), process(client, SEND, from, to)]
          try {
            await until(
              () =>
                inside(node.path as never, () => connections({ family, protocol: 17 })).some(
                  ({ there }) => there.dst === to && there.sport === OTHER,
                ) && answered(client),
              LATE,
            )
            await nft(
              node,
              `add rule inet deny new ${word} ${turned ? 'saddr' : 'daddr'} ${reused} udp dport ${PORT} counter drop`,
            )
            if (turned) running[1]?.kill()
            await net.del(former)
            await net.add(next)
            const receiver = turned ? one : next
            await nft(
              receiver,
              `table inet seen { chain input { type filter hook input priority -10; udp dport ${PORT} counter; }; }`,
            )
            if (turned) running.push(process(next, SEND, from, to))
            // The rule has refused what was sent meanwhile.
            await until(async () => (await packets(node, 'deny')) > 50, LATE)
            assert.equal(await packets(receiver, 'seen'), 0)
          } finally {
            for (const child of running) child.kill()
            await Promise.all(running.map((child) => child.exited))
          }
        }),
      )

  for (const type of ['bridge', 'ptp'] as const)
    it(
      `${type}: ADD for a container whose namespace is gone undoes the earlier attachment, and gives the same address; while the namespace lives it is refused`,
      inNamespaces(['node', 'first', 'other', 'second', 'third'], async ({ node, first, other, second, third }) => {
        const net = network(node, {
          ...bridgeConf(type === 'ptp' ? { type, bridge: undefined } : {}),
          ipam: {
            type: 'host-local',
            dataDir: `/run/again-${node.name}`,
            ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]],
          },
        })
        const addresses = (result: Row): string[] => result['ips'].map((ip: Row) => ip['address'])
        const before = addresses(await net.add(first))
        await net.add(other)
        const again = { containerId: containerId(first) }
        assert.match(
          (await net.fails('ADD', second, again)).msg,
          /has been allocated to .*, duplicate allocation is not allowed/,
        )
        await node.exec(['ip', 'netns', 'delete', first.path.slice('/run/netns/'.length)])
        assert.deepEqual(addresses(await net.add(second, again)), before)
        assert.equal((await second.json('addr', 'show', 'dev', 'eth0')).length, 1)
        // Once more, by an ADD that is the third of this name.
        await node.exec(['ip', 'netns', 'delete', second.path.slice('/run/netns/'.length)])
        assert.deepEqual(addresses(await net.add(third, again)), before)
        await net.del(third, again)
        await net.del(other)
        assert.deepEqual(traces(third, net.conf), [])
      }),
    )

  it(
    'ten thousand connections are forgotten on one socket, and no other one',
    inNamespaces(['node'], async ({ node }) => {
      await node.ip('link', 'set', 'lo', 'up')
      await nft(node, 'table inet track { chain input { type filter hook input priority 0; ct state new accept; }; }')
      await node.exec(['sh', '-c', `ulimit -n 20000; exec "$0" -e "$1"`, Bun.argv[0] as string, FLOOD])
      inside(node.path as never, () => {
        const all = connections({ family: 4, protocol: 17, dst: '127.0.0.9' as Ip })
        assert.equal(all.length, 10_000)
        assert.equal(connections({ family: 4, protocol: 17, dst: '127.0.0.9' as Ip, dport: 53 }).length, 10_000)
        assert.deepEqual(connections({ family: 4, protocol: 17, dst: '127.0.0.9' as Ip, dport: 54 }), [])
        assert.equal(forget(all), 10_000)
        assert.equal(forget(all), 0)
        assert.deepEqual(connectionsOf(['127.0.0.9' as Ip]), [])
        assert.equal(connections({ family: 4, dst: '127.0.0.8' as Ip }).length, 3)
      })
    }),
  )

  it(
    'the connections that an address began or answers are forgotten, and no other ones',
    inNamespaces(['node'], forgetsThoseOfAnAddress),
  )
})

describe('a busy node', () => {
  it(
    'what is asked of the kernel about one Service, or one IPv4 address, does not grow with the connections that it tracks',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      await node.ip('link', 'set', 'lo', 'up')
      await nft(node, 'table inet track { chain input { type filter hook input priority 0; ct state new accept; }; }')
      const sought: readonly Sought[] = [
        { family: 4, protocol: 17, dst: '127.0.0.8' as Ip, dport: 53 },
        { family: 4, src: '127.0.0.7' as Ip },
        { family: 4, from: '127.0.0.8' as Ip },
      ]
      const asked = () =>
        inside(node.path as never, () => ({
          all: connectionCount(),
          pieces: sought.map((one) => [...connectionPieces(one)].length),
        }))
      const flood = (count: number) =>
        node.exec([
          'sh',
          '-c',
          `ulimit -n 40000; exec "$0" -e "$1"`,
          Bun.argv[0] as string,
          FLOOD.replace('10000', String(count)),
        ])
      await flood(2000)
      const few = asked()
      await flood(20_000)
      const many = asked()
      assert.ok(few.all >= 2000 && many.all >= 9 * few.all, JSON.stringify([few, many]))
      assert.deepEqual(many.pieces, few.pieces)
      // Without a filter it would grow.
      assert.ok(
        inside(node.path as never, () => [...connectionPieces({ family: 4 })].length) > 20 * Math.max(...many.pieces),
      )
    }),
  )
})

const ECHO = `const socket = await Bun.udpSocket({ hostname: process.argv.at(-1), port: ${PORT}, socket: { data: (at, bytes, port, from) => void at.send(bytes, port, from) } })`
const SEND = `const [from, to] = process.argv.slice(-2)
const socket = await Bun.udpSocket({ hostname: from, port: ${OTHER}, socket: { data() {}, error() {} } })
setInterval(() => { try { socket.send('x', ${PORT}, to) } catch {} }, 5)`
const FLOOD = `for (const [host, count] of [['127.0.0.9', 10000], ['127.0.0.8', 3]]) {
  const all = []
  for (let i = 0; i < count; i++) { const one = await Bun.udpSocket({ hostname: '127.0.0.1' }); one.send('x', 53, host); all.push(one) }
  for (const one of all) one.close()
}
process.exit(0)`

function process({ path }: Namespace, script: string, ...args: readonly string[]) {
  return Bun.spawn(['nsenter', `--net=${path}`, '--', Bun.argv[0] as string, '-e', script, ...args], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'ignore',
  })
}

// The client has got an answer.
async function answered(client: Namespace): Promise<boolean> {
  return /Udp6?InDatagrams\s+[1-9]/.test(
    (
      await client.exec([
        'sh',
        '-c',
        'cat /proc/net/snmp6; awk \'/^Udp:/ && n++ { print "UdpInDatagrams", $2 }\' /proc/net/snmp',
      ])
    ).stdout,
  )
}

async function nft(ns: Namespace, text: string): Promise<void> {
  const { status, stderr } = await ns.exec(['nft', '-f', '-'], { stdin: text })
  assert.equal(status, 0, stderr)
}

// What the last counter of a table has counted.
async function packets(ns: Namespace, table: string): Promise<number> {
  const all = [...(await ns.exec(['nft', 'list', 'table', 'inet', table])).stdout.matchAll(/counter packets (\d+)/g)]
  return Number(all.at(-1)?.[1] ?? 0)
}

describe('a pool whose reservations were deleted', () => {
  for (const [what, keys] of Object.entries({ bridge: { isGateway: true }, ptp: { type: 'ptp', bridge: undefined } }))
    it(
      `${what}: no pod gets the address of a living one, not even by asking for it; a pod that is gone has none`,
      inNamespaces(['node', 'gone', 'one', 'other'], async ({ node, gone, one, other }) => {
        const net = network(node, bridgeConf(keys, '10.1.0.0/29', 'fd00:1::/64'))
        const dir = net.conf.ipam?.dataDir as string
        await net.add(gone)
        const had = addresses(await net.add(one))
        rmSync(dir, { recursive: true })
        await execa('ip', ['netns', 'delete', containerId(gone)])
        assert.deepEqual(had, ['10.1.0.3', 'fd00:1::3'])
        const asked = await net.fails('ADD', other, { args: 'IP=10.1.0.3' })
        assert.deepEqual([asked.code, /10\.1\.0\.3 is not available/.test(asked.msg)], [7, true], asked.msg)
        const given = []
        for (const ifname of ['eth0', 'eth1', 'eth2', 'eth3'])
          given.push(addresses(await net.add(other, { ifname }))[0])
        assert.deepEqual(given, ['10.1.0.2', '10.1.0.4', '10.1.0.5', '10.1.0.6'])
        assert.equal((await net.fails('ADD', other, { ifname: 'eth4' })).code, 11)
        await net.del(one)
        assert.equal(addresses(await net.add(other, { ifname: 'eth4' }))[0], '10.1.0.3')
        for (const n of [0, 1, 2, 3, 4]) await net.del(other, { ifname: `eth${n}` })
        await net.del(gone)
        for (const pod of [gone, one, other]) assert.deepEqual(traces(pod, net.conf), [])
      }),
    )
})
