// lane: vm
// Tests plugins/vrf.ts.
import assert from 'node:assert/strict'
import { existsSync, rmSync } from 'node:fs'
import { execa } from 'execa'
import { chain, good } from '../support/chained.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../support/harness.ts'
import { containerId } from '../support/network.ts'

const THEIRS = '/usr/lib/cni/vrf'

afterEach(() => rmSync('/run/cni', { recursive: true, force: true }))

describe('vrf', () => {
  it(
    'makes the VRF and its port: addresses stay, routes of the link follow, others of the pod do not; CHECK finds what is lost, and DEL puts it all back',
    inNamespaces(['node', 'pod', 'peer'], async ({ node, pod, peer }) => {
      await pod.exec([
        'sh',
        '-ec',
        'ip link set lo up; ip link add d0 up type dummy; ip addr add 192.0.2.1/24 dev d0; ip route add 198.51.100.0/24 via 192.0.2.9',
      ])
      await wire(
        pod,
        peer,
        'eth0',
        'ip route add default via 10.1.0.1; ip route add 10.9.0.0/16 via 10.1.0.7 mtu 1400; ip route add default via fd00:1::1',
      )
      const net = chain(node, { type: 'vrf', vrfname: 'blue' })
      const prevResult = { interfaces: [{ name: 'eth0', sandbox: pod.path }] }
      const was = await look(pod)
      assert.deepEqual(good(await net.call('ADD', pod, { prevResult })).result, { cniVersion: '1.1.0', ...prevResult })
      const made = {
        masters: { eth0: 'blue' },
        vrfs: ['blue 1'],
        addresses: was.addresses,
        main: ['192.0.2.0/24', '198.51.100.0/24 via 192.0.2.9'],
        first: [
          '10.1.0.0/24',
          '10.9.0.0/16 via 10.1.0.7 mtu 1400',
          'default via 10.1.0.1',
          'default via fd00:1::1',
          'fd00:1::/64',
        ],
      }
      assert.deepEqual(await look(pod), made)
      for (const address of ['10.1.0.2', 'fd00:1::2']) assert.ok(await until(() => ping(peer, address)), address)
      good(await net.call('ADD', pod, { prevResult }))
      assert.deepEqual(await look(pod), made)
      for (const [broken, says] of [
        ['ip route delete 10.9.0.0/16 table 1', /^route 10\.9\.0\.0\/16 in table 1 in the pod is missing$/],
        [
          'ip link delete blue',
          /^VRF blue in the pod is missing; link eth0 in the pod has master off, want blue; address fd00:1::2\/64 on eth0 in the pod is missing; /,
        ],
      ] as const) {
        await pod.exec(broken.split(' '))
        assert.match((await net.call('CHECK', pod, { prevResult })).error.details, says)
        good(await net.call('ADD', pod, { prevResult }))
        good(await net.call('CHECK', pod, { prevResult }))
      }
      assert.deepEqual(await look(pod), made)
      good(await net.call('DEL', pod))
      // As when any link goes down that is not told to keep them.
      const four = ({ main, addresses: _, ...rest }: Seen) => ({
        ...rest,
        main: main.filter((one) => !one.includes('fd00')),
      })
      assert.deepEqual(four(await look(pod)), four(was))
    }),
  )

  it(
    'two links in one VRF, and the same addresses in two VRFs, with the first free tables; a VRF goes with its last port only',
    inNamespaces(['node', 'pod', 'one', 'two'], async ({ node, pod, one, two }) => {
      // Answers go out by the VRF of the link that was asked.
      await wire(
        pod,
        one,
        'eth1',
        'ip link add green type vrf table 1; ip link add eth3 up type dummy; ip addr flush dev eth1',
      )
      await wire(pod, two, 'eth2', 'ip addr add 10.1.0.2/24 dev eth1; ip addr add fd00:1::2/64 dev eth1 nodad')
      const nets = [
        [chain(node, { type: 'vrf', vrfname: 'blue' }), 'eth1'],
        [chain(node, { type: 'vrf', vrfname: 'red', table: 77 }), 'eth2'],
        [chain(node, { type: 'vrf', vrfname: 'blue', table: 2 }), 'eth3'],
      ] as const
      for (const [net, ifname] of nets) good(await net.call('ADD', pod, { prevResult: {} }, { ifname }))
      const { vrfs, masters } = await look(pod)
      assert.deepEqual([vrfs, masters], [['blue 2', 'green 1', 'red 77'], { eth1: 'blue', eth2: 'red', eth3: 'blue' }])
      for (const peer of [one, two])
        for (const to of ['10.1.0.2', 'fd00:1::2'])
          assert.ok(await until(() => ping(peer, to)), `${to} from ${peer.name}`)
      const left: unknown[] = []
      for (const [net, ifname] of nets) {
        good(await net.call('DEL', pod, {}, { ifname }))
        left.push((await look(pod)).vrfs)
      }
      assert.deepEqual(left, [['blue 2', 'green 1', 'red 77'], ['blue 2', 'green 1'], ['green 1']])
    }),
  )

  const refused: Record<string, { readonly keys?: object; readonly before: string; readonly says: string }> = {
    'another master': {
      before: 'ip link add br7 type bridge; ip link set eth0 master br7',
      says: 'Cannot make eth0 a port of VRF blue: it is one of br7 already',
    },
    'a VRF with another table': {
      keys: { table: 5 },
      before: 'ip link add blue type vrf table 10',
      says: 'Cannot give table 5 to VRF blue: it has table 10',
    },
    "a table that is another VRF's": {
      keys: { table: 10 },
      before: 'ip link add red type vrf table 10',
      says: 'Cannot give table 10 to VRF blue: VRF red has it',
    },
    'a link of its name that is none': {
      before: 'ip link add blue type dummy',
      says: 'Cannot use blue as a VRF: a link of that name is there, and it is a dummy',
    },
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
          const { error } = await plugin(
            'vrf',
            {
              command: 'ADD',
              conf: { cniVersion: '1.1.0', name: 'net', type: 'vrf', vrfname: 'blue', ...keys, prevResult: {} },
              netns: pod,
            },
            node,
          )
          assert.deepEqual([error.code, error.msg, await pod.ip('link')], [7, says, links], what)
        }
      },
    ),
  )

  it(
    'DEL succeeds with the link gone, the VRF gone, the namespace not named or gone, and of what the reference made',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = chain(node, { type: 'vrf', vrfname: 'blue' })
      const link = () => pod.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'other')
      const add = async () => good(await net.call('ADD', pod, { prevResult: {} }))
      await link()
      await add()
      good(await net.call('DEL', pod, {}, { netns: '' }))
      const free = async () => {
        const { vrfs, masters } = await look(pod)
        assert.deepEqual([vrfs, masters], [[], {}])
      }
      await free()
      await add()
      await pod.ip('link', 'delete', 'blue')
      good(await net.call('DEL', pod))
      if (existsSync(THEIRS)) {
        const call = {
          conf: { ...net.conf, cniVersion: '1.0.0', prevResult: { cniVersion: '1.0.0' } },
          containerId: containerId(pod),
          netns: pod,
          file: THEIRS,
        }
        good(await plugin('vrf', { command: 'ADD', ...call }, node))
        good(await net.call('DEL', pod))
        await free()
      }
      await add()
      await pod.ip('link', 'delete', 'eth0')
      good(await net.call('DEL', pod))
      await free()
      await link()
      await add()
      await execa('ip', ['netns', 'delete', containerId(pod)])
      for (let round = 0; round < 2; round++) good(await net.call('DEL', pod))
    }),
  )
})

/**
 * A link of the pod with 10.1.0.2 and fd00:1::2, its other end in another namespace, with .1 and ::1; then further
 * commands in the pod. IPv6 addresses go when it goes down, as the kernel has it where nobody asks for more.
 */
async function wire(pod: Namespace, peer: Namespace, name: string, then: string): Promise<void> {
  const addresses = (n: number, dev: string) =>
    `ip link set ${dev} up; ip addr add 10.1.0.${n}/24 dev ${dev}; ip addr add fd00:1::${n}/64 dev ${dev} nodad`
  const { status, stderr } = await pod.exec([
    'sh',
    '-ec',
    `ip link add ${name} type veth peer name eth0 netns ${peer.path}; ${addresses(2, name)}; nsenter --net=${peer.path} sh -ec '${addresses(1, 'eth0')}'; ${then}`,
  ])
  assert.equal(status, 0, stderr)
}

/** The parts of a pod that this is about. */
interface Seen {
  /** Of each link that has one. */
  readonly masters: Readonly<Record<string, string>>
  /** `NAME TABLE`. */
  readonly vrfs: readonly string[]
  /** Of eth0. */
  readonly addresses: readonly string[]
  /** The unicast routes of main and of table 1, except those of the links' own addresses. */
  readonly main: readonly string[]
  readonly first: readonly string[]
}

/** All of it by one process: here each takes its time. */
async function look(pod: Namespace): Promise<Seen> {
  const { stdout } = await pod.exec(['sh', '-c', "printf 'addr show\nroute show table all\n' | ip -d -j -batch -"])
  // Of all tables both families are shown.
  const [links = [], routes = []] = stdout
    .split('\n')
    .flatMap((line): Row[][] => (line.startsWith('[') ? [JSON.parse(line)] : []))
  const text = ({ dst, gateway, metrics }: Row) =>
    [dst, gateway && `via ${gateway}`, metrics && `mtu ${metrics[0].mtu}`].filter(Boolean).join(' ')
  const inTable = (name: string) =>
    routes
      .filter(({ type, dst, table = 'main' }) => type === 'unicast' && dst !== 'fe80::/64' && table === name)
      .map(text)
      .sort()
  return {
    masters: Object.fromEntries(
      links.flatMap(({ ifname, master }) => (master === undefined ? [] : [[ifname, master]])),
    ),
    vrfs: links
      .flatMap(({ ifname, linkinfo }) =>
        linkinfo?.info_kind === 'vrf' ? [`${ifname} ${linkinfo.info_data.table}`] : [],
      )
      .sort(),
    addresses: links
      .flatMap(({ ifname, addr_info }) => (ifname === 'eth0' ? addr_info : []))
      .flatMap(({ scope, local, prefixlen }: Row) => (scope === 'global' ? [`${local}/${prefixlen}`] : [])),
    main: inTable('main'),
    first: inTable('1'),
  }
}
