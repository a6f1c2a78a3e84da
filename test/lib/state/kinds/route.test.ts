// lane: quick
// Tests lib/state/kinds/route.ts.
import assert from 'node:assert/strict'
import { routeOf } from '../../../../lib/state/kinds/route.ts'
import type { Resource } from '../../../../lib/state/resource.ts'

const ROUTE = {
  kind: 'route',
  ns: 'host',
  dev: 'flannel.1',
  dst: '10.244.2.0/24',
  via: ['10.244.2.0'],
  onlink: true,
  proto: 112,
  nhid: 7,
} as unknown as Resource

describe('a route', () => {
  it('routeOf() reads a route as it was printed: host routes without a length, the metric that IPv6 has by default, the number that was asked for', () => {
    assert.deepEqual(
      routeOf({ dst: '10.244.2.0/24', nhid: 7, gateway: '10.244.2.0', dev: 'flannel.1', flags: ['onlink'] }, 112),
      ROUTE,
    )
    const plain = { kind: 'route', ns: 'host', dev: 'eth0' }
    assert.deepEqual(
      routeOf({ dst: 'fd00::1', gateway: '2001:db8::2', dev: 'eth0', metric: 1024, protocol: '112', flags: [] }),
      { ...plain, dst: 'fd00::1/128', via: ['2001:db8::2'], proto: 112 },
    )
    assert.deepEqual(routeOf({ dst: '10.0.0.1', dev: 'eth0', metric: 5, flags: [] }), {
      ...plain,
      dst: '10.0.0.1/32',
      via: [],
      priority: 5,
    })
  })
})
