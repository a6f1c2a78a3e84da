// lane: long
// Tests plugins/firewall.ts.
import assert from 'node:assert/strict'
import { bridgeBefore, chainedNetwork, shutNode } from '../../support/chained-network.ts'
import {
  inNamespaces,
  isSilent,
  type Namespace,
  ping,
  plugin,
  type Row,
  snapshot,
  until,
} from '../../support/harness.ts'
import { works } from '../../support/host-ports.ts'
import { bridgeConf, type Conf, containerId, settled } from '../../support/network.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { testPlugin } from '../../support/suites/testPlugin.ts'
import { shimmed, without } from '../../support/tool-shims.ts'

const conf = (keys: object = {}): Conf => ({ cniVersion: '1.1.0', name: bridgeConf().name, type: 'firewall', ...keys })

testPlugin({
  type: 'firewall',
  conf,
  refused: (one) => ({ ...one, ingressPolicy: 'closed' }),
  again: 'same',
  network: (node, one) => chainedNetwork(node, one),
  async works(pod, _, node) {
    await shutNode(node)
    for (const address of [WORLD.world4, WORLD.world6]) assert.ok(await until(() => ping(pod, address)), address)
  },
})

/** What goes wrong, and what CHECK says of it. */
const FAULTS: Record<string, { readonly break: string; readonly says: RegExp }> = {
  'the elements of the pod are gone': {
    break: 'nft flush set inet plumb pods4; nft flush set inet plumb pods6',
    says: /^nft element 10\.1\.0\.2 of pods4 is missing; nft element fd00:1::2 of pods6 is missing$/,
  },
  'the isolation is gone': {
    break: 'nft flush set inet plumb isolating; nft flush set inet plumb together',
    says: /^nft element "br0" of isolating is missing; nft element "br0" \. "br0" of together is missing$/,
  },
  'the chain at forward is empty': {
    break: 'nft flush chain inet plumb forward',
    says: /^nft chain forward has 0 rules, want 7$/,
  },
  'the chain after it is gone': {
    break: 'nft delete chain inet plumb forwarded',
    says: /^nft chain forwarded has 0 rules, want 5$/,
  },
  'the jump in iptables is gone': {
    break: 'iptables -D FORWARD -j PLUMB-PODS',
    says: /^iptables chain PLUMB-PODS, IPv4, with CNI-ADMIN in it and the jump to it, is missing$/,
  },
  'the chain in ip6tables is empty': {
    break: 'ip6tables -F PLUMB-PODS',
    says: /^iptables chain PLUMB-PODS, IPv6, with CNI-ADMIN in it and the jump to it, is missing$/,
  },
  'the firewall is flushed': {
    break: 'nft flush ruleset',
    says: /nft element 10\.1\.0\.2 of pods4 is missing.*nft chain forward has 0 rules, want 7/,
  },
}

describe('firewall: CHECK', () => {
  for (const [what, fault] of Object.entries(FAULTS)) {
    it(
      `${what}: it is named, and nothing is changed; another ADD puts it right`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chainedNetwork(node, conf({ ingressPolicy: 'same-bridge' }))
        const result = await net.add(pod)
        await net.check(pod, result)
        const { status, stderr } = await node.exec(['bash', '-ec', fault.break])
        assert.equal(status, 0, stderr)
        const before = await settled(() => snapshot(node))
        const { details } = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
        assert.match(details ?? 'it passed', fault.says)
        assert.equal(await snapshot(node), before)
        await net.add(pod)
        await net.check(pod, result)
      }),
    )
  }
})

describe('firewall: open', () => {
  it(
    'answers what it was given; behind a FORWARD chain that drops, pods reach out and get answers in both families, and nobody reaches them',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64')
      const own = conf()
      const first = bridgeBefore(own)
      const prevResult = works(
        await plugin('bridge', { command: 'ADD', conf: first, containerId: 'c1', netns: pod }, node),
      ).result
      for (const tool of ['iptables', 'ip6tables']) await node.exec([tool, '-P', 'FORWARD', 'DROP'])
      for (const [six, address] of outside) assert.ok(await isSilent(pod, address), six)
      const add = { command: 'ADD', conf: { ...own, prevResult }, containerId: 'c1', netns: pod }
      assert.deepEqual(works(await plugin('firewall', add, node)).result, prevResult)
      for (const [, address] of outside) assert.ok(await until(() => ping(pod, address)), address)
      for (const { address } of prevResult['ips']) assert.ok(await isSilent(world, address.split('/')[0]), address)
      works(await plugin('firewall', { ...add, command: 'DEL', conf: own }, node))
      for (const [, address] of outside) assert.ok(await isSilent(pod, address), address)
    }),
  )

  it(
    'a FORWARD chain that is made after the pod finds the way through; with backend nftables there is none where there is no such chain',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
      await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64')
      const nft = chainedNetwork(node, conf({ backend: 'nftables' }))
      await nft.add(other)
      assert.doesNotMatch((await node.exec(['nft', 'list', 'tables'])).stdout, / filter/)
      await nft.del(other)
      const net = chainedNetwork(node, conf({ backend: 'iptables' }))
      await net.add(pod)
      for (const tool of ['iptables', 'ip6tables']) await node.exec([tool, '-P', 'FORWARD', 'DROP'])
      for (const [, address] of outside) assert.ok(await until(() => ping(pod, address)), address)
    }),
  )

  for (const admin of ['CNI-ADMIN', 'my-rules'])
    it(
      `an admin's rules in ${admin}, of nft and of iptables, come before what pods may, and stay when the rules are loaded again`,
      inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
        await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64')
        for (const tool of ['iptables', 'ip6tables']) await node.exec([tool, '-P', 'FORWARD', 'DROP'])
        const net = chainedNetwork(node, conf(admin === 'CNI-ADMIN' ? {} : { iptablesAdminChainName: admin }))
        const { ips } = await net.add(pod)
        const [four, six] = ips.map(({ address }: Row) => address.split('/')[0])
        // One is shut out, and the other way round the world may come in.
        await shell(node, `nft add rule inet plumb ${admin} ip daddr ${WORLD.world4} drop`)
        await shell(node, `nft add rule inet plumb ${admin} ip6 saddr ${WORLD.world6} ip6 daddr ${six} accept`)
        const asAdminSays = async () => {
          assert.ok(await isSilent(pod, WORLD.world4))
          assert.ok(await until(() => ping(pod, WORLD.world6)))
          assert.ok(await until(() => ping(world, six)))
          assert.ok(await isSilent(world, four))
        }
        await asAdminSays()
        await shell(node, 'nft flush chain inet plumb forward')
        await net.add(other)
        await asAdminSays()
        await shell(
          node,
          `nft flush chain inet plumb ${admin}; iptables -A ${admin} -d ${WORLD.world4} -p icmp -j DROP; iptables -A ${admin} -s ${WORLD.world4} -d ${four} -j ACCEPT`,
        )
        assert.ok(await isSilent(pod, WORLD.world4))
        await net.add(pod)
        assert.ok(await isSilent(pod, WORLD.world4))
        await shell(node, `iptables -D ${admin} 1`)
        assert.ok(await until(() => ping(pod, WORLD.world4)))
        assert.ok(await until(() => ping(world, four)))
      }),
    )

  it(
    'an unknown backend or policy, a policy without a bridge, and a name that no chain can have are refused, and nothing is made',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const before = await snapshot(node)
      const wrong: [object, RegExp][] = [
        [{ backend: 'ipfw' }, /backend "ipfw": want one of iptables, firewalld, nftables/],
        [{ ingressPolicy: 'closed' }, /ingressPolicy "closed": want one of open, same-bridge, isolated/],
        [{ ingressPolicy: 'isolated' }, /ingressPolicy "isolated": prevResult names no interface/],
        [
          { ingressPolicy: 'same-bridge', prevResult: { interfaces: [{ name: 'br*' }] } },
          /"br\*": want a name without "\*"/,
        ],
        [{ iptablesAdminChainName: 'forward' }, /"forward": it has another meaning/],
        [{ iptablesAdminChainName: 'a b; flush ruleset' }, /want the name of a chain/],
      ]
      for (const [keys, says] of wrong) {
        const { error } = await plugin(
          'firewall',
          {
            command: 'ADD',
            conf: { ...conf(keys), prevResult: { ips: [{ address: '10.1.0.9/24' }] }, ...keys },
            netns: pod,
          },
          node,
        )
        assert.equal(error.code, 7)
        assert.match(error.msg, says)
      }
      assert.equal(await snapshot(node), before)
      for (const backend of ['', 'iptables', 'firewalld', 'nftables'])
        works(
          await plugin(
            'firewall',
            {
              command: 'ADD',
              conf: { ...conf({ backend }), prevResult: { ips: [{ address: '10.1.0.9/24' }] } },
              netns: pod,
            },
            node,
          ),
        )
    }),
  )

  it(
    'a second attachment with the same address keeps it when the first one goes; a pod adds no rule',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const rules = async () => (await node.exec(['nft', '-a', 'list', 'ruleset'])).stdout.match(/# handle/g)?.length
      const held = async () =>
        (await node.exec(['nft', 'list', 'set', 'inet', 'plumb', 'pods4'])).stdout.includes('10.1.0.9')
      const call = async (command: string, name: string, of: Namespace) =>
        works(
          await plugin(
            'firewall',
            {
              command,
              conf: { cniVersion: '1.0.0', name, type: 'firewall', prevResult: { ips: [{ address: '10.1.0.9/24' }] } },
              containerId: containerId(of),
              netns: of,
            },
            node,
          ),
        )
      await call('ADD', 'one', pod)
      const before = await rules()
      await call('ADD', 'two', other)
      assert.equal(await rules(), before)
      await call('DEL', 'one', pod)
      assert.equal(await held(), true)
      await call('DEL', 'two', other)
      assert.equal(await held(), false)
    }),
  )

  it(
    'STATUS is 50 without nft, and silent with it',
    inNamespaces(['node'], async ({ node }) => {
      const call = { command: 'STATUS', conf: conf(), containerId: null, ifname: null }
      assert.equal(works(await plugin('firewall', call, node)).stdout, '')
      const { error } = await plugin('firewall', { ...call, file: shimmed('firewall', {}, without('nft')).file }, node)
      assert.deepEqual([error.code, error.details], [50, 'install the package nftables'])
    }),
  )
})

describe('firewall: ingressPolicy', () => {
  for (const bridgeNf of [0, 1]) {
    for (const policy of ['same-bridge', 'isolated'] as const)
      it(
        `[FW ${policy === 'isolated' ? 199 : 198}] ${policy}, bridge-nf-call-iptables=${bridgeNf}: who reaches whom in both families; gone with the last pod`,
        inNamespaces(['node', 'pod', 'other', 'bar', 'world'], async ({ node, pod, other, bar, world }) => {
          await shell(
            node,
            `for one in iptables ip6tables; do echo ${bridgeNf} >/proc/sys/net/bridge/bridge-nf-call-$one; done`,
          )
          await wireWorld(node, world, '10.1.0.0/24', 'fd00:1::/64', '10.2.0.0/24', 'fd00:2::/64')
          const network = (bridge: string, n: number) => {
            const own = conf({ ingressPolicy: policy })
            return chainedNetwork(node, own, {
              ...bridgeBefore(own, { bridge }),
              bridge,
              ipam: { type: 'host-local', ranges: [[{ subnet: `10.${n}.0.0/24` }], [{ subnet: `fd00:${n}::/64` }]] },
            })
          }
          const [foo, bars] = [network('br0', 1), network('br1', 2)]
          const open = chainedNetwork(node, conf(), {
            ...bridgeBefore(conf(), { bridge: 'br1' }),
            name: 'open',
            ipam: {
              type: 'host-local',
              ranges: [
                [{ subnet: '10.2.0.0/24', rangeStart: '10.2.0.100' }],
                [{ subnet: 'fd00:2::/64', rangeStart: 'fd00:2::100' }],
              ],
            },
          })
          const of = (result: Row): string[] => result['ips'].map(({ address }: Row) => address.split('/')[0])
          await foo.add(pod)
          const sibling = of(await foo.add(other))
          const stranger = of(await bars.add(bar))
          for (const address of [WORLD.world4, WORLD.world6]) assert.ok(await until(() => ping(pod, address)), address)
          for (const address of stranger) assert.ok(await isSilent(pod, address), address)
          for (const address of sibling)
            assert.equal(
              await (policy === 'isolated' ? ping(pod, address) : until(() => ping(pod, address))),
              policy === 'same-bridge',
              address,
            )
          await bars.del(bar)
          const reached = of(await open.add(bar))
          for (const address of reached) assert.ok(await until(() => ping(pod, address)), address)
          await foo.del(other)
          assert.match(await isolation(node), /br0/)
          await foo.del(pod)
          assert.doesNotMatch(await isolation(node), /br[01]/)
        }),
      )
  }
})

const outside = [
  ['IPv4', WORLD.world4],
  ['IPv6', WORLD.world6],
] as const

async function isolation(node: Namespace): Promise<string> {
  return (
    await Promise.all(
      ['isolating', 'together', 'apart'].map((set) => node.exec(['nft', 'list', 'set', 'inet', 'plumb', set])),
    )
  )
    .map(({ stdout }) => stdout)
    .join('')
}

async function shell(node: Namespace, script: string): Promise<void> {
  const { status, stderr } = await node.exec(['sh', '-ec', script])
  assert.equal(status, 0, stderr)
}
