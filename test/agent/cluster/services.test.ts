// lane: quick
// Tests agent/cluster/services.ts. What is left out and refused stands in test/scenarios/services.
import assert from 'node:assert/strict'
import { Api } from '../../../agent/cluster/api.ts'
import { Collection } from '../../../agent/cluster/collection.ts'
import { KINDS } from '../../../agent/cluster/kinds.ts'
import { serviceOf, sliceOf } from '../../../agent/cluster/services.ts'

const meta = (name: string, labels: Readonly<Record<string, string>> = {}) => ({ namespace: 'x', name, labels })
const service = (spec: object, status: object = {}) =>
  serviceOf({ metadata: meta('s'), spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }], ...spec }, status })
const slice = (more: object) =>
  sliceOf({
    metadata: meta('s-1', { 'kubernetes.io/service-name': 's' }),
    addressType: 'IPv4',
    ports: [{ name: '', port: 8080 }],
    endpoints: [],
    ...more,
  })

describe('Services and EndpointSlices as slim values', () => {
  it('a Service keeps its addresses, ports and policies; the rest has the defaults of core/v1', () => {
    assert.deepEqual(service({}), {
      namespace: 'x',
      name: 's',
      clusterIPs: ['10.96.0.1'],
      externalIPs: [],
      balancerIPs: [],
      sourceRanges: [],
      ports: [{ name: '', protocol: 'TCP', port: 80 }],
      isExternalLocal: false,
      isInternalLocal: false,
      publishesNotReady: false,
    })
    const full = service(
      {
        type: 'LoadBalancer',
        clusterIPs: ['10.96.0.1', 'FD00:96:0::1'],
        externalIPs: ['192.0.2.1'],
        externalTrafficPolicy: 'Local',
        internalTrafficPolicy: 'Local',
        sessionAffinity: 'ClientIP',
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 10 } },
        healthCheckNodePort: 30_001,
        publishNotReadyAddresses: true,
        loadBalancerSourceRanges: ['10.0.0.0/8 '],
        ports: [{ name: 'dns', protocol: 'UDP', port: 53, nodePort: 30_053 }],
      },
      { loadBalancer: { ingress: [{ ip: '192.0.2.2' }, { ip: '192.0.2.3', ipMode: 'Proxy' }, { hostname: 'lb' }] } },
    )
    assert.deepEqual(
      [full?.clusterIPs, full?.externalIPs, full?.balancerIPs, full?.sourceRanges],
      [['10.96.0.1', 'fd00:96::1'], ['192.0.2.1'], ['192.0.2.2'], ['10.0.0.0/8']],
    )
    assert.deepEqual(
      [full?.ports, full?.affinitySeconds, full?.healthCheckNodePort],
      [[{ name: 'dns', protocol: 'UDP', port: 53, nodePort: 30_053 }], 10, 30_001],
    )
    assert.ok(full?.isExternalLocal && full.isInternalLocal && full.publishesNotReady)
    assert.equal(service({ sessionAffinity: 'ClientIP' })?.affinitySeconds, 10_800)
  })

  it('an EndpointSlice keeps its ports and its endpoints; the conditions have the defaults of discovery.k8s.io/v1', () => {
    const endpoints = [
      { addresses: ['10.1.0.2'], nodeName: 'n1', hints: { forZones: [{ name: 'z' }], forNodes: [{ name: 'n1' }] } },
      { addresses: ['10.1.0.3'], conditions: { ready: false } },
      { addresses: ['10.1.0.4'], conditions: { ready: false, serving: true, terminating: true } },
    ]
    assert.deepEqual(slice({ endpoints })?.endpoints, [
      { ip: '10.1.0.2', isReady: true, isServing: true, isTerminating: false, node: 'n1', zones: ['z'], nodes: ['n1'] },
      { ip: '10.1.0.3', isReady: false, isServing: false, isTerminating: false, zones: [], nodes: [] },
      { ip: '10.1.0.4', isReady: false, isServing: true, isTerminating: true, zones: [], nodes: [] },
    ])
    assert.deepEqual(
      slice({ ports: [{ name: 'a', port: 1 }, { name: 'all' }, { name: 'b', port: 2, protocol: 'SCTP' }] })?.ports,
      [
        { name: 'a', protocol: 'TCP', port: 1 },
        { name: 'b', protocol: 'SCTP', port: 2 },
      ],
    )
    assert.deepEqual([slice({ addressType: 'FQDN' }), sliceOf({ metadata: meta('lone') })], [undefined, undefined])
  })

  for (const [kind, good, wrong] of [
    [
      'services',
      { metadata: meta('s'), spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }] } },
      { metadata: meta('s'), spec: { clusterIP: '10.96.0.1', ports: [{ port: 80, protocol: 'QUIC' }] } },
    ],
    [
      'slices',
      { metadata: meta('s', { 'kubernetes.io/service-name': 's' }), addressType: 'IPv4', endpoints: [] },
      { metadata: meta('s', { 'kubernetes.io/service-name': 's' }), addressType: 'IPv7', endpoints: [] },
    ],
  ] as const)
    it(`an object of the kind ${KINDS[kind].manifest} that nobody can read any more stays as it was, is named, and goes when it is deleted`, () => {
      const api = new Api(
        {
          server: 'http://127.0.0.1:1',
          origin: 'nobody',
          tls: async () => ({}),
          headers: async () => ({}),
          refused() {},
        },
        'test',
      )
      const collection = new Collection<unknown>(api, KINDS[kind])
      collection.apply({ type: 'ADDED', object: good })
      const known = collection.items.get('x/s')
      assert.ok(known)
      collection.apply({ type: 'MODIFIED', object: wrong })
      assert.equal(collection.items.get('x/s'), known)
      assert.match(collection.refused.get('x/s') ?? '', /"QUIC"|"IPv7"/)
      collection.apply({ type: 'DELETED', object: wrong })
      assert.deepEqual([collection.items.size, collection.refused.size], [0, 0])
      collection.apply({ type: 'ADDED', object: wrong })
      assert.deepEqual([collection.items.size, collection.refused.size], [0, 1])
    })

  it('the API is asked for no object of another proxy, and for no headless one, as a folder leaves them out', () => {
    for (const kind of ['services', 'slices'] as const)
      assert.equal(
        KINDS[kind].query?.['labelSelector'],
        '!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless',
      )
  })
})
