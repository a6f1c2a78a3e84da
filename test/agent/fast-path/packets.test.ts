// lane: vmlong
// Tests agent/fast-path/program.ts.
import assert from 'node:assert/strict'
import {
  ADDRESS,
  batch,
  fileOf,
  inFastPath,
  inWorld,
  SIX,
  shared,
  shell,
  type Talker,
  talker,
  untilInFastPath,
  WAYS,
} from '../../support/fast-path-world.ts'
import { type Namespace, until } from '../../support/harness.ts'

/** A pod behind the other node. The way to it is narrow. */
const DEEP = { 4: '10.244.2.3', 6: 'fd00:244:0:2::3' } as const
/** The families, with the addresses of pods c and far. */
const FAMILIES = [
  { n: 4, word: 'ip', c: ADDRESS.c, far: ADDRESS.far, deep: DEEP[4] },
  { n: 6, word: 'ip6', c: SIX.c, far: SIX.far, deep: DEEP[6] },
] as const
const ALL = { ...WAYS, outer: ['eth0', 'eth1'] }
const TOO_LARGE = 100_000

describe('packets of connections in the fast path', () => {
  const world = shared(inWorld)
  const pods: Partial<Record<'a' | 'c' | 'far' | 'deep' | 'twin', Talker>> = {}
  const pod = (name: keyof typeof pods) => pods[name] as Talker
  const node = () => world().node
  let serial = 0

  before(async function () {
    this.timeout(200_000)
    const { spaces, ask } = world()
    await wire(spaces)
    for (const name of ['a', 'c', 'far', 'deep', 'twin'] as const) pods[name] = await talker(fileOf(spaces[name]), name)
    assert.deepEqual(await ask({ ways: ALL }), { repaired: [], size: 6, renewals: 0 })
  })

  /** Opens a flow, and waits until it is in the fast path. The node has forgotten those of the tests before. */
  async function begin(from: 'a' | 'c', to: string, isTcp: boolean): Promise<string> {
    const [flow, source] = [`flow ${++serial}`, to.includes(':') ? SIX[from] : ADDRESS[from]]
    await node().exec(['conntrack', '-D', '-s', source])
    await until(async () => (await inFastPath(node(), source, to)).length === 0, 10_000)
    await pod(from).open(flow, to, isTcp)
    await untilInFastPath(pod(from), flow, node(), source, to)
    return flow
  }

  for (const { n, word, c, far, deep } of FAMILIES) {
    it(`IPv${n}: a router behind the node has a smaller MTU; its word reaches the sender, and the connection goes on with smaller packets`, async () => {
      const flow = await begin('c', deep, true)
      assert.deepEqual(await pod('c').say(flow, TOO_LARGE), [`${TOO_LARGE}`])
      assert.match(await world().spaces.c.ip('route', 'get', deep), /\bmtu 1400\b/)
      assert.equal((await inFastPath(node(), c, deep)).length, 1)
    })

    it(`IPv${n}: the route of the node gets a smaller MTU; the sender hears of it, and the connection goes on with smaller packets`, async () => {
      const flow = await begin('c', far, true)
      assert.deepEqual(await pod('c').say(flow, TOO_LARGE), [`${TOO_LARGE}`])
      const [net, next] = n === 4 ? ['10.244.2.0/24', '172.30.0.2'] : ['fd00:244:0:2::/64', 'fd00:30::2']
      await node().ip('route', 'replace', net, 'via', next, 'mtu', '1360')
      try {
        // In IPv6 the fast path does not look at the route. So the agent leaves such networks out.
        if (n === 6) await world().ask({ ways: { ...ALL, narrow: [net] } })
        else await untilInFastPath(pod('c'), flow, node(), c, far)
        assert.deepEqual(await pod('c').say(flow, TOO_LARGE), [`${TOO_LARGE}`])
        assert.match(await world().spaces.c.ip('route', 'get', far), /\bmtu 1360\b/)
        assert.equal((await inFastPath(node(), c, far)).length, n === 6 ? 0 : 1)
      } finally {
        await node().ip('route', 'replace', net, 'via', next)
        await world().ask({ ways: ALL })
        await shell(world().spaces.c, 'ip route flush cache', 'ip -6 route flush cache')
      }
    })

    it(`IPv${n}: datagrams in fragments arrive both ways, and so do those after them`, async () => {
      const flow = await begin('c', far, false)
      assert.deepEqual(await pod('c').say(flow, 4000, 3), Array(3).fill('far 4000'))
      assert.deepEqual(await pod('c').say(flow, 10), ['far 10'])
      assert.equal((await inFastPath(node(), c, far)).length, 1)
    })

    it(`IPv${n}: a packet whose time to live ends at the node brings the node's word to the sender`, async () => {
      const { spaces } = world()
      const flow = await begin('c', far, false)
      const exceeded = n === 4 ? 'icmp type time-exceeded' : 'icmpv6 type time-exceeded'
      await shell(
        spaces.c,
        nft(
          `chain out { type filter hook output priority 0; ${word} daddr ${far} udp dport 82 udp length 15 ${word} ${n === 4 ? 'ttl' : 'hoplimit'} set 1; }`,
          `chain in { type filter hook input priority 0; ${exceeded} counter name told; }`,
          'counter told {}',
        ),
      )
      assert.notDeepEqual(await pod('c').say(flow, 7), ['far 7'])
      assert.match(await shell(spaces.c, 'nft list counter inet seen told'), /packets 1 /)
      await shell(spaces.c, 'nft delete table inet seen')
      assert.deepEqual(await pod('c').say(flow, 10), ['far 10'])
    })
  }

  it('connections are counted (nf_conntrack_acct): each packet, both ways', async () => {
    await shell(node(), 'sysctl -qw net.netfilter.nf_conntrack_acct=1')
    await begin('c', ADDRESS.far, false)
    const flow = await begin('c', ADDRESS.far, false)
    const counts = async () => {
      const [line = ''] = await inFastPath(node(), ADDRESS.c, ADDRESS.far)
      return [...line.matchAll(/packets=(\d+)/g)].map(([, count]) => Number(count))
    }
    const before = await counts()
    assert.deepEqual(await pod('c').say(flow, 10, 50), Array(50).fill('far 10'))
    assert.deepEqual(
      (await counts()).map((count, i) => count - (before[i] ?? 0)),
      [50, 50],
    )
  })

  it('a connection that was silent for longer than the fast path keeps it goes on, and comes back to it', async () => {
    // The kernel forgets a silent connection after 30 s. The rest is the same with 3 s.
    await shell(node(), 'sysctl -qw net.netfilter.nf_flowtable_tcp_timeout=3')
    const flow = await begin('c', ADDRESS.far, true)
    await until(async () => (await inFastPath(node(), ADDRESS.c, ADDRESS.far)).length === 0, 30_000)
    const { stdout } = await node().exec(['conntrack', '-L', '-s', ADDRESS.c, '-d', ADDRESS.far])
    const [, left] = /^tcp +6 (\d+) ESTABLISHED/m.exec(stdout) ?? []
    assert.ok(Number(left) > 400_000, stdout)
    assert.deepEqual(await pod('c').say(flow, 10), ['10'])
    await untilInFastPath(pod('c'), flow, node(), ADDRESS.c, ADDRESS.far)
    await shell(node(), 'sysctl -qw net.netfilter.nf_flowtable_tcp_timeout=30')
  })

  it('another card of the next node: packets go to its new hardware address', async () => {
    const { far } = world().spaces
    for (const to of [ADDRESS.far, SIX.far]) {
      const flow = await begin('c', to, true)
      const mac = to === ADDRESS.far ? '02:00:00:00:00:f4' : '02:00:00:00:00:f6'
      await far.ip('link', 'set', 'eth0', 'address', mac)
      const next = to === ADDRESS.far ? '172.30.0.2' : 'fd00:30::2'
      await node().ip('neigh', 'replace', next, 'lladdr', mac, 'dev', 'eth0')
      assert.deepEqual(await pod('c').say(flow, 10, 20), Array(20).fill('10'))
    }
  })
})

function nft(...lines: readonly string[]): string {
  return `nft -f - <<'END'\ntable inet seen {\n${lines.toReversed().join('\n')}\n}\nEND`
}

// The way from far to deep is narrow. Twin is another node, which serves the same addresses as far.
async function wire({ node, far, deep, twin }: Record<'node' | 'far' | 'deep' | 'twin', Namespace>): Promise<void> {
  await batch(
    far,
    `link add eth1 type veth peer name eth0 netns ${fileOf(deep)}`,
    'link set eth1 up',
    'addr add 172.29.0.1/24 dev eth1',
    'addr add fd00:29::1/64 dev eth1 nodad',
    `route add ${DEEP[4]} via 172.29.0.2 mtu 1400`,
    `route add ${DEEP[6]} via fd00:29::2 mtu 1400`,
  )
  await batch(
    node,
    `link add eth1 type veth peer name eth0 netns ${fileOf(twin)}`,
    'link set eth1 up',
    'addr add 172.31.0.1/24 dev eth1',
    'addr add fd00:31::1/64 dev eth1 nodad',
  )
  // A datagram's answer has the address of the pod.
  const end = (net: number, pod: readonly [string, string]) => [
    'link set lo up',
    'link set eth0 up',
    `addr add 172.${net}.0.2/24 dev eth0`,
    `addr add fd00:${net}::2/64 dev eth0 nodad`,
    ...pod.map((one) => `addr add ${one} dev lo`),
    `route add default via 172.${net}.0.1 src ${pod[0]}`,
    `route add default via fd00:${net}::1 src ${pod[1]}`,
  ]
  await batch(deep, ...end(29, [DEEP[4], DEEP[6]]))
  await batch(twin, ...end(31, [ADDRESS.far, SIX.far]))
}
