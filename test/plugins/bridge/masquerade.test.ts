// lane: netns
// needs: reference
// Tests plugins/bridge.ts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { execa } from 'execa'
import { references } from '../../../scripts/peers.ts'
import { inNamespaces, type Namespace, plugin, snapshot, until } from '../../support/harness.ts'
import { bridgeConf, type Conf, containerId, network, settled, traces } from '../../support/network.ts'
import { multicastSeen, sourceSeen, WORLD, wireWorld } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'

const SUBNETS = ['10.1.0.0/24', 'fd00:1::/64']
const MASQUERADED = [WORLD.node4, WORLD.node6]
const WAYS: Record<string, (pod: Namespace) => Promise<Namespace | string>> = {
  live: async (pod) => pod,
  empty: async () => '',
  async gone(pod) {
    await execa('ip', ['netns', 'delete', containerId(pod)])
    return pod.path
  },
}

describe('bridge: ipMasq', () => {
  for (const ipMasqBackend of ['iptables', 'nftables', '', undefined]) {
    it(
      `ipMasqBackend ${ipMasqBackend}: the outside sees the node's addresses; the same subnet and the node see the pod's`,
      inNamespaces(['node', 'pod', 'peer', 'world'], async ({ node, pod, peer, world }) => {
        await wireWorld(node, world, ...SUBNETS)
        const net = network(node, masqueraded({ ipMasqBackend }))
        const [mine, theirs] = [await net.add(pod), await net.add(peer)].map((result) =>
          result['ips'].map(({ address }: { address: string }) => bare(address)),
        )
        assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
        for (const i of [0, 1]) {
          assert.equal(await sourceSeen(pod, peer, theirs[i]), mine[i])
          assert.equal(await sourceSeen(pod, node, ['10.1.0.1', 'fd00:1::1'][i] as string), mine[i])
        }
      }),
    )
  }

  it(
    'without ipMasq the outside sees the pod',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      await network(node, masqueraded({ ipMasq: false })).add(pod)
      assert.deepEqual(await seenOutside(pod, world), ['10.1.0.2', 'fd00:1::2'])
    }),
  )

  it(
    'multicast from the subnet keeps its source, unicast from there does not',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      await network(node, masqueraded()).add(pod)
      assert.equal(
        await multicastSeen(node, world, { source: '10.1.0.1', out: WORLD.node4, heard: WORLD.world4 }),
        '10.1.0.1',
      )
    }),
  )

  for (const [way, netnsOf] of Object.entries(WAYS)) {
    it(
      `DEL with its namespace ${way} leaves nothing of the attachment; the last takes all that the network had`,
      inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
        await wireWorld(node, world, ...SUBNETS)
        const net = network(node, masqueraded())
        await net.add(other)
        const before = await ruleset(node)
        await net.add(pod)
        assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
        // The cost of an attachment does not grow with their number: it has elements of hash sets, and no rule.
        assert.equal(rulesIn(await ruleset(node)), rulesIn(before))
        await net.del(pod, { netns: await netnsOf(pod) })
        assert.equal(await ruleset(node), before)
        assert.deepEqual(traces(pod, net.conf), [])
        assert.deepEqual(await seenOutside(other, world), MASQUERADED)
        await net.del(other, { netns: '' })
        assert.doesNotMatch(await ruleset(node), /10\.1\.0|fd00:1|comment/)
      }),
    )
  }

  it(
    'an ADD with ipMasq false masquerades nothing of that pod, whatever pods of the network before it had; DEL of the last leaves no element',
    inNamespaces(['node', 'pod', 'plain', 'world'], async ({ node, pod, plain, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      const net = network(node, masqueraded())
      await net.add(pod)
      await net.add(plain, { conf: { ...net.conf, ipMasq: false } })
      assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
      assert.deepEqual(await seenOutside(plain, world), ['10.1.0.3', 'fd00:1::3'])
      await net.del(pod)
      assert.doesNotMatch(await ruleset(node), /comment/)
      assert.deepEqual(await seenOutside(plain, world), ['10.1.0.3', 'fd00:1::3'])
    }),
  )

  it(
    'GC of one of two networks of one subnet leaves the other masqueraded, and so does GC of a larger one around a smaller',
    inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
      await wireWorld(node, world, '10.1.0.0/16')
      const [mine, same, large] = [
        network(node, masqueraded({}, '10.1.0.0/24')),
        network(node, masqueraded({ isDefaultGateway: false }, '10.1.0.0/24')),
        network(node, masqueraded({ bridge: 'br2', isDefaultGateway: false }, '10.1.0.0/16')),
      ]
      await mine.add(pod)
      await same.add(other)
      const before = elementsOf(await ruleset(node), /10\.1\.0\.2 /)
      await large.add(other, { ifname: 'eth1' })
      await same.gc()
      await large.gc()
      assert.deepEqual(elementsOf(await ruleset(node), /10\.1\.0\.2 /), before)
      assert.match(await ruleset(node), /local4 \{[^}]*elements = \{ 10\.1\.0\.0\/24 \. 10\.1\.0\.0\/24 /)
      assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
      assert.equal(await sourceSeen(pod, node, '10.1.0.1'), '10.1.0.2')
    }),
  )

  it(
    'the node itself and machines behind a port of the bridge keep their addresses',
    inNamespaces(['node', 'pod', 'lan', 'world'], async ({ node, pod, lan, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      await network(node, masqueraded()).add(pod)
      for (const line of [`link add lan0 up master br0 type veth peer name eth0 netns ${lan.path}`])
        await node.ip(...line.split(' '))
      for (const line of ['link set eth0 up', 'addr add 10.1.0.77/24 dev eth0', 'route add default via 10.1.0.1'])
        await lan.ip(...line.split(' '))
      assert.equal(await sourceSeen(lan, world, WORLD.world4), '10.1.0.77')
      assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
    }),
  )

  it(
    'after GC of its last attachment a network is masqueraded again by the next ADD',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      const net = network(node, masqueraded())
      await net.add(pod)
      await net.del(pod)
      await net.gc()
      await net.add(pod)
      assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
    }),
  )

  it(
    'DEL of one of two interfaces of a container leaves the other one masqueraded, and GC of another network too',
    inNamespaces(['node', 'pod', 'world'], async ({ node, pod, world }) => {
      await wireWorld(node, world, ...SUBNETS)
      const net = network(node, masqueraded())
      await net.add(pod)
      await net.add(pod, { ifname: 'eth1', conf: { ...net.conf, isDefaultGateway: false, isGateway: true } })
      await net.del(pod, { ifname: 'eth1' })
      assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
      await network(node, masqueraded()).gc()
      assert.deepEqual(await seenOutside(pod, world), MASQUERADED)
    }),
  )

  it(
    'networks whose subnets overlap are all masqueraded, whichever comes first, and keep what is left when one goes',
    inNamespaces(['node', 'pod', 'wide', 'world'], async ({ node, pod, wide, world }) => {
      await wireWorld(node, world, '10.1.0.0/16')
      const small = network(node, masqueraded({}, '10.1.0.0/24'))
      const large = network(node, masqueraded({ bridge: 'br1' }, '10.1.128.0/17'))
      const whole = network(node, masqueraded({ bridge: 'br2', isDefaultGateway: false }, '10.1.0.0/16'))
      await small.add(pod)
      await large.add(wide)
      await whole.add(wide, { ifname: 'eth1' })
      assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
      assert.equal(await sourceSeen(wide, world, WORLD.world4), WORLD.node4)
      await whole.del(wide, { ifname: 'eth1' })
      assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
    }),
  )

  for (const { version, path } of references()) {
    // ipMasqBackend came with 1.5.
    for (const backend of version < '1.5' ? ['iptables'] : ['iptables', 'nftables']) {
      for (const [way, netnsOf] of Object.entries(WAYS)) {
        it(
          `DEL with its namespace ${way} cleans what the reference bridge ${version} made: veth, ${backend} rules and address`,
          inNamespaces(['node', 'pod', 'other', 'world'], async ({ node, pod, other, world }) => {
            const conf = { ...masqueraded({ ipMasqBackend: backend }), cniVersion: '1.0.0' }
            const theirs = (command: string, of: Namespace) =>
              plugin(
                'bridge',
                { command, conf, containerId: containerId(of), netns: of, file: `${path}/bridge`, path },
                node,
              )
            await node.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
            await wireWorld(node, world, ...SUBNETS)
            assert.equal((await theirs('ADD', other)).status, 0)
            const before = await settled(() => left(node))
            assert.equal((await theirs('ADD', pod)).status, 0)
            assert.notEqual(await left(node), before)
            assert.equal(await sourceSeen(pod, world, WORLD.world4), WORLD.node4)
            await network(node, conf).del(pod, { netns: await netnsOf(pod) })
            // Their veth has no name that tells whose it is: with an empty CNI_NETNS it goes as the namespace does.
            if (way === 'empty') await execa('ip', ['netns', 'delete', containerId(pod)])
            await until(async () => assert.equal(await left(node), before) === undefined)
            assert.deepEqual(traces(pod, conf), [])
            assert.equal(await sourceSeen(other, world, WORLD.world4), WORLD.node4)
          }),
        )
      }
    }
  }

  it('the reference bridge is installed', function () {
    const all = references()
    if (all.length === 0)
      skip(this, 'no reference plugins: neither the package containernetworking-plugins nor a built release')
    for (const { path } of all) assert.ok(existsSync(`${path}/host-local`), path)
  })
})

function masqueraded(keys: object = {}, ...subnets: readonly string[]): Conf {
  return bridgeConf({ isDefaultGateway: true, ipMasq: true, ...keys }, ...(subnets.length > 0 ? subnets : SUBNETS))
}

async function seenOutside(from: Namespace, world: Namespace): Promise<string[]> {
  return [await sourceSeen(from, world, WORLD.world4), await sourceSeen(from, world, WORLD.world6)]
}

async function ruleset(node: Namespace): Promise<string> {
  return (await node.exec(['nft', 'list', 'ruleset'])).stdout
}

/** The parts of a ruleset that are not elements. */
function rulesIn(text: string): string {
  return text.replace(/\t\telements = \{[^}]*\}\n/g, '')
}

function elementsOf(text: string, which: RegExp): string[] {
  return text.split(/\n|, /).filter((line) => which.test(line))
}

/** Links, and rules of both kinds, without what counts packets. */
async function left(node: Namespace): Promise<string> {
  return `${await snapshot(node)}\n${(await node.exec(['sh', '-c', 'iptables-save; ip6tables-save; iptables-legacy-save; ip6tables-legacy-save'])).stdout.replace(/^#.*$|\[\d+:\d+\]/gm, '')}`
}

function bare(cidr: string): string {
  return cidr.slice(0, cidr.indexOf('/'))
}
