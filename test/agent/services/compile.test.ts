// lane: quick
// Tests agent/services/compile.ts and its neighbours, besides what stands in test/scenarios/services.
import assert from 'node:assert/strict'
import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { Elements } from '../../../agent/kernel/elements.ts'
import { type CompiledService, compile } from '../../../agent/services/compile.ts'
import { allUdp, StaleFrontends } from '../../../agent/services/conntrack.ts'
import { SHAPES } from '../../../agent/services/table.ts'
import { WantedElements } from '../../../agent/services/wanted-elements.ts'

const NODE = { name: 'n1' }
const service = (spec: object, status: object = {}) =>
  serviceOf({
    metadata: { namespace: 'x', name: 's' },
    spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }], ...spec },
    status,
  }) as Service
const slice = (...ips: readonly string[]) => sliceFor({ name: '', port: 8080 }, ...ips)
const sliceFor = (port: object, ...ips: readonly string[]) =>
  sliceOf({
    metadata: { namespace: 'x', name: 's-1', labels: { 'kubernetes.io/service-name': 's' } },
    addressType: 'IPv4',
    ports: [port],
    endpoints: ips.map((ip) => ({ addresses: [ip], nodeName: 'n1' })),
  }) as Slice

describe('the compiler of Services', () => {
  it('UDP frontends that wait to be looked at are one each, however often steps fail; the latest state counts', () => {
    const { frontends } = compile(
      service({ ports: [{ port: 53, protocol: 'UDP' }] }),
      [sliceFor({ name: '', port: 5353, protocol: 'UDP' }, '10.1.0.2')],
      NODE,
    )
    const stale = new StaleFrontends()
    for (let i = 0; i < 100; i++) stale.note(allUdp(frontends.values()))
    assert.equal(stale.size, 1)
    const looked = stale.take()
    const [one] = looked
    assert.ok(one)
    stale.note([{ ...one, endpoints: new Set() }])
    stale.giveBack(looked)
    assert.deepEqual([stale.size, stale.take()[0]?.endpoints.size, stale.size], [1, 0, 0])
  })

  it('source ranges are written again only when they change, and are those of the Service that has the address', () => {
    const wanted = new WantedElements({ put() {}, remove() {} })
    const balanced = (name: string, ...loadBalancerSourceRanges: readonly string[]) =>
      compile(
        serviceOf({
          metadata: { namespace: 'x', name },
          spec: { clusterIP: '10.96.0.1', type: 'LoadBalancer', ports: [{ port: 80 }], loadBalancerSourceRanges },
          status: { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } },
        }) as Service,
        [],
        NODE,
      )
    const update = (...changes: readonly (readonly [string, CompiledService | undefined])[]) => {
      const before = wanted.sourcesVersion
      wanted.update(new Map(changes))
      return [wanted.sourcesVersion !== before, Object.fromEntries(wanted.sources())]
    }
    const key = '192.0.2.1 . tcp . 80'
    assert.deepEqual(update(['x/a', balanced('a', '10.0.0.0/8')]), [true, { [key]: ['10.0.0.0/8'] }])
    assert.deepEqual(update(['x/c', compile(service({ clusterIP: '10.96.0.9' }), [slice('10.1.0.2')], NODE)]), [
      false,
      { [key]: ['10.0.0.0/8'] },
    ])
    assert.deepEqual(update(['x/a', balanced('a', '10.0.0.0/8')]), [false, { [key]: ['10.0.0.0/8'] }])
    // Another Service that names the same address neither opens nor closes it.
    assert.deepEqual(update(['x/b', balanced('b', '172.16.0.0/12')])[1], { [key]: ['10.0.0.0/8'] })
    assert.deepEqual(update(['x/a', undefined]), [true, { [key]: ['172.16.0.0/12'] }])
    assert.deepEqual(update(['x/b', undefined]), [true, {}])
  })

  it('a change of many transactions leads no client to an endpoint that is not there, in none of them', async () => {
    // What the kernel has, by set and key.
    const kernel = new Map<string, string>()
    const wrong: string[] = []
    let transactions = 0
    const look = () => {
      for (const [element, chain] of kernel) {
        const [, address, count] = /^svc4 (\S+) .*\|goto vip4_tcp_(\d+)/.exec(`${element}|${chain}`) ?? []
        for (let slot = 0; slot < Number(count ?? 0); slot++)
          if (!kernel.has(`eps4tcp ${address} . 80 . ${slot}`))
            wrong.push(`transaction ${transactions}: ${address} has no slot ${slot} of ${count}`)
      }
    }
    const run = async (_: readonly string[], script: string) => {
      transactions++
      for (const [, verb, set, list = ''] of script.matchAll(/^(add|delete) element inet \S+ (\S+) \{ (.*) \}$/gm))
        for (const [key = '', value = ''] of list.split(', ').map((one) => one.split(' : ')))
          if (verb === 'add') kernel.set(`${set} ${key}`, value)
          else kernel.delete(`${set} ${key}`)
      look()
      return { status: 0, stdout: '', stderr: '' }
    }
    const elements = new Elements('t', SHAPES, { most: 7, generation: () => transactions })
    elements.forget()
    const wanted = new WantedElements(elements)
    const counts = [3, 1, 4, 2, 5, 0, 3]
    for (const count of counts) {
      const changes = Array.from({ length: 9 }, (_, n) => {
        const ends = Array.from({ length: n % 2 ? count : 5 - count }, (_, i) => `10.1.${n}.${i + 2}`)
        const compiled = compile(service({ clusterIP: `10.96.0.${n}` }), [slice(...ends)], NODE, wanted.of(`x/s${n}`))
        return [`x/s${n}`, compiled] as const
      })
      wanted.update(new Map(changes))
      await elements.step(run)
    }
    assert.ok(transactions > counts.length * 2, `${transactions} transactions`)
    assert.deepEqual(wrong, [])
  })
})
