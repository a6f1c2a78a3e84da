// lane: netns
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync } from 'node:fs'
import { execa } from 'execa'
import {
  type Answer,
  inNamespaces,
  type Namespace,
  ping,
  plugin,
  type Row,
  snapshot,
  until,
} from '../../support/harness.ts'
import { bridgeConf, containerId, network, settled, traces } from '../../support/network.ts'

const MANY = Array.from({ length: 24 }, (_, i) => `pod${i}`)

describe('bridge: faults and numbers', () => {
  const faults: Record<
    string,
    {
      readonly keys: (good: Row) => object
      readonly msg: RegExp
      readonly prepare?: (node: Namespace) => Promise<unknown>
    }
  > = {
    'a route whose gateway cannot be reached': {
      keys: ({ ipam }) => ({ ipam: { ...ipam, routes: [{ dst: '10.9.0.0/16', gw: '192.0.2.77' }] } }),
      msg: /^The kernel or a tool refused: Nexthop has invalid gateway/,
    },
    'a bridge with another address': {
      keys: () => ({ isGateway: true }),
      prepare: (node) => node.exec(['sh', '-ec', 'ip link add br0 type bridge; ip addr add 10.9.0.1/24 dev br0']),
      msg: /^"br0" already has an IP address different from 10\.1\.0\.1\/24$/,
    },
    'a version that cannot show the result': {
      keys: () => ({ ipam: undefined, cniVersion: '0.2.0' }),
      msg: /^Cannot answer as CNI 0\.2\.0 asks: the result has no address$/,
    },
  }
  for (const [what, { keys, msg, prepare }] of Object.entries(faults)) {
    it(
      `${what}: the address is freed, the veth removed, and a retry at once succeeds`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
        await prepare?.(node)
        const good = bridgeConf({})
        const net = network(node, good)
        const error = await net.fails('ADD', pod, { conf: { ...good, ...keys(good) } })
        assert.match(error.msg, msg)
        assert.deepEqual(
          [
            traces(pod, good),
            await node.json('link', 'show', 'type', 'veth'),
            await pod.json('link', 'show', 'type', 'veth'),
          ],
          [[], [], []],
        )
        const result = await net.add(pod)
        assert.ok((await pod.json('addr', 'show', 'dev', 'eth0'))[0]?.['addr_info'].length > 0)
        await net.check(pod, result)
      }),
    )
  }

  it(
    'DEL while the IPAM plugin cannot be found removes the links and fails with code 7; the next DEL frees the address, as does the next ADD',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ isGateway: true }))
      const path = mkdtempSync('/run/none-')
      const reserved = () =>
        readdirSync(`${net.conf.ipam?.dataDir}/${net.conf.name}`).filter((name) => /^\d+\./.test(name))
      await net.add(pod)
      const error = await net.fails('DEL', pod, { path })
      assert.deepEqual(error, {
        ...error,
        code: 7,
        msg: 'Cannot find the IPAM plugin "host-local"',
        details: `looked in ${path} (CNI_PATH)`,
      })
      assert.deepEqual(
        [
          await node.json('link', 'show', 'type', 'veth'),
          await pod.json('link', 'show', 'type', 'veth'),
          reserved().length,
        ],
        [[], [], 1],
      )
      // It finds nothing but the address, and goes on failing until that can be freed.
      await net.fails('DEL', pod, { path })
      await net.del(pod)
      assert.deepEqual([reserved(), traces(pod, net.conf)], [[], []])
      await net.add(pod)
      await net.fails('DEL', pod, { path })
      await net.add(pod)
      assert.equal(reserved().length, 1)
      await net.del(pod)
      assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    'DEL of an attachment without a pool needs no IPAM plugin',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ ipam: undefined }))
      await net.add(pod)
      await net.del(pod, { path: mkdtempSync('/run/none-') })
      assert.deepEqual(await node.json('link', 'show', 'type', 'veth'), [])
    }),
  )

  it(
    '24 ADDs at once with ten addresses: ten work, fourteen fail with code 11, name the range, and leave nothing',
    inNamespaces(['node', ...MANY], async (all, test) => {
      test.timeout(60_000)
      const { node } = all as Record<string, Namespace> as { node: Namespace }
      const pods = MANY.map((name) => (all as Record<string, Namespace>)[name] as Namespace)
      const { ipam, ...rest } = bridgeConf({ isGateway: true })
      const conf = {
        ...rest,
        ipam: {
          type: 'host-local',
          dataDir: ipam?.dataDir ?? '',
          ranges: [[{ subnet: '10.1.0.0/24', rangeStart: '10.1.0.10', rangeEnd: '10.1.0.19' }]],
        },
      }
      const answers = await Promise.all(
        pods.map((pod) => plugin('bridge', { command: 'ADD', conf, containerId: containerId(pod), netns: pod }, node)),
      )
      const won = pods.filter((_, i) => answers[i]?.status === 0)
      const lost = pods.filter((pod) => !won.includes(pod))
      assert.equal(won.length, 10, answers.map(({ stdout }) => stdout).join())
      assert.equal(
        new Set(answers.flatMap(({ result }) => (result['ips'] ?? []).map((ip: Row) => ip['address']))).size,
        10,
      )
      for (const pod of lost) {
        const { error } = answers[pods.indexOf(pod)] as Answer
        assert.equal(error.code, 11)
        assert.match(`${error.msg} ${error.details}`, /10\.1\.0\.10-10\.1\.0\.19/)
        assert.deepEqual([await pod.json('link', 'show', 'type', 'veth'), traces(pod, conf)], [[], []])
      }
      for (const pod of won) assert.ok(await ping(pod, '10.1.0.1'))
      assert.equal((await node.json('link', 'show', 'master', 'br0')).length, 10)
      await network(node, conf).del(won[0] as Namespace)
      await network(node, conf).add(lost[0] as Namespace)
    }),
  )

  it(
    '24 ADDs at once, then 24 DELs at once: no failure, every pod reachable in between, nothing left over',
    inNamespaces(['node', 'other', ...MANY], async (all, test) => {
      test.timeout(60_000)
      const { node, other, ...rest } = all as Record<string, Namespace> as { node: Namespace; other: Namespace }
      const pods = Object.values(rest) as Namespace[]
      await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
      const net = network(
        node,
        bridgeConf({ isDefaultGateway: true, ipMasq: true, macspoofchk: true }, '10.1.0.0/24', 'fd00:1::/64'),
      )
      await net.add(other)
      const before = await settled(() => snapshot(node))
      const results = await Promise.all(pods.map((pod) => net.add(pod)))
      assert.equal(new Set(results.flatMap(({ ips }) => ips.map((ip: Row) => ip['address']))).size, 48)
      for (const { ips } of results)
        for (const { address } of ips) assert.ok(await ping(node, address.split('/')[0]), address)
      for (const [i, pod] of pods.entries()) await net.check(pod, results[i] as Row)
      await Promise.all(pods.map((pod) => net.del(pod)))
      await until(async () => assert.equal(await snapshot(node), before) === undefined)
      for (const pod of pods) assert.deepEqual(traces(pod, net.conf), [])
    }),
  )

  it(
    '24 first ADDs at once, on a node with neither bridge nor ruleset: no failure, and the first packet of each pod gets through the moment its ADD returns',
    inNamespaces(['node', ...MANY], async (all, test) => {
      test.timeout(60_000)
      const { node, ...rest } = all as Record<string, Namespace> as { node: Namespace }
      const net = network(node, bridgeConf({ isDefaultGateway: true, ipMasq: true }))
      const results = await Promise.all(
        (Object.values(rest) as Namespace[]).map(async (pod) => {
          const result = await net.add(pod)
          // A packet that is lost is sent again after a second.
          assert.ok(await ping(pod, '10.1.0.1'), pod.name)
          return result
        }),
      )
      // One bridge, and one MAC of it in every result.
      assert.equal(new Set(results.map(({ interfaces }) => interfaces[0].mac)).size, 1)
      for (const { ips } of results) assert.ok(await ping(node, ips[0].address.split('/')[0]))
    }),
  )

  it(
    'GC with a list removes address, link and spoof check of what is not on it; what is listed stays',
    inNamespaces(['node', 'stale', 'lost', 'kept'], async ({ node, stale, lost, kept }) => {
      const net = network(
        node,
        bridgeConf({ isDefaultGateway: true, ipMasq: true, macspoofchk: true }, '10.1.0.0/24', 'fd00:1::/64'),
      )
      const [gone] = [await net.add(stale), await net.add(lost)]
      const result = await net.add(kept)
      await execa('ip', ['netns', 'delete', containerId(lost)])
      await net.gc(kept)
      for (const pod of [stale, lost]) assert.deepEqual(traces(pod, net.conf), [])
      assert.deepEqual(await stale.json('link', 'show', 'type', 'veth'), [])
      const ports = await node.json('link', 'show', 'master', 'br0')
      assert.deepEqual(
        ports.map(({ ifname }) => ifname),
        [result['interfaces'][1].name],
      )
      assert.doesNotMatch((await node.exec(['bridge', 'fdb'])).stdout, new RegExp(gone?.['interfaces'][2].mac))
      await net.check(kept, result)
      assert.ok(await ping(kept, '10.1.0.1'))
      // The index of the pool knows the same.
      assert.deepEqual(
        readdirSync(`${net.conf.ipam?.dataDir}/${net.conf.name}`)
          .filter((name) => /^\d+\.|:/.test(name))
          .sort(),
        ['10.1.0.4', 'fd00:1::4'],
      )
    }),
  )

  it(
    "GC of one network leaves the attachments of another alone, also when one's name begins with the other's",
    inNamespaces(['node', 'mine', 'theirs'], async ({ node, mine, theirs }) => {
      const conf = bridgeConf({ isGateway: true })
      const net = network(node, conf)
      const longer = network(node, {
        ...bridgeConf({ isGateway: true, bridge: 'br1' }, '10.2.0.0/24'),
        name: `${conf.name}x`,
      })
      await net.add(mine)
      const result = await longer.add(theirs)
      await net.gc()
      assert.deepEqual(traces(mine, conf), [])
      await longer.check(theirs, result)
      assert.ok(await ping(theirs, '10.2.0.1'))
    }),
  )
})
