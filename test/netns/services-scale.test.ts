// Tests agent/services: what a change costs among many Services.
import assert from 'node:assert/strict'
import { type Service, type Slice, serviceOf, sliceOf } from '../../agent/cluster/services.ts'
import { dumpElements } from '../../agent/kernel/element-dump.ts'
import { Elements } from '../../agent/kernel/elements.ts'
import { compile } from '../../agent/services/compile.ts'
import { Programme } from '../../agent/services/programme.ts'
import { baseChains, declaration, SHAPES, shapeChains, TABLE } from '../../agent/services/table.ts'
import { inside } from '../../lib/os/netns.ts'
import { generation } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { parse } from '../../lib/text/values.ts'
import { inNamespaces } from '../support/harness.ts'

const dotted = (first: number, n: number) => `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`
const service = (n: number) => serviceOf({ metadata: { namespace: 'x', name: `s${n}` }, spec: { clusterIP: dotted(11, n), ports: [{ port: 80 }] } }) as Service
const slice = (n: number, ...ips: readonly number[]) =>
  sliceOf({
    metadata: { namespace: 'x', name: `s${n}`, labels: { 'kubernetes.io/service-name': `s${n}` } },
    addressType: 'IPv4',
    ports: [{ name: '', port: 8080 }],
    endpoints: ips.map((ip) => ({ addresses: [dotted(10, ip)], nodeName: 'n2' })),
  }) as Slice
const NODE = { name: 'n1' }
const name = (n: number) => `x/s${n}`

describe('many Services', () => {
  for (const count of [5000, 30_000])
    it(
      `SV47 among ${count} Services, a Service more, an endpoint less and a Service less are some elements of one transaction each, and nothing is listed`,
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
        const programme = new Programme(elements)
        programme.update(new Map(Array.from({ length: count }, (_, n) => [name(n), compile(service(n), [slice(n, 2 * n, 2 * n + 1)], NODE)])))
        const chains = baseChains({ nodePortAddresses: [], masqueradeAll: false, clusterCidrs: [] })
        for (const shape of programme.shapes()) for (const [key, chain] of shapeChains(shape)) chains.set(key, chain)
        elements.forget()
        await elements.step(run, { before: declaration(chains) })
        // 50,000 elements at most in one transaction bound the memory of nft.
        assert.equal(scripts.length, Math.ceil((count * 4) / 50_000))
        assert.deepEqual([dumps, elements.size('svc4'), elements.size('eps4tcp')], [0, count, 2 * count])
        const change = async (key: number, compiled: ReturnType<typeof compile> | undefined) => {
          scripts.length = 0
          programme.update(new Map([[name(key), compiled]]))
          // As after each event of the kernel about the table.
          elements.doubt()
          await elements.step(run)
          return scripts.join('').trimEnd().split('\n')
        }
        assert.deepEqual(await change(count, compile(service(count), [slice(count, 1, 2)], NODE)), [
          `add element inet ${TABLE} eps4tcp { ${dotted(11, count)} . 80 . 0 : 10.0.0.1 . 8080, ${dotted(11, count)} . 80 . 1 : 10.0.0.2 . 8080 }`,
          `add element inet ${TABLE} svc4 { ${dotted(11, count)} . tcp . 80 : goto vip4_tcp_2 }`,
          `add element inet ${TABLE} vips4 { ${dotted(11, count)} }`,
        ])
        assert.equal((await change(count, undefined)).length, 3)
        const before = programme.of(name(7))
        const other = await change(7, compile(service(7), [slice(7, 14, 99)], NODE, before))
        assert.deepEqual(other, [`delete element inet ${TABLE} eps4tcp { 11.0.0.7 . 80 . 1 }`, `add element inet ${TABLE} eps4tcp { 11.0.0.7 . 80 . 1 : 10.0.0.99 . 8080 }`])
        // A change back and forth within one step is none.
        assert.deepEqual(await change(8, programme.of(name(8))), [''])
        assert.equal(dumps, 0)
      }),
    )
})
