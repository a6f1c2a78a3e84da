// lane: netns
// Tests plugins/bandwidth.ts.
import assert from 'node:assert/strict'
import { load } from '../../../bench/traffic.ts'
import type { NetnsPath } from '../../../lib/text/values.ts'
import { BOTH, conf, redirected, root, tc } from '../../support/bandwidth.ts'
import { bridgeBefore, chainedNetwork } from '../../support/chained-network.ts'
import {
  type Answer,
  type Call,
  inNamespaces,
  type Namespace,
  ping,
  plugin,
  type Row,
  snapshot,
  until,
} from '../../support/harness.ts'
import { watched, works } from '../../support/host-ports.ts'
import { type Conf, containerId, network, settled } from '../../support/network.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'
import { shimmed, without } from '../../support/tool-shims.ts'

testPlugin({
  type: 'bandwidth',
  conf,
  refused: (one) => ({ ...one, ingressBurst: 0 }),
  again: 'same',
  network: (node, one) => chainedNetwork(node, one),
  async works(pod, result, node) {
    for (const address of ['10.1.0.1', 'fd00:1::1']) assert.ok(await until(() => ping(pod, address)), address)
    const { name } = (result['interfaces'] ?? []).at(-1) ?? {}
    // What the pod sends came through it.
    if (name) assert.ok((await root(node, name))['bytes'] > 0)
  },
})

describe('bandwidth: what it makes', () => {
  for (const [what, keys, ingress, egress] of [
    ['both directions', BOTH, 80_000_000, 40_000_000],
    ['ingress only', { ingressRate: 80_000_000, ingressBurst: 1_000_000 }, 80_000_000, 0],
    ['egress only', { egressRate: 40_000_000, egressBurst: 800_000 }, 0, 40_000_000],
    [
      'by the runtime',
      {
        runtimeConfig: {
          bandwidth: { IngressRate: 80_000_000, IngressBurst: 1_000_000, EgressRate: 0, EgressBurst: 0 },
        },
      },
      80_000_000,
      0,
    ],
    [
      'static keys win, all of them',
      {
        ingressRate: 80_000_000,
        ingressBurst: 1_000_000,
        runtimeConfig: {
          bandwidth: { ingressRate: 1_000_000, ingressBurst: 100_000, egressRate: 1_000_000, egressBurst: 100_000 },
        },
      },
      80_000_000,
      0,
    ],
  ] as const)
    it(
      what,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chainedNetwork(node, conf(keys))
        const { interfaces } = await net.add(pod)
        const [, port, , ifb] = interfaces
        const onPort = await root(node, port.name)
        if (ingress)
          assert.deepEqual(
            [onPort['kind'], onPort['options'].rate * 8, near(onPort['options'].burst, 125_000)],
            ['tbf', ingress, true],
          )
        else assert.equal(onPort['kind'], 'noqueue')
        if (!egress) return void assert.deepEqual([ifb, await redirected(node, port.name)], [undefined, []])
        const onIfb = await root(node, ifb.name)
        assert.deepEqual(
          [onIfb['kind'], onIfb['options'].rate * 8, near(onIfb['options'].burst, 100_000)],
          ['tbf', egress, true],
        )
        assert.deepEqual(await redirected(node, port.name), [ifb.name])
        assert.equal((await node.json('link', 'show', ifb.name))[0]?.['address'], ifb.mac)
        assert.equal((await node.exec(['cat', `/proc/sys/net/ipv6/conf/${ifb.name}/disable_ipv6`])).stdout, '1\n')
      }),
    )

  it(
    'a rate without a burst, a burst without a rate and one above 4 GB are refused, and nothing is made; what no one chose is bounded',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chainedNetwork(node, conf({}))
      const result = await net.add(pod)
      const before = await settled(() => snapshot(node))
      const wrong: [object, RegExp][] = [
        [
          { ingressRate: 10_000_000 },
          /^Cannot read ingressBurst: if rate is set, burst must also be set, and ingressRate is 10000000; want bits, such as 1000000$/,
        ],
        [{ egressBurst: 8000 }, /^Cannot read egressRate: if burst is set, rate must also be set/],
        [{ runtimeConfig: { bandwidth: { egressRate: 1 } } }, /^Cannot read runtimeConfig.bandwidth.egressBurst: /],
        [{ ingressRate: 8, ingressBurst: 8 * 2 ** 32 }, /burst cannot be more than 4GB/],
        [{ ingressRate: -1 }, /ingressRate -1: want a whole number/],
      ]
      for (const [keys, says] of wrong)
        assert.match((await net.fails('ADD', pod, { conf: { ...conf(keys), prevResult: result } })).msg, says)
      assert.equal(await snapshot(node), before)
      // kubelet's and containerd's "no burst", and one that no packet fits into.
      for (const [ingressBurst, bytes] of [
        [2 ** 31 - 1, 125_000],
        [2 ** 32 - 1, 125_000],
        [8000, 5000],
      ] as const) {
        await net.add(pod, { conf: { ...net.conf, ingressRate: 10_000_000, ingressBurst, prevResult: result } })
        assert.ok(near((await root(node, result['interfaces'][1].name))['options'].burst, bytes), `${ingressBurst}`)
      }
    }),
  )

  it(
    'after ptp only that pod is slowed down, both ways, and not before it has it',
    inNamespaces(['node', 'pod', 'other'], async function slowed({ node, pod, other }) {
      const first = {
        cniVersion: '1.1.0',
        name: 'ptp',
        type: 'ptp',
        ipam: { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }]], routes: [{ dst: '0.0.0.0/0' }] },
      }
      const own = {
        ...conf({ ingressRate: 20_000_000, ingressBurst: 200_000, egressRate: 20_000_000, egressBurst: 200_000 }),
        name: 'ptp',
      }
      const [slow, fast] = [
        await chainedNetwork(node, own, first).add(pod),
        await chainedNetwork(node, { ...conf({}), name: 'ptp' }, first).add(other),
      ]
      const rate = async (from: Namespace, to: Namespace, address: string) =>
        (await load(from.path as NetnsPath, to.path as NetnsPath, address, 1000)).rate
      const of = (result: Row) => result['ips'][0].address.split('/')[0]
      for (const one of [await rate(node, pod, of(slow)), await rate(pod, node, '10.1.0.1')])
        assert.ok(one > 10e6 && one < 23e6, `${one}`)
      assert.ok((await rate(node, other, of(fast))) > 60e6)
    }),
  )
})

describe('bandwidth: the right link', () => {
  it(
    'of several host ends that of this interface; none, another, or no interfaces at all are errors that say so',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      for (const n of [0, 1])
        await node.ip('link', 'add', `h${n}`, 'type', 'veth', 'peer', 'name', `eth${n}`, 'netns', pod.path)
      await pod.ip('link', 'add', 'lone', 'type', 'veth', 'peer', 'name', 'other')
      const names = (...all: string[]) => ({
        interfaces: [...all.map((name) => ({ name })), { name: 'eth1', sandbox: pod.path }],
        ips: [],
      })
      const call = (prevResult: object, ifname = 'eth1'): Promise<Answer> =>
        plugin(
          'bandwidth',
          {
            command: 'ADD',
            conf: { ...conf({ ingressRate: 8_000_000, ingressBurst: 80_000 }), prevResult },
            netns: pod,
            ifname,
          },
          node,
        )
      works(await call(names('br0', 'h0', 'h1')))
      assert.deepEqual([(await root(node, 'h0'))['kind'] === 'tbf', (await root(node, 'h1'))['kind']], [false, 'tbf'])
      for (const [answer, says] of [
        [await call({ ips: [] }), /prevResult names no interfaces/],
        [await call(names('h0', 'h1'), 'lone'), /lone has no veth peer on the node/],
        [await call(names('h0', 'h1'), 'absent'), /absent has no veth peer on the node/],
        [await call(names('h0')), /its other end, h1, is not among the interfaces of prevResult/],
      ] as const) {
        assert.equal(answer.error.code, 7)
        assert.match(answer.error.msg, says)
      }
    }),
  )

  it(
    'two interfaces of a container on one network have an ifb each',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const own = conf()
      const first = bridgeBefore(own)
      const call = async (type: string, ifname: string, keys: Conf, more: Partial<Call> = {}) =>
        works(await plugin(type, { command: 'ADD', conf: keys, containerId: 'c1', netns: pod, ifname, ...more }, node))
          .result
      const ifbs: string[] = []
      for (const ifname of ['eth0', 'eth1'])
        ifbs.push(
          (
            await call('bandwidth', ifname, {
              ...own,
              prevResult: await call('bridge', ifname, { ...first, isDefaultGateway: false }),
            })
          )['interfaces'].at(-1).name,
        )
      assert.equal(new Set(ifbs).size, 2)
      await call('bandwidth', 'eth0', own, { command: 'DEL' })
      assert.deepEqual(
        (await node.json('link', 'show', 'type', 'ifb')).map(({ ifname }) => ifname),
        [ifbs[1]],
      )
    }),
  )
})

describe('bandwidth: again, and beside others', () => {
  it(
    'another ADD changes rates in place, takes away what is no longer asked for, and redirects once',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chainedNetwork(node, conf())
      const [, port, , ifb] = (await net.add(pod))['interfaces']
      const prevResult = { ...(await net.add(pod)), interfaces: [port, { name: 'eth0', sandbox: pod.path }] }
      assert.deepEqual(await redirected(node, port.name), [ifb.name])
      await net.add(pod, { conf: { ...net.conf, ...BOTH, ingressRate: 8_000_000, prevResult } })
      assert.equal((await root(node, port.name))['options'].rate * 8, 8_000_000)
      assert.ok(await until(() => ping(pod, '10.1.0.1')))
      await net.add(pod, { conf: { ...net.conf, ...BOTH, ingressRate: 0, ingressBurst: 0, prevResult } })
      assert.equal((await root(node, port.name))['kind'], 'noqueue')
      await net.add(pod, { conf: { ...net.conf, ...BOTH, egressRate: 0, egressBurst: 0, prevResult } })
      assert.deepEqual([await redirected(node, port.name), await node.json('link', 'show', 'type', 'ifb')], [[], []])
      assert.ok(await until(() => ping(pod, '10.1.0.1')))
    }),
  )

  for (const kind of ['clsact', 'ingress'])
    it(
      `another's ${kind} qdisc and its filter live on; another's root is not replaced`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const own = conf()
        const net = network(node, own)
        const [, port] = (await network(node, bridgeBefore(own)).add(pod))['interfaces']
        await tc(node, `qdisc add dev ${port.name} ${kind}`)
        await tc(
          node,
          `filter add dev ${port.name} ingress protocol ip pref 7 u32 match ip dst 192.0.2.99/32 flowid 1:1`,
        )
        const prevResult = { interfaces: [port, { name: 'eth0', sandbox: pod.path }] }
        const result = await net.add(pod, { conf: { ...own, prevResult } })
        await net.check(pod, result)
        const theirs = async () => (await tc(node, `filter show dev ${port.name} ingress pref 7`)).length
        assert.deepEqual([await theirs(), await redirected(node, port.name)], [3, [result['interfaces'].at(-1).name]])
        works(await plugin('bandwidth', { command: 'DEL', conf: own, containerId: containerId(pod), netns: pod }, node))
        assert.equal(await theirs(), 3)
        await tc(node, `qdisc replace dev ${port.name} root handle 1: pfifo`)
        assert.equal((await net.fails('ADD', pod, { conf: { ...own, prevResult } })).code, 999)
        assert.equal((await root(node, port.name))['kind'], 'pfifo')
      }),
    )

  it(
    'without limits it answers what it was given and starts nothing; without prevResult that is an error',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const prevResult = {
        cniVersion: '1.1.0',
        interfaces: [{ name: 'eth0', sandbox: pod.path }],
        ips: [{ address: '10.1.0.9/24' }],
      }
      for (const keys of [{}, noLimits, { runtimeConfig: { bandwidth: {} } }]) {
        const { answer, tools } = await watched(node, 'bandwidth', {
          command: 'ADD',
          conf: { ...conf(keys), prevResult },
          netns: pod,
        })
        assert.deepEqual([works(answer).result, tools], [prevResult, []])
        const { error } = await plugin('bandwidth', { command: 'ADD', conf: conf(keys), netns: pod }, node)
        assert.deepEqual([error.code, error.msg], [7, 'Required prevResult missing'])
      }
      assert.deepEqual((await watched(node, 'bandwidth', { command: 'DEL', conf: conf(), netns: pod })).tools, [])
    }),
  )

  it(
    'ADD runs ip and tc once each, DEL ip alone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const own = conf()
      const prevResult = await chainedNetwork(node, { ...own, ...noLimits }, bridgeBefore(own)).add(pod)
      const call = (command: string) =>
        watched(node, 'bandwidth', { command, conf: { ...own, prevResult }, containerId: containerId(pod), netns: pod })
      works(await plugin('bandwidth', { command: 'DEL', conf: own, containerId: containerId(pod), netns: pod }, node))
      assert.deepEqual((await call('ADD')).tools.sort(), ['ip', 'tc'])
      assert.deepEqual((await call('DEL')).tools, ['ip'])
      assert.deepEqual(await node.json('link', 'show', 'type', 'ifb'), [])
    }),
  )

  it(
    'STATUS is 50 without tc, and silent with it',
    inNamespaces(['node'], async ({ node }) => {
      const call = { command: 'STATUS', conf: conf(), containerId: null, ifname: null }
      assert.equal(works(await plugin('bandwidth', call, node)).stdout, '')
      const { error } = await plugin('bandwidth', { ...call, file: shimmed('bandwidth', {}, without('tc')).file }, node)
      assert.deepEqual([error.code, error.details], [50, 'install the package iproute2'])
    }),
  )
})

const noLimits = { ingressRate: 0, ingressBurst: 0, egressRate: 0, egressBurst: 0 }

function near(bytes: number, want: number): boolean {
  return Math.abs(bytes - want) <= want / 1000
}
