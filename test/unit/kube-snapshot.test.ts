// Tests agent/store/kube/node.ts.
import assert from 'node:assert/strict'
import type { Lease } from '../../agent/lease/lease.ts'
import { type KubeNode, snapshotOf } from '../../agent/store/kube/node.ts'
import { type Cidr, parseIp } from '../../lib/text/ip.ts'

describe('snapshotOf()', () => {
  const nodes = (...cidrs: string[]) => cidrs.map((cidr, i) => ({ name: `n${i}`, created: i, podCidrs: [cidr] }) as unknown as KubeNode)
  const read = ({ name, podCidrs }: KubeNode): Lease => ({ node: name, subnets: { v4: podCidrs[0] as Cidr }, ips: { v4: parseIp('192.0.2.1') }, backend: 'vxlan', data: {} })
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
})
