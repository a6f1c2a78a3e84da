// lane: netns
// Tests lib/nft.
import assert from 'node:assert/strict'
import { isWhole, lostRules } from '../../../lib/nft/ruleset.ts'
import { run } from '../../../lib/os/exec.ts'
import { inside } from '../../../lib/os/netns.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace, ping, until } from '../../support/harness.ts'
import { bridgeConf, network, traces } from '../../support/network.ts'

const CONF = { isDefaultGateway: true, ipMasq: true, macspoofchk: true }
const SUBNETS = ['10.1.0.0/24', 'fd00:1::/64']

describe('bridge with ipMasq, when others use nft', () => {
  const deeds: Readonly<Record<string, readonly string[]>> = {
    'deleted the table': ['delete table inet plumb'],
    'flushed the table': ['flush table inet plumb'],
    'flushed the whole ruleset': ['flush ruleset'],
    'flushed a chain': ['flush chain inet plumb outward'],
    'deleted the hook': ['flush chain inet plumb postrouting', 'delete chain inet plumb postrouting'],
  }
  for (const [what, lines] of Object.entries(deeds)) {
    it(
      `the next ADD of the network puts right that somebody ${what}, for the pods that are there, too`,
      inNamespaces(['node', 'pod', 'next'], async ({ node, pod, next }) => {
        const net = network(node, bridgeConf(CONF, ...SUBNETS))
        const result = await net.add(pod)
        const before = await ruleset(node)
        assert.match(before, /masquerade/)
        await nft(node, lines)
        assert.notEqual(await ruleset(node), before)
        assert.match((await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })).details, /nft/)
        await net.add(next)
        await net.del(next)
        // A chain made again is listed behind the others.
        assert.deepEqual(parts(await ruleset(node)), parts(before))
        await net.check(pod, result)
      }),
    )
  }

  it(
    'rules that are whole are told from how often chains are in use, whatever elements and chains of networks are there; others are looked at one by one',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const looks = () =>
        inside(parse.netns(node.path), () => [isWhole(run, ['masquerade']), lostRules(run, ['masquerade']).length])
      await network(node, bridgeConf(CONF, ...SUBNETS)).add(pod)
      const theirs = [
        'add chain inet plumb cond4_x',
        'add rule inet plumb cond4_x ip saddr 192.0.2.0/24 accept',
        'add element inet plumb conditional4 { tcp . 80 : jump cond4_x }',
        'add chain inet plumb my-admin',
      ]
      await nft(node, theirs)
      assert.deepEqual(looks(), [true, 0])
      for (const line of [
        'flush chain inet plumb outward',
        'add rule inet plumb outward accept',
        'delete table inet plumb',
      ]) {
        await nft(node, [line])
        const [isWholeNow, lost] = looks()
        assert.ok(isWholeNow === false && (lost as number) > 0, line)
      }
    }),
  )

  it(
    'tables of others are as they were after ADD, CHECK, DEL and GC',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const theirs = [
        'add table ip nat',
        'add chain ip nat POSTROUTING { type nat hook postrouting priority 100; policy accept; }',
        'add chain ip nat CNI-0123456789abcdef01234567',
        'add rule ip nat POSTROUTING ip saddr 10.9.0.0/24 counter jump CNI-0123456789abcdef01234567 comment "name: other id: c1"',
        'add table inet cni_plugins_masquerade',
        'add chain inet cni_plugins_masquerade masq_checks',
        'add rule inet cni_plugins_masquerade masq_checks ip saddr 10.9.0.2 masquerade comment "0123456789abcdef-0123456789abcdef, net: other, if: eth0, id: c1"',
        'add table inet filter',
        'add chain inet filter forward { type filter hook forward priority 0; policy drop; }',
        'add table bridge plumb',
        'add table ip plumb',
      ]
      await nft(node, theirs)
      const before = await ruleset(node)
      const net = network(node, bridgeConf(CONF, ...SUBNETS))
      const result = await net.add(pod)
      await net.check(pod, result)
      await net.del(pod)
      await net.del(pod)
      await net.add(pod)
      await net.gc()
      await nft(node, ['delete table inet plumb'])
      assert.equal(await ruleset(node), before)
    }),
  )

  it(
    "a table of plumb's name that is not plumb's: a clear error, nothing left, and the table is as it was",
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      await nft(node, [
        'add table inet plumb',
        'add set inet plumb masq4 { type inet_service; elements = { 22 }; }',
        'add chain inet plumb mine { type filter hook input priority 0; policy accept; }',
        'add rule inet plumb mine tcp dport @masq4 accept',
      ])
      const before = await ruleset(node)
      const net = network(node, bridgeConf(CONF, ...SUBNETS))
      const { code, msg, details } = await net.fails('ADD', pod)
      assert.equal(code, 999)
      assert.match(`${msg} ${details}`, /^The kernel or a tool refused: .* nft -f -: .*add element inet plumb masq4/s)
      assert.equal(await ruleset(node), before)
      assert.deepEqual([await node.json('link', 'show', 'type', 'veth'), traces(pod, net.conf)], [[], []])
      await nft(node, ['delete table inet plumb'])
      await net.add(pod)
      await until(() => ping(pod, '10.1.0.1'))
    }),
  )
})

async function nft(node: Namespace, lines: readonly string[]): Promise<void> {
  const { status, stderr } = await node.exec(['nft', '-f', '-'], { stdin: `${lines.join('\n')}\n` })
  assert.equal(status, 0, stderr)
}

async function ruleset(node: Namespace): Promise<string> {
  return (await node.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout
}

function parts(text: string): string[] {
  return text
    .split('\n\t}\n')
    .map((part) => part.trim())
    .sort()
}
