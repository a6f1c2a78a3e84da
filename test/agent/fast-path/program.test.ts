// lane: vm
// Tests agent/fast-path/program.ts.
import assert from 'node:assert/strict'
import { ENDED_BIT } from '../../../agent/policy/table.ts'
import {
  ADDRESS,
  type World as BareWorld,
  batch,
  fileOf,
  inWorld as inBareWorld,
  type Name,
  WAYS,
} from '../../support/fast-path-world.ts'
import { until } from '../../support/harness.ts'
import { makeNewer } from '../../support/newer-nft.ts'
import { type Answering, startPod } from '../../support/policy-fixture.ts'

const RULES = `table inet test {
  chain forward {
    type filter hook forward priority filter; policy accept;
    ct mark and ${ENDED_BIT} == ${ENDED_BIT} drop
  }
}
`

interface World extends BareWorld {
  readonly pods: Readonly<Record<Name, Answering>>
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
      assert.equal((await ask({ renew: 1 })).renewals, 1)
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
    'a pod that a plugin is at work on stays when it takes part, and does not begin to',
    inWorld(async ({ node, ask, offloaded, flows }) => {
      const [c, rest] = [WAYS.pods.filter(({ link }) => link === 'vc'), WAYS.pods.filter(({ link }) => link !== 'vc')]
      const going = { ...WAYS, pods: rest, unfinished: c }
      assert.deepEqual(await ask({ ways: going }), { repaired: [], size: 4, renewals: 0 })
      await ask({ ways: WAYS })
      await offloaded('c', 'far')
      assert.deepEqual(await ask({ ways: going }), { repaired: [], size: 5, renewals: 0 })
      assert.equal(await flows('c'), 1)
      await node.ip('link', 'del', 'vc')
      assert.deepEqual(await ask({ ways: going }), { repaired: [], size: 5, renewals: 0 })
      assert.deepEqual(await ask({ ways: { ...WAYS, pods: rest } }), { repaired: [], size: 4, renewals: 0 })
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
    'renewals that are asked for while one waits are one, however many',
    inWorld(async ({ ask, offloaded, flows }) => {
      await ask({ ways: WAYS })
      await offloaded('c', 'far')
      assert.equal((await ask({ renew: 50 })).renewals, 1)
      await until(async () => (await flows('c')) === 1, 60_000)
    }),
  )

  it(
    'a table of a newer nft beside it: the fast path is made, repaired and renewed, and its table is listed',
    inWorld(async ({ node, ask, offloaded }) => {
      makeNewer(node)
      await ask({ ways: WAYS })
      await offloaded('c', 'far')
      assert.equal((await ask({ renew: 1 })).error, undefined)
      await node.exec(['nft', 'delete', 'table', 'inet', 'plumb_fast_path'])
      assert.deepEqual((await ask({ ways: WAYS })).repaired, ['nft table plumb_fast_path'])
      const listed = await node.exec(['nft', 'list', 'table', 'inet', 'plumb_fast_path'])
      assert.match(listed.stdout, /flow add @flows/)
    }),
  )

  it(
    'more links than the kernel takes in one message: they come at once, are added, and are renewed',
    inWorld(async ({ node, ask, offloaded, flows }) => {
      const links = Array.from({ length: 300 }, (_, i) => `d${i}`)
      await batch(node, ...links.map((link) => `link add ${link} type dummy`))
      const more = links.map((link) => ({ link, entrance: link, addresses: [] }))
      assert.equal((await ask({ ways: { ...WAYS, pods: [...WAYS.pods, ...more] } })).size, 305)
      await ask({ ways: WAYS })
      assert.equal((await ask({ ways: { ...WAYS, pods: [...WAYS.pods, ...more] } })).size, 305)
      await offloaded('c', 'far')
      assert.equal((await ask({ renew: 1 })).error, undefined)
      await until(async () => (await flows('c')) === 1, 60_000)
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
  return inBareWorld(async (bare) => {
    const { node, spaces } = bare
    const names = Object.keys(ADDRESS) as Name[]
    const pods = Object.fromEntries(names.map((one) => [one, startPod(fileOf(spaces[one]))])) as Record<Name, Answering>
    try {
      await Promise.all(Object.values(pods).map((one) => one.ready()))
      const flows = async (of: Name) => {
        const { stdout } = await node.exec(['conntrack', '-L', '-p', 'tcp', '-s', ADDRESS[of]])
        return stdout.split('\n').filter((line) => line.includes('[OFFLOAD]')).length
      }
      const received = async (from: Name, to: Name) => {
        const seen = (await pods[from].tell()) as unknown as { flows: Record<string, { received: number }> }
        return seen.flows[`${from} ${to}`]?.received ?? 0
      }
      await work({
        ...bare,
        pods,
        flows,
        received,
        async offloaded(from, to) {
          const count = await flows(from)
          await pods[from].flow(`${from} ${to}`, ADDRESS[to], true)
          await until(async () => (await flows(from)) > count, 60_000)
        },
      })
    } finally {
      for (const one of Object.values(pods)) one.kill()
    }
  })
}
