// lane: long
// Tests agent/parts/policy.ts and agent/policy: what a running agent does to the connections of pods, through changes,
// faults and restarts.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ENDED_BIT } from '../../../agent/policy/table.ts'
import { type Connection, connections } from '../../../lib/os/conntrack.ts'
import { inside } from '../../../lib/os/netns.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { linesOf } from '../../../lib/text/lines.ts'
import { parse } from '../../../lib/text/values.ts'
import { until } from '../../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, UNDERLAY } from '../../support/nodes.ts'
import { type Live, live, policyOf } from '../../support/policy-live.ts'

// The one node gets this subnet.
const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.1.0', Backend: { Type: 'vxlan' } }
const options = (cluster: Cluster) => [
  ...fileStore(cluster, CONF),
  `--network-policy=${join(cluster.dir, 'manifests')}`,
]
const NAMES = ['a', 'b', 'c']
const LATE = 20_000
/** Only c may send to b. */
const GUARD = policyOf('guard', {
  podSelector: { matchLabels: { app: 'b' } },
  ingress: [{ from: [{ podSelector: { matchLabels: { app: 'c' } } }] }],
})

function inLive(
  work: (fixture: Live, node: Node, agent: Agent, test: Mocha.Context) => Promise<void>,
  ...more: readonly string[]
): (this: Mocha.Context) => Promise<void> {
  return inCluster(1, options, async ({ nodes: [one], dir }, test) => {
    test.timeout(240_000)
    const node = one as Node
    const fixture = await live(node, join(dir, 'manifests'), NAMES)
    try {
      fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
      const agent = node.agent(...more)
      await agent.ready(60_000)
      await work(fixture, node, agent, test)
    } finally {
      await fixture.end()
    }
  })
}

const table = async ({ ns }: Node) => (await ns.exec(['nft', '-s', 'list', 'table', 'inet', 'plumb_policy'])).stdout
const leadsTo = (node: Node, ip: string, chain: string) =>
  until(async () => new RegExp(`${ip.replaceAll('.', '\\.')} : goto ${chain}_`).test(await table(node)), LATE)

describe('NetworkPolicy of a running agent', () => {
  it(
    'a hundred kills: of a denied path not one packet passes, and allowed connections go on',
    inLive(async (fixture, node, first, test) => {
      test.timeout(900_000)
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      const came = async () => (await fixture.process('b').tell()).came
      const before = (await came())[fixture.ip('a')] ?? 0
      await fixture.process('a').flow('denied', fixture.ip('b'), false)
      await fixture.process('c').flow('tcp', fixture.ip('b'), true)
      await fixture.process('c').flow('udp', fixture.ip('b'), false)
      let agent = first
      for (let round = 0; round < 100; round++) {
        await agent.stop('SIGKILL')
        // The rules and the configuration change, too.
        fixture.write(
          'other.yaml',
          policyOf('other', {
            podSelector: { matchLabels: { app: 'a' } },
            ingress: [{ ports: [{ port: 1000 + round }] }],
          }),
        )
        agent = node.agent(...(round % 2 ? ['--resync', '10'] : []))
        await until(async () => (await table(node)).includes(`tcp dport ${1000 + round} `), 60_000)
      }
      const [sender, receiver] = [await fixture.process('a').tell(), await came()]
      assert.ok((sender.flows['denied']?.sent ?? 0) > 1000, JSON.stringify(sender))
      assert.equal(receiver[fixture.ip('a')] ?? 0, before)
      const { flows } = await fixture.process('c').tell()
      for (const name of ['tcp', 'udp']) {
        const { sent = 0, received = 0, error } = flows[name] ?? {}
        assert.equal(error, '')
        assert.ok(sent > 1000 && received >= sent - 200, `${name}: ${sent} sent, ${received} came back`)
        await until(async () => ((await fixture.process('c').tell()).flows[name]?.received ?? 0) > received + 50, LATE)
        assert.equal((await fixture.process('c').tell()).flows[name]?.error, '')
      }
    }),
  )

  it(
    'a policy that becomes tighter ends the connections that it no longer allows, and no others',
    inLive(async (fixture, node) => {
      await fixture.process('a').flow('tcp', fixture.ip('b'), true)
      await fixture.process('c').flow('tcp', fixture.ip('b'), true)
      const received = async (pod: string) => (await fixture.process(pod).tell()).flows['tcp']?.received ?? 0
      for (const pod of ['a', 'c']) await until(async () => (await received(pod)) > 50, LATE)
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      // The connection of a is silent for a second.
      await until(async () => {
        const seen = await received('a')
        await Bun.sleep(1000)
        return seen === (await received('a'))
      }, LATE)
      const seen = await received('c')
      await until(async () => (await received('c')) > seen + 50, LATE)
    }),
  )

  it(
    'a policy that becomes tighter does not end what the node has open to its own pod',
    inLive(async (fixture, node) => {
      // The pod speaks and the node is silent, so that no packet of the node makes the connection known again.
      const unique = node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)
      const run = (prefix: readonly string[], script: string) =>
        Bun.spawn([...prefix, process.execPath, '-e', script], { stdout: 'pipe', stderr: 'inherit' })
      const speaker = run(
        ['ip', 'netns', 'exec', `${unique}-b`],
        `require('node:net').createServer((socket) => {
          socket.on('error', () => {})
          setInterval(() => socket.write('x\\n'), 5)
        }).listen(90, '0.0.0.0', () => console.log('listening'))`,
      )
      const said = linesOf(speaker.stdout)
      await said.next()
      const listener = run(
        ['nsenter', `--net=${node.ns.path}`, '--'],
        `require('node:net').connect(90, '${fixture.ip('b')}').pipe(process.stdout)`,
      )
      try {
        let heard = 0
        void (async () => {
          for await (const _ of linesOf(listener.stdout)) heard++
        })()
        await fixture.process('a').flow('tcp', fixture.ip('b'), true)
        const received = async () => (await fixture.process('a').tell()).flows['tcp']?.received ?? 0
        await until(async () => heard > 50 && (await received()) > 50, LATE)
        fixture.write(
          'alone.yaml',
          policyOf('alone', { podSelector: { matchLabels: { app: 'b' } }, policyTypes: ['Ingress', 'Egress'] }),
        )
        await leadsTo(node, fixture.ip('b'), 'out')
        // The connection of a is silent for a second: what the policy does not allow has ended.
        await until(async () => {
          const seen = await received()
          await Bun.sleep(1000)
          return seen === (await received())
        }, LATE)
        const seen = heard
        await until(() => heard > seen + 50, LATE)
      } finally {
        for (const one of [speaker, listener]) one.kill('SIGKILL')
        await Promise.all([speaker.exited, listener.exited])
      }
    }),
  )

  it(
    'fifty thousand connections that a policy ends hold up no other policy, and the agent has less than 120 MB meanwhile',
    inLive(async (fixture, node, agent) => {
      const lines = Array.from(
        { length: 50_000 },
        (_, i) => `-I -p udp -s ${fixture.ip('a')} -d ${fixture.ip('b')} --sport ${1024 + i} --dport 5000 -t 600`,
      )
      const { status, stderr } = await node.ns.exec(
        ['sh', '-ec', 'lines=$(mktemp); cat >"$lines"; conntrack -R "$lines"; rm "$lines"'],
        { stdin: `${lines.join('\n')}\n` },
      )
      assert.equal(status, 0, stderr)
      const isLeft = ({ mark }: Connection) => (mark & ENDED_BIT) === 0
      const left = () =>
        inside(
          parse.netns(node.ns.path),
          () => connections({ family: 4, protocol: 17, dst: fixture.ip('b') as Ip, dport: 5000 }).filter(isLeft).length,
        )
      assert.equal(left(), lines.length)
      // proc(5): the most memory that the process has had counts from here.
      writeFileSync(`/proc/${agent.pid}/clear_refs`, '5')
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      fixture.write('other.yaml', policyOf('other', { podSelector: { matchLabels: { app: 'c' } } }))
      await leadsTo(node, fixture.ip('c'), 'in')
      assert.ok(left() > 0)
      await until(() => left() === 0, LATE)
      const [, peak] = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${agent.pid}/status`, 'utf8')) ?? []
      assert.ok(Number(peak) < 120_000, `the agent had ${peak} kB`)
    }),
  )

  it(
    'a ping that goes on stops when a policy no longer allows it, and one that it allows goes on',
    inLive(async (fixture, node) => {
      const unique = node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)
      const pinging = ['a', 'c'].map((from) => {
        const child = Bun.spawn(
          ['ip', 'netns', 'exec', `${unique}-${from}`, 'ping', '-n', '-i', '0.1', fixture.ip('b')],
          { stdout: 'pipe', stderr: 'inherit' },
        )
        const all = { child, answers: 0 }
        void (async () => {
          for await (const line of linesOf(child.stdout)) if (line.includes('time=')) all.answers++
        })()
        return all
      })
      try {
        const [a, c] = pinging as [(typeof pinging)[0], (typeof pinging)[0]]
        for (const one of pinging) await until(() => one.answers > 5, LATE)
        fixture.write('guard.yaml', GUARD)
        await leadsTo(node, fixture.ip('b'), 'in')
        // Ten questions in a row have no answer.
        await until(async () => {
          const seen = a.answers
          await Bun.sleep(1000)
          return seen === a.answers
        }, LATE)
        const seen = c.answers
        await until(() => c.answers > seen + 5, LATE)
      } finally {
        for (const { child } of pinging) child.kill('SIGKILL')
        await Promise.all(pinging.map(({ child }) => child.exited))
      }
    }),
  )

  it(
    'with --policy-keep-established an open connection goes on, and a new one is refused',
    inLive(async (fixture, node) => {
      await fixture.process('a').flow('tcp', fixture.ip('b'), true)
      const received = async () => (await fixture.process('a').tell()).flows['tcp']?.received ?? 0
      await until(async () => (await received()) > 50, LATE)
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      // A later step of the agent follows the one that would have ended the connection.
      fixture.write('other.yaml', policyOf('other', { podSelector: { matchLabels: { app: 'c' } } }))
      await leadsTo(node, fixture.ip('c'), 'in')
      assert.equal(await fixture.passes('a', 'b'), false)
      const seen = await received()
      await until(async () => (await received()) > seen + 500, LATE)
    }, '--policy-keep-established'),
  )

  it(
    '--policy-log=on names both pods and the policy of a dropped packet, and an address that is no pod’s; a flood is limited',
    inLive(async (fixture, node, agent) => {
      await until(async () => (await table(node)).includes('log prefix "denied_in"'), LATE)
      fixture.write(
        'guard.yaml',
        GUARD,
        policyOf('still', {
          podSelector: { matchLabels: { app: 'c' } },
          policyTypes: ['Egress'],
          egress: [{ to: [{ podSelector: { matchLabels: { app: 'b' } } }] }],
        }),
      )
      await leadsTo(node, fixture.ip('b'), 'in')
      await leadsTo(node, fixture.ip('c'), 'out')
      assert.deepEqual(
        [
          await fixture.passes('a', 'b'),
          await fixture.passes('a', 'b', 81, 'UDP'),
          await fixture.passes('c', 'b'),
          await fixture.passes('c', 'a'),
        ],
        [false, false, true, false],
      )
      const [a, b, c] = NAMES.map((name) => `x/${name} (${fixture.ip(name)})`)
      for (const line of [
        `policy: dropped TCP ${a} → ${b} port 80: x/guard isolates x/b for ingress, and no rule allows it`,
        `policy: dropped UDP ${a} → ${b} port 81: x/guard isolates x/b for ingress, and no rule allows it`,
        `policy: dropped TCP ${c} → ${a} port 80: x/still isolates x/c for egress, and no rule allows it`,
      ])
        await until(() => agent.log().includes(line), LATE)
      assert.ok(!agent.log().includes(`${c} → ${b}`))
      fixture.write('pods.yaml', fixture.pod('b'), fixture.pod('c'))
      await until(async () => !(await fixture.passes('b', 'a')), LATE)
      await until(
        () =>
          agent
            .log()
            .includes(
              `policy: dropped TCP ${b} → ${fixture.ip('a')} port 80: ${fixture.ip('a')} belongs to no known pod`,
            ),
        LATE,
      )
      // A thousand datagrams a second: the kernel lets 50, and then 10 a second, come to the log.
      fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
      await until(async () => (await table(node)).includes(`${fixture.ip('a')} : `), LATE)
      const [before, began] = [agent.log().split(': dropped UDP').length, performance.now()]
      await fixture.process('a').flow('flood', fixture.ip('b'), false)
      await until(async () => ((await fixture.process('a').tell()).flows['flood']?.sent ?? 0) > 2000, LATE)
      const logged = agent.log().split(': dropped UDP').length - before
      assert.ok(logged >= 10 && logged <= 60 + (performance.now() - began) / 100, `${logged} lines`)
    }, '--policy-log=on'),
  )

  it(
    '--policy-audit drops nothing, ends nothing, and logs what would be dropped',
    inLive(async (fixture, node, agent) => {
      await until(async () => (await table(node)).includes('log prefix "denied_in"'), LATE)
      await fixture.process('a').flow('tcp', fixture.ip('b'), true)
      const received = async () => (await fixture.process('a').tell()).flows['tcp']?.received ?? 0
      await until(async () => (await received()) > 50, LATE)
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      assert.ok(await fixture.passes('a', 'b'))
      await until(
        () =>
          agent
            .log()
            .includes(
              `policy: would drop TCP x/a (${fixture.ip('a')}) → x/b (${fixture.ip('b')}) port 80: x/guard isolates x/b for ingress, and no rule allows it`,
            ),
        LATE,
      )
      const seen = await received()
      await until(async () => (await received()) > seen + 500, LATE)
    }, '--policy-audit'),
  )

  it(
    'a pod on the host’s network is not selected; the address of a finished pod leaves all sets at once',
    inLive(async (fixture, node) => {
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      assert.ok(await fixture.passes('c', 'b'))
      fixture.write('pods.yaml', fixture.pod('a'), fixture.pod('b'), fixture.pod('c', {}, { phase: 'Succeeded' }))
      await until(async () => !(await fixture.passes('c', 'b')), LATE)
      // Another pod gets the address, with other labels.
      fixture.write('pods.yaml', fixture.pod('a'), fixture.pod('b'), {
        ...(fixture.pod('c') as { metadata: object }),
        metadata: { namespace: 'x', name: 'd', labels: { app: 'd' } },
      })
      await until(async () => (await table(node)).includes(`${fixture.ip('c')} : `), LATE)
      assert.equal(await fixture.passes('c', 'b'), false)
      fixture.write('pods.yaml', fixture.pod('a'), fixture.pod('c'), fixture.pod('b', {}, { hostNetwork: true }))
      await until(async () => !(await table(node)).includes(`${fixture.ip('b')} : goto in`), LATE)
    }),
  )

  it(
    'an address of the node’s subnet that belongs to no pod is closed in both directions, and opens as soon as the pod is known',
    inLive(async (fixture) => {
      assert.ok(await fixture.passes('a', 'b'))
      fixture.write('pods.yaml', fixture.pod('b'), fixture.pod('c'))
      await until(async () => !(await fixture.passes('a', 'b')), LATE)
      assert.equal(await fixture.passes('b', 'a'), false)
      assert.ok(await fixture.passes('b', 'c'))
      fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
      await until(() => fixture.passes('a', 'b'), LATE)
      assert.ok(await fixture.passes('b', 'a'))
    }),
  )

  it(
    'a namespace and a pod come and go under a policy',
    inLive(async (fixture, node) => {
      fixture.write(
        'guard.yaml',
        policyOf('guard', {
          podSelector: { matchLabels: { app: 'b' } },
          ingress: [{ from: [{ namespaceSelector: { matchLabels: { team: 'blue' } } }] }],
        }),
      )
      await leadsTo(node, fixture.ip('b'), 'in')
      assert.equal(await fixture.passes('c', 'b'), false)
      const space = { kind: 'Namespace', metadata: { name: 'x', labels: { team: 'blue' } } }
      fixture.write('space.yaml', space)
      await until(() => fixture.passes('c', 'b'), LATE)
      fixture.write('pods.yaml', fixture.pod('a'), fixture.pod('b'))
      await until(async () => !(await fixture.passes('c', 'b')), LATE)
      fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
      await until(() => fixture.passes('c', 'b'), LATE)
      fixture.write('space.yaml')
      await until(async () => !(await fixture.passes('c', 'b')), LATE)
    }),
  )

  it(
    'a decision is about the pod’s address and port after translation; a block of addresses sees who really asks',
    inCluster(1, options, async ({ nodes: [one], dir, hub }, test) => {
      test.timeout(120_000)
      const node = one as Node
      const fixture = await live(node, join(dir, 'manifests'), NAMES)
      try {
        fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
        await node.agent().ready(60_000)
        // A Service's address and a host port, as any program of the node may translate them.
        const to = `${fixture.ip('b')}:80`
        const nat = `table ip nat_of_test { chain pre { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 8080 dnat to ${to}; ip daddr ${UNDERLAY.v4(1)} tcp dport 8080 dnat to ${to}; }; }`
        assert.equal((await node.ns.exec(['nft', nat])).status, 0)
        await hub.ip('addr', 'add', `${UNDERLAY.v4(200)}/24`, 'dev', 'hub0')
        const outside = async () =>
          (await hub.exec(['timeout', '1', 'bash', '-c', `exec 3<>/dev/tcp/${UNDERLAY.v4(1)}/8080`])).status === 0
        const byVip = async (from: string) =>
          (await fixture.process(from).ask([{ ip: '10.96.0.1', port: 8080, protocol: 'TCP' }]))[0] as boolean
        assert.deepEqual([await byVip('a'), await byVip('c'), await outside()], [true, true, true])
        const ports = [{ port: 80 }]
        const allow = (...from: readonly object[]) =>
          policyOf('guard', { podSelector: { matchLabels: { app: 'b' } }, ingress: [{ from, ports }] })
        fixture.write('guard.yaml', allow({ podSelector: { matchLabels: { app: 'c' } } }))
        await leadsTo(node, fixture.ip('b'), 'in')
        assert.deepEqual([await byVip('a'), await byVip('c'), await outside()], [false, true, false])
        fixture.write('guard.yaml', allow({ ipBlock: { cidr: `${UNDERLAY.v4(200)}/32` } }))
        await until(outside, LATE)
        assert.deepEqual([await byVip('a'), await byVip('c')], [false, false])
        fixture.write('guard.yaml', allow({ ipBlock: { cidr: '172.30.0.0/16', except: [`${UNDERLAY.v4(200)}/32`] } }))
        await until(async () => !(await outside()), LATE)
      } finally {
        await fixture.end()
      }
    }),
  )

  it(
    'after a start of the node all pods are closed until the objects of the cluster are known',
    inCluster(
      1,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes: [one], dir }, test) => {
        test.timeout(120_000)
        const node = one as Node
        const fixture = await live(node, join(dir, 'manifests'), NAMES)
        try {
          assert.ok(await fixture.passes('a', 'b'))
          // An API that does not answer.
          const agent = node.agent('--network-policy=kubernetes', '--kube-api-url=http://127.0.0.1:9')
          await until(async () => (await table(node)).includes('chain unknown'), LATE)
          await until(async () => !(await fixture.passes('a', 'b')), LATE)
          await agent.stop()
          fixture.write('pods.yaml', ...NAMES.map((name) => fixture.pod(name)))
          await node.agent(`--network-policy=${join(dir, 'manifests')}`).ready(60_000)
          await until(() => fixture.passes('a', 'b'), LATE)
        } finally {
          await fixture.end()
        }
      },
    ),
  )

  it(
    'echo requests and fragments follow the policy',
    inLive(async (fixture, node) => {
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      const unique = node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)
      const pings = async (from: string, size: number) =>
        (
          await node.ns.exec([
            'ip',
            'netns',
            'exec',
            `${unique}-${from}`,
            'ping',
            '-n',
            '-q',
            '-c',
            '1',
            '-W',
            '2',
            '-s',
            String(size),
            fixture.ip('b'),
          ])
        ).status === 0
      for (const size of [56, 4000]) {
        assert.ok(await pings('c', size), `${size} bytes of c`)
        assert.equal(await pings('a', size), false, `${size} bytes of a`)
      }
      // A rule with a port is about TCP alone.
      fixture.write(
        'guard.yaml',
        policyOf('guard', { podSelector: { matchLabels: { app: 'b' } }, ingress: [{ ports: [{ port: 80 }] }] }),
      )
      await until(() => fixture.passes('a', 'b'), LATE)
      assert.equal(await pings('c', 56), false)
    }),
  )

  it(
    'the longest names: a namespace of 63 characters, and a policy of 253',
    inLive(async (fixture, node) => {
      const [namespace, name] = ['n'.repeat(63), 'p'.repeat(253)]
      fixture.write('pods.yaml', fixture.pod('a'), fixture.pod('c'), {
        ...(fixture.pod('b') as object),
        metadata: { namespace, name: 'b', labels: { app: 'b' } },
      })
      fixture.write('guard.yaml', {
        kind: 'NetworkPolicy',
        metadata: { namespace, name },
        spec: {
          podSelector: {},
          ingress: [
            {
              from: [
                {
                  namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'x' } },
                  podSelector: { matchLabels: { app: 'c' } },
                },
              ],
            },
          ],
        },
      })
      await leadsTo(node, fixture.ip('b'), 'in')
      assert.deepEqual([await fixture.passes('c', 'b'), await fixture.passes('a', 'b')], [true, false])
    }),
  )

  it(
    'five thousand blocks of addresses in one rule, and ten thousand pods in one set',
    inLive(async (fixture, node) => {
      const blocks = Array.from({ length: 5000 }, (_, i) => ({
        ipBlock: { cidr: `100.${64 + (i >> 8)}.${i & 255}.0/25` },
      }))
      const others = Array.from({ length: 10_000 }, (_, i) => ({
        kind: 'Pod',
        metadata: { namespace: 'y', name: `p${i}`, labels: { app: 'many' } },
        spec: { nodeName: 'elsewhere', containers: [] },
        status: { podIPs: [{ ip: `10.245.${i >> 8}.${i & 255}` }] },
      }))
      fixture.write('many.yaml', { kind: 'List', items: others })
      fixture.write(
        'guard.yaml',
        policyOf('guard', {
          podSelector: { matchLabels: { app: 'b' } },
          ingress: [
            {
              from: [
                ...blocks,
                { namespaceSelector: {}, podSelector: { matchLabels: { app: 'many' } } },
                { ipBlock: { cidr: `${fixture.ip('c')}/32` } },
              ],
            },
          ],
        }),
      )
      await until(async () => !(await fixture.passes('a', 'b')), 120_000)
      assert.ok(await fixture.passes('c', 'b'))
      const found = (await table(node)).match(/10\.245\.\d+\.\d+/g)
      assert.equal(found?.length, 10_000)
    }),
  )

  it(
    'an element, a rule and the table that somebody removes are back and named; tables of others stay as they are',
    inLive(async (fixture, node, agent) => {
      const { ns } = node
      const others = 'table inet other {\n\tchain c {\n\t\ttcp dport 80 accept\n\t}\n}\n'
      await ns.exec(['nft', '-f', '-'], { stdin: others })
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      const good = await table(node)
      const chain = /chain (np_in_\w+)/.exec(good)?.[1] ?? ''
      const damage = [
        ['delete', 'element', 'inet', 'plumb_policy', 'ingress4', `{ ${fixture.ip('b')} }`],
        ['flush', 'chain', 'inet', 'plumb_policy', chain],
        ['flush', 'chain', 'inet', 'plumb_policy', 'forward_out'],
        ['delete', 'table', 'inet', 'plumb_policy'],
      ]
      for (const words of damage) {
        const logged = agent.log().length
        assert.equal((await ns.exec(['nft', ...words])).status, 0, words.join(' '))
        await until(async () => sorted(await table(node)) === sorted(good), LATE)
        await until(
          () =>
            /repaired changes of another program: .*(map ingress4|nft (table|chain) plumb_policy)/.test(
              agent.log().slice(logged),
            ),
          LATE,
        )
        assert.equal(await fixture.passes('a', 'b'), false)
        assert.ok(await fixture.passes('c', 'b'))
      }
      assert.equal((await ns.exec(['nft', 'list', 'table', 'inet', 'other'])).stdout, others)
    }),
  )

  it(
    'nft that fails, hangs and is killed in the middle: the last good rules stay, the status tells, and the next transaction is whole',
    inLive(async (fixture, node, first) => {
      await first.stop()
      const dir = mkdtempSync(join(tmpdir(), 'nft-'))
      try {
        const mode = join(dir, 'mode')
        writeFileSync(mode, 'work')
        // Stands before the real nft: as slow, failing or dying as the file says. Listing and the tables of others
        // work.
        writeFileSync(
          join(dir, 'nft'),
          `#!/bin/sh\ninput=$(mktemp -p ${dir})\n[ "$1" = -f ] && cat >$input || exec /usr/sbin/nft "$@"\ncase $(cat ${mode}) in\nfail) grep -q plumb_policy $input && { echo 'nft: no memory' >&2; exit 1; } ;;\nhang) grep -q plumb_policy $input && exec sleep 60 ;;\nkilled) grep -q plumb_policy $input && { head -c 200 $input | /usr/sbin/nft -f - 2>/dev/null; kill -9 $$; } ;;\nesac\nexec /usr/sbin/nft -f $input\n`,
          { mode: 0o755 },
        )
        const agent = node.agentBy([
          'unshare',
          '--mount',
          'sh',
          '-c',
          `cp /usr/sbin/nft ${dir}/real; sed -i 's#/usr/sbin/nft#${dir}/real#g' ${dir}/nft; mount --bind ${dir}/nft /usr/sbin/nft; exec "$@"`,
          'sh',
        ])
        await agent.ready(60_000)
        fixture.write('guard.yaml', GUARD)
        await leadsTo(node, fixture.ip('b'), 'in')
        const good = await table(node)
        for (const fault of ['fail', 'killed', 'hang']) {
          writeFileSync(mode, fault)
          fixture.write(
            'more.yaml',
            policyOf('more', {
              podSelector: { matchLabels: { app: 'a' } },
              ingress: [{ ports: [{ port: fault.length * 100 }] }],
            }),
          )
          if (fault !== 'hang')
            await until(async () => /Cannot program NetworkPolicy/.test(JSON.stringify(await agent.status())), LATE)
          assert.equal(sorted(await table(node)), sorted(good))
          assert.deepEqual([await fixture.passes('c', 'b'), await fixture.passes('a', 'b')], [true, false])
          writeFileSync(mode, 'work')
          await until(async () => (await table(node)).includes(`tcp dport ${fault.length * 100} `), 60_000)
          fixture.write('more.yaml')
          await until(async () => sorted(await table(node)) === sorted(good), LATE)
        }
      } finally {
        rmSync(dir, { recursive: true, force: true })
      }
    }),
  )

  it(
    'a hundred pods and policies that come and go twice leave the table as it was',
    inLive(async (fixture, node) => {
      fixture.write('guard.yaml', GUARD)
      await leadsTo(node, fixture.ip('b'), 'in')
      const good = sorted(await table(node))
      for (let round = 0; round < 2; round++) {
        for (let i = 0; i < 100; i++)
          fixture.write(
            `churn-${i}.yaml`,
            {
              kind: 'Pod',
              metadata: { namespace: 'x', name: `p${i}`, labels: { app: `p${i}` } },
              spec: { nodeName: i % 2 ? node.name : 'elsewhere', containers: [] },
              status: { podIPs: [{ ip: `10.244.${node.n}.${100 + i}` }] },
            },
            policyOf(`p${i}`, {
              podSelector: { matchLabels: { app: `p${i}` } },
              ingress: [
                { from: [{ podSelector: { matchLabels: { app: `p${(i + 1) % 100}` } } }], ports: [{ port: i + 1 }] },
              ],
            }),
          )
        await until(async () => (await table(node)).includes('tcp dport 100 '), 60_000)
        for (let i = 0; i < 100; i++) fixture.write(`churn-${i}.yaml`)
        await until(async () => sorted(await table(node)) === good, 60_000)
      }
    }),
  )
})

// The kernel lists elements in the order of a hash, and chains in the order in which they were made.
function sorted(text: string): string {
  return text
    .split(/[\n,{}]/)
    .map((line) => line.trim())
    .filter(Boolean)
    .sort()
    .join('\n')
}
