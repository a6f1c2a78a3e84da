// lane: quick
// Tests agent/kernel/batch.ts.
import assert from 'node:assert/strict'
import { putOf, sentences } from '../../../agent/kernel/batch.ts'
import type { Route } from '../../../lib/state/kinds/route.ts'
import type { Resource } from '../../../lib/state/resource.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import type { IfName } from '../../../lib/text/values.ts'

const neigh = (n: number, mac = n) =>
  ({
    kind: 'neigh',
    ns: 'host',
    dev: 'flannel.1',
    ip: `10.244.${n}.0`,
    mac: `02:00:00:00:00:${mac.toString(16).padStart(2, '0')}`,
    proto: 112,
  }) as Resource

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

describe('sentences()', () => {
  it('tell of each kind and reason once, by the first and the number of the others', () => {
    const steps = [2, 3, 4].map((n) => putOf(neigh(n)))
    const failed = new Map(steps.map((step) => [step, 'No buffer space available']))
    failed.set(putOf(route('10.244.2.0')), 'File exists')
    assert.deepEqual(sentences(failed), [
      'Cannot make neighbour 10.244.2.0 on flannel.1 and 2 more: No buffer space available',
      'Cannot make route 10.244.2.0/24: another program has a route there (see: ip route show 10.244.2.0/24)',
    ])
  })
})
