// lane: quick
// Tests agent/store/kube/node.ts.
import assert from 'node:assert/strict'
import { overlaps } from '../../../../agent/lease/allocate.ts'
import type { Lease } from '../../../../agent/lease/lease.ts'
import { type KubeNode, snapshotOf } from '../../../../agent/store/kube/node.ts'
import { type Cidr, parseIp } from '../../../../lib/text/ip.ts'
import { patient } from '../../../support/patience.ts'

describe('snapshotOf()', () => {
  const nodes = (...cidrs: string[]) =>
    cidrs.map((cidr, i) => ({ name: `n${i}`, created: i, podCidrs: [cidr] }) as unknown as KubeNode)
  const read = ({ name, podCidrs }: KubeNode): Lease => ({
    node: name,
    subnets: { v4: podCidrs[0] as Cidr },
    ips: { v4: parseIp('192.0.2.1') },
    backend: 'vxlan',
    data: {},
  })
  const of = (...cidrs: string[]) => {
    const { leases, unreadable } = snapshotOf(nodes(...cidrs), new Map(), read)
    return [leases.map(({ node }) => node), unreadable.map(({ key }) => key)]
  }

  it('gives each subnet to the oldest node that has it, also among subnets of several lengths', () => {
    assert.deepEqual(of('10.1.0.0/24', '10.1.1.0/24', '10.1.0.0/24'), [['n0', 'n1'], ['n2']])
    assert.deepEqual(of('10.1.0.0/24', '10.1.0.0/23'), [['n0'], ['n1']])
    // The length of the first node again, within the subnet of the second.
    assert.deepEqual(of('10.1.8.0/24', '10.1.0.0/23', '10.1.1.0/24'), [['n0', 'n1'], ['n2']])
  })

  it('one pod CIDR of another length among 5,000 nodes costs no more than 5,000 of one length, and any mixture has the same holders as by comparing all', () => {
    const many = Array.from({ length: 5000 }, (_, i) => `10.${i >> 8}.${i & 255}.0/24`)
    const began = performance.now()
    const [leases] = of('10.200.0.0/23', ...many)
    assert.equal(leases?.length, 5001)
    assert.ok(performance.now() - began < patient(5000), `${performance.now() - began} ms`)
    let seed = 1
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    for (let round = 0; round < 50; round++) {
      const cidrs = Array.from({ length: 40 }, () => {
        const length = 22 + random(6)
        return `10.0.${random(16) & (length < 24 ? ~((1 << (24 - length)) - 1) : -1)}.${length > 24 ? random(1 << (length - 24)) << (32 - length) : 0}/${length}`
      })
      const kept: number[] = []
      for (const [i, cidr] of cidrs.entries())
        if (!kept.some((other) => overlaps({ v4: cidrs[other] as Cidr }, { v4: cidr as Cidr }))) kept.push(i)
      assert.deepEqual(
        of(...cidrs)[0],
        kept.map((i) => `n${i}`),
      )
    }
  })
})
