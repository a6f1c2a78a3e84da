// lane: quick
// Tests agent/bgp/bird-conf.ts.
import assert from 'node:assert/strict'
import { birdConf, type Situation } from '../../../agent/bgp/bird-conf.ts'
import { ValueError } from '../../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../../lib/text/ip.ts'
import { lease, situation } from '../../support/bgp-situation.ts'

describe('bird.conf', () => {
  it('labels of nodes that are not known select nothing', () => {
    const selecting = (key: string) =>
      `${key}: { nodeSelector: { matchExpressions: [{ key: a, operator: DoesNotExist }] }`
    const made = birdConf(situation(`${selecting('routeReflectors')}, clusterId: 10.0.0.9 }`))
    const none = 'none of the nodes is a route reflector; want two at least, as one may die'
    assert.deepEqual([made.sessions, made.problems], [[], [none]])
  })

  it('reflectors count by their addresses where leases have no names, as in the store etcd', () => {
    const others = [1, 3].map((n) => {
      const { node: _, ...rest } = lease(n)
      return rest
    })
    const yaml = 'routeReflectors: { clusterId: 10.0.0.9, nodes: [172.30.0.1, n2, "fd00:30::3"] }'
    const names = (more: Partial<Situation>) =>
      birdConf(situation(yaml, { others, ...more })).sessions.map(({ name }) => name)
    assert.deepEqual(names({}), ['172.30.0.1', '172.30.0.3'])
    const fourth = { node: 'n4', ips: { v4: '172.30.0.4' as Ip }, subnets: { v4: '10.244.4.0/24' as Cidr } }
    assert.deepEqual(names(fourth), ['172.30.0.1'])
    assert.deepEqual(birdConf(situation(yaml, { others, ...fourth })).problems, [
      '172.30.0.1 is the only route reflector; want two at least, as one may die',
    ])
  })

  it('a lease without a name, as flanneld writes it into etcd, is no reflector: it has sessions with reflectors alone', () => {
    const yaml = 'routeReflectors: { nodes: [n1, n2], clusterId: 10.0.0.9 }'
    const { node: _, ...nameless } = lease(1)
    const others = [nameless, lease(2), lease(3)]
    const names = (node: number) => {
      const own = { v4: `172.30.0.${node}` as Ip }
      const more = { node: `n${node}`, subnets: lease(node).subnets, ips: own, others }
      return birdConf(situation(yaml, more)).sessions.map(({ name }) => name)
    }
    // The reflector n2 passes the routes of all on. n3 does not know that 172.30.0.1 is n1.
    assert.deepEqual(names(2), ['172.30.0.1', 'n3'])
    assert.deepEqual(names(3), ['n2'])
  })

  it('a password that could end its quotes is refused', () => {
    const yaml = 'peers: [{ address: 192.0.2.1, asn: 65000, passwordFile: /p }]'
    for (const bad of ['a"b', 'a\nb'])
      assert.throws(() => birdConf(situation(yaml, { passwords: new Map([['/p', bad]]) })), ValueError)
  })
})
