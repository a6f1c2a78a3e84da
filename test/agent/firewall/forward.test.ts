// lane: netns
// Tests agent/firewall and agent/parts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, isSilent, type Namespace, ping, until } from '../../support/harness.ts'
import { skip } from '../../support/skip.ts'

const NETWORKS = ['10.244.0.0/16', 'fd00:244::/48']
const ROOT = join(import.meta.dir, '../../..')

describe('removeFlannelRules()', () => {
  it(
    "takes flannel's iptables chains with their jumps and its nft tables, and leaves what is others'",
    inNamespaces(['node'], async ({ node }) => {
      for (const line of [
        'iptables-nft -t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE',
        'iptables-nft -A FORWARD -s 192.0.2.0/24 -j ACCEPT',
      ])
        await node.exec(line.split(' '))
      const before = (await node.exec(['nft', 'list', 'ruleset'])).stdout
      for (const line of [
        'iptables-nft -t nat -N FLANNEL-POSTRTG',
        'iptables-nft -t nat -A POSTROUTING -m comment --comment flanneld_masq -j FLANNEL-POSTRTG',
        'iptables-nft -t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 -j MASQUERADE',
        'iptables-nft -N FLANNEL-FWD',
        'iptables-nft -A FORWARD -j FLANNEL-FWD',
        'nft add table ip flannel-ipv4',
        'nft add table ip6 flannel-ipv6',
      ])
        assert.equal((await node.exec(line.split(' '))).status, 0, line)
      assert.deepEqual(await call(node, 'removeFlannelRules'), [
        'nft table ip flannel-ipv4',
        'iptables-nft chain FLANNEL-POSTRTG',
        'iptables-nft chain FLANNEL-FWD',
        'nft table ip6 flannel-ipv6',
      ])
      assert.deepEqual(await call(node, 'removeFlannelRules'), [])
      assert.equal((await node.exec(['nft', 'list', 'ruleset'])).stdout, before)
    }),
  )
  for (const tool of ['iptables-legacy', 'ip6tables-legacy'])
    it(
      `takes them from ${tool}, too`,
      inNamespaces(['node'], async ({ node }, test) => {
        const { status, stderr } = await node.exec([tool, '-A', 'FORWARD', '-p', 'udp', '-j', 'ACCEPT'])
        if (status !== 0) skip(test, `${tool} does not work here: ${stderr.trim().split('\n')[0]}`)
        await node.exec([tool, '-t', 'nat', '-A', 'POSTROUTING', '-p', 'udp', '-j', 'ACCEPT'])
        const before = await legacy(node, tool)
        for (const line of [
          '-t nat -N FLANNEL-POSTRTG',
          '-t nat -A POSTROUTING -m comment --comment flanneld_masq -j FLANNEL-POSTRTG',
          '-t nat -A FLANNEL-POSTRTG -j MASQUERADE',
          '-N FLANNEL-FWD',
          '-A FORWARD -j FLANNEL-FWD',
        ])
          assert.equal((await node.exec([tool, ...line.split(' ')])).status, 0, line)
        assert.deepEqual(await call(node, 'removeFlannelRules'), [
          `${tool} chain FLANNEL-POSTRTG`,
          `${tool} chain FLANNEL-FWD`,
        ])
        assert.deepEqual(await call(node, 'removeFlannelRules'), [])
        assert.equal(await legacy(node, tool), before)
      }),
    )
})

describe('the agent and a FORWARD policy of DROP', () => {
  before(function () {
    if (!existsSync('/usr/sbin/iptables-nft')) skip(this, 'iptables is not installed')
  })
  for (const [six, tool] of [
    [false, 'iptables-nft'],
    [true, 'ip6tables-nft'],
  ] as const) {
    it(
      `${tool}: pods pass a policy of DROP and Docker's rules; what is right is left alone, what somebody changed is put right, and removing it leaves the others' rules`,
      inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
        const [target, from] = await wire(node, pod, world, six)
        await until(() => ping(pod, target))
        for (const argv of [
          ['-P', 'FORWARD', 'DROP'],
          ['-N', 'DOCKER-USER'],
          ['-A', 'DOCKER-USER', '-j', 'RETURN'],
          ['-A', 'FORWARD', '-j', 'DOCKER-USER'],
          ['-A', 'FORWARD', '-i', 'docker0', '-j', 'ACCEPT'],
        ])
          assert.equal((await node.exec([tool, ...argv])).status, 0, argv.join(' '))
        const theirs = await rules(node, tool)
        assert.ok(await isSilent(pod, target))
        assert.deepEqual(await call(node, 'passForward'), [`${tool}: chain PLUMB-FORWARD and the jump to it`])
        await until(() => ping(pod, target))
        assert.deepEqual(await call(node, 'passForward'), [])
        for (const broken of [
          ['-F', 'PLUMB-FORWARD'],
          ['-D', 'FORWARD', '-j', 'PLUMB-FORWARD'],
          ['-I', 'FORWARD', '1', '-s', from, '-j', 'DROP'],
          ['-A', 'FORWARD', '-j', 'PLUMB-FORWARD'],
        ]) {
          await node.exec([tool, ...broken])
          assert.equal((await call(node, 'passForward')).length, 1, broken.join(' '))
          await until(() => ping(pod, target))
          assert.deepEqual(await call(node, 'passForward'), [])
        }
        await node.exec([tool, '-D', 'FORWARD', '-s', from, '-j', 'DROP'])
        for (let i = 0; i < 2; i++) await call(node, 'leaveForward')
        assert.equal(await rules(node, tool), theirs)
      }),
    )
  }
  it(
    'starts nothing and makes nothing on a node without a FORWARD chain of iptables',
    inNamespaces(['node'], async ({ node }) => {
      assert.deepEqual(await call(node, 'passForward'), [])
      assert.equal((await node.exec(['nft', 'list', 'ruleset'])).stdout, '')
    }),
  )
})

// In a process of its own: which chains there are is asked of the namespace that one is in.
async function call(node: Namespace, name: string): Promise<string[]> {
  const script = `const { passForward, leaveForward } = await import(${JSON.stringify(join(ROOT, 'agent/firewall/forward.ts'))}); const { removeFlannelRules } = await import(${JSON.stringify(join(ROOT, 'agent/firewall/flannel-rules.ts'))}); const { run } = await import(${JSON.stringify(join(ROOT, 'lib/os/exec.ts'))});
  const done = await { passForward: () => passForward(${JSON.stringify(NETWORKS)}, 'default', run), leaveForward: () => leaveForward('default', run), removeFlannelRules: () => removeFlannelRules(run) }[${JSON.stringify(name)}](); console.log(JSON.stringify(done ?? []))`
  const { status, stdout, stderr } = await node.exec([process.execPath, '-e', script])
  assert.equal(status, 0, stderr)
  return JSON.parse(stdout)
}

async function legacy(node: Namespace, tool: string): Promise<string> {
  const texts = await Promise.all(
    ['nat', 'filter'].map(async (table) => (await node.exec([tool, '-t', table, '-S'])).stdout),
  )
  return texts.join('\n')
}

async function rules(node: Namespace, tool: string): Promise<string> {
  return (await node.exec([tool, '-S'])).stdout
}

async function wire(node: Namespace, pod: Namespace, world: Namespace, six: boolean): Promise<[string, string]> {
  await node.exec([
    'sh',
    '-c',
    'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding; echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad',
  ])
  const at = six
    ? { pod: ['fd00:244::1', 'fd00:244::2'], world: ['2001:db8::1', '2001:db8::2'], length: 64 }
    : { pod: ['10.244.0.1', '10.244.0.2'], world: ['192.0.2.1', '192.0.2.2'], length: 24 }
  for (const [name, other, [own = '', theirs = '']] of [
    ['pod0', pod, at.pod],
    ['up0', world, at.world],
  ] as const) {
    await node.ip('link', 'add', 'name', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', other.path)
    for (const [ns, dev, address] of [
      [node, name, own],
      [other, 'eth0', theirs],
    ] as const) {
      await ns.ip('addr', 'add', `${address}/${at.length}`, 'dev', dev, ...(six ? ['nodad'] : []))
      await ns.ip('link', 'set', dev, 'up')
    }
    await other.ip('route', 'add', 'default', 'via', own)
  }
  return [at.world[1] as string, at.pod[1] as string]
}
