// lane: quick
// Tests agent/doctor/pod-proxies.ts: for which routed pods the node answers on a bridge.
import assert from 'node:assert/strict'
import { type ProxyFacts, proxiesFor } from '../../../agent/doctor/pod-proxies.ts'
import type { Entry } from '../../../lib/journal/journal.ts'
import type { LinkFacts } from '../../../lib/os/links.ts'
import { handler } from '../../../lib/state/kinds/index.ts'

type Cidrs = ProxyFacts['subnets']
const SUBNETS = ['10.244.1.0/24', 'fd00:1::/64'] as unknown as Cidrs
const ADDRESSES: Readonly<Record<number, readonly string[]>> = {
  1: ['192.0.2.1/24'],
  2: ['10.244.1.1/24', 'fd00:1::1/64'],
  3: ['10.9.0.1/8'],
}
const entry = (ips: readonly string[], isRouted = true) =>
  ({ owner: {}, ips, parts: isRouted ? { routed: { own: [] } } : {} }) as unknown as Entry
const link = (index: number, name: string, kind: string) => ({ index, name, kind }) as unknown as LinkFacts
const LINKS = [link(1, 'eth0', ''), link(2, 'cni0', 'bridge'), link(3, 'br0', 'bridge')]

function lines(entries: readonly Entry[], links = LINKS): string[] {
  const addressesOf = (index: number) => (ADDRESSES[index] ?? []) as unknown as Cidrs
  return proxiesFor({ entries, links, addressesOf, subnets: SUBNETS }).flatMap((one) =>
    handler(one.kind)
      .put(one)
      .map(({ text }) => text),
  )
}

describe('proxiesFor()', () => {
  it('routed pods, on the bridge that has an address of the node’s subnets and of the pod’s, in both families', () => {
    assert.deepEqual(lines([entry(['10.244.1.5', 'fd00:1::5'])]), [
      'neigh replace proxy 10.244.1.5 dev cni0 protocol 112',
      'neigh replace proxy fd00:1::5 dev cni0 protocol 112',
    ])
  })

  it('none for pods of the bridge, for addresses of other networks, and without a bridge', () => {
    assert.deepEqual(lines([entry(['10.244.1.5'], false), entry(['10.9.7.7', '10.244.2.5'])]), [])
    assert.deepEqual(lines([entry(['10.244.1.5'])], LINKS.slice(0, 1)), [])
  })
})
