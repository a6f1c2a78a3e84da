// lane: netns
// Tests agent/services and agent/parts/services.ts: ClusterIPs, with real packets.
import assert from 'node:assert/strict'
import { plugin, until } from '../../support/harness.ts'
import { works } from '../../support/host-ports.ts'
import { type Fixture, withFixture } from '../../support/services-fixture.ts'

const VIP = '10.96.0.10'
const VIP6 = 'fd00:96::10'
/** How often each backend answered. */
const counts = (answers: readonly string[]) => Object.groupBy(answers, (one) => one.split(' ')[0] as string)
const names = (answers: readonly string[]) => Object.keys(counts(answers)).sort().join('')

async function serve(fixture: Fixture, spec: object = {}): Promise<void> {
  fixture.service('s', { clusterIP: VIP, ...spec })
  fixture.slice('s', ['a', 'b', 'c'])
  await fixture.sync()
}

describe('Services: ClusterIP', () => {
  it(
    'TCP from pods of both nodes and from the node: spread evenly, and pods keep their address',
    withFixture(async (fixture) => {
      await serve(fixture)
      const answers = await fixture.tcp('p', VIP, 80, { count: 1000 })
      for (const name of ['a', 'b', 'c']) {
        const count = counts(answers)[name]?.length ?? 0
        // Binomial: 1000 × 1/3 × 2/3 is the square of σ.
        assert.ok(Math.abs(count - 1000 / 3) < 5 * Math.sqrt((1000 * 2) / 9), `${name} answered ${count} of 1000`)
      }
      assert.deepEqual([...new Set(answers.map((one) => one.split(' ')[1]))], [fixture.ip('p')])
      assert.deepEqual(
        [...new Set((await fixture.tcp('q', VIP, 80, { count: 20 })).map((one) => one.split(' ')[1]))],
        [fixture.ip('q')],
      )
      assert.equal(names(await fixture.tcp('n1', VIP, 80, { count: 30 })), 'abc')
    }),
  )

  it(
    'TCP and UDP on one port, several ports, and target ports that differ by endpoint',
    withFixture(async (fixture) => {
      const ports = [
        { name: 'web', port: 53 },
        { name: 'dns', port: 53, protocol: 'UDP' },
        { name: 'more', port: 54 },
      ]
      fixture.service('s', { clusterIP: VIP, ports })
      fixture.slice('s', ['a'], {
        ports: [
          { name: 'web', port: 8080 },
          { name: 'dns', port: 8081, protocol: 'UDP' },
          { name: 'more', port: 8081 },
        ],
      })
      await fixture.sync()
      const client = fixture.ip('p')
      assert.deepEqual(
        [
          await fixture.tcp('p', VIP, 53),
          (await fixture.udp('p', VIP, 53))[0]?.split(' ').slice(0, 3).join(' '),
          await fixture.tcp('p', VIP, 54),
        ],
        [[`a ${client} 8080`], `a ${client} 8081`, [`a ${client} 8081`]],
      )
    }),
  )

  it(
    'a pod reaches itself through the VIP, in both families',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIPs: [VIP, VIP6] })
      fixture.slice('s', ['a'])
      fixture.slice('s', ['a'], { family: 6 })
      await fixture.sync()
      assert.match((await fixture.tcp('a', VIP, 80))[0] ?? '', /^a 10\.244\.\d+\.1 8080$/)
      assert.match((await fixture.tcp('a', VIP6, 80))[0] ?? '', /^a fd00:\S+ 8080$/)
    }),
  )

  it(
    'a pod reaches itself through the VIP when its slice names no node, as slices made by hand do',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIPs: [VIP, VIP6] })
      for (const [name, addressType, ip] of [
        ['s', 'IPv4', fixture.ip('a')],
        ['s-v6', 'IPv6', fixture.ip('a', 6)],
      ] as const)
        fixture.object({
          kind: 'EndpointSlice',
          metadata: { namespace: 'x', name, labels: { 'kubernetes.io/service-name': 's' } },
          addressType,
          ports: [{ name: '', port: 8080 }],
          endpoints: [{ addresses: [ip] }],
        })
      await fixture.sync()
      for (const ip of [VIP, VIP6]) {
        assert.equal(names(await fixture.tcp('p', ip, 80)), 'a')
        assert.equal(names(await fixture.tcp('a', ip, 80)), 'a')
      }
    }),
  )

  it(
    'a VIP that is gone answers nobody, and serves again; without an endpoint, and on an unknown port, it refuses at once',
    withFixture(async (fixture) => {
      await serve(fixture)
      // A packet for a VIP that leaves the node may come back from a gateway, for ever.
      await fixture.n1.ns.exec(['nft', '-f', '-'], {
        stdin: `table inet watch {\n chain c { type filter hook postrouting priority 300; oifname "eth0" ip daddr ${VIP} tcp dport 81 counter\n }\n}\n`,
      })
      fixture.remove('Service', 's')
      await fixture.sync()
      assert.notEqual(names(await fixture.tcp('p', VIP, 80, { ms: 300 })), 'a')
      await serve(fixture)
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 30 })), 'abc')
      for (const who of ['p', 'n1', 'client'] as const) {
        assert.deepEqual(await fixture.tcp(who, VIP, 81, { ms: 900 }), ['ECONNREFUSED'], who)
        assert.deepEqual(await fixture.udp(who, VIP, 81, { ms: 900 }), ['ECONNREFUSED'], who)
      }
      fixture.slice('s', [{ pod: 'a', conditions: { ready: false, serving: false, terminating: true } }])
      await fixture.sync()
      for (const who of ['p', 'n1'] as const)
        assert.deepEqual(await fixture.tcp(who, VIP, 80, { ms: 900 }), ['ECONNREFUSED'], who)
      fixture.slice('s', [])
      await fixture.sync()
      for (const who of ['p', 'n1'] as const)
        assert.deepEqual(await fixture.tcp(who, VIP, 80, { ms: 900 }), ['ECONNREFUSED'], who)
      assert.match(await fixture.nft('list', 'table', 'inet', 'watch'), /counter packets 0 /)
    }),
  )

  it(
    'endpoints come and go: new connections only to those that are there, and old TCP connections stay',
    withFixture(async (fixture) => {
      await serve(fixture)
      const first = await fixture.hold('p', VIP, 80)
      const [kept = ''] = first.split(' ')
      const others = (['a', 'b', 'c'] as const).filter((one) => one !== kept)
      fixture.slice('s', others)
      await fixture.sync()
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 40 })), others.join(''))
      assert.equal(await fixture.say('p', VIP, 80), first)
      fixture.slice('s', ['a', 'b', 'c'])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 60 })), 'abc')
      assert.equal(await fixture.say('p', VIP, 80), first)
    }),
  )

  it(
    'a UDP client that never changes its port reaches the first endpoint that comes, and another one when that goes; all others keep their connections',
    withFixture(async (fixture) => {
      const udp = [{ port: 53, protocol: 'UDP' }]
      const ports = [{ name: '', port: 8080, protocol: 'UDP' }]
      fixture.service('s', {
        clusterIP: VIP,
        type: 'NodePort',
        ports: [{ port: 53, protocol: 'UDP', nodePort: 30_053 }],
      })
      fixture.slice('s', [], { ports })
      fixture.service('other', { clusterIP: '10.96.0.11', ports: udp })
      fixture.slice('other', ['c'], { ports })
      await fixture.sync()
      assert.match((await fixture.udp('p', '10.96.0.11', 53, { fromPort: 5001 }))[0] ?? '', /^c /)
      await fixture.udp('p', VIP, 53, { fromPort: 5000, ms: 200 })
      await fixture.udp('client', '172.30.0.1', 30_053, { fromPort: 5000, ms: 200 })
      for (const backend of ['a', 'b', 'c'] as const) {
        fixture.slice('s', [backend], { ports })
        await fixture.sync()
        // Connections are cleaned right after the maps.
        await until(
          async () => (await fixture.udp('p', VIP, 53, { fromPort: 5000, ms: 200 }))[0]?.startsWith(`${backend} `),
          5000,
        )
        await until(
          async () =>
            (await fixture.udp('client', '172.30.0.1', 30_053, { fromPort: 5000, ms: 200 }))[0]?.startsWith(
              `${backend} `,
            ),
          5000,
        )
      }
      // The connection of the other Service was never deleted: the kernel counted its first packet.
      const known = (await fixture.n1.ns.exec(['conntrack', '-L', '-p', 'udp', '--orig-dst', '10.96.0.11'])).stdout
      assert.match(known, /sport=5001/)
      fixture.slice('s', [], { ports })
      await fixture.sync()
      await until(async () => (await fixture.udp('p', VIP, 53, { ms: 300 }))[0] === 'ECONNREFUSED', 5000)
    }),
  )

  it(
    'a UDP client stays with an endpoint that serves, also when that terminates or new clients get others, and leaves one that no longer serves',
    withFixture(async (fixture) => {
      const ports = [{ name: '', port: 8080, protocol: 'UDP' }]
      const east = { forZones: [{ name: 'east' }] }
      const west = { forZones: [{ name: 'west' }] }
      const ending = (serving: boolean) => ({ ready: false, serving, terminating: true })
      const asked = async (fromPort?: number) =>
        names(await fixture.udp('p', VIP, 53, { ms: 300, ...(fromPort !== undefined && { fromPort }) }))
      // Connections are cleaned after the maps.
      const settled = () => Bun.sleep(500)
      fixture.node('n1', { 'topology.kubernetes.io/zone': 'east' })
      fixture.service('s', { clusterIP: VIP, ports: [{ port: 53, protocol: 'UDP' }] })
      fixture.slice('s', ['c'], { ports })
      await fixture.sync()
      assert.equal(await asked(5000), 'c')
      fixture.slice(
        's',
        [
          { pod: 'c', hints: west },
          { pod: 'a', hints: east },
        ],
        { ports },
      )
      await fixture.sync()
      await settled()
      assert.deepEqual([await asked(5000), await asked()], ['c', 'a'])
      fixture.slice('s', [{ pod: 'c', conditions: ending(true) }, 'a'], { ports })
      await fixture.sync()
      await settled()
      assert.deepEqual([await asked(5000), await asked()], ['c', 'a'])
      fixture.slice('s', [{ pod: 'c', conditions: ending(false) }, 'a'], { ports })
      await fixture.sync()
      await until(async () => (await asked(5000)) === 'a', 5000)
    }),
  )

  it(
    'a UDP client that never changes its port reaches the pod that takes over a host port, beside Services',
    withFixture(async (fixture) => {
      const { ns } = fixture.n1
      fixture.service('s', {
        clusterIP: VIP,
        type: 'NodePort',
        ports: [{ port: 53, protocol: 'UDP', nodePort: 30_053 }],
      })
      fixture.slice('s', ['c'], { ports: [{ name: '', port: 8080, protocol: 'UDP' }] })
      await fixture.sync()
      const hostPort = async (command: string, pod: 'a' | 'b') => {
        const prevResult = {
          cniVersion: '1.0.0',
          interfaces: [{ name: 'eth0', sandbox: `${ns.path}-${pod}` }],
          ips: [{ address: `${fixture.ip(pod)}/24`, interface: 0 }],
        }
        const conf = {
          cniVersion: '1.0.0',
          name: 'ports',
          type: 'portmap',
          capabilities: { portMappings: true },
          prevResult,
          runtimeConfig: { portMappings: [{ hostPort: 5353, containerPort: 8080, protocol: 'udp' }] },
        }
        works(await plugin('portmap', { command, conf, containerId: pod, netns: `${ns.path}-${pod}` }, ns))
      }
      const reaches = (port: number, name: string) =>
        until(
          async () =>
            (await fixture.udp('client', '172.30.0.1', port, { fromPort: 5000, ms: 200 }))[0]?.startsWith(`${name} `),
          5000,
        )
      for (const pod of ['a', 'b', 'a'] as const) {
        await hostPort('ADD', pod)
        await reaches(5353, pod)
        // The Service's own flow of this client never ends.
        await reaches(30_053, 'c')
        await hostPort('DEL', pod)
      }
    }),
  )

  it(
    'a target port changes; a family is added, and removed',
    withFixture(async (fixture) => {
      await serve(fixture)
      fixture.slice('s', ['a'], { ports: [{ name: '', port: 8081 }] })
      await fixture.sync()
      assert.match((await fixture.tcp('p', VIP, 80))[0] ?? '', /^a \S+ 8081$/)
      fixture.service('s', { clusterIPs: [VIP, VIP6] })
      fixture.slice('s', ['a', 'c'], { family: 6 })
      await fixture.sync()
      assert.deepEqual(
        [names(await fixture.tcp('p', VIP6, 80, { count: 30 })), (await fixture.tcp('p', VIP6, 80))[0]?.split(' ')[1]],
        ['ac', fixture.ip('p', 6)],
      )
      assert.equal(names(await fixture.tcp('n1', VIP6, 80, { count: 30 })), 'ac')
      fixture.service('s', { clusterIPs: [VIP] })
      fixture.remove('EndpointSlice', 's-v6')
      await fixture.sync()
      assert.equal(names(await fixture.tcp('p', VIP, 80)), 'a')
      assert.doesNotMatch(await fixture.nft('list', 'map', 'inet', 'plumb_services', 'eps6tcp'), /8080/)
    }),
  )

  it(
    'hints of nodes win over hints of zones, on each node; without one for a node its zone counts, then every endpoint',
    withFixture(async (fixture) => {
      const hinted = (pod: 'a' | 'b' | 'c', zone: string, node?: string) => ({
        pod,
        hints: { forZones: [{ name: zone }], ...(node && { forNodes: [{ name: node }] }) },
      })
      const asked = async () =>
        Promise.all(
          (['p', 'q', 'n1', 'n2'] as const).map(async (who) => names(await fixture.tcp(who, VIP, 80, { count: 40 }))),
        )
      fixture.service('s', { clusterIP: VIP, trafficDistribution: 'PreferSameNode' })
      fixture.node('n1', { 'topology.kubernetes.io/zone': 'east' })
      fixture.node('n2', { 'topology.kubernetes.io/zone': 'west' })
      fixture.slice('s', [hinted('a', 'east', 'n1'), hinted('b', 'east', 'n2'), hinted('c', 'west', 'n2')])
      await fixture.sync()
      assert.deepEqual(await asked(), ['a', 'bc', 'a', 'bc'])
      // No endpoint is for n2, so its zone counts.
      fixture.slice('s', [hinted('a', 'east', 'n1'), hinted('b', 'east', 'n1'), hinted('c', 'west', 'n1')])
      await fixture.sync()
      assert.deepEqual(await asked(), ['abc', 'c', 'abc', 'c'])
      // One endpoint without hints of nodes: zones count for all.
      fixture.slice('s', [hinted('a', 'east', 'n1'), hinted('b', 'east'), hinted('c', 'west', 'n2')])
      await fixture.sync()
      assert.deepEqual(await asked(), ['ab', 'c', 'ab', 'c'])
      // No endpoint is for the zone of n2 either.
      fixture.slice('s', [hinted('a', 'east'), hinted('b', 'east'), hinted('c', 'east')])
      await fixture.sync()
      assert.deepEqual(await asked(), ['abc', 'abc', 'abc', 'abc'])
    }),
  )

  it(
    'endpoints that are not ready or terminate, hints, labels that exclude, and ExternalName',
    withFixture(async (fixture) => {
      const not = (pod: 'a' | 'b' | 'c') => ({ pod, conditions: { ready: false } })
      const ending = (pod: 'a' | 'b' | 'c') => ({ pod, conditions: { ready: false, serving: true, terminating: true } })
      const asked = async () => names(await fixture.tcp('p', VIP, 80, { count: 30 }))
      fixture.service('s', { clusterIP: VIP, publishNotReadyAddresses: true })
      fixture.slice('s', [not('a'), 'b'])
      await fixture.sync()
      assert.equal(await asked(), 'ab')
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', [not('a'), ending('b'), ending('c')])
      await fixture.sync()
      assert.equal(await asked(), 'bc')
      fixture.slice('s', ['a', ending('b')])
      await fixture.sync()
      assert.equal(await asked(), 'a')
      const hinted = (pod: 'a' | 'b' | 'c', zone: string) => ({ pod, hints: { forZones: [{ name: zone }] } })
      fixture.node('n1', { 'topology.kubernetes.io/zone': 'east' })
      fixture.slice('s', [hinted('a', 'west'), hinted('b', 'east'), hinted('c', 'west')])
      await fixture.sync()
      assert.equal(await asked(), 'b')
      fixture.node('n1', { 'topology.kubernetes.io/zone': 'west' })
      await fixture.sync()
      await until(async () => (await asked()) === 'ac', 5000)
      fixture.slice('s', [hinted('a', 'west'), 'b', hinted('c', 'west')])
      await fixture.sync()
      assert.equal(await asked(), 'abc')
      fixture.service('s', { clusterIP: VIP }, { labels: { 'service.kubernetes.io/service-proxy-name': 'other' } })
      fixture.service('named', { type: 'ExternalName', externalName: 'example.org' })
      await fixture.sync()
      assert.doesNotMatch(
        await fixture.nft('list', 'map', 'inet', 'plumb_services', 'svc4'),
        new RegExp(VIP.replaceAll('.', '\\.')),
      )
      fixture.service('s', { clusterIP: VIP })
      await fixture.sync()
      assert.equal(await asked(), 'abc')
    }),
  )

  it(
    'another Service’s external IP that is a ClusterIP gets no client, also after restarts, and the status names it',
    withFixture(async (fixture) => {
      const { n1, agents } = fixture
      const evil = {
        kind: 'Service',
        // Its name is the first one, and it is older.
        metadata: { namespace: 'x', name: 'a-thief', creationTimestamp: '2026-01-01T00:00:00Z' },
        spec: { clusterIP: '10.96.0.66', externalIPs: [VIP], ports: [{ port: 80 }, { name: 'other', port: 81 }] },
      }
      fixture.object(evil)
      fixture.slice('a-thief', ['c'])
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a', 'b'])
      await fixture.sync()
      const said =
        'Service x/a-thief does not get 10.96.0.10 port 80/TCP of its externalIPs: 10.96.0.10 is the ClusterIP of Service x/s'
      let agent = agents[0]
      for (let starts = 0; starts < 3; starts++) {
        for (const who of ['p', 'n1', 'client'] as const)
          assert.equal(names(await fixture.tcp(who, VIP, 80, { count: 20 })), 'ab', who)
        assert.deepEqual(await fixture.tcp('p', VIP, 81), ['ECONNREFUSED'])
        assert.equal(names(await fixture.tcp('p', '10.96.0.66', 80)), 'c')
        await until(async () => JSON.stringify(await agent?.status()).includes(said), 10_000)
        await agent?.stop('SIGKILL')
        agent = n1.agent()
        await agent.ready(30_000)
      }
    }),
  )
})
