// lane: quick
// Tests agent/cluster/services.ts, and how a folder of manifests selects its objects.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Api } from '../../../agent/cluster/api.ts'
import { Collection } from '../../../agent/cluster/collection.ts'
import { KINDS } from '../../../agent/cluster/kinds.ts'
import { clusterNodeOf } from '../../../agent/cluster/objects.ts'
import { serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { readManifests } from '../../../agent/cluster/source.ts'

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

  it('an endpoint or an address of a Node that nobody can read is left out and named, and the others count', () => {
    const found = slice({
      endpoints: [{ addresses: ['10.1.0.1'] }, { addresses: ['10.1.0.02'] }, { addresses: ['10.1.0.3', 'not used'] }],
    })
    assert.deepEqual(
      found?.endpoints.map(({ ip }) => ip),
      ['10.1.0.1', '10.1.0.3'],
    )
    assert.match(
      found?.leftOut?.join('\n') ?? '',
      /^EndpointSlice x\/s-1: endpoints\[1\]\.addresses\[0\] "10\.1\.0\.02".*; it is left out$/,
    )
    assert.equal(slice({ endpoints: [{ addresses: ['10.1.0.1'] }] })?.leftOut, undefined)
    const other = slice({ endpoints: [{ addresses: ['fd00::1'] }, { addresses: ['1.2.3.4; flush ruleset'] }] })
    assert.deepEqual(other?.endpoints, [])
    assert.match(
      other?.leftOut?.join('\n') ?? '',
      /endpoints\[0\]\.addresses\[0\] "fd00::1": want an address of addressType IPv4; it is left out\n.*endpoints\[1\]\.addresses\[0\] "1\.2\.3\.4; flush ruleset"/,
    )
    const address = (type: string, text: string) => ({ type, address: text })
    const node = clusterNodeOf({
      metadata: { name: 'n', labels: { zone: 'a' } },
      status: {
        addresses: [
          address('InternalIP', '192.0.2.1'),
          address('InternalIP', 'fe80::1%eth0'),
          address('Hostname', 'n'),
          address('ExternalIP', '192.0.2.2'),
        ],
      },
    })
    assert.deepEqual([node.ips, node.labels], [['192.0.2.1', '192.0.2.2'], { zone: 'a' }])
    assert.match(
      node.leftOut?.join('\n') ?? '',
      /^Node n: status\.addresses\[1\]\.address "fe80::1%eth0".*; it is left out$/,
    )
  })

  it('an address or a source range that nobody can read is left out and named, and the rest is served; without any range left nobody may use the address', () => {
    const found = service(
      {
        type: 'LoadBalancer',
        externalIPs: ['192.0.2.010', '192.0.2.11'],
        loadBalancerSourceRanges: ['10.00.0.0/8', '10.1.0.0/16'],
      },
      { loadBalancer: { ingress: [{ ip: '192.0.02.2' }, { ip: '192.0.2.3' }] } },
    )
    assert.deepEqual(
      [found?.externalIPs, found?.balancerIPs, found?.sourceRanges],
      [['192.0.2.11'], ['192.0.2.3'], ['10.1.0.0/16']],
    )
    assert.equal(found?.leftOut?.length, 3)
    assert.match(
      found?.leftOut?.join('\n') ?? '',
      /^Service x\/s: spec\.loadBalancerSourceRanges\[0\] "10\.00\.0\.0\/8".*; it is left out\nService x\/s: spec\.externalIPs\[0\] "192\.0\.2\.010".*\n.*ingress\[0\] "192\.0\.02\.2"/,
    )
    assert.deepEqual(service({ type: 'LoadBalancer', loadBalancerSourceRanges: ['010.0.0.0/8'] })?.sourceRanges, [
      '255.255.255.255/32',
      'ff02::1/128',
    ])
  })

  it('addresses of loopback, link-local and multicast are no external addresses, and no endpoints', () => {
    const special = [
      '127.0.0.1',
      '169.254.169.254',
      '224.0.0.1',
      '0.0.0.0',
      '255.255.255.255',
      '::1',
      '::',
      'fe80::1',
      'ff02::1',
    ]
    const found = service(
      { type: 'LoadBalancer', externalIPs: [...special, '192.0.2.1', 'ff::1'] },
      { loadBalancer: { ingress: [...special, '192.0.2.2'].map((ip) => ({ ip })) } },
    )
    assert.deepEqual([found?.externalIPs, found?.balancerIPs], [['192.0.2.1', 'ff::1'], ['192.0.2.2']])
    assert.equal(found?.leftOut?.length, 2 * special.length)
    assert.match(
      found?.leftOut?.[0] ?? '',
      /^Service x\/s: spec\.externalIPs\[0\] "127\.0\.0\.1": want no address of loopback, .*; it is left out$/,
    )
    for (const ip of special) {
      const { endpoints, leftOut } =
        slice({ addressType: ip.includes(':') ? 'IPv6' : 'IPv4', endpoints: [{ addresses: [ip] }] }) ?? {}
      assert.deepEqual(endpoints, [])
      assert.match(leftOut?.[0] ?? '', /addresses\[0\] ".*": want no address of loopback/, ip)
    }
  })

  it('ExternalName and headless Services are nothing to the proxy', () => {
    assert.deepEqual(
      [
        service({ type: 'ExternalName', clusterIP: undefined }),
        service({ clusterIP: 'None' }),
        service({ clusterIP: '' }),
      ],
      [undefined, undefined, undefined],
    )
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

  it('a port of an EndpointSlice that nobody can read is left out and named, and the others count: the API server takes the port 0', () => {
    const ports = [
      { name: 'none', protocol: 'TCP', port: 0 },
      { name: 'web', protocol: 'TCP', port: 8080 },
      { name: 'high', protocol: 'TCP', port: 70_000 },
    ]
    const read = slice({ ports, endpoints: [{ addresses: ['10.1.0.2'] }] })
    assert.deepEqual([read?.ports, read?.endpoints.length], [[{ name: 'web', protocol: 'TCP', port: 8080 }], 1])
    assert.deepEqual(read?.leftOut, [
      'EndpointSlice x/s-1: ports[0].port 0: want a number from 1 to 65535; it is left out',
      'EndpointSlice x/s-1: ports[2].port 70000: want a number from 1 to 65535; it is left out',
    ])
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

  it('a wrong object is refused with its name and the path of the wrong field', () => {
    const cases: readonly (readonly [() => unknown, RegExp])[] = [
      [
        () => service({ clusterIPs: ['10.96.0.300'] }),
        /^Service x\/s: spec\.clusterIPs\[0\] "10\.96\.0\.300": want an IP address/,
      ],
      [
        () => service({ ports: [{ port: 0 }] }),
        /^Service x\/s: spec\.ports\[0\]\.port 0: want a number from 1 to 65535/,
      ],
      [() => service({ ports: [{ port: 1, protocol: 'tcp' }] }), /ports\[0\]\.protocol "tcp": want TCP, UDP or SCTP/],
      [() => service({ ports: [{ port: 1, nodePort: 70_000 }] }), /ports\[0\]\.nodePort 70000: want/],
      [
        () => service({ sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } }),
        /timeoutSeconds 0: want a number from 1 to 86400/,
      ],
      [() => slice({ addressType: 'IPX' }), /addressType "IPX": want IPv4 or IPv6/],
      [
        () => serviceOf({ metadata: { name: 'A b', namespace: 'x' }, spec: { clusterIP: '10.96.0.1' } }),
        /metadata\.name "A b"/,
      ],
    ]
    for (const [read, message] of cases) assert.throws(read, { name: 'ValueError', message })
  })

  it('a folder leaves out the objects that the API would not send: those of another proxy, and headless ones', () => {
    const dir = mkdtempSync(join(tmpdir(), 'manifests-'))
    try {
      const object = (name: string, labels: object) => ({
        kind: 'Service',
        metadata: { namespace: 'x', name, labels },
        spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }] },
      })
      const all = [
        object('ours', {}),
        object('theirs', { 'service.kubernetes.io/service-proxy-name': 'other' }),
        object('headless', { 'service.kubernetes.io/headless': '' }),
      ]
      writeFileSync(join(dir, 'services.json'), JSON.stringify({ kind: 'ServiceList', items: all }))
      assert.deepEqual([...readManifests(dir).objects.services.keys()], ['x/ours'])
      for (const kind of ['services', 'slices'] as const)
        assert.equal(
          KINDS[kind].query?.['labelSelector'],
          '!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless',
        )
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})
