// lane: netns
// Tests agent/backend/probes.ts: real packets, and a clock that the test moves.
import assert from 'node:assert/strict'
import { makeProbes, type Probe, type Probes } from '../../../agent/backend/probes.ts'
import type { SubnetKey } from '../../../agent/lease/lease.ts'
import { openEchoes } from '../../../lib/os/echo.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'

const PEER = '10.244.9.0-24' as SubnetKey
const INTERVAL_MS = 30_000
const MTU = 1400
const FAMILIES = {
  IPv4: { v4: ['10.9.0.1', '10.9.0.2'] },
  IPv6: { v6: ['fd00:9::1', 'fd00:9::2'] },
} as const
/** What the far side does with echo requests (`in`) and with its answers (`out`). */
const LOSSES = {
  'all packets': ['in', 'icmp type echo-request', 'icmpv6 type echo-request'],
  'all answers': ['out', 'icmp type echo-reply', 'icmpv6 type echo-reply'],
  'packets over 800 bytes': [
    'in',
    'icmp type echo-request meta length > 800',
    'icmpv6 type echo-request meta length > 800',
  ],
  'large packets': ['in', 'icmp type echo-request meta length > 1000', 'icmpv6 type echo-request meta length > 1000'],
} as const

interface Scene {
  readonly probes: Probes
  lose(what: keyof typeof LOSSES): Promise<void>
  heal(): Promise<void>
  /** Lets seconds pass. Gives the states and the sizes that were seen. */
  pass(seconds: number): Promise<{ readonly states: ReadonlySet<Probe['state']>; readonly sizes: ReadonlySet<number> }>
}

/** Node a probes node b. Each step waits until each packet has come back or was dropped. */
async function scene(
  { a, b }: { readonly a: Namespace; readonly b: Namespace },
  family: keyof typeof FAMILIES,
  work: (scene: Scene) => Promise<void>,
): Promise<void> {
  const [of, [near, far]] = Object.entries(FAMILIES[family])[0] as ['v4' | 'v6', [Ip, Ip]]
  let [sent, now] = [0, performance.now()]
  const open = (from: Ip) => {
    const echoes = inside(parse.netns(a.path), () => openEchoes(from))
    const send: typeof echoes.send = (...argv) => {
      const isSent = echoes.send(...argv)
      sent += Number(isSent)
      return isSent
    }
    return { ...echoes, send }
  }
  const failures: string[] = []
  const probes = makeProbes(INTERVAL_MS, (why) => why !== undefined && failures.push(why), open)
  const before = (await counted(a)) + (await counted(b))
  const nft = async (line: string) => assert.equal((await b.exec(['nft', line])).status, 0, line)
  const heal = async () => {
    for (const chain of ['in', 'out']) await nft(`flush chain inet probes ${chain}`)
  }
  try {
    probes.aim([{ key: PEER, from: { [of]: near }, to: { [of]: far }, mtu: MTU }])
    await work({
      probes,
      heal,
      async lose(what) {
        const [chain, ...matches] = LOSSES[what]
        for (const match of matches) await nft(`add rule inet probes ${chain} ${match} counter name seen drop`)
      },
      async pass(seconds) {
        const [states, sizes] = [new Set<Probe['state']>(), new Set<number>()]
        for (let i = 0; i < seconds; i++) {
          now += 1000
          const last = sent
          probes.tick(now)
          if (sent > last) await until(async () => (await counted(a)) + (await counted(b)) - before === sent)
          const { state, mtu } = probes.of(PEER) as Probe
          states.add(state)
          if (mtu !== undefined) sizes.add(mtu)
        }
        return { states, sizes }
      },
    })
    assert.deepEqual(failures, [])
  } finally {
    probes.close()
    await heal()
  }
}

async function counted({ exec }: Namespace): Promise<number> {
  const { stdout } = await exec(['nft', '-j', 'list', 'counter', 'inet', 'probes', 'seen'])
  return JSON.parse(stdout).nftables[1].counter.packets
}

function inScene(
  family: keyof typeof FAMILIES,
  work: (make: (of: (scene: Scene) => Promise<void>) => Promise<void>) => Promise<void>,
) {
  return inNamespaces(['a', 'b'], async ({ a, b }, test) => {
    test.timeout(120_000)
    await a.ip('link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', b.path)
    for (const [i, ns] of [a, b].entries()) {
      await ns.ip('link', 'set', 'eth0', 'up')
      await ns.ip('addr', 'add', `10.9.0.${i + 1}/24`, 'dev', 'eth0')
      await ns.ip('addr', 'add', `fd00:9::${i + 1}/64`, 'dev', 'eth0', 'nodad')
      for (const line of [
        'add table inet probes',
        'add counter inet probes seen',
        'add chain inet probes in { type filter hook input priority 0; }',
        'add chain inet probes out { type filter hook output priority 0; }',
      ])
        assert.equal((await ns.exec(['nft', line])).status, 0, line)
    }
    for (const type of ['icmp', 'icmpv6'])
      await a.exec(['nft', `add rule inet probes in ${type} type echo-reply counter name seen`])
    await work((of) => scene({ a, b }, family, of))
  })
}

describe('probes of a peer', () => {
  for (const family of ['IPv4', 'IPv6'] as const) {
    for (const what of ['all packets', 'all answers'] as const)
      it(
        `${family}: the loss of ${what} is silence, and never a matter of size, whenever it begins between two probes`,
        inScene(family, async (make) => {
          for (let offset = 0; offset < 30; offset += 3)
            await make(async ({ pass, lose, heal }) => {
              assert.ok((await pass(33 + offset)).states.has('answers'))
              await lose(what)
              const { states } = await pass(60)
              assert.deepEqual([...states], ['answers', 'silent'], `${offset} s`)
              await heal()
              const back = await pass(60)
              assert.deepEqual([...back.states], ['silent', 'answers'], `${offset} s`)
            })
        }),
      )

    it(
      `${family}: a peer that gets small packets alone is narrow, with the largest size that it gets, until it gets large ones`,
      inScene(family, (make) =>
        make(async ({ pass, lose, heal, probes }) => {
          await pass(33)
          await lose('large packets')
          const { states, sizes } = await pass(120)
          assert.deepEqual([...states], ['answers', 'narrow'])
          assert.deepEqual([...sizes], [MTU, 1000])
          assert.deepEqual([...(await pass(120)).states], ['narrow'])
          const path = () => Object.values(probes.paths(PEER))
          assert.deepEqual(path(), [{ largest: 1000, arrived: 0 }])
          await lose('packets over 800 bytes')
          assert.deepEqual([...(await pass(240)).sizes], [1000, 800])
          await heal()
          const back = await pass(60)
          assert.deepEqual([...back.states], ['narrow', 'answers'])
          assert.equal([...back.sizes].at(-1), MTU)
          await pass(120)
          const [{ arrived, largest } = { arrived: 0 }] = path()
          assert.ok(arrived >= 3 && largest === undefined, `${arrived} arrived, ${largest}`)
        }),
      ),
    )

    it(
      `${family}: a loss of all packets for a while, whatever its length, is no matter of size`,
      inScene(family, async (make) => {
        for (const seconds of [2, 5, 8, 11, 14, 17])
          await make(async ({ pass, lose, heal }) => {
            await pass(40)
            await lose('all packets')
            const lost = await pass(seconds)
            await heal()
            const after = await pass(60)
            assert.equal([...lost.states, ...after.states].includes('narrow'), false, `${seconds} s`)
            assert.equal([...after.states].at(-1), 'answers')
          })
      }),
    )

    it(
      `${family}: a peer that was narrow and gets nothing any more becomes silent, and no size is made up meanwhile`,
      inScene(family, async (make) => {
        for (const searched of [0, 7, 50])
          await make(async ({ pass, lose, heal }) => {
            await pass(33)
            await lose('large packets')
            let seen = await pass(1)
            for (let i = 0; i < 60 && !seen.states.has('narrow'); i++) seen = await pass(1)
            await pass(searched)
            await lose('all packets')
            const { states, sizes } = await pass(90)
            assert.deepEqual([...states], ['narrow', 'silent'])
            assert.deepEqual(
              [...sizes].filter((size) => size < 1000),
              [],
            )
            await heal()
            assert.equal([...(await pass(60)).states].at(-1), 'answers')
          })
      }),
    )
  }
})
