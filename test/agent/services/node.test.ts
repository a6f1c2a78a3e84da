// lane: netns
// Tests agent/services and agent/parts/services.ts: what the agent takes from kube-proxy besides Services, with real
// packets.
import assert from 'node:assert/strict'
import { type Namespace, until } from '../../support/harness.ts'
import { UNDERLAY } from '../../support/nodes.ts'
import { type Fixture, withFixture } from '../../support/services-fixture.ts'

const [NODE, SECOND, CLIENT] = [UNDERLAY.v4(1), '172.30.1.1', UNDERLAY.v4(3)]
const [VIP, UNALLOCATED, UNALLOCATED6] = ['10.96.0.10', '10.96.0.200', 'fd00:96::200']
const PORT = 30_080
const nodePort = (spec: object = {}) => ({
  clusterIP: VIP,
  type: 'NodePort',
  ports: [{ port: 80, nodePort: PORT }],
  ...spec,
})

function networks(fixture: Fixture, ...cidrs: readonly string[]): void {
  fixture.object({ kind: 'ServiceCIDR', metadata: { name: 'kubernetes' }, spec: { cidrs } })
}

// A program in a namespace. Its first line says that it is ready.
async function program(ns: Namespace, code: string): Promise<{ end(): Promise<void> }> {
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, process.execPath, '-e', code], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
  await child.stdout.getReader().read()
  return {
    async end() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

// What a client outside gets for these bytes.
async function raw({ client }: Fixture, port: number, bytes: string): Promise<string> {
  const code = `const socket = require('node:net').connect(${port}, '${NODE}', () => socket.write(${JSON.stringify(bytes)}))
    socket.on('data', (text) => process.stdout.write(String(text))).on('error', ({ code }) => console.log(code))
    setTimeout(() => socket.destroy(), 1000)`
  return (await client.exec([process.execPath, '-e', code])).stdout
}

describe('Services: what kube-proxy does besides', () => {
  it(
    'a packet to a ClusterIP of no Service is dropped on the node, from pods and from the node, as long as a ServiceCIDR has the address',
    withFixture(async (fixture) => {
      const { n1, client } = fixture
      // Where the default route leads, somebody refuses it.
      await client.ip('addr', 'add', `${UNALLOCATED}/32`, 'dev', 'lo')
      await client.ip('addr', 'add', `${UNALLOCATED6}/128`, 'dev', 'lo', 'nodad')
      await n1.ns.ip('route', 'replace', 'default', 'via', CLIENT)
      await n1.ns.ip('-6', 'route', 'replace', 'default', 'via', UNDERLAY.v6(3))
      const ask = async (who: 'p' | 'n1', ip: string = UNALLOCATED) =>
        (await fixture.tcp(who, ip, 80, { ms: 1000 }))[0]?.split(' ')[0]
      fixture.service('other', { clusterIP: VIP })
      fixture.slice('other', ['a'])
      await fixture.sync()
      for (const ip of [UNALLOCATED, UNALLOCATED6]) assert.equal(await ask('p', ip), 'ECONNREFUSED', ip)
      networks(fixture, '10.96.0.0/16', 'fd00:96::/112')
      await fixture.sync()
      for (const who of ['p', 'n1'] as const)
        for (const ip of [UNALLOCATED, UNALLOCATED6]) assert.equal(await ask(who, ip), 'timeout', `${who} ${ip}`)
      // What Services have in that network is as before: served, or refused at once.
      assert.equal(await ask('p', VIP), 'a')
      assert.deepEqual(await fixture.tcp('p', VIP, 81), ['ECONNREFUSED'])
      fixture.service('s', { clusterIP: UNALLOCATED })
      await fixture.sync()
      assert.equal(await ask('p'), 'ECONNREFUSED')
      fixture.slice('s', ['b'])
      await fixture.sync()
      assert.equal(await ask('p'), 'b')
      fixture.remove('Service', 's')
      networks(fixture, '10.97.0.0/16')
      await fixture.sync()
      assert.equal(await ask('p'), 'ECONNREFUSED')
      // A network with pods in it is refused, and pods are reached.
      networks(fixture, '10.0.0.0/8')
      await fixture.sync()
      assert.equal((await fixture.tcp('p', fixture.ip('c'), 8080))[0]?.split(' ')[0], 'c')
      const said = async () => JSON.stringify(await fixture.agents[0]?.status())
      await until(async () => /ClusterIPs 10\.0\.0\.0\/8 overlaps the network of pods/.test(await said()), 10_000)
    }),
  )

  it(
    '--service-cidr names networks of ClusterIPs without ServiceCIDR objects',
    withFixture(async (fixture) => {
      await fixture.client.ip('addr', 'add', `${UNALLOCATED}/32`, 'dev', 'lo')
      await fixture.n1.ns.ip('route', 'replace', 'default', 'via', CLIENT)
      await fixture.sync()
      assert.deepEqual(await fixture.tcp('p', UNALLOCATED, 80, { ms: 1000 }), ['timeout'])
    }, '--service-cidr=10.96.0.0/16'),
  )

  it(
    '--node-port-addresses=primary: NodePorts at the first address of the Node, and when that changes, at the new one',
    withFixture(async (fixture) => {
      const { n1 } = fixture
      await n1.ns.ip('addr', 'add', `${SECOND}/32`, 'dev', 'eth0')
      fixture.service('s', nodePort())
      fixture.slice('s', ['a'])
      const node = (...addresses: readonly (readonly [string, string])[]) =>
        fixture.object({
          kind: 'Node',
          metadata: { name: n1.name },
          status: { addresses: addresses.map(([type, address]) => ({ type, address })) },
        })
      const answers = async (...to: readonly string[]) =>
        Promise.all(to.map(async (ip) => (await fixture.tcp('client', ip, PORT))[0]?.split(' ')[0]))
      // Without a Node: the address of the link to the other nodes.
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['a', 'ECONNREFUSED'])
      assert.deepEqual(await fixture.tcp('n1', '127.0.0.1', PORT), ['ECONNREFUSED'])
      node(['ExternalIP', NODE], ['InternalIP', SECOND])
      await fixture.sync()
      await until(async () => (await answers(NODE, SECOND)).join() === 'ECONNREFUSED,a', 10_000)
      node(['InternalIP', NODE], ['InternalIP', SECOND])
      await fixture.sync()
      await until(async () => (await answers(NODE, SECOND)).join() === 'a,ECONNREFUSED', 10_000)
      // Also without endpoints, and after a restart.
      fixture.slice('s', [])
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['ECONNREFUSED', 'ECONNREFUSED'])
      await fixture.agents[0]?.stop('SIGKILL')
      await n1.agent().ready(30_000)
      fixture.slice('s', ['a'])
      await fixture.sync()
      assert.deepEqual(await answers(NODE, SECOND), ['a', 'ECONNREFUSED'])
    }, '--node-port-addresses=primary'),
  )

  for (const [what, options, wanted] of [
    ['as kube-proxy sets them', [], ['86400', '3600', '30', '120', '0']],
    [
      'by the settings',
      [
        '--conntrack-tcp-timeout-established=0s',
        '--conntrack-tcp-timeout-close-wait=90s',
        '--conntrack-udp-timeout=10s',
        '--conntrack-udp-timeout-stream=20s',
        '--conntrack-tcp-be-liberal',
      ],
      ['432000', '90', '10', '20', '1'],
    ],
    ['left alone beside kube-proxy', ['--service-proxy-force'], ['432000', '60', '30', '120', '0']],
  ] as const)
    it(
      `the times of connections are ${what}`,
      withFixture(
        async (fixture) => {
          await fixture.sync()
          const names = ['tcp_timeout_established', 'tcp_timeout_close_wait', 'udp_timeout', 'udp_timeout_stream']
          const files = [...names, 'tcp_be_liberal'].map((name) => `/proc/sys/net/netfilter/nf_conntrack_${name}`)
          const { stdout } = await fixture.n1.ns.exec(['cat', ...files])
          assert.deepEqual(stdout.trim().split('\n'), wanted)
          // The number belongs to the machine, and is neither set from here nor a failure.
          const status = JSON.stringify(await fixture.agents[0]?.status())
          assert.doesNotMatch(status, /Cannot set net\.netfilter/)
        },
        ...options,
      ),
    )

  it(
    'a node whose agent finds tables of Services or of policy without the setting is not ready, and says how to go on',
    withFixture(async (fixture) => {
      const { n1 } = fixture
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      await fixture.agents[0]?.stop()
      const without = n1.agent('--service-proxy=')
      const said = async (agent = without) => JSON.stringify((await agent.status())?.reasons)
      const wanted =
        /plumb_services is of an agent with --service-proxy, .*; want --service-proxy, or: nft delete table inet plumb_services/
      await until(async () => wanted.test(await said()), 20_000)
      assert.equal((await without.status())?.ready, false)
      // Services are served as they were.
      assert.equal((await fixture.tcp('p', VIP, 80))[0]?.split(' ')[0], 'a')
      // What the sentence says ends it.
      assert.equal((await n1.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_services'])).status, 0)
      await without.ready(30_000)
      await without.stop()
      // The same for policy, and for Services when kube-proxy comes: its rules serve, and plumb's go.
      await n1.ns.exec(['nft', 'add', 'table', 'inet', 'plumb_policy'])
      const again = n1.agent()
      const isPolicy = async () => /plumb_policy is of an agent with --network-policy/.test(await said(again))
      await until(isPolicy, 20_000)
      assert.equal((await n1.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_policy'])).status, 0)
      await again.ready(30_000)
      await again.stop()
      assert.match((await n1.ns.exec(['nft', 'list', 'tables'])).stdout, /plumb_services/)
      const last = n1.agent('--service-proxy=')
      await until(async () => wanted.test(await said(last)), 20_000)
      assert.equal((await n1.ns.exec(['nft', 'add', 'table', 'ip', 'kube-proxy'])).status, 0)
      await last.ready(30_000)
      assert.doesNotMatch((await n1.ns.exec(['nft', 'list', 'tables'])).stdout, /plumb_services/)
    }),
  )

  it(
    'session affinity leads to a program of the node beside NetworkPolicy, whatever address and port the program has',
    withFixture(async (fixture) => {
      const count = 8
      const own = await program(
        fixture.n1.ns,
        `const { createServer } = require('node:net')
        for (let i = 0; i < ${count}; i++)
          createServer((socket) => socket.on('error', () => {}).on('data', () => socket.end('own'))).listen(9000 + i)
        console.log('ready')`,
      )
      try {
        for (let i = 0; i < count; i++) {
          fixture.service(`s${i}`, {
            clusterIP: `10.96.0.${10 + i}`,
            type: 'NodePort',
            sessionAffinity: 'ClientIP',
            ports: [{ port: 80, nodePort: PORT + i }],
          })
          fixture.object({
            kind: 'EndpointSlice',
            metadata: { namespace: 'x', name: `s${i}`, labels: { 'kubernetes.io/service-name': `s${i}` } },
            addressType: 'IPv4',
            ports: [{ name: '', port: 9000 + i }],
            endpoints: [{ addresses: [NODE], nodeName: fixture.n1.name }],
          })
        }
        await fixture.sync()
        const answers = await Promise.all(Array.from({ length: count }, (_, i) => raw(fixture, PORT + i, '?')))
        assert.deepEqual(answers, Array(count).fill('own'))
        // Nothing is left of the marks that lead to endpoints.
        assert.doesNotMatch((await fixture.n1.ns.exec(['conntrack', '-L', '-p', 'tcp'])).stdout, /mark=[1-9]/)
      } finally {
        await own.end()
      }
    }, '--network-policy=MANIFESTS'),
  )

  it(
    'source ranges of a load balancer at an address of the node keep no answer from a program of the node that asks from that port',
    withFixture(async (fixture) => {
      fixture.service(
        's',
        { clusterIP: VIP, type: 'LoadBalancer', loadBalancerSourceRanges: ['192.0.2.0/24'], ports: [{ port: 8443 }] },
        { status: { loadBalancer: { ingress: [{ ip: NODE }] } } },
      )
      fixture.slice('s', ['a'])
      await fixture.sync()
      const own = await program(
        fixture.client,
        `require('node:net').createServer((socket) => socket.end('own')).listen(9000, () => console.log('ready'))`,
      )
      try {
        const [answer] = await fixture.tcp('n1', CLIENT, 9000, { from: NODE, fromPort: 8443 })
        assert.equal(answer, 'own')
        assert.deepEqual(await fixture.tcp('client', NODE, 8443, { ms: 500 }), ['timeout'])
      } finally {
        await own.end()
      }
    }),
  )

  it(
    'load balancers that ask in old ways get the same answer: HTTP/1.0 without Host, any method, any Host',
    withFixture(async (fixture) => {
      const [PROXY, SERVICE] = [10_256, 30_999]
      const local = { type: 'LoadBalancer', externalTrafficPolicy: 'Local', healthCheckNodePort: SERVICE }
      fixture.service('s', nodePort(local))
      fixture.slice('s', ['a'])
      await fixture.sync()
      await until(
        async () => (await raw(fixture, SERVICE, 'GET / HTTP/1.1\r\nHost: n1\r\n\r\n')).includes(' 200 '),
        10_000,
      )
      for (const [port, path] of [
        [PROXY, '/healthz'],
        [SERVICE, '/'],
      ] as const)
        for (const request of [
          `GET ${path} HTTP/1.0\r\n\r\n`,
          `OPTIONS ${path} HTTP/1.0\r\n\r\n`,
          `HEAD ${path} HTTP/1.1\r\nHost: [::\r\n\r\n`,
          `GET ${path}?x HTTP/1.1\r\nHost: a b\r\n\r\n`,
        ])
          assert.match(await raw(fixture, port, request), /^HTTP\/1\.1 200 /, `port ${port}: ${request}`)
    }),
  )

  it(
    'a port for load balancers that another program has is named, and opens soon after that program ends, without any change of a Service',
    withFixture(async (fixture) => {
      const own = await program(
        fixture.n1.ns,
        `require('node:net').createServer(() => {}).listen(30999, '::', () => console.log('ready'))`,
      )
      const said = async () => JSON.stringify(await fixture.agents[0]?.status())
      const wrong = 'Cannot listen on healthCheckNodePort 30999 of Service x/s: another program listens there'
      try {
        const local = { type: 'LoadBalancer', externalTrafficPolicy: 'Local', healthCheckNodePort: 30_999 }
        fixture.service('s', nodePort(local))
        fixture.slice('s', ['a'])
        await fixture.sync()
        await until(async () => (await said()).includes(wrong), 10_000)
      } finally {
        await own.end()
      }
      await until(async () => (await raw(fixture, 30_999, 'GET / HTTP/1.0\r\n\r\n')).includes(' 200 '), 20_000)
      await until(async () => !(await said()).includes(wrong), 10_000)
    }),
  )
})
