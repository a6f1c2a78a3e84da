// lane: quick
// Tests agent/doctor/promise/paths.ts.
import assert from 'node:assert/strict'
import { type LocalPod, pathsOf, podsOfNode } from '../../../../agent/doctor/promise/paths.ts'
import type { Status } from '../../../../agent/state/status.ts'
import type { Cidr, Ip } from '../../../../lib/text/ip.ts'

const STATUS = {
  node: 'n1',
  backend: 'vxlan',
  mtu: 1450,
  subnets: { v4: '10.244.1.0/24' },
  uplink: { tunnel: { v4: '172.30.0.1' } },
  peers: [
    { node: 'n2', subnets: { v4: '10.244.2.0/24' }, ips: { v4: '172.30.0.2' } },
    { node: 'n3', subnets: { v4: '10.244.3.0/24' }, ips: { v4: '172.30.0.3' }, problem: 'no route' },
  ],
} as unknown as Status
const pod = (name: string, ip: string): LocalPod => ({ name, ips: [ip as Ip], netns: `/run/netns/${name}` as never })
const [A, B] = [pod('a', '10.244.1.2'), pod('b', '10.244.1.3')]
const NONE = { pods: [], status: STATUS, services: [], others: new Map(), routers: [] }
const lines = (...args: Parameters<typeof pathsOf>) =>
  pathsOf(...args).map(({ kind, from, to, bytes, port }) => `${kind}: ${from.ip} → ${to.ip} ${port ?? bytes}`)

describe('the paths of the promise', () => {
  it('without a pod only nodes send, also to a peer with a known problem', () => {
    assert.deepEqual(lines(NONE, 0), [
      'node → other node: 10.244.1.0 → 10.244.2.0 0',
      'node → other node: 10.244.1.0 → 10.244.2.0 1450',
      'node → other node: 10.244.1.0 → 10.244.3.0 0',
      'node → other node: 10.244.1.0 → 10.244.3.0 1450',
    ])
  })

  it('each pod hears its node and the next pod, and sends to them, to a peer and to the router', () => {
    const found = lines({ ...NONE, pods: [A, B], routers: ['172.30.0.254' as Ip] }, 0)
    for (const one of [
      'node → pod: 172.30.0.1 → 10.244.1.2 0',
      'node → pod: 172.30.0.1 → 10.244.1.3 1450',
      'pod → node: 10.244.1.3 → 172.30.0.1 0',
      'pod → pod: 10.244.1.2 → 10.244.1.3 1450',
      'pod → pod: 10.244.1.3 → 10.244.1.2 0',
      'pod → outside: 10.244.1.2 → 172.30.0.254 0',
      'pod → other node: 10.244.1.2 → 10.244.2.0 1450',
      'pod → other node: 10.244.1.3 → 10.244.3.0 0',
      'pod → other node: 10.244.1.2 → 172.30.0.2 0',
    ])
      assert.ok(found.includes(one), `${one}\n${found.join('\n')}`)
  })

  it('a pod sends nothing to where its ADD gave it no route, and gets nothing from there', () => {
    const few = { ...A, reach: ['10.244.1.2/24', '10.244.0.0/16'] as Cidr[] }
    const found = lines({ ...NONE, pods: [few, B], routers: ['172.30.0.254' as Ip] }, 0)
    assert.ok(found.includes('pod → pod: 10.244.1.2 → 10.244.1.3 0'))
    assert.ok(found.includes('pod → other node: 10.244.1.2 → 10.244.2.0 0'))
    const withNode = found.filter((one) => /172\.30/.test(one) && /10\.244\.1\.2 /.test(`${one} `))
    assert.deepEqual(withNode, [])
  })

  it('a Service with an endpoint that is ready gets connections', () => {
    const port = (ip: string, leftOut?: string) => ({
      addresses: [`${ip}:80/TCP`],
      endpoints: [{ address: '10.244.1.2:8080', ...(leftOut !== undefined && { leftOut }) }],
    })
    const services = [{ namespace: 'x', name: 'web', ports: [port('10.96.0.1'), port('10.96.0.2', 'not ready')] }]
    const found = lines({ ...NONE, pods: [A], services: services as never }, 0).filter((one) => /Service/.test(one))
    assert.deepEqual(found, ['node → Service: 172.30.0.1 → 10.96.0.1 80', 'pod → Service: 10.244.1.2 → 10.96.0.1 80'])
  })

  it('pods of other networks are none of this node', () => {
    assert.deepEqual(podsOfNode([A, pod('c', '10.9.0.2')], STATUS), [A])
    assert.deepEqual(podsOfNode([A], undefined), [])
  })
})
