// lane: vm
// Tests agent/fast-path/program.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { ENDED_BIT } from '../../../agent/policy/table.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'
import { type Answering, startPod } from '../../support/policy-fixture.ts'

const STEP = join(import.meta.dir, '../../support/fast-path-step.ts')
const ADDRESS = { a: '10.244.1.2', b: '10.244.1.3', c: '10.244.1.4', d: '10.244.1.5', far: '10.244.2.2' } as const
type Name = keyof typeof ADDRESS
const NAMES = ['node', 'a', 'b', 'c', 'd', 'far'] as const
/** Pods a and b are ports of a bridge, c and d have links of their own. The other node has no rules. */
const WAYS = {
  outer: ['eth0'],
  pods: [
    ...(['a', 'b'] as const).map((name) => ({ link: `v${name}`, entrance: 'cni0', addresses: [ADDRESS[name]] })),
    ...(['c', 'd'] as const).map((name) => ({ link: `v${name}`, entrance: `v${name}`, addresses: [ADDRESS[name]] })),
  ],
  bridges: ['cni0'],
  slow: 0,
  isBusy: false,
}
const RULES = `table inet test {
  chain forward {
    type filter hook forward priority filter; policy accept;
    ct mark and ${ENDED_BIT} == ${ENDED_BIT} drop
  }
}
`

interface Answer {
  readonly repaired?: readonly string[]
  readonly size?: number
  readonly renewals?: number
  readonly error?: string
}
interface World {
  readonly node: Namespace
  readonly pods: Readonly<Record<Name, Answering>>
  ask(question: object): Promise<Answer>
  /** Begins a flow of TCP and waits until it takes the fast path. */
  offloaded(from: Name, to: Name): Promise<void>
  /** The connections of an address in the fast path. */
  flows(of: Name): Promise<number>
  /** What a flow has received so far. */
  received(from: Name, to: Name): Promise<number>
}

describe('the fast path in the kernel', () => {
  it(
    'it is there: connections of bridged and routed pods to other nodes take it, those that stay on one bridge do not',
    inWorld(async ({ ask, offloaded, flows, pods }) => {
      assert.deepEqual(await ask({ ways: WAYS }), { repaired: [], size: 5, renewals: 0 })
      await pods.a.flow('a b', ADDRESS.b, true)
      await offloaded('a', 'far')
      await offloaded('c', 'far')
      await offloaded('c', 'd')
      // From one bridge's port to a link of its own.
      await offloaded('b', 'c')
      assert.equal(await flows('a'), 1)
    }),
  )

  it(
    'a pod that is not among the ways goes by the rules, and takes part when it comes',
    inWorld(async ({ ask, offloaded, flows, pods, received }) => {
      await ask({ ways: { ...WAYS, pods: WAYS.pods.slice(0, 3) } })
      await pods.d.flow('d far', ADDRESS.far, true)
      const before = await received('d', 'far')
      await until(async () => (await received('d', 'far')) > before + 100, 60_000)
      assert.equal(await flows('d'), 0)
      await offloaded('c', 'far')
      const { renewals } = await ask({ ways: WAYS })
      assert.equal(renewals, 0, 'an addition sends nobody back to the rules')
      await until(async () => (await flows('d')) === 1, 60_000)
    }),
  )

  it(
    'a connection that has ended passes no packet after the renewal, and all others lose none',
    inWorld(async ({ node, ask, offloaded, flows, received, pods }) => {
      await node.exec(['nft', '-f', '-'], { stdin: RULES })
      await ask({ ways: WAYS })
      for (const name of ['a', 'c', 'd'] as const) await offloaded(name, 'far')
      const mark = ['conntrack', '-U', '-s', ADDRESS.a, '-m', String(ENDED_BIT)]
      assert.match((await node.exec(mark)).stderr, /1 flow entries have been updated/)
      const [first] = [await received('a', 'far')]
      // The mark alone does not reach it.
      await until(async () => (await received('a', 'far')) > first + 50, 60_000)
      assert.equal((await ask({ renew: true })).renewals, 1)
      await until(async () => (await flows('c')) === 1 && (await flows('d')) === 1, 60_000)
      const ended = await received('a', 'far')
      const others = await received('c', 'far')
      await until(async () => (await received('c', 'far')) > others + 200, 60_000)
      assert.ok((await received('a', 'far')) <= ended + 1, 'one answer may have been on its way to the process')
      assert.equal(await flows('a'), 0)
      for (const name of ['c', 'd'] as const) {
        const { flows: seen } = (await pods[name].tell()) as unknown as { flows: Record<string, { error: string }> }
        assert.equal(seen[`${name} far`]?.error, '')
      }
    }),
  )

  it(
    'a link that goes takes its connections along at once, and the next pod of its address begins without any',
    inWorld(async ({ node, ask, offloaded, flows }) => {
      await ask({ ways: WAYS })
      await offloaded('c', 'far')
      await offloaded('d', 'far')
      await node.ip('link', 'del', 'vc')
      const listed = await node.exec(['nft', 'list', 'flowtables'])
      assert.doesNotMatch(listed.stdout, /\bvc\b/)
      assert.equal(await flows('d'), 1)
      const rest = { ...WAYS, pods: WAYS.pods.filter(({ link }) => link !== 'vc') }
      assert.deepEqual(await ask({ ways: rest }), { repaired: [], size: 4, renewals: 0 })
      assert.equal(await flows('d'), 1)
    }),
  )

  it(
    'an address that leaves a link that stays sends all connections back to the rules',
    inWorld(async ({ ask, offloaded }) => {
      await ask({ ways: WAYS })
      await offloaded('c', 'far')
      const moved = WAYS.pods.map((one) => (one.link === 'vc' ? { ...one, addresses: ['10.244.1.9'] } : one))
      assert.equal((await ask({ ways: { ...WAYS, pods: moved } })).renewals, 1)
    }),
  )

  it(
    'what another program removes, empties or adds is repaired',
    inWorld(async ({ node, ask, offloaded }) => {
      await ask({ ways: WAYS })
      const table = 'inet plumb_fast_path'
      for (const [line, repaired] of [
        [`delete table ${table}`, 'nft table plumb_fast_path'],
        [`flush chain ${table} forward`, 'nft chain plumb_fast_path forward'],
        [`delete flowtable ${table} flows { hook ingress priority filter; devices = { va }; }`, 'nft flowtable flows'],
        [`add flowtable ${table} flows { hook ingress priority filter; devices = { lo }; }`, 'nft flowtable flows'],
        [`flush set ${table} outer`, 'set outer: "eth0"'],
        [`add element ${table} pods4 { "cni0" . 10.9.9.9 }`, 'set pods4: "cni0" . 10.9.9.9'],
      ] as const) {
        const done = await node.exec(['nft', '-f', '-'], { stdin: line })
        assert.equal(done.status, 0, `${line}: ${done.stderr}`)
        assert.deepEqual((await ask({ ways: WAYS })).repaired, [repaired], line)
        assert.deepEqual((await ask({ ways: WAYS })).repaired, [], line)
      }
      await offloaded('a', 'far')
    }),
  )

  it(
    'a link that is not there any more does not keep the others out',
    inWorld(async ({ ask, offloaded }) => {
      const stale = { ...WAYS, pods: [...WAYS.pods, { link: 'vgone', entrance: 'vgone', addresses: ['10.244.1.8'] }] }
      await ask({ ways: WAYS })
      assert.match((await ask({ ways: stale })).error ?? '', /No such file or directory/)
      assert.equal((await ask({ ways: WAYS })).error, undefined)
      await offloaded('a', 'far')
    }),
  )
})

function inWorld(work: (world: World) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(NAMES, async (spaces, test) => {
    test.timeout(300_000)
    const { node } = spaces
    const name = (one: Namespace) => one.path.slice(one.path.lastIndexOf('/') + 1)
    const pod = (one: Name, master: string) => [
      `ip link add v${one} ${master} type veth peer name eth0 netns ${name(spaces[one])}`,
      `ip link set v${one} up`,
      `ip -n ${name(spaces[one])} addr add ${ADDRESS[one]}/32 dev eth0`,
      `ip -n ${name(spaces[one])} link set eth0 up`,
      `ip -n ${name(spaces[one])} link set lo up`,
      `ip -n ${name(spaces[one])} route add 10.244.1.1 dev eth0`,
      `ip -n ${name(spaces[one])} route add default via 10.244.1.1`,
      `ip route replace ${ADDRESS[one]} dev ${master === '' ? `v${one}` : 'cni0'}`,
    ]
    const script = [
      'ip link set lo up',
      'sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.default.proxy_arp=1',
      'ip link add cni0 type bridge',
      'ip addr add 10.244.1.1/32 dev cni0',
      'ip link set cni0 up',
      ...pod('a', 'master cni0'),
      ...pod('b', 'master cni0'),
      ...pod('c', ''),
      ...pod('d', ''),
      `ip link add eth0 type veth peer name eth0 netns ${name(spaces.far)}`,
      'ip addr add 172.30.0.1/24 dev eth0',
      'ip link set eth0 up',
      `ip -n ${name(spaces.far)} link set lo up`,
      `ip -n ${name(spaces.far)} link set eth0 up`,
      `ip -n ${name(spaces.far)} addr add 172.30.0.2/24 dev eth0`,
      `ip -n ${name(spaces.far)} addr add ${ADDRESS.far}/32 dev lo`,
      `ip -n ${name(spaces.far)} route add 10.244.1.0/24 via 172.30.0.1`,
      'ip route add 10.244.2.0/24 via 172.30.0.2',
    ]
    const made = await node.exec(['sh', '-ec', script.join('\n')])
    assert.equal(made.status, 0, made.stderr)
    const names = Object.keys(ADDRESS) as Name[]
    const pods = Object.fromEntries(names.map((one) => [one, startPod(name(spaces[one]))])) as Record<Name, Answering>
    const child = Bun.spawn(['ip', 'netns', 'exec', name(node), process.execPath, STEP], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    try {
      const lines = linesOf(child.stdout)
      const next = async () => JSON.parse(((await lines.next()).value as string | undefined) ?? 'null')
      await Promise.all(Object.values(pods).map((one) => one.ready()))
      assert.deepEqual(await next(), { why: null })
      const flows = async (of: Name) => {
        const { stdout } = await node.exec(['conntrack', '-L', '-p', 'tcp', '-s', ADDRESS[of]])
        return stdout.split('\n').filter((line) => line.includes('[OFFLOAD]')).length
      }
      const received = async (from: Name, to: Name) => {
        const seen = (await pods[from].tell()) as unknown as { flows: Record<string, { received: number }> }
        return seen.flows[`${from} ${to}`]?.received ?? 0
      }
      await work({
        node,
        pods,
        ask: async (question) => {
          child.stdin.write(`${JSON.stringify(question)}\n`)
          child.stdin.flush()
          return next()
        },
        flows,
        received,
        async offloaded(from, to) {
          const count = await flows(from)
          await pods[from].flow(`${from} ${to}`, ADDRESS[to], true)
          await until(async () => (await flows(from)) > count, 60_000)
        },
      })
    } finally {
      child.kill()
      for (const one of Object.values(pods)) one.kill()
    }
  })
}
