import assert from 'node:assert/strict'
import { existsSync, rmSync } from 'node:fs'
import { execa } from 'execa'
import { chain, good } from '../chained.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../harness.ts'
import { containerId } from '../network.ts'

const THEIRS = '/usr/lib/cni/vrf'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('vrf', () => {
  it(
    '[VRF 219] [VRF 220] [VRF 221] makes the VRF and its port: addresses stay, routes of the link follow, others of the pod do not; CHECK finds what is lost, and DEL puts it all back',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      await pod.exec(['sh', '-ec', 'ip link set lo up; ip link add d0 up type dummy; ip addr add 192.0.2.1/24 dev d0; ip route add 198.51.100.0/24 via 192.0.2.9'])
      await wire(pod, peer, 'eth0', 'ip route add default via 10.1.0.1; ip route add 10.9.0.0/16 via 10.1.0.7 mtu 1400; ip route add default via fd00:1::1')
      const net = chain(node, { type: 'vrf', vrfname: 'blue' })
      const prevResult = { interfaces: [{ name: 'eth0', sandbox: pod.path }] }
      const [addresses, all] = [await addressesOf(pod), await routes(pod, 'main')]
      assert.deepEqual(good(await net.call('ADD', pod, { prevResult })).result, { cniVersion: '1.1.0', ...prevResult })
      const made = { master: 'blue', addresses, main: ['192.0.2.0/24', '198.51.100.0/24 via 192.0.2.9'], table: ['10.1.0.0/24', '10.9.0.0/16 via 10.1.0.7 mtu 1400', 'default via 10.1.0.1', 'default via fd00:1::1', 'fd00:1::/64'] }
      const now = async () => ({ master: await masterOf(pod), addresses: await addressesOf(pod), main: await routes(pod, 'main'), table: await routes(pod, '1') })
      assert.deepEqual(await now(), made)
      for (const address of ['10.1.0.2', 'fd00:1::2']) assert.ok(await until(() => ping(peer, address)), address)
      good(await net.call('ADD', pod, { prevResult }))
      assert.deepEqual(await now(), made)
      for (const [broken, says] of [
        ['ip route delete 10.9.0.0/16 table 1', /^route 10\.9\.0\.0\/16 in table 1 in the pod is missing$/],
        ['ip link delete blue', /^VRF blue in the pod is missing; link eth0 in the pod has master off, want blue; address fd00:1::2\/64 on eth0 in the pod is missing; /],
      ] as const) {
        await pod.exec(broken.split(' '))
        assert.match((await net.call('CHECK', pod, { prevResult })).error.details, says)
        good(await net.call('ADD', pod, { prevResult }))
        good(await net.call('CHECK', pod, { prevResult }))
      }
      assert.deepEqual(await now(), made)
      good(await net.call('DEL', pod))
      // As when any link goes down that is not told to keep them.
      const four = (some: readonly string[]) => some.filter((one) => !one.includes('fd00'))
      assert.deepEqual([await masterOf(pod), await vrfs(pod), four(await routes(pod, 'main'))], [undefined, [], four(all)])
    }),
  )

  it(
    '[VRF 223] [VRF 224] [VRF 225] two links in one VRF, and the same addresses in two VRFs, with the first free tables; a VRF goes with its last port only',
    inNamespaces(['node', 'pod', 'one', 'two'], async ({ node, pod, one, two }) => {
      // Answers go out by the VRF of the link that was asked.
      await wire(pod, one, 'eth1', 'ip link add green type vrf table 1; ip link add eth3 up type dummy; ip addr flush dev eth1')
      await wire(pod, two, 'eth2', 'ip addr add 10.1.0.2/24 dev eth1; ip addr add fd00:1::2/64 dev eth1 nodad')
      const nets = [
        [chain(node, { type: 'vrf', vrfname: 'blue' }), 'eth1'],
        [chain(node, { type: 'vrf', vrfname: 'red', table: 77 }), 'eth2'],
        [chain(node, { type: 'vrf', vrfname: 'blue', table: 2 }), 'eth3'],
      ] as const
      for (const [net, ifname] of nets) good(await net.call('ADD', pod, { prevResult: {} }, { ifname }))
      assert.deepEqual(await vrfs(pod), ['blue 2', 'green 1', 'red 77'])
      assert.deepEqual(await Promise.all(nets.map(([, ifname]) => masterOf(pod, ifname))), ['blue', 'red', 'blue'])
      for (const peer of [one, two]) for (const to of ['10.1.0.2', 'fd00:1::2']) assert.ok(await until(() => ping(peer, to)), `${to} from ${peer.name}`)
      const left: string[][] = []
      for (const [net, ifname] of nets) {
        good(await net.call('DEL', pod, {}, { ifname }))
        left.push(await vrfs(pod))
      }
      assert.deepEqual(left, [['blue 2', 'green 1', 'red 77'], ['blue 2', 'green 1'], ['green 1']])
    }),
  )

  const refused: Record<string, { readonly keys?: object; readonly before: string; readonly says: string }> = {
    '[VRF 222] another master': { before: 'ip link add br7 type bridge; ip link set eth0 master br7', says: 'Cannot make eth0 a port of VRF blue: it is one of br7 already' },
    '[VRF 224] a VRF with another table': { keys: { table: 5 }, before: 'ip link add blue type vrf table 10', says: 'Cannot give table 5 to VRF blue: it has table 10' },
    "[VRF 224] a table that is another VRF's": { keys: { table: 10 }, before: 'ip link add red type vrf table 10', says: 'Cannot give table 10 to VRF blue: VRF red has it' },
    'a link of its name that is none': { before: 'ip link add blue type dummy', says: 'Cannot use blue as a VRF: a link of that name is there, and it is a dummy' },
  }
  it(
    `refuses by name, and changes nothing: ${Object.keys(refused).join(', ')}`,
    inNamespaces(
      Object.keys(refused)
        .map((_, i) => `pod${i}`)
        .concat('node'),
      async (all) => {
        const node = all['node'] as Namespace
        for (const [i, [what, { keys = {}, before, says }]] of Object.entries(refused).entries()) {
          const pod = all[`pod${i}`] as Namespace
          await pod.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'other')
          await pod.exec(['sh', '-ec', before])
          const links = await pod.ip('link')
          const { error } = await plugin('vrf', { command: 'ADD', conf: { cniVersion: '1.1.0', name: 'net', type: 'vrf', vrfname: 'blue', ...keys, prevResult: {} }, netns: pod }, node)
          assert.deepEqual([error.code, error.msg, await pod.ip('link')], [7, says, links], what)
        }
      },
    ),
  )

  it(
    '[VRF 225] DEL succeeds with the link gone, the VRF gone, the namespace not named or gone, and of what the reference made',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'vrf', vrfname: 'blue' })
      const link = () => pod.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'other')
      const add = async () => good(await net.call('ADD', pod, { prevResult: {} }))
      await link()
      await add()
      good(await net.call('DEL', pod, {}, { netns: '' }))
      assert.deepEqual([await vrfs(pod), await masterOf(pod)], [[], undefined])
      await add()
      await pod.ip('link', 'delete', 'blue')
      good(await net.call('DEL', pod))
      if (existsSync(THEIRS)) {
        const call = { conf: { ...net.conf, cniVersion: '1.0.0', prevResult: { cniVersion: '1.0.0' } }, containerId: containerId(pod), netns: pod, file: THEIRS }
        good(await plugin('vrf', { command: 'ADD', ...call }, node))
        assert.equal(await masterOf(pod), 'blue')
        good(await net.call('DEL', pod))
        assert.deepEqual([await vrfs(pod), await masterOf(pod)], [[], undefined])
      }
      await add()
      await pod.ip('link', 'delete', 'eth0')
      good(await net.call('DEL', pod))
      assert.deepEqual(await vrfs(pod), [])
      await link()
      await add()
      await execa('ip', ['netns', 'delete', containerId(pod)])
      for (let round = 0; round < 2; round++) good(await net.call('DEL', pod))
    }),
  )
})

/** A link of the pod with 10.1.0.2 and fd00:1::2, its other end in another namespace, with .1 and ::1; then further commands in the pod. IPv6 addresses go when it goes down, as the kernel has it where nobody asks for more. */
async function wire(pod: Namespace, peer: Namespace, name: string, then: string): Promise<void> {
  const addresses = (n: number, dev: string) => `ip link set ${dev} up; ip addr add 10.1.0.${n}/24 dev ${dev}; ip addr add fd00:1::${n}/64 dev ${dev} nodad`
  const { status, stderr } = await pod.exec(['sh', '-ec', `ip link add ${name} type veth peer name eth0 netns ${peer.path}; ${addresses(2, name)}; nsenter --net=${peer.path} sh -ec '${addresses(1, 'eth0')}'; ${then}`])
  assert.equal(status, 0, stderr)
}

async function masterOf(pod: Namespace, name = 'eth0'): Promise<string | undefined> {
  return (await pod.json('link', 'show', 'dev', name))[0]?.['master']
}

/** `NAME TABLE` of a pod's VRFs. */
async function vrfs(pod: Namespace): Promise<string[]> {
  return (await pod.json('link', 'show', 'type', 'vrf'))
    .filter(({ ifname }) => ifname)
    .map(({ ifname, linkinfo }) => `${ifname} ${linkinfo.info_data.table}`)
    .sort()
}

async function addressesOf(pod: Namespace): Promise<string[]> {
  const [eth0] = await pod.json('addr', 'show', 'dev', 'eth0')
  return eth0?.['addr_info'].filter(({ scope }: Row) => scope === 'global').map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`)
}

/** The unicast routes of a table, but for those of the links' own addresses. */
async function routes(pod: Namespace, table: string): Promise<string[]> {
  const both = await Promise.all(['-4', '-6'].map(async (family) => pod.exec(['ip', '-j', '-d', family, 'route', 'show', 'table', table])))
  const rows = both.flatMap(({ status, stdout }): Row[] => (status === 0 && stdout ? JSON.parse(stdout) : []))
  return rows
    .filter(({ type, dst }) => type === 'unicast' && dst !== 'fe80::/64')
    .map(({ dst, gateway, metrics }) => [dst, gateway && `via ${gateway}`, metrics && `mtu ${metrics[0].mtu}`].filter(Boolean).join(' '))
    .sort()
}
