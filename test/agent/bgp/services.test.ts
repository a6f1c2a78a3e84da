// lane: netns
// Tests what BGP announces of Services: agent/services/compile.ts (reached), agent/parts/bgp.ts.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ServiceView } from '../../../agent/services/view.ts'
import { endBird, type Router, startRouter, torConf } from '../../support/bgp.ts'
import { until } from '../../support/harness.ts'
import { UNDERLAY } from '../../support/nodes.ts'
import { type Fixture, withFixture } from '../../support/services-fixture.ts'

const [VIP, EXTERNAL, CLUSTER, OUTSIDE] = ['192.0.2.10', '192.0.2.200', '10.96.0.10', '198.51.100.1']
const TOR = UNDERLAY.v4(3)
const YAML = `peers: [{ name: tor, address: ${TOR}, asn: 65000 }]
announce:
  loadBalancerIPs: [192.0.2.0/25]
  externalIPs: [192.0.2.128/25]
  clusterIPs: [10.96.0.0/24]
`

// The client is the router.
function withRouter(work: (fixture: Fixture, tor: Router, ways: (ip: string) => Promise<string[]>) => Promise<void>) {
  return withFixture(async (fixture) => {
    const { n1, n2, client } = fixture
    const dir = dirname(n1.dir)
    writeFileSync(join(dir, 'bgp.yaml'), YAML)
    await client.exec(['sysctl', '-qw', 'net.ipv4.fib_multipath_hash_policy=1'])
    const tor = await startRouter(client, join(dir, 'tor'), torConf({ nodes: [1, 2] }, { ip: TOR }))
    const ways = async (ip: string) => {
      const found = (await client.ip('route', 'show', `${ip}/32`)).matchAll(/via 172\.30\.0\.(\d)/g)
      return [...found].map(([, n]) => `n${n}`).sort()
    }
    try {
      await until(async () => (await tor.ask('show', 'protocols')).match(/Established/g)?.length === 2, 30_000)
      await work(fixture, tor, ways)
    } finally {
      await Promise.all([n1, n2].map(endBird))
      await tor.stop('SIGKILL')
    }
  }, '--bgp-config=MANIFESTS/../bgp.yaml')
}

const balanced = (policy: 'Local' | 'Cluster', ip = VIP) => [
  { clusterIP: CLUSTER, type: 'LoadBalancer', externalTrafficPolicy: policy },
  { status: { loadBalancer: { ingress: [{ ip }] } } },
]
const ENDING = { ready: false, serving: true, terminating: true }
const is = (ways: (ip: string) => Promise<string[]>, ip: string, wanted: readonly string[]) =>
  until(async () => (await ways(ip)).join() === wanted.join(), 30_000)

describe('BGP: addresses of Services', () => {
  it(
    'an address with policy Local follows its endpoints, and no client is refused, with ECMP over two nodes',
    withRouter(async (fixture, _, ways) => {
      fixture.service('s', ...(balanced('Local') as [object, object]))
      fixture.slice('s', ['a', 'c'])
      await fixture.sync()
      await is(ways, VIP, ['n1', 'n2'])
      const told = await fetch('http://plumb/services', { unix: join(fixture.n1.dir, 'agent.sock') })
      const view = ((await told.json()) as ServiceView[]).find(({ name }) => name === 's')
      assert.deepEqual(view?.notes, ['externalTrafficPolicy Local', `BGP announces ${CLUSTER}, ${VIP}`])
      const answers = await fixture.tcp('client', VIP, 80, { count: 60 })
      assert.deepEqual([...new Set(answers.map((one) => one.split(' ')[0]))].sort(), ['a', 'c'])
      // The endpoint of n1 begins to end: new clients go to n2 alone, and those on the way are still served.
      const during = (async () => {
        const all: string[] = []
        for (const end = performance.now() + 2000; performance.now() < end; )
          all.push(...(await fixture.tcp('client', VIP, 80, { count: 5 })))
        return all
      })()
      fixture.slice('s', [{ pod: 'a', conditions: ENDING }, 'c'])
      const syncing = fixture.sync()
      await is(ways, VIP, ['n2'])
      await syncing
      const wrong = (await during).filter((one) => !/^[ac] /.test(one))
      assert.deepEqual(wrong, [])
      fixture.slice('s', ['c'])
      await fixture.sync()
      fixture.slice('s', ['a', 'c'])
      await fixture.sync()
      await is(ways, VIP, ['n1', 'n2'])
    }),
  )

  it(
    'a start of the agent after SIGKILL withdraws no address of a Service, also before it knows the Services',
    withRouter(async (fixture, _, ways) => {
      const { n1, client, agents } = fixture
      fixture.service('s', ...(balanced('Local') as [object, object]))
      fixture.slice('s', ['a'])
      await fixture.sync()
      await is(ways, VIP, ['n1'])
      const monitor = Bun.spawn(['nsenter', `--net=${client.path}`, 'ip', '-o', 'monitor', 'route'], { stdout: 'pipe' })
      try {
        await agents[0]?.stop('SIGKILL')
        const agent = n1.agent()
        agents[0] = agent
        await agent.ready(30_000)
        await fixture.sync()
        // The router's kernel reports this change, and so would have reported others before it.
        await client.ip('route', 'add', '198.51.100.77', 'dev', 'lo')
        let said = ''
        for await (const text of monitor.stdout.pipeThrough(new TextDecoderStream())) {
          said += text
          if (said.includes('198.51.100.77')) break
        }
        assert.ok(!said.includes(VIP), said)
        assert.deepEqual(await ways(VIP), ['n1'])
      } finally {
        monitor.kill('SIGKILL')
      }
    }),
  )

  it(
    'an address with policy Cluster is announced by all nodes while any endpoint is, and by none without',
    withRouter(async (fixture, _, ways) => {
      fixture.service('s', ...(balanced('Cluster') as [object, object]))
      fixture.slice('s', ['c'])
      await fixture.sync()
      await is(ways, VIP, ['n1', 'n2'])
      await is(ways, CLUSTER, ['n1', 'n2'])
      assert.deepEqual([...new Set((await fixture.tcp('client', VIP, 80, { count: 9 })).map((one) => one[0]))], ['c'])
      fixture.slice('s', [{ pod: 'c', conditions: { ready: false } }])
      await fixture.sync()
      await is(ways, VIP, [])
      await is(ways, CLUSTER, [])
      fixture.slice('s', ['c'])
      await fixture.sync()
      await is(ways, VIP, ['n1', 'n2'])
    }),
  )

  it(
    'two Services share an address while either wants it; an address outside of the networks, and a labelled node, announce nothing',
    withRouter(async (fixture, _, ways) => {
      const shared = (name: string, port: number, clusterIP: string) =>
        fixture.service(name, {
          clusterIP,
          externalIPs: [EXTERNAL, OUTSIDE],
          externalTrafficPolicy: 'Local',
          ports: [{ port }],
        })
      shared('s', 80, CLUSTER)
      shared('t', 81, '10.96.7.7')
      fixture.slice('s', ['a'])
      fixture.slice('t', ['a', 'c'])
      await fixture.sync()
      await is(ways, EXTERNAL, ['n1', 'n2'])
      await is(ways, CLUSTER, ['n1'])
      fixture.slice('t', [])
      await fixture.sync()
      await is(ways, EXTERNAL, ['n1'])
      fixture.slice('s', [])
      await fixture.sync()
      await is(ways, EXTERNAL, [])
      for (const ip of [OUTSIDE, '10.96.7.7']) assert.deepEqual(await ways(ip), [])
      fixture.slice('s', ['a'])
      fixture.slice('t', ['a', 'c'])
      await fixture.sync()
      await is(ways, EXTERNAL, ['n1', 'n2'])
      fixture.node('n1', { 'node.kubernetes.io/exclude-from-external-load-balancers': '' })
      await fixture.sync()
      await is(ways, EXTERNAL, ['n2'])
    }),
  )
})
