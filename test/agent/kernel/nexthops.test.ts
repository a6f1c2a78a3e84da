// lane: quick
// Tests agent/kernel/nexthops.ts.
import assert from 'node:assert/strict'
import { isOwnId, settleIds, throughNexthop } from '../../../agent/kernel/nexthops.ts'
import type { Nexthop } from '../../../lib/state/kinds/nexthop.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { type IfName, parse } from '../../../lib/text/values.ts'

const route = (via: string, dev = 'flannel.1') =>
  ({
    kind: 'route',
    ns: 'host',
    dst: '10.244.2.0/24' as Cidr,
    via: [via as Ip] as const,
    dev: dev as IfName,
    onlink: true,
    proto: 112,
  }) as const satisfies Route

describe('settleIds()', () => {
  // Two gateways whose ids collide, found by trying.
  const instance = parse.network('default')
  const [first, second] = collision()

  it('moves one of two gateways with the same id, the same one in whatever order they come, and its routes with it', () => {
    assert.equal(first[0].id, second[0].id)
    const settled = settleIds([...first, ...second])
    const ids = settled.flatMap((one) =>
      one.kind === 'nexthop' ? [`${one.via} ${one.id}`] : one.kind === 'route' ? [`${one.via[0]} ${one.nhid}`] : [],
    )
    assert.equal(new Set(ids).size, 2, ids.join(', '))
    assert.deepEqual(
      new Set(settleIds([...second, ...first, ...second]).map((one) => JSON.stringify(one))),
      new Set(settled.map((one) => JSON.stringify(one))),
    )
    for (const one of settled) if (one.kind === 'nexthop') assert.ok(isOwnId(instance, one))
  })
  it('gives back the very list that came when nothing collides', () => {
    const list = [...first, ...first]
    assert.equal(settleIds(list), list)
  })

  function collision(): [[Nexthop, Route], [Nexthop, Route]] {
    const seen = new Map<number, string>()
    for (let i = 0; ; i++) {
      const via = `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`
      const [{ id }] = throughNexthop(route(via), instance)
      const other = seen.get(id)
      if (other !== undefined) return [throughNexthop(route(other), instance), throughNexthop(route(via), instance)]
      seen.set(id, via)
    }
  }
})
