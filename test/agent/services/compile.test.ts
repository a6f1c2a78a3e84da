// lane: quick
// Tests agent/services/compile.ts and endpoints.ts: from a Service and its slices to elements of nft.
import assert from 'node:assert/strict'
import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { Elements } from '../../../agent/kernel/elements.ts'
import { type CompiledService, compile, elementsOf } from '../../../agent/services/compile.ts'
import { allUdp, StaleFrontends } from '../../../agent/services/conntrack.ts'
import { endpointsOf, type NodeFacts } from '../../../agent/services/endpoints.ts'
import { SHAPES } from '../../../agent/services/table.ts'
import { WantedElements } from '../../../agent/services/wanted-elements.ts'
import { parseIp } from '../../../lib/text/ip.ts'

const NODE: NodeFacts = { name: 'n1', zone: 'a' }
const service = (spec: object, status: object = {}) =>
  serviceOf({
    metadata: { namespace: 'x', name: 's' },
    spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }], ...spec },
    status,
  }) as Service
/**
 * `10.1.0.2` is ready on n1; `10.1.0.2@n2` elsewhere; with `-` not ready, `~` terminating and serving; zones after `/`.
 */
const slice = (...endpoints: readonly string[]) => sliceFor([{ name: '', port: 8080 }], ...endpoints)
const sliceFor = (ports: readonly object[], ...endpoints: readonly string[]) =>
  sliceOf({
    metadata: { namespace: 'x', name: 's-1', labels: { 'kubernetes.io/service-name': 's' } },
    addressType: endpoints[0]?.includes('::') ? 'IPv6' : 'IPv4',
    ports,
    endpoints: endpoints.map((one) => {
      const [, mark, ip, nodeName = 'n1', zone, hinted] =
        /^([-~]?)([\d.a-f:]+)(?:@(\w+))?(?:\/(\w+))?(?:#(\w+))?$/.exec(one) ?? []
      const hints = { ...(zone && { forZones: [{ name: zone }] }), ...(hinted && { forNodes: [{ name: hinted }] }) }
      return {
        addresses: [ip],
        nodeName,
        conditions: mark === '' ? {} : { ready: false, serving: mark === '~', terminating: mark === '~' },
        hints,
      }
    }),
  }) as Slice
const textOf = ({ frontends }: CompiledService) =>
  [...frontends.values()]
    .flatMap((one) => [...elementsOf(one)].map(([set, key, value]) => `${set} { ${key}${value && ` : ${value}`} }`))
    .sort()

describe('the compiler of Services', () => {
  it('one element leads a ClusterIP to the chain of its number of endpoints, and one per endpoint says where to', () => {
    assert.deepEqual(textOf(compile(service({}), [slice('10.1.0.2', '10.1.0.3@n2')], NODE)), [
      'eps4tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080 }',
      'eps4tcp { 10.96.0.1 . 80 . 1 : 10.1.0.3 . 8080 }',
      'svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_2 }',
    ])
  })

  it('families are apart: slices of IPv6 serve the IPv6 address and the IPv6 node port', () => {
    const found = textOf(
      compile(
        service({ clusterIPs: ['10.96.0.1', 'fd00:96::1'], ports: [{ port: 53, protocol: 'UDP', nodePort: 30_053 }] }),
        [sliceFor([{ name: '', port: 5353, protocol: 'UDP' }], 'fd01::2')],
        NODE,
      ),
    )
    assert.deepEqual(found, [
      'eps6udp { fd00:96::1 . 53 . 0 : fd01::2 . 5353 }',
      'none4 { 10.96.0.1 . udp . 53 }',
      'porteps6udp { 30053 . 0 : fd01::2 . 5353 }',
      'portnone4 { udp . 30053 }',
      'portsvc6 { udp . 30053 : goto port6_udp_1_m }',
      'svc6 { fd00:96::1 . udp . 53 : goto vip6_udp_1 }',
    ])
  })

  it('an external address of a family that the Service does not have is the node’s own', () => {
    const found = textOf(
      compile(
        service(
          { type: 'LoadBalancer', externalIPs: ['2001:db8::1', '192.0.2.1'] },
          { loadBalancer: { ingress: [{ ip: '2001:db8::2' }, { ip: '192.0.2.2' }] } },
        ),
        [slice()],
        NODE,
      ),
    )
    assert.deepEqual(found, [
      'none4 { 10.96.0.1 . tcp . 80 }',
      'none4 { 192.0.2.1 . tcp . 80 }',
      'none4 { 192.0.2.2 . tcp . 80 }',
    ])
  })

  it('a port uses the slices’ port of its name and protocol, and slices may differ in the number', () => {
    const ports = [
      { name: 'web', port: 80, targetPort: 'http' },
      { name: 'dns', port: 80, protocol: 'UDP' },
    ]
    const slices = [
      sliceFor([{ name: 'web', port: 8080 }], '10.1.0.2'),
      sliceFor([{ name: 'web', port: 9090 }], '10.1.0.3'),
      sliceFor([{ name: 'dns', port: 53, protocol: 'UDP' }], '10.1.0.2'),
    ]
    assert.deepEqual(textOf(compile(service({ ports }), slices, NODE)), [
      'eps4tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080 }',
      'eps4tcp { 10.96.0.1 . 80 . 1 : 10.1.0.3 . 9090 }',
      'eps4udp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 53 }',
      'svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_2 }',
      'svc4 { 10.96.0.1 . udp . 80 : goto vip4_udp_1 }',
    ])
  })

  it('an endpoint that goes leaves its slot to the last one, and a new one takes it: all others keep theirs', () => {
    const slots = (before: CompiledService | undefined, ...endpoints: readonly string[]) =>
      compile(service({}), [slice(...endpoints)], NODE, before)
    const order = (one: CompiledService) =>
      one.frontends.get('vip4 10.96.0.1 . tcp . 80')?.cluster.map((text) => Number(text.split(' ')[0]?.split('.')[3]))
    const four = slots(undefined, '10.1.0.1', '10.1.0.2', '10.1.0.3', '10.1.0.4')
    assert.deepEqual(order(four), [1, 2, 3, 4])
    const three = slots(four, '10.1.0.1', '10.1.0.3', '10.1.0.4')
    assert.deepEqual(order(three), [1, 4, 3])
    assert.deepEqual(order(slots(three, '10.1.0.9', '10.1.0.3', '10.1.0.4', '10.1.0.8')), [8, 4, 3, 9])
    assert.deepEqual(order(slots(four, '10.1.0.4')), [4])
    assert.deepEqual(order(slots(four)), [])
  })

  it('endpoints that terminate and still serve count only where no other is ready', () => {
    const cluster = (...endpoints: readonly string[]) =>
      compile(service({}), [slice(...endpoints)], NODE).frontends.get('vip4 10.96.0.1 . tcp . 80')?.cluster
    assert.deepEqual(cluster('10.1.0.2', '~10.1.0.3', '-10.1.0.4'), ['10.1.0.2 . 8080'])
    assert.deepEqual(cluster('~10.1.0.3', '-10.1.0.4'), ['10.1.0.3 . 8080'])
    assert.deepEqual(cluster('-10.1.0.4'), [])
    const local = (...endpoints: readonly string[]) =>
      compile(
        service({ ports: [{ port: 80, nodePort: 30_080 }], externalTrafficPolicy: 'Local' }),
        [slice(...endpoints)],
        NODE,
      ).frontends.get('port4 tcp . 30080')?.local
    assert.deepEqual(local('10.1.0.2@n2', '~10.1.0.3'), ['10.1.0.3 . 8080'])
    assert.deepEqual(local('10.1.0.2', '~10.1.0.3'), ['10.1.0.2 . 8080'])
  })

  it('publishNotReadyAddresses makes all ready', () => {
    assert.match(
      textOf(compile(service({ publishNotReadyAddresses: true }), [slice('-10.1.0.4')], NODE)).join(),
      /eps4tcp \{ 10\.96\.0\.1 \. 80 \. 0 : 10\.1\.0\.4 \. 8080 \}/,
    )
  })

  it('externalTrafficPolicy Local: clients from outside have slots of their own, and none is a chain that drops', () => {
    const spec = { ports: [{ port: 80, nodePort: 30_080 }], externalTrafficPolicy: 'Local' }
    assert.deepEqual(textOf(compile(service(spec), [slice('10.1.0.2', '10.1.0.3@n2')], NODE)), [
      'eps4tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080 }',
      'eps4tcp { 10.96.0.1 . 80 . 1 : 10.1.0.3 . 8080 }',
      'porteps4tcp { 30080 . 0 : 10.1.0.2 . 8080 }',
      'porteps4tcp { 30080 . 1 : 10.1.0.3 . 8080 }',
      'porteps4tcp { 30080 . 65536 : 10.1.0.2 . 8080 }',
      'portsvc4 { tcp . 30080 : goto port4_tcp_2_l1_m }',
      'svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_2 }',
    ])
    assert.match(
      textOf(compile(service(spec), [slice('10.1.0.3@n2')], NODE)).join(),
      /portsvc4 \{ tcp \. 30080 : goto port4_tcp_1_l0_m \}/,
    )
    assert.match(textOf(compile(service(spec), [slice()], NODE)).join(), /portnone4 \{ tcp \. 30080 \}/)
  })

  it('internalTrafficPolicy Local: the ClusterIP has only endpoints of this node, and drops without one', () => {
    const spec = { internalTrafficPolicy: 'Local' }
    assert.deepEqual(textOf(compile(service(spec), [slice('10.1.0.2', '10.1.0.3@n2')], NODE)), [
      'eps4tcp { 10.96.0.1 . 80 . 0 : 10.1.0.2 . 8080 }',
      'svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_1 }',
    ])
    assert.deepEqual(textOf(compile(service(spec), [slice('10.1.0.3@n2')], NODE)), [
      'svc4 { 10.96.0.1 . tcp . 80 : drop }',
    ])
    assert.deepEqual(textOf(compile(service(spec), [slice()], NODE)), ['none4 { 10.96.0.1 . tcp . 80 }'])
  })

  it('external and load balancer addresses are masked, and source ranges are for the latter alone', () => {
    const spec = {
      type: 'LoadBalancer',
      externalIPs: ['192.0.2.1'],
      loadBalancerSourceRanges: ['10.0.0.0/8', '10.1.0.0/16', '172.16.0.0/12'],
    }
    const found = compile(
      service(spec, { loadBalancer: { ingress: [{ ip: '192.0.2.2' }] } }),
      [slice('10.1.0.2')],
      NODE,
    )
    assert.deepEqual(
      textOf(found).filter((one) => one.startsWith('svc4')),
      [
        'svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_1 }',
        'svc4 { 192.0.2.1 . tcp . 80 : goto vip4_tcp_1_m }',
        'svc4 { 192.0.2.2 . tcp . 80 : goto vip4_tcp_1_m }',
      ],
    )
    assert.deepEqual([...found.restricted], [['192.0.2.2 . tcp . 80', ['172.16.0.0/12', '10.0.0.0/8'].reverse()]])
  })

  it('source ranges of one family leave the other open, a range of all addresses allows all, and a node in a range may ask from the address itself', () => {
    const restricted = (loadBalancerSourceRanges: readonly string[], node = NODE) => {
      const found = compile(
        service(
          { type: 'LoadBalancer', clusterIPs: ['10.96.0.1', 'fd00:96::1'], loadBalancerSourceRanges },
          { loadBalancer: { ingress: [{ ip: '192.0.2.2' }, { ip: 'fd00::2' }] } },
        ),
        [slice('10.1.0.2')],
        node,
      )
      return [...found.restricted]
    }
    assert.deepEqual(restricted(['10.0.0.0/8']), [['192.0.2.2 . tcp . 80', ['10.0.0.0/8']]])
    assert.deepEqual(restricted(['fd01::/16', '0.0.0.0/0']), [['fd00::2 . tcp . 80', ['fd01::/16']]])
    assert.deepEqual(restricted(['10.0.0.0/8'], { ...NODE, ips: [parseIp('10.78.0.1'), parseIp('fd78::1')] }), [
      ['192.0.2.2 . tcp . 80', ['10.0.0.0/8', '192.0.2.2/32']],
    ])
    assert.deepEqual(restricted(['10.0.0.0/8'], { ...NODE, ips: [parseIp('172.16.0.1')] }), [
      ['192.0.2.2 . tcp . 80', ['10.0.0.0/8']],
    ])
  })

  it('session affinity: a slot gives a token, a token gives the endpoint, and the token of an endpoint never changes', () => {
    const spec = { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } } }
    const found = textOf(compile(service(spec), [slice('10.1.0.2', '10.1.0.3')], NODE))
    const [token] =
      /0x7e[0-9a-f]{6}/.exec(found.find((one) => one.startsWith('sel4') && one.includes('10.1.0.3')) ?? '') ?? []
    assert.deepEqual(
      found.filter((one) => one.startsWith('svc4')),
      ['svc4 { 10.96.0.1 . tcp . 80 : goto vip4_tcp_2_s60 }'],
    )
    assert.ok(found.includes(`tok4tcp { 10.96.0.1 . 80 . 1 : ${token} }`))
    assert.ok(
      textOf(compile(service(spec), [slice('10.1.0.3')], NODE)).includes(
        `sel4 { 10.96.0.1 . tcp . 80 . ${token} : 10.1.0.3 . 8080 }`,
      ),
    )
  })

  it('hints count only where every ready endpoint has them and one is for here; each endpoint left out has a reason', () => {
    const [port] = service({}).ports
    assert.ok(port)
    const told = (...endpoints: readonly string[]) =>
      endpointsOf(service({}), port, 4, [slice(...endpoints)], NODE)
        .listed()
        .map(({ address, why }) => `${address.split(' ')[0]}${why ? `: ${why}` : ''}`)
    assert.deepEqual(told('10.1.0.2/a', '10.1.0.3/b'), ['10.1.0.2', '10.1.0.3: it is for clients of zone b'])
    assert.deepEqual(told('10.1.0.2/a', '10.1.0.3'), ['10.1.0.2', '10.1.0.3'])
    assert.deepEqual(told('10.1.0.2/b', '10.1.0.3/c'), ['10.1.0.2', '10.1.0.3'])
    assert.deepEqual(told('10.1.0.2/a#n1', '10.1.0.3/a#n2'), ['10.1.0.2', '10.1.0.3: it is for clients on node n2'])
    assert.deepEqual(told('10.1.0.2', '~10.1.0.3', '-10.1.0.4'), [
      '10.1.0.2',
      '10.1.0.3: it is terminating, and 1 others are ready',
      '10.1.0.4: it is not ready',
    ])
  })

  it('healthCheckNodePort counts the ready endpoints of this node', () => {
    const spec = { type: 'LoadBalancer', externalTrafficPolicy: 'Local', healthCheckNodePort: 30_001 }
    assert.deepEqual(compile(service(spec), [slice('10.1.0.2', '10.1.0.3@n2', '-10.1.0.4')], NODE).health, {
      port: 30_001,
      local: 1,
    })
  })

  it('the addresses that this node serves from outside follow the policies and the endpoints', () => {
    const reached = (spec: object, ...endpoints: readonly string[]) => {
      const balanced = { clusterIP: '10.96.0.1', externalIPs: ['192.0.2.9', 'fd00::9'], type: 'LoadBalancer', ...spec }
      const one = service(balanced, { loadBalancer: { ingress: [{ ip: '198.51.100.1' }] } })
      const { frontends } = compile(one, endpoints.length > 0 ? [slice(...endpoints)] : [], NODE)
      return [...frontends.values()].filter(({ isReached }) => isReached).map(({ ip, of }) => `${of} ${ip}`)
    }
    const cluster = 'clusterIPs 10.96.0.1'
    const outside = ['externalIPs 192.0.2.9', 'loadBalancerIPs 198.51.100.1']
    const external = { externalTrafficPolicy: 'Local' }
    assert.deepEqual(reached({}, '10.1.0.3@n2'), [cluster, ...outside])
    assert.deepEqual(reached({}, '~10.1.0.3@n2'), [cluster, ...outside])
    assert.deepEqual(reached({}, '-10.1.0.3@n2'), [])
    assert.deepEqual(reached({}), [])
    assert.deepEqual(reached({ internalTrafficPolicy: 'Local' }, '10.1.0.3@n2'), outside)
    for (const none of ['10.1.0.3@n2', '~10.1.0.2', '-10.1.0.2']) assert.deepEqual(reached(external, none), [])
    assert.deepEqual(reached(external, '10.1.0.2', '~10.1.0.4'), [cluster, ...outside])
    assert.deepEqual(reached({ ...external, publishNotReadyAddresses: true }, '-10.1.0.2'), [cluster, ...outside])
  })

  it('UDP frontends that wait to be looked at are one each, however often steps fail; the latest state counts', () => {
    const { frontends } = compile(
      service({ ports: [{ port: 53, protocol: 'UDP' }] }),
      [sliceFor([{ name: '', port: 5353, protocol: 'UDP' }], '10.1.0.2')],
      NODE,
    )
    const stale = new StaleFrontends()
    for (let i = 0; i < 100; i++) stale.note(allUdp(frontends.values()))
    assert.equal(stale.size, 1)
    const looked = stale.take()
    const [one] = looked
    assert.ok(one)
    stale.note([{ ...one, endpoints: new Set() }])
    stale.giveBack(looked)
    assert.deepEqual([stale.size, stale.take()[0]?.endpoints.size, stale.size], [1, 0, 0])
  })

  it('source ranges are written again only when they change, and are those of the Service that has the address', () => {
    const wanted = new WantedElements({ put() {}, remove() {} })
    const balanced = (name: string, ...loadBalancerSourceRanges: readonly string[]) =>
      compile(
        serviceOf({
          metadata: { namespace: 'x', name },
          spec: { clusterIP: '10.96.0.1', type: 'LoadBalancer', ports: [{ port: 80 }], loadBalancerSourceRanges },
          status: { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } },
        }) as Service,
        [],
        NODE,
      )
    const update = (...changes: readonly (readonly [string, CompiledService | undefined])[]) => {
      const before = wanted.sourcesVersion
      wanted.update(new Map(changes))
      return [wanted.sourcesVersion !== before, Object.fromEntries(wanted.sources())]
    }
    const key = '192.0.2.1 . tcp . 80'
    assert.deepEqual(update(['x/a', balanced('a', '10.0.0.0/8')]), [true, { [key]: ['10.0.0.0/8'] }])
    assert.deepEqual(update(['x/c', compile(service({ clusterIP: '10.96.0.9' }), [slice('10.1.0.2')], NODE)]), [
      false,
      { [key]: ['10.0.0.0/8'] },
    ])
    assert.deepEqual(update(['x/a', balanced('a', '10.0.0.0/8')]), [false, { [key]: ['10.0.0.0/8'] }])
    // Another Service that names the same address neither opens nor closes it.
    assert.deepEqual(update(['x/b', balanced('b', '172.16.0.0/12')])[1], { [key]: ['10.0.0.0/8'] })
    assert.deepEqual(update(['x/a', undefined]), [true, { [key]: ['172.16.0.0/12'] }])
    assert.deepEqual(update(['x/b', undefined]), [true, {}])
  })

  it('a change of many transactions leads no client to an endpoint that is not there, in none of them', async () => {
    // What the kernel has, by set and key.
    const kernel = new Map<string, string>()
    const wrong: string[] = []
    let transactions = 0
    const look = () => {
      for (const [element, chain] of kernel) {
        const [, address, count] = /^svc4 (\S+) .*\|goto vip4_tcp_(\d+)/.exec(`${element}|${chain}`) ?? []
        for (let slot = 0; slot < Number(count ?? 0); slot++)
          if (!kernel.has(`eps4tcp ${address} . 80 . ${slot}`))
            wrong.push(`transaction ${transactions}: ${address} has no slot ${slot} of ${count}`)
      }
    }
    const run = async (_: readonly string[], script: string) => {
      transactions++
      for (const [, verb, set, list = ''] of script.matchAll(/^(add|delete) element inet \S+ (\S+) \{ (.*) \}$/gm))
        for (const [key = '', value = ''] of list.split(', ').map((one) => one.split(' : ')))
          if (verb === 'add') kernel.set(`${set} ${key}`, value)
          else kernel.delete(`${set} ${key}`)
      look()
      return { status: 0, stdout: '', stderr: '' }
    }
    const elements = new Elements('t', SHAPES, { most: 7, generation: () => transactions })
    elements.forget()
    const wanted = new WantedElements(elements)
    const counts = [3, 1, 4, 2, 5, 0, 3]
    for (const count of counts) {
      const changes = Array.from({ length: 9 }, (_, n) => {
        const ends = Array.from({ length: n % 2 ? count : 5 - count }, (_, i) => `10.1.${n}.${i + 2}`)
        const compiled = compile(service({ clusterIP: `10.96.0.${n}` }), [slice(...ends)], NODE, wanted.of(`x/s${n}`))
        return [`x/s${n}`, compiled] as const
      })
      wanted.update(new Map(changes))
      await elements.step(run)
    }
    assert.ok(transactions > counts.length * 2, `${transactions} transactions`)
    assert.deepEqual(wrong, [])
  })
})
