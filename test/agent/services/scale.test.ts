// lane: netns
// Tests agent/services: what a change costs among many Services.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { dumpElements } from '../../../agent/kernel/element-dump.ts'
import { Elements } from '../../../agent/kernel/elements.ts'
import { compile } from '../../../agent/services/compile.ts'
import { forgetStale } from '../../../agent/services/conntrack.ts'
import { baseChains, declaration, SHAPES, shapeChains, TABLE } from '../../../agent/services/table.ts'
import { WantedElements } from '../../../agent/services/wanted-elements.ts'
import { connectionCount, connectionPieces } from '../../../lib/os/conntrack.ts'
import { inside } from '../../../lib/os/netns.ts'
import { generation } from '../../../lib/os/nftables.ts'
import type { Run } from '../../../lib/os/run.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace, until } from '../../support/harness.ts'

const dotted = (first: number, n: number) => `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`
const service = (n: number) =>
  serviceOf({
    metadata: { namespace: 'x', name: `s${n}` },
    spec: { clusterIP: dotted(11, n), ports: [{ port: 80 }] },
  }) as Service
const slice = (n: number, ...ips: readonly number[]) =>
  sliceOf({
    metadata: { namespace: 'x', name: `s${n}`, labels: { 'kubernetes.io/service-name': `s${n}` } },
    addressType: 'IPv4',
    ports: [{ name: '', port: 8080 }],
    endpoints: ips.map((ip) => ({ addresses: [dotted(10, ip)], nodeName: 'n2' })),
  }) as Slice
const NODE = { name: 'n1' }
const name = (n: number) => `x/s${n}`

const STEP = join(import.meta.dir, '../../support/services-step.ts')

describe('many Services', () => {
  for (const count of [5000, 30_000])
    it(
      `among ${count} Services, a Service more, an endpoint less and a Service less are some elements of one transaction each, and nothing is listed`,
      inNamespaces(['node'], async ({ node }, test) => {
        test.timeout(120_000)
        const path = parse.netns(node.path)
        const scripts: string[] = []
        let dumps = 0
        const run: Run = async (argv, stdin) => {
          scripts.push(stdin)
          return node.exec(argv, { stdin })
        }
        const kernel = {
          generation: () => inside(path, () => generation()),
          dump(table: string, set: string) {
            dumps++
            return inside(path, () => dumpElements(table, set))
          },
        }
        const elements = new Elements(TABLE, SHAPES, { ...kernel, most: 50_000 })
        const wanted = new WantedElements(elements)
        wanted.update(
          new Map(
            Array.from({ length: count }, (_, n) => [name(n), compile(service(n), [slice(n, 2 * n, 2 * n + 1)], NODE)]),
          ),
        )
        const chains = baseChains({ nodePortAddresses: [], masqueradeAll: false, clusterCidrs: [] })
        for (const shape of wanted.shapes()) for (const [key, chain] of shapeChains(shape)) chains.set(key, chain)
        elements.forget()
        await elements.step(run, { before: declaration(chains) })
        // 50,000 elements at most in one transaction bound the memory of nft.
        assert.equal(scripts.length, Math.ceil((count * 4) / 50_000))
        assert.deepEqual([dumps, elements.size('svc4'), elements.size('eps4tcp')], [0, count, 2 * count])
        const change = async (key: number, compiled: ReturnType<typeof compile> | undefined) => {
          scripts.length = 0
          wanted.update(new Map([[name(key), compiled]]))
          // As after each event of the kernel about the table.
          elements.invalidate()
          await elements.step(run)
          return scripts.join('').trimEnd().split('\n')
        }
        assert.deepEqual(await change(count, compile(service(count), [slice(count, 1, 2)], NODE)), [
          `add element inet ${TABLE} eps4tcp { ${dotted(11, count)} . 80 . 0 : 10.0.0.1 . 8080, ${dotted(11, count)} . 80 . 1 : 10.0.0.2 . 8080 }`,
          `add element inet ${TABLE} svc4 { ${dotted(11, count)} . tcp . 80 : goto vip4_tcp_2 }`,
          `add element inet ${TABLE} vips4 { ${dotted(11, count)} }`,
        ])
        assert.equal((await change(count, undefined)).length, 3)
        const before = wanted.of(name(7))
        const other = await change(7, compile(service(7), [slice(7, 14, 99)], NODE, before))
        assert.deepEqual(other, [
          `delete element inet ${TABLE} eps4tcp { 11.0.0.7 . 80 . 1 }`,
          `add element inet ${TABLE} eps4tcp { 11.0.0.7 . 80 . 1 : 10.0.0.99 . 8080 }`,
        ])
        // A change back and forth within one step is none.
        assert.deepEqual(await change(8, wanted.of(name(8))), [''])
        assert.equal(dumps, 0)
      }),
    )

  it(
    'a step for one Service more goes through as much among 5,000 Services as among 50, also of the addresses for BGP',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      await node.ip('link', 'set', 'lo', 'up')
      const step = async (count: number) => {
        const { status, stdout, stderr } = await node.exec([process.execPath, STEP, String(count)])
        assert.equal(status, 0, stderr)
        assert.equal((await node.exec(['nft', 'flush', 'ruleset'])).status, 0)
        return JSON.parse(stdout)
      }
      const [few, many] = [await step(50), await step(5000)]
      assert.ok(few.visited > 100, JSON.stringify(few))
      assert.deepEqual([few.frontends, few.reached, many.frontends, many.reached], [102, 102, 10_002, 10_002])
      assert.deepEqual([many.elements, many.told], [few.elements, 1])
      // A loop over all Services would be 5,000 and more.
      assert.ok(many.visited < few.visited + 500, `${many.visited} and ${few.visited}`)
    }),
  )

  it(
    'what is read to forget connections of a UDP Service does not grow with the connections that the kernel has',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      const path = parse.netns(node.path)
      let made = 0
      const fill = async (until: number) => {
        const lines: string[] = []
        for (; made < until; made++)
          for (const [src, dst] of [
            ['10.9.0.1', '10.9.0.2'],
            ['fd09::1', 'fd09::2'],
          ])
            lines.push(`-I -p udp -s ${src} -d ${dst} --sport ${1024 + made} --dport 5000 -t 600`)
        const { status, stderr } = await node.exec(
          ['sh', '-ec', 'lines=$(mktemp); cat >"$lines"; conntrack -R "$lines"; rm "$lines"'],
          { stdin: `${lines.join('\n')}\n` },
        )
        assert.equal(status, 0, stderr)
      }
      const frontends = (['10.96.0.1 . udp . 53', 'fd00:96::1 . udp . 53'] as const).map((key) => ({
        kind: 'vip' as const,
        family: key.includes(':') ? (6 as const) : (4 as const),
        key,
        endpoints: new Set<string>(),
      }))
      const read = async () => {
        let pieces = 0
        await forgetStale(frontends, [], (sought) => {
          const all = inside(path, () => [...connectionPieces(sought)])
          pieces += all.length
          return all
        })
        return pieces
      }
      await fill(500)
      const few = await read()
      await fill(5000)
      assert.ok(inside(path, () => connectionCount()) >= 10_000)
      assert.equal(await read(), few)
      // The test is no empty one: a list of all grows.
      assert.ok(inside(path, () => [...connectionPieces({ family: 4, protocol: 17 })]).length > 10)
    }),
  )

  it(
    'a first packet passes the same rules among 10 and among 30,000 Services',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      for (const line of ['addr add 10.0.0.254/32 dev lo', 'link set lo up', 'route add 11.0.0.0/8 dev lo'])
        await node.ip(...line.split(' '))
      const passed: string[][] = []
      for (const count of [10, 30_000]) {
        const elements = new Elements(TABLE, SHAPES, {
          generation: () => undefined,
          dump: () => new Map(),
          most: 50_000,
        })
        const wanted = new WantedElements(elements)
        wanted.update(
          new Map(Array.from({ length: count }, (_, n) => [name(n), compile(service(n), [slice(n, 254)], NODE)])),
        )
        const chains = baseChains({ nodePortAddresses: [], masqueradeAll: false, clusterCidrs: [] })
        for (const shape of wanted.shapes()) for (const [key, chain] of shapeChains(shape)) chains.set(key, chain)
        elements.forget()
        const before = [`table inet ${TABLE}`, `delete table inet ${TABLE}`, ...declaration(chains)]
        await elements.step((argv, stdin) => node.exec(argv, { stdin }), { before })
        passed.push(await tracedRules(node))
      }
      const [few = [], many = []] = passed
      assert.deepEqual(many, few)
      for (const rule of ['vmap @svc4', 'dnat ip to'])
        assert.ok(
          few.some((line) => line.includes(rule)),
          few.join('\n'),
        )
    }),
  )
})

// The rules that decide about the first packet of a connection to the third Service, as the kernel's trace has them.
async function tracedRules(node: Namespace): Promise<string[]> {
  const trace =
    'table inet trace { chain output { type filter hook output priority -300; tcp flags syn meta nftrace set 1; }; }'
  assert.equal(
    (await node.exec(['nft', '-f', '-'], { stdin: `table inet trace\ndelete table inet trace\n${trace}\n` })).status,
    0,
  )
  const monitor = Bun.spawn(['nsenter', `--net=${node.path}`, 'stdbuf', '-oL', 'nft', 'monitor', 'trace'], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines: string[] = []
  const reading = (async () => {
    for await (const line of linesOf(monitor.stdout)) lines.push(line)
  })()
  try {
    const connect = `require('node:net').connect(80, '11.0.0.2').on('error', () => process.exit())`
    // The monitor listens some time after its start.
    await until(async () => {
      await node.exec([process.execPath, '-e', connect])
      return lines.some((line) => line.includes('dnat ip to'))
    }, 20_000)
  } finally {
    monitor.kill('SIGKILL')
    await monitor.exited
  }
  await reading
  const [, id] = /^trace id (\w+) .*dnat ip to/.exec(lines.find((line) => line.includes('dnat ip to')) ?? '') ?? []
  return lines
    .filter((line) => line.startsWith(`trace id ${id} inet ${TABLE} `) && / rule /.test(line))
    .map((line) => line.slice(`trace id ${id} `.length))
}
