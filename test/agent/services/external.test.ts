// lane: long
// Tests agent/services and agent/parts/services.ts: clients from outside, and the policies of traffic.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { sendInit } from '../../support/sctp.ts'
import { CONF, type Fixture, withFixture, withFixtureOf } from '../../support/services-fixture.ts'

const VIP = '10.96.0.10'
const [NODE, SECOND, OTHER] = ['172.30.0.1', '172.30.1.1', '172.30.0.2'] as const
const CLIENT = '172.30.0.3'
const PORT = 30_080
const names = (answers: readonly string[]) => [...new Set(answers.map((one) => one.split(' ')[0]))].sort().join('')
const addresses = (answers: readonly string[]) => [...new Set(answers.map((one) => one.split(' ')[1]))]
const nodePort = (spec: object = {}) => ({
  clusterIP: VIP,
  type: 'NodePort',
  ports: [{ port: 80, nodePort: PORT }],
  ...spec,
})
const ending = (pod: 'a' | 'b' | 'c') => ({ pod, conditions: { ready: false, serving: true, terminating: true } })

async function secondAddress({ n1 }: Fixture): Promise<void> {
  await n1.ns.ip('addr', 'add', `${SECOND}/32`, 'dev', 'eth0')
}

describe('Services: from outside', () => {
  it(
    'a NodePort on all addresses of the node but loopback, from outside, pods and nodes; clients that are no pods of the node get its address',
    withFixture(async (fixture) => {
      await secondAddress(fixture)
      fixture.service('s', nodePort({ clusterIPs: [VIP, 'fd00:96::10'] }))
      fixture.slice('s', ['a', 'b', 'c'])
      fixture.slice('s', ['a', 'c'], { family: 6 })
      await fixture.sync()
      for (const [who, ip] of [
        ['client', NODE],
        ['client', SECOND],
        ['client', OTHER],
        ['p', NODE],
        ['q', NODE],
        ['n1', NODE],
        ['n2', NODE],
      ] as const) {
        const answers = await fixture.tcp(who, ip, PORT, { count: 40 })
        assert.equal(names(answers), 'abc', `${who} to ${ip}`)
        if (who === 'client') assert.ok(!addresses(answers).includes(CLIENT), `${who} to ${ip}`)
        if (who === 'p') assert.deepEqual(addresses(answers), [fixture.ip('p')])
      }
      assert.equal(names(await fixture.tcp('client', 'fd00:30::1', PORT, { count: 30 })), 'ac')
      assert.deepEqual(await fixture.tcp('n1', '127.0.0.1', PORT), ['ECONNREFUSED'])
      assert.deepEqual(await fixture.tcp('n1', '::1', PORT), ['ECONNREFUSED'])
    }),
  )

  it(
    '--node-port-addresses names the addresses, loopback if asked',
    withFixture(async (fixture) => {
      await secondAddress(fixture)
      fixture.service('s', nodePort())
      fixture.slice('s', ['a', 'c'])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', NODE, PORT, { count: 20 })), 'ac')
      assert.equal(names(await fixture.tcp('n1', '127.0.0.1', PORT, { count: 20 })), 'ac')
      assert.deepEqual(await fixture.tcp('client', SECOND, PORT), ['ECONNREFUSED'])
    }, '--node-port-addresses=127.0.0.0/8,172.30.0.0/24'),
  )

  it(
    'NodePorts on 127.0.0.1 open 127.0.0.0/8 to no other machine and no pod, and restart and cleanup take the setting back (F20s13: without the table, too)',
    withFixture(async (fixture) => {
      const { n1, client, agents } = fixture
      const localnet = async () =>
        (await n1.ns.exec(['sysctl', '-n', 'net.ipv4.conf.all.route_localnet'])).stdout.trim()
      fixture.service('s', nodePort())
      fixture.slice('s', ['a', 'c'])
      await fixture.sync()
      assert.equal(await localnet(), '1')
      // What comes in by the link, and what the node takes.
      const table =
        'table inet seen {\n counter came { }\n counter taken { }\n chain pre { type filter hook prerouting priority -400; udp dport 7777 counter name came\n }\n chain in { type filter hook input priority 0; udp dport 7777 counter name taken\n }\n}\n'
      assert.equal((await n1.ns.exec(['nft', '-f', '-'], { stdin: table })).status, 0)
      // The attacker has no loopback of its own, and a route to that of the node.
      const attack = [
        'sysctl -qw net.ipv4.conf.all.route_localnet=1',
        'ip route flush table local match 127.0.0.0/8 2>/dev/null || true',
        'ip addr flush dev lo',
        'ip route add 127.0.0.0/8 via 172.30.0.1 dev eth0 src 172.30.0.3',
        'echo x >/dev/udp/127.0.0.1/7777',
      ]
      const sent = await client.exec(['bash', '-ec', attack.join('\n')])
      assert.equal(sent.status, 0, sent.stderr)
      const seen = async (counter: string) =>
        Number(/packets (\d+)/.exec(await fixture.nft('list', 'counter', 'inet', 'seen', counter))?.[1])
      await until(async () => (await seen('came')) > 0, 5000)
      assert.equal(await seen('taken'), 0)
      // Without the chain the node would take it: the test is no empty one.
      await fixture.nft('insert', 'rule', 'inet', 'plumb_services', 'martians', 'accept')
      await client.exec(['bash', '-c', 'echo x >/dev/udp/127.0.0.1/7777'])
      await until(async () => (await seen('came')) > 1, 5000)
      // Another program that takes the setting back is repaired.
      await n1.ns.exec(['sysctl', '-qw', 'net.ipv4.conf.all.route_localnet=0'])
      await fixture.nft('delete', 'table', 'inet', 'plumb_services')
      const isThere = async () =>
        (await n1.ns.exec(['nft', 'list', 'chain', 'inet', 'plumb_services', 'martians'])).status === 0
      await until(async () => (await localnet()) === '1' && (await isThere()), 20_000)
      await agents[0]?.stop()
      const plumb = join(import.meta.dir, '../../../dist/plumb')
      const other = Bun.spawn(
        [
          'nsenter',
          `--net=${n1.ns.path}`,
          plumb,
          'agent',
          ...n1.options.filter((one) => !one.startsWith('--node-port-addresses')),
        ],
        { stdout: 'ignore', stderr: 'ignore' },
      )
      try {
        await until(async () => (await localnet()) === '0', 30_000)
      } finally {
        other.kill('SIGTERM')
        await other.exited
      }
      const again = n1.agent()
      await until(async () => (await localnet()) === '1', 30_000)
      await again.stop()
      const { status, stdout } = await n1.ns.exec([plumb, 'agent', 'cleanup', ...n1.options])
      assert.equal(status, 0)
      assert.match(stdout, /set net\.ipv4\.conf\.all\.route_localnet to 0/)
      assert.equal(await localnet(), '0')
      // F20s13 Somebody has removed the table while no agent ran.
      const last = n1.agent()
      await until(async () => (await localnet()) === '1', 30_000)
      await last.stop()
      assert.equal((await n1.ns.exec(['nft', 'flush', 'ruleset'])).status, 0)
      assert.equal((await n1.ns.exec([plumb, 'agent', 'cleanup', ...n1.options])).status, 0)
      assert.equal(await localnet(), '0')
    }, '--node-port-addresses=127.0.0.0/8'),
  )

  it(
    'NodePorts on ::1, from the node alone, in TCP; a port that a program of the node has is named',
    withFixture(async (fixture) => {
      fixture.service('s', nodePort({ clusterIPs: [VIP, 'fd00:96::10'] }))
      fixture.slice('s', ['a', 'c'])
      fixture.slice('s', ['a', 'c'], { family: 6 })
      await fixture.sync()
      await until(async () => names(await fixture.tcp('n1', '::1', PORT, { count: 20 })) === 'ac', 10_000)
      assert.equal(names(await fixture.tcp('n1', '127.0.0.1', PORT, { count: 20 })), 'ac')
      // No other address of the node has NodePorts, and the loopback of a pod is the pod's.
      for (const who of ['client', 'p', 'n2'] as const)
        assert.deepEqual(await fixture.tcp(who, 'fd00:30::1', PORT), ['ECONNREFUSED'])
      assert.deepEqual(await fixture.tcp('p', '::1', PORT), ['ECONNREFUSED'])
      // Endpoints come and go.
      fixture.slice('s', ['c'], { family: 6 })
      await fixture.sync()
      await until(async () => names(await fixture.tcp('n1', '::1', PORT, { count: 10 })) === 'c', 10_000)
      fixture.slice('s', [], { family: 6 })
      await fixture.sync()
      await until(async () => (await fixture.tcp('n1', '::1', PORT)).join() === 'ECONNREFUSED', 10_000)
      const own = Bun.spawn(
        [
          'nsenter',
          `--net=${fixture.n1.ns.path}`,
          process.execPath,
          '-e',
          `require('node:net').createServer((socket) => socket.on('error', () => {}).end('own')).listen(${PORT}, '::1', () => console.log('ready'))`,
        ],
        {
          stdout: 'pipe',
          stderr: 'inherit',
        },
      )
      try {
        await own.stdout.getReader().read()
        fixture.slice('s', ['a'], { family: 6 })
        await fixture.sync()
        const said = () => fixture.agents[0]?.status().then((status) => JSON.stringify(status))
        await until(async () => (await said())?.includes(`Cannot open NodePort ${PORT} on ::1`) === true, 10_000)
      } finally {
        own.kill('SIGKILL')
        await own.exited
      }
      // No object changes.
      await until(async () => names(await fixture.tcp('n1', '::1', PORT)) === 'a', 20_000)
      fixture.slice('s', ['a', 'c'], { family: 6 })
      await fixture.sync()
      await until(async () => names(await fixture.tcp('n1', '::1', PORT, { count: 20 })) === 'ac', 10_000)
    }, '--node-port-addresses=127.0.0.0/8,::1/128'),
  )

  it(
    'a NodePort without endpoints refuses where NodePorts are, and leaves the same port of other addresses to programs of the node',
    withFixture(async (fixture) => {
      await secondAddress(fixture)
      const own = Bun.spawn(
        [
          'nsenter',
          `--net=${fixture.n1.ns.path}`,
          process.execPath,
          '-e',
          `require('node:net').createServer((socket) => socket.on('error', () => {}).write('own')).listen(${PORT}, () => console.log('ready'))`,
        ],
        {
          stdout: 'pipe',
          stderr: 'inherit',
        },
      )
      try {
        await own.stdout.getReader().read()
        fixture.service('s', nodePort())
        await fixture.sync()
        assert.deepEqual(
          await Promise.all([
            fixture.tcp('client', NODE, PORT),
            fixture.tcp('n1', '127.0.0.1', PORT),
            fixture.tcp('n1', SECOND, PORT),
          ]),
          [['ECONNREFUSED'], ['own'], ['own']],
        )
      } finally {
        own.kill('SIGKILL')
        await own.exited
      }
    }, '--node-port-addresses=172.30.0.0/24'),
  )

  it(
    'load balancers learn at port 10256 whether the node serves Services, and that it leaves',
    withFixture(async (fixture) => {
      const asked = async (path: string) => {
        const { stdout } = await fixture.client.exec([
          process.execPath,
          '-e',
          `const r = await fetch('http://${NODE}:10256${path}'); console.log(r.status, await r.text())`,
        ])
        return stdout.trim()
      }
      await fixture.sync()
      await until(async () => (await asked('/healthz')).startsWith('200 '), 10_000)
      assert.match(
        await asked('/healthz'),
        /"lastUpdated":"\d{4}-.*"currentTime":"\d{4}-.*"nodeEligible":true,"healthy":true\}/,
      )
      assert.match(await asked('/proxyMode'), /^404 There is no \/proxyMode/)
      fixture.object({
        kind: 'Node',
        metadata: { name: 'n1' },
        spec: { taints: [{ key: 'ToBeDeletedByClusterAutoscaler', effect: 'NoSchedule' }] },
        status: {},
      })
      await fixture.sync()
      assert.match(await asked('/healthz'), /^503 .*"nodeEligible":false/)
      assert.match(await asked('/livez'), /^200 /)
    }),
  )

  it(
    'a NodePort turns from TCP to UDP, is free when its Service is gone, and goes to another Service within one change',
    withFixture(async (fixture) => {
      fixture.service('s', nodePort())
      fixture.slice('s', ['a'], {
        ports: [
          { name: '', port: 8080 },
          { name: '', port: 8081, protocol: 'UDP' },
        ],
      })
      fixture.slice('t', ['c'])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', NODE, PORT)), 'a')
      fixture.service('s', nodePort({ ports: [{ port: 80, protocol: 'UDP', nodePort: PORT }] }))
      await fixture.sync()
      assert.deepEqual(
        [names(await fixture.udp('client', NODE, PORT)), await fixture.tcp('client', NODE, PORT)],
        ['a', ['ECONNREFUSED']],
      )
      fixture.service('s', nodePort())
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', NODE, PORT)), 'a')
      fixture.remove('Service', 's')
      fixture.service('t', nodePort())
      await fixture.sync()
      assert.deepEqual(
        [names(await fixture.tcp('client', NODE, PORT)), names(await fixture.tcp('p', VIP, 80))],
        ['c', 'c'],
      )
      fixture.remove('Service', 't')
      await fixture.sync()
      assert.deepEqual(await fixture.tcp('client', NODE, PORT), ['ECONNREFUSED'])
    }),
  )

  it(
    'an external IP that no node has, the address of a load balancer, its source ranges, and ipMode Proxy',
    withFixture(async (fixture) => {
      const status = { loadBalancer: { ingress: [{ ip: '192.0.2.20' }, { ip: '192.0.2.21', ipMode: 'Proxy' }] } }
      const balanced = (loadBalancerSourceRanges?: readonly string[]) =>
        fixture.service(
          's',
          {
            clusterIP: VIP,
            type: 'LoadBalancer',
            externalIPs: ['192.0.2.10'],
            ...(loadBalancerSourceRanges && { loadBalancerSourceRanges }),
          },
          { status },
        )
      balanced()
      fixture.slice('s', ['a', 'c'])
      await fixture.sync()
      for (const who of ['client', 'p', 'n1'] as const)
        for (const ip of ['192.0.2.10', '192.0.2.20'])
          assert.equal(names(await fixture.tcp(who, ip, 80, { count: 30 })), 'ac', `${who} to ${ip}`)
      assert.doesNotMatch(await fixture.nft('list', 'map', 'inet', 'plumb_services', 'svc4'), /192\.0\.2\.21/)
      balanced(['10.0.0.0/8'])
      await fixture.sync()
      assert.deepEqual(
        [
          await fixture.tcp('client', '192.0.2.20', 80, { ms: 500 }),
          names(await fixture.tcp('client', '192.0.2.10', 80)) !== 'timeout',
          names(await fixture.tcp('p', '192.0.2.20', 80, { count: 30 })),
        ],
        [['timeout'], true, 'ac'],
      )
      balanced(['10.0.0.0/8', `${CLIENT}/32`])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', '192.0.2.20', 80, { count: 30 })), 'ac')
      fixture.slice('s', [])
      await fixture.sync()
      for (const ip of ['192.0.2.10', '192.0.2.20'])
        assert.deepEqual(await fixture.tcp('client', ip, 80, { ms: 900 }), ['ECONNREFUSED'])
    }),
  )

  it(
    'externalTrafficPolicy Local keeps the client and drops without a local endpoint; it is switched while the Service serves; the health check tells',
    withFixture(async (fixture) => {
      const health = async (ip: string) => {
        const { stdout } = await fixture.client.exec([
          process.execPath,
          '-e',
          `const r = await fetch('http://${ip}:30999'); console.log(r.status, JSON.stringify((await r.json()).localEndpoints))`,
        ])
        return stdout.trim()
      }
      const local = { type: 'LoadBalancer', externalTrafficPolicy: 'Local', healthCheckNodePort: 30_999 }
      fixture.service('s', nodePort(local))
      fixture.slice('s', ['a', 'b'])
      await fixture.sync()
      const answers = await fixture.tcp('client', NODE, PORT, { count: 40 })
      assert.deepEqual([names(answers), addresses(answers)], ['ab', [CLIENT]])
      assert.deepEqual(await fixture.tcp('client', OTHER, PORT, { ms: 500 }), ['timeout'])
      // From inside the cluster it is as Cluster.
      for (const who of ['q', 'n2'] as const)
        assert.equal(names(await fixture.tcp(who, OTHER, PORT, { count: 30 })), 'ab', who)
      await until(async () => (await health(NODE)) === '200 2' && (await health(OTHER)) === '503 0', 10_000)
      fixture.service('s', nodePort({ externalTrafficPolicy: 'Cluster' }))
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', OTHER, PORT, { count: 30 })), 'ab')
      assert.ok(!addresses(await fixture.tcp('client', NODE, PORT, { count: 20 })).includes(CLIENT))
      fixture.service('s', nodePort(local))
      fixture.slice('s', ['c'])
      await fixture.sync()
      assert.deepEqual(
        [await fixture.tcp('client', NODE, PORT, { ms: 500 }), await fixture.tcp('client', OTHER, PORT)],
        [['timeout'], [`c ${CLIENT} 8080`]],
      )
      await until(async () => (await health(NODE)) === '503 0' && (await health(OTHER)) === '200 1', 10_000)
      fixture.slice('s', [])
      await fixture.sync()
      assert.deepEqual(await fixture.tcp('client', NODE, PORT, { ms: 900 }), ['ECONNREFUSED'])
    }),
  )

  it(
    'UDP clients from outside leave endpoints of other nodes when the policy becomes Local, also when no agent ran; pods and nodes stay with theirs',
    withFixture(async (fixture) => {
      const [CLUSTER, LOCAL] = ['Cluster', 'Local']
      const serve = (externalTrafficPolicy: string | undefined, ...pods: readonly ('a' | 'c')[]) => {
        const ports = [{ port: 53, protocol: 'UDP', nodePort: PORT }]
        fixture.service('s', nodePort({ ports, externalTrafficPolicy, externalIPs: ['192.0.2.9'] }))
        fixture.slice('s', pods, { ports: [{ name: '', port: 8080, protocol: 'UDP' }] })
        return fixture.sync()
      }
      // Each client keeps its port, and so its connection.
      const ways = [
        ['client', NODE, PORT],
        ['client', '192.0.2.9', 53],
        ['p', NODE, PORT],
        ['n1', '192.0.2.9', 53],
      ] as const
      const ask = async ([who, ip, port]: (typeof ways)[number]) =>
        (await fixture.udp(who, ip, port, { fromPort: 5000 + ways.findIndex((one) => one[1] === ip), ms: 500 }))[0] ??
        ''
      const answers = async () => (await Promise.all(ways.map(ask))).map((one) => one.split(' ')[0]).join()
      // The only endpoint is on the other node.
      await serve(CLUSTER, 'c')
      assert.equal(await answers(), 'c,c,c,c')
      await serve(CLUSTER, 'a', 'c')
      assert.equal(await answers(), 'c,c,c,c')
      await serve(LOCAL, 'a', 'c')
      await until(async () => (await answers()) === 'a,a,c,c', 10_000)
      assert.equal((await ask(ways[0])).split(' ')[1], CLIENT)
      // Without an endpoint on this node, nobody answers a client from outside.
      await serve(CLUSTER, 'c')
      await until(async () => (await answers()) === 'c,c,c,c', 10_000)
      await serve(LOCAL, 'c')
      await until(async () => (await answers()) === 'timeout,timeout,c,c', 10_000)
      // The same while no agent ran.
      await serve(CLUSTER, 'a', 'c')
      await until(async () => /^[ac],[ac],c,c$/.test(await answers()), 10_000)
      await serve(CLUSTER, 'c')
      await until(async () => (await answers()) === 'c,c,c,c', 10_000)
      await serve(CLUSTER, 'a', 'c')
      await fixture.agents[0]?.stop()
      const done = serve(LOCAL, 'a', 'c')
      await fixture.n1.agent().ready(30_000)
      await done
      await until(async () => (await answers()) === 'a,a,c,c', 10_000)
    }),
  )

  it(
    'endpoints that terminate serve as long as no other is ready: for Local those of the node, for Cluster all',
    withFixture(async (fixture) => {
      fixture.service('s', nodePort({ externalTrafficPolicy: 'Local' }))
      fixture.slice('s', [ending('a'), 'c'])
      await fixture.sync()
      assert.deepEqual(await fixture.tcp('client', NODE, PORT), [`a ${CLIENT} 8080`])
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 20 })), 'c')
      fixture.service('s', nodePort())
      fixture.slice('s', [ending('a'), ending('c')])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', NODE, PORT, { count: 30 })), 'ac')
      fixture.slice('s', [ending('a'), 'c'])
      await fixture.sync()
      assert.equal(names(await fixture.tcp('client', NODE, PORT, { count: 20 })), 'c')
    }),
  )

  it(
    'internalTrafficPolicy Local: pods and the node reach endpoints of their node only, with a fallback to those that terminate',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIP: VIP, internalTrafficPolicy: 'Local' })
      fixture.slice('s', ['a', 'b'])
      await fixture.sync()
      for (const who of ['p', 'n1'] as const)
        assert.equal(names(await fixture.tcp(who, VIP, 80, { count: 30 })), 'ab', who)
      for (const who of ['q', 'n2'] as const)
        assert.deepEqual(await fixture.tcp(who, VIP, 80, { ms: 500 }), ['timeout'], who)
      fixture.slice('s', [ending('a'), 'c'])
      await fixture.sync()
      assert.deepEqual(
        [names(await fixture.tcp('p', VIP, 80, { count: 20 })), names(await fixture.tcp('q', VIP, 80, { count: 20 }))],
        ['a', 'c'],
      )
    }),
  )

  it(
    'a packet that belongs to no known connection is dropped on its way from an endpoint: its client resets nothing',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      const watch = `table inet watch {\n chain c { type filter hook forward priority -400; ct state invalid ip saddr ${fixture.ip('a')} counter\n ip saddr ${fixture.ip('p')} tcp flags & rst == rst counter\n }\n}\n`
      await fixture.n1.ns.exec(['nft', '-f', '-'], { stdin: watch })
      // Without it, the kernel takes up a connection in its middle.
      await fixture.n1.ns.exec(['sysctl', '-qw', 'net.netfilter.nf_conntrack_tcp_loose=0'])
      assert.match(await fixture.hold('p', VIP, 80), /^a /)
      await until(async () => {
        const answer = fixture.say('p', VIP, 80, { text: 'later', ms: 900 })
        await fixture.n1.ns.exec(['conntrack', '-D', '-p', 'tcp', '--orig-dst', VIP])
        await answer
        return !/saddr \S+ counter packets 0 /.test(
          (await fixture.nft('list', 'table', 'inet', 'watch')).split('tcp flags')[0] ?? '',
        )
      }, 15_000)
      assert.match(
        await fixture.nft('list', 'table', 'inet', 'watch'),
        /tcp flags \S+ \S+ ?\S* counter packets 0 |rst counter packets 0 /,
      )
    }),
  )

  it(
    'masqueraded UDP never has the port of VXLAN as its source',
    withFixtureOf({ ...CONF, Backend: { Type: 'vxlan', Port: 8472 } }, async (fixture) => {
      fixture.service('s', nodePort({ ports: [{ port: 53, protocol: 'UDP', nodePort: PORT }] }))
      fixture.slice('s', ['a', 'c'], { ports: [{ name: '', port: 8080, protocol: 'UDP' }] })
      await fixture.sync()
      const answers = [
        ...(await fixture.udp('client', NODE, PORT, { count: 80 })),
        ...(await fixture.udp('client', NODE, PORT, { fromPort: 8472 })),
      ]
      assert.equal(names(answers), 'ac')
      // The range begins behind the port. Of 80 ports of the whole range, some would be below it.
      for (const one of answers) assert.ok(Number(one.split(' ')[3]) > 8472, one)
    }),
  )

  it(
    '--cluster-cidr: clients of ClusterIPs from elsewhere get the address of the node',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      assert.deepEqual(addresses(await fixture.tcp('p', VIP, 80)), [fixture.ip('p')])
      assert.ok(!addresses(await fixture.tcp('client', VIP, 80)).includes(CLIENT))
    }, '--cluster-cidr=10.244.0.0/16'),
  )

  it(
    '--masquerade-all: all clients of ClusterIPs do',
    withFixture(async (fixture) => {
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      assert.match((await fixture.tcp('p', VIP, 80))[0] ?? '', /^a 10\.244\.\d+\.1 8080$/)
    }, '--masquerade-all'),
  )

  it(
    'NetworkPolicy decides after the translation: the client is the pod, and the receiver the endpoint',
    withFixture(async (fixture) => {
      const pod = (name: 'a' | 'p' | 'q', node: string) =>
        fixture.object({
          kind: 'Pod',
          metadata: { namespace: 'x', name, labels: { app: name } },
          spec: { nodeName: node, containers: [] },
          status: { phase: 'Running', podIPs: [{ ip: fixture.ip(name) }] },
        } as never)
      pod('a', 'n1')
      pod('p', 'n1')
      pod('q', 'n2')
      fixture.object({
        kind: 'NetworkPolicy',
        metadata: { namespace: 'x', name: 'only-q' },
        spec: {
          podSelector: { matchLabels: { app: 'a' } },
          ingress: [
            { from: [{ podSelector: { matchLabels: { app: 'q' } } }], ports: [{ protocol: 'TCP', port: 8080 }] },
          ],
        },
      } as never)
      fixture.service('s', { clusterIP: VIP })
      fixture.slice('s', ['a'])
      await fixture.sync()
      await until(async () => (await fixture.tcp('p', VIP, 80, { ms: 400 }))[0] === 'timeout', 10_000)
      assert.deepEqual(await fixture.tcp('q', VIP, 80), [`a ${fixture.ip('q')} 8080`])
    }, '--network-policy=MANIFESTS'),
  )

  it(
    'SCTP: the first packet of an association goes to an endpoint, by ClusterIP and by NodePort',
    withFixture(async (fixture) => {
      fixture.service('s', nodePort({ ports: [{ port: 5000, protocol: 'SCTP', nodePort: PORT }] }))
      fixture.slice('s', ['a'], { ports: [{ name: '', port: 8080, protocol: 'SCTP' }] })
      await fixture.sync()
      // Forwarded packets have passed the translation.
      const watch = `table inet watch {\n chain c { type filter hook forward priority -5; ip daddr ${fixture.ip('a')} sctp dport 8080 counter\n }\n}\n`
      assert.equal((await fixture.n1.ns.exec(['nft', '-f', '-'], { stdin: watch })).status, 0)
      const [link] = await fixture.n1.ns.json('link', 'show', 'dev', 'eth0')
      const mac = link?.['address'] as string
      for (const [count, ip, port] of [
        [1, VIP, 5000],
        [2, NODE, PORT],
      ] as const) {
        sendInit(fixture.client, mac, CLIENT, ip, port, 40_000 + count)
        await until(
          async () => (await fixture.nft('list', 'table', 'inet', 'watch')).includes(`counter packets ${count} `),
          5000,
        )
      }
    }),
  )
})
