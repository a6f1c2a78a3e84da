// lane: long
// Tests agent/services and agent/parts/services.ts: session affinity, restarts, repairs, and kube-proxy beside.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from '../../support/harness.ts'
import { PASS } from '../../support/missing-tools.ts'
import { conforms } from '../../support/schemas.ts'
import { type Fixture, withFixture } from '../../support/services-fixture.ts'
import { shimmed } from '../../support/tool-shims.ts'

const [VIP, VIP6, NODE] = ['10.96.0.10', 'fd00:96::10', '172.30.0.1'] as const
const PORT = 30_080
const names = (answers: readonly string[]) => [...new Set(answers.map((one) => one.split(' ')[0]))].sort().join('')
const sticky = (timeoutSeconds: number, spec: object = {}) => ({
  clusterIPs: [VIP, VIP6],
  type: 'NodePort',
  ports: [{ port: 80, nodePort: PORT }],
  sessionAffinity: 'ClientIP',
  sessionAffinityConfig: { clientIP: { timeoutSeconds } },
  ...spec,
})

function serve(fixture: Fixture, spec: object, backends: readonly ('a' | 'b' | 'c')[] = ['a', 'b', 'c']): void {
  fixture.service('s', spec)
  for (const family of [4, 6] as const) fixture.slice('s', backends, { family })
}

// A Service whose address only some sources may ask.
async function restrict(fixture: Fixture): Promise<void> {
  fixture.service(
    'b',
    { clusterIP: '10.96.0.12', type: 'LoadBalancer', loadBalancerSourceRanges: ['10.0.0.0/8'] },
    { status: { loadBalancer: { ingress: [{ ip: '192.0.2.20' }] } } },
  )
  fixture.slice('b', ['a'])
  await fixture.sync()
}

describe('Services: state', () => {
  it(
    'session affinity on ClusterIP and NodePort, in both families; switched on and off; an endpoint that goes is replaced for good',
    withFixture(async (fixture) => {
      serve(fixture, sticky(600))
      await fixture.sync()
      const ways = [
        ['p', VIP, 80],
        ['q', VIP, 80],
        ['p', VIP6, 80],
        ['client', NODE, PORT],
        ['client', 'fd00:30::1', PORT],
      ] as const
      for (const [who, ip, port] of ways)
        assert.match(names(await fixture.tcp(who, ip, port, { count: 25 })), /^[abc]$/, `${who} to ${ip}`)
      // Not all clients go to one endpoint. Each new service forgets its clients.
      serve(fixture, { clusterIP: VIP })
      await fixture.sync()
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 60 })), 'abc')
      serve(fixture, sticky(600))
      await fixture.sync()
      const before = names(await fixture.tcp('p', VIP, 80, { count: 10 }))
      const [before6, byPort] = [
        names(await fixture.tcp('p', VIP6, 80, { count: 10 })),
        names(await fixture.tcp('client', NODE, PORT, { count: 10 })),
      ]
      const all = ['a', 'b', 'c'] as const
      for (const [who, ip, port, was] of [
        ['p', VIP, 80, before],
        ['p', VIP6, 80, before6],
        ['client', NODE, PORT, byPort],
      ] as const) {
        serve(
          fixture,
          sticky(600),
          all.filter((one) => one !== was),
        )
        await fixture.sync()
        const next = names(await fixture.tcp(who, ip, port, { count: 20 }))
        assert.match(next, /^[abc]$/)
        assert.notEqual(next, was)
        serve(fixture, sticky(600))
        await fixture.sync()
        assert.equal(
          names(await fixture.tcp(who, ip, port, { count: 10 })),
          next,
          `${who} to ${ip} after the endpoint came back`,
        )
      }
      // The mark was for the way through the node.
      assert.doesNotMatch(
        (await fixture.n1.ns.exec(['conntrack', '-L', '-p', 'tcp', '--orig-dst', VIP])).stdout,
        /mark=[1-9]/,
      )
    }),
  )

  it(
    'session affinity ends after its timeout, and each connection renews it',
    withFixture(async (fixture) => {
      serve(fixture, sticky(2))
      await fixture.sync()
      const first = names(await fixture.tcp('p', VIP, 80))
      // Renewed for longer than the timeout.
      const end = Date.now() + 3000
      while (Date.now() < end) assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 5 })), first)
      // Left alone: the element goes, and with it the choice.
      await until(
        async () => !(await fixture.nft('list', 'map', 'inet', 'plumb_services', 'aff4')).includes('expires'),
        10_000,
      )
      await until(async () => {
        const next = names(await fixture.tcp('p', VIP, 80))
        if (next === first)
          await until(
            async () => !(await fixture.nft('list', 'map', 'inet', 'plumb_services', 'aff4')).includes('expires'),
            10_000,
          )
        return next !== first
      }, 40_000)
    }),
  )

  it(
    'a hundred restarts change nothing: TCP and UDP flows without a gap go on, no entry of conntrack is lost, and clients stay with their endpoint',
    withFixture(async (fixture) => {
      serve(fixture, sticky(600))
      fixture.service('u', { clusterIP: '10.96.0.11', ports: [{ port: 53, protocol: 'UDP' }] })
      fixture.slice('u', ['a', 'c'], { ports: [{ name: '', port: 8080, protocol: 'UDP' }] })
      await fixture.sync()
      const [first, sixth] = [names(await fixture.tcp('p', VIP, 80)), names(await fixture.tcp('p', VIP6, 80))]
      const held = await fixture.hold('p', VIP, 80)
      const entry = async () =>
        (
          await fixture.n1.ns.exec(['conntrack', '-L', '-p', 'udp', '--orig-dst', '10.96.0.11', '-o', 'id'])
        ).stdout.match(/sport=5000 .*id=(\d+)/)?.[1]
      const udp = names(await fixture.udp('q', '10.96.0.11', 53, { fromPort: 5000 }))
      const byPod = names(await fixture.udp('p', '10.96.0.11', 53, { fromPort: 5000 }))
      const id = await entry()
      assert.ok(id)
      const listed = await fixture.nft('-s', 'list', 'table', 'inet', 'plumb_services')
      for (let i = 0; i < 100; i++) {
        const [agent] = fixture.agents
        await agent?.stop(i % 2 === 1 ? 'SIGKILL' : 'SIGTERM')
        assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 5 })), first)
        const again = fixture.n1.agent()
        ;(fixture.agents as unknown[])[0] = again
        // While it starts, nothing stands still.
        let isUp = false
        const ready = again.ready(30_000).finally(() => {
          isUp = true
        })
        while (!isUp) {
          assert.equal(await fixture.say('p', VIP, 80, { ms: 1000 }), held)
          assert.equal(names(await fixture.udp('p', '10.96.0.11', 53, { fromPort: 5000 })), byPod)
        }
        await ready
        await fixture.sync()
        assert.equal(await fixture.say('p', VIP, 80), held)
        assert.deepEqual(
          [
            names(await fixture.udp('p', '10.96.0.11', 53, { fromPort: 5000 })),
            names(await fixture.udp('q', '10.96.0.11', 53, { fromPort: 5000 })),
          ],
          [byPod, udp],
        )
        assert.deepEqual(
          [
            names(await fixture.tcp('p', VIP, 80, { count: 10 })),
            names(await fixture.tcp('p', VIP6, 80, { count: 10 })),
          ],
          [first, sixth],
        )
        assert.equal(await entry(), id)
      }
      const plain = (text: string) =>
        text.replace(/203\.0\.\d+\.\d+/g, 'marker').replace(/elements = \{[^}]*timeout[^}]*\}/g, '')
      assert.equal(plain(await fixture.nft('-s', 'list', 'table', 'inet', 'plumb_services')), plain(listed))
    }),
  )

  it(
    'elements, a chain, a rule and the table that somebody removes come back, and the log says so; UDP connections stay',
    withFixture(async (fixture) => {
      serve(fixture, { clusterIP: VIP, type: 'LoadBalancer', loadBalancerSourceRanges: ['10.0.0.0/8'] })
      await restrict(fixture)
      const works = async () => names(await fixture.tcp('p', VIP, 80, { count: 40, ms: 300 })) === 'abc'
      assert.ok(await works())
      const [agent] = fixture.agents
      for (const [line, told] of [
        [`delete element inet plumb_services svc4 { ${VIP} . tcp . 80 }`, `map svc4: ${VIP} . tcp . 80`],
        [`add element inet plumb_services svc4 { 10.96.7.7 . tcp . 80 : drop }`, 'map svc4: 10.96.7.7 . tcp . 80'],
        ['flush chain inet plumb_services vip4_tcp_3', 'chain vip4_tcp_3'],
        ['flush chain inet plumb_services prerouting', 'chain prerouting'],
        ['flush map inet plumb_services eps4tcp', `map eps4tcp: ${VIP} . 80 . 0`],
        ['delete table inet plumb_services', 'nft table plumb_services'],
      ] as const) {
        const at = agent?.log().length ?? 0
        const { status, stderr } = await fixture.n1.ns.exec(['nft', '-f', '-'], { stdin: `${line}\n` })
        assert.equal(status, 0, stderr)
        await until(() => agent?.log().slice(at).includes(told), 15_000).catch(() =>
          assert.fail(`${line}: the log does not say ${told}: ${agent?.log().slice(at)}`),
        )
        await until(works, 10_000)
      }
      assert.doesNotMatch(await fixture.nft('list', 'map', 'inet', 'plumb_services', 'svc4'), /10\.96\.7\.7/)
      await fixture.n1.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_services_sources'])
      await until(
        async () => (await fixture.nft('list', 'table', 'inet', 'plumb_services_sources')).includes('192.0.2.20'),
        15_000,
      )
    }),
  )

  it(
    'a start with an nft that fails once leaves the table and what it remembers, and never takes away the addresses of pods; a table of another version is replaced',
    withFixture(async (fixture) => {
      const { n1, agents } = fixture
      serve(fixture, sticky(600))
      await fixture.sync()
      const first = names(await fixture.tcp('p', VIP, 80))
      // A table that was made again has another number.
      const handle = async () =>
        /^table inet plumb_services \{ # handle (\d+)/m.exec(
          (await n1.ns.exec(['nft', '-a', '-t', 'list', 'table', 'inet', 'plumb_services'])).stdout,
        )?.[1]
      const before = await handle()
      assert.ok(before)
      await agents[0]?.stop()
      const fails =
        'if grep -q "flush chain inet plumb_services services" "$input" && [ ! -e "$dir/failed" ]; then touch "$dir/failed"; echo "Error: Could not process rule: Cannot allocate memory" >&2; exit 1; fi'
      const shim = shimmed('plumb', { nft: `case "$*" in *monitor*) exec "$real" "$@";; esac\n${fails}\n${PASS}` })
      const failing = n1.agentAs(shim.file)
      await until(() => existsSync(join(shim.dir, 'failed')), 30_000)
      await failing.ready(30_000)
      await fixture.sync()
      assert.equal(await handle(), before)
      assert.equal(names(await fixture.tcp('p', VIP, 80, { count: 20 })), first)
      const scripts = readdirSync(shim.dir).flatMap((name) =>
        name.startsWith('input.') ? [readFileSync(join(shim.dir, name), 'utf8')] : [],
      )
      const flushing = scripts.filter((text) => text.includes('flush set inet plumb_services own4'))
      assert.ok(flushing.length >= 2, `${flushing.length}`)
      for (const text of flushing) assert.match(text, /add element inet plumb_services own4 \{ 10\.244\./)
      await failing.stop()
      const older =
        'delete table inet plumb_services\ntable inet plumb_services {\n set vips4 { type ipv6_addr; }\n map svc4 { type ipv4_addr : verdict; }\n}\n'
      assert.equal((await n1.ns.exec(['nft', '-f', '-'], { stdin: older })).status, 0)
      const again = n1.agent()
      await again.ready(30_000)
      await fixture.sync()
      assert.match(names(await fixture.tcp('p', VIP, 80, { count: 20 })), /^[abc]$/)
    }),
  )

  it(
    'source ranges that somebody opens come back: a rule, a restricted address, an allowed range; and the addresses of pods',
    withFixture(async (fixture) => {
      const { ns } = fixture.n1
      await restrict(fixture)
      const all = async () =>
        (
          await Promise.all(
            ['plumb_services_sources', 'plumb_services'].map((table) =>
              fixture.nft('-s', 'list', 'table', 'inet', table),
            ),
          )
        ).join('')
      const right = await all()
      for (const line of [
        'flush chain inet plumb_services_sources prerouting',
        'delete element inet plumb_services_sources restricted4 { 192.0.2.20 . tcp . 80 }',
        'add element inet plumb_services_sources allowed4 { 192.0.2.20 . tcp . 80 . 172.16.0.0/12 }',
        'flush set inet plumb_services own4',
        'add element inet plumb_services inside4 { 172.30.0.0/24 }',
      ]) {
        const { status, stderr } = await ns.exec(['nft', '-f', '-'], { stdin: `${line}\n` })
        assert.equal(status, 0, stderr)
        await until(async () => (await all()) === right, 15_000).catch(() => assert.fail(`${line} stays`))
      }
      assert.match((await fixture.tcp('client', '192.0.2.20', 80, { ms: 500 }))[0] ?? '', /ETIMEDOUT|timeout/i)
    }),
  )

  it(
    'addresses and source ranges that somebody changes right after the agent wrote them come back, too',
    withFixture(async (fixture) => {
      const { n1, agents } = fixture
      await restrict(fixture)
      const all = async () =>
        (
          await Promise.all(
            [
              ['set', 'plumb_services_sources', 'allowed4'],
              ['set', 'plumb_services', 'inside4'],
            ].map(([kind = '', table = '', name = '']) => fixture.nft('list', kind, 'inet', table, name)),
          )
        ).join('')
      const right = await all()
      await agents[0]?.stop()
      // The agent has no turn between its own transaction and that of the other program.
      const meddle = [
        'add element inet plumb_services inside4 { 172.30.0.0/24 }',
        'add element inet plumb_services_sources allowed4 { 192.0.2.20 . tcp . 80 . 172.16.0.0/12 }',
      ]
      const script = [
        'case "$*" in *monitor*) exec "$real" "$@";; esac',
        '"$real" "$@" <"$input"; status=$?',
        'if grep -q "flush chain inet plumb_services services" "$input" && [ ! -e "$dir/meddled" ]; then',
        ...meddle.map((line) => `  "$real" '${line}'`),
        '  touch "$dir/meddled"',
        'fi',
        'exit $status',
      ]
      const shim = shimmed('plumb', { nft: script.join('\n') })
      const agent = n1.agentAs(shim.file)
      await until(() => existsSync(join(shim.dir, 'meddled')), 30_000)
      await agent.ready(30_000)
      await until(async () => (await all()) === right, 15_000)
    }),
  )

  it(
    'chains of shapes that no Service has any more are removed once there are many',
    withFixture(async (fixture) => {
      const chains = async () =>
        (await fixture.nft('list', 'chains', 'inet')).match(/chain vip4_tcp_1_s\d+/g)?.length ?? 0
      const count = 120
      for (let i = 0; i < count; i++) {
        fixture.service(`s${i}`, {
          clusterIP: `10.96.1.${i + 1}`,
          sessionAffinity: 'ClientIP',
          sessionAffinityConfig: { clientIP: { timeoutSeconds: 100 + i } },
        })
        fixture.slice(`s${i}`, ['a'])
      }
      await fixture.sync()
      assert.equal(await chains(), count)
      for (let i = 0; i < count - 1; i++) fixture.remove('Service', `s${i}`)
      await fixture.sync()
      await until(async () => (await chains()) === 1, 10_000)
      assert.equal(names(await fixture.tcp('p', `10.96.1.${count}`, 80)), 'a')
      // A shape that comes again has its chain again.
      fixture.service('s0', {
        clusterIP: '10.96.1.1',
        sessionAffinity: 'ClientIP',
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 100 } },
      })
      await fixture.sync()
      assert.equal(names(await fixture.tcp('p', '10.96.1.1', 80)), 'a')
    }),
  )

  it(
    'UDP clients of a Service that went while the agent was away are told at the start of the next one; those of others keep their connections',
    withFixture(async (fixture) => {
      const udp = (clusterIPs: readonly string[], nodePort: number) => ({
        clusterIPs,
        type: 'NodePort',
        ports: [{ port: 53, protocol: 'UDP', nodePort }],
      })
      const ports = [{ name: '', port: 8080, protocol: 'UDP' }]
      fixture.service('gone', udp([VIP, VIP6], 30_053))
      fixture.slice('gone', ['a'], { ports })
      fixture.slice('gone', ['a'], { ports, family: 6 })
      fixture.service('other', udp(['10.96.0.11'], 30_054))
      fixture.slice('other', ['c'], { ports })
      await fixture.sync()
      const ask = async (who: 'p' | 'client', ip: string, port: number) =>
        (await fixture.udp(who, ip, port, { fromPort: ip === VIP6 ? 5006 : 5000, ms: 300 }))[0] ?? ''
      const ways = [
        ['p', VIP, 53],
        ['p', VIP6, 53],
        ['client', NODE, 30_053],
      ] as const
      for (const [who, ip, port] of ways) assert.match(await ask(who, ip, port), /^a /, ip)
      assert.match(await ask('p', '10.96.0.11', 53), /^c /)
      const flow = async () =>
        (
          await fixture.n1.ns.exec(['conntrack', '-L', '-p', 'udp', '--orig-dst', '10.96.0.11', '-o', 'id'])
        ).stdout.match(/ id=\d+/)?.[0]
      const before = await flow()
      assert.ok(before)
      await fixture.agents[0]?.stop()
      fixture.remove('Service', 'gone')
      const synced = fixture.sync()
      for (const [who, ip, port] of ways) assert.match(await ask(who, ip, port), /^a /, ip)
      const again = fixture.n1.agent()
      await again.ready(30_000)
      await synced
      for (const [who, ip, port] of ways) await until(async () => !(await ask(who, ip, port)).startsWith('a '), 10_000)
      assert.match(await ask('p', '10.96.0.11', 53), /^c /)
      assert.equal(await flow(), before)
    }),
  )

  it(
    'the agent refuses to start beside the rules of kube-proxy, and removes them when it is asked to; rules of others stay',
    withFixture(async (fixture) => {
      const { ns } = fixture.n1
      const [agent] = fixture.agents
      await agent?.stop()
      const rules = 'table ip kube-proxy { chain services { }\n}\ntable ip6 kube-proxy { }\n'
      assert.equal((await ns.exec(['nft', '-f', '-'], { stdin: rules })).status, 0)
      const lines = [
        '*nat',
        ':KUBE-SERVICES - [0:0]',
        ':KUBE-SVC-ABC - [0:0]',
        ':KUBE-MARK-MASQ - [0:0]',
        ':KUBE-MARK-DROP - [0:0]',
        ':KUBE-KUBELET-CANARY - [0:0]',
        ':MINE - [0:0]',
        '-A PREROUTING -j KUBE-SERVICES',
        '-A PREROUTING -j MINE',
        '-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-ABC',
        '-A KUBE-SVC-ABC -j KUBE-MARK-MASQ',
        '-A MINE -j KUBE-MARK-MASQ',
        'COMMIT',
        '',
      ]
      const loaded = await ns.exec(['iptables-nft-restore', '--noflush'], { stdin: lines.join('\n') })
      assert.equal(loaded.status, 0, loaded.stderr)
      // The older iptables, where the kernel has it.
      const hasLegacy =
        (await ns.exec(['iptables-legacy-restore', '--noflush'], { stdin: lines.join('\n') })).status === 0
      assert.equal((await ns.exec(['ip', 'link', 'add', 'kube-ipvs0', 'type', 'bridge'])).status, 0)
      const refused = fixture.n1.agent()
      assert.equal(await refused.ended, 1)
      assert.match(
        refused.log(),
        new RegExp(
          `Cannot serve Services beside kube-proxy, whose rules are on this node: nft table ip kube-proxy, iptables chain KUBE-SERVICES, ${hasLegacy ? 'iptables-legacy chain KUBE-SERVICES, ' : ''}nft table ip6 kube-proxy, link kube-ipvs0: want kube-proxy stopped and --replace-kube-proxy`,
        ),
      )
      const forced = fixture.n1.agent('--service-proxy-force')
      await forced.ready(30_000)
      await forced.stop()
      const again = fixture.n1.agent('--replace-kube-proxy')
      await again.ready(30_000)
      await until(
        () => /removed what kube-proxy left: iptables-nft nat: 2 chains of kube-proxy/.test(again.log()),
        10_000,
      )
      assert.deepEqual(
        [
          (await ns.exec(['nft', 'list', 'table', 'ip', 'kube-proxy'])).status,
          (await ns.exec(['nft', 'list', 'table', 'ip6', 'kube-proxy'])).status,
        ],
        [1, 1],
      )
      // kubelet's chains stay, and what others' chains use.
      const others =
        /KUBE-KUBELET-CANARY[\s\S]*KUBE-MARK-DROP[\s\S]*KUBE-MARK-MASQ[\s\S]*-A PREROUTING -j MINE\n-A MINE -j KUBE-MARK-MASQ/
      const left = (await ns.exec(['iptables-nft-save', '-t', 'nat'])).stdout
      assert.doesNotMatch(left, /KUBE-S/)
      assert.match(left, others)
      await until(() => /removed what kube-proxy left: link kube-ipvs0/.test(again.log()), 10_000)
      assert.notEqual((await ns.exec(['ip', 'link', 'show', 'kube-ipvs0'])).status, 0)
      if (!hasLegacy) return
      const older = (await ns.exec(['iptables-legacy-save'])).stdout
      assert.doesNotMatch(older, /KUBE-S|\*(mangle|filter)/)
      assert.match(older, others)
    }),
  )

  it(
    'plumb services, the metrics and the socket tell addresses, endpoints, which are local, and why one is left out',
    withFixture(async (fixture) => {
      const { ns, dir } = fixture.n1
      const socket = `${dir}/agent.sock`
      const plumb = (...words: readonly string[]) =>
        ns.exec([join(import.meta.dir, '../../../dist/plumb'), 'services', ...words, '--socket', socket])
      serve(fixture, sticky(600), ['a', 'c'])
      fixture.slice('s', ['a', { pod: 'b', conditions: { ready: false } }, 'c'])
      fixture.service('lone', { clusterIP: '10.96.0.20' })
      await fixture.sync()
      const all = (await plumb()).stdout
      assert.match(all, /^SERVICE +ADDRESSES +ENDPOINTS +LOCAL +LEFT OUT$/m)
      assert.match(all, /^x\/s +10\.96\.0\.10:80\/TCP \*:30080 +2 +1 +1$/m)
      assert.match(all, /^x\/lone +10\.96\.0\.20:80\/TCP +0 +0$/m)
      const one = (await plumb('x/s')).stdout
      assert.match(one, /^x\/s, affinity 600 s$/m)
      assert.match(one, new RegExp(`^  ${fixture.ip('a').replaceAll('.', '\\.')}:8080 +n1 \\(this node\\)$`, 'm'))
      assert.match(
        one,
        new RegExp(`  ${fixture.ip('b').replaceAll('.', '\\.')}:8080 +n1 \\(this node\\) +left out: it is not ready`),
      )
      assert.ok(one.includes(`[${fixture.ip('c', 6)}]:8080`), one)
      assert.match((await plumb('lone')).stdout, /no endpoint: clients are refused/)
      const none = await plumb('absent')
      assert.deepEqual([none.status, none.stdout], [1, 'there is no Service absent\n'])
      const shown = JSON.parse((await plumb('x/s', '--json')).stdout)
      conforms('services', shown)
      assert.equal(shown[0].ports.length, 2)
      // A slice that says when its change happened.
      const at = new Date(Date.now() - 400).toISOString()
      fixture.object({
        kind: 'EndpointSlice',
        metadata: {
          namespace: 'x',
          name: 'lone',
          labels: { 'kubernetes.io/service-name': 'lone' },
          annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': at },
        },
        addressType: 'IPv4',
        ports: [{ name: '', port: 8080 }],
        endpoints: [{ addresses: [fixture.ip('a')] }],
      } as never)
      await fixture.sync()
      const metrics = await until(async () => {
        const text = await (await fetch('http://agent/metrics', { unix: socket })).text()
        return /plumb_network_programming_duration_seconds_count 1$/m.test(text) ? text : ''
      }, 10_000)
      assert.match(metrics, /^plumb_services 3$/m)
      assert.match(metrics, /^plumb_network_programming_duration_seconds_bucket\{le="0.25"\} 0$/m)
      assert.match(metrics, /^plumb_service_frontends \d+$/m)
    }),
  )
})
