// lane: long
// Tests plugins/policy.ts, agent/policy and lib/os/answers.ts: pods that an agent admits before ADD returns.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { admissionCommands } from '../../agent/policy/admission.ts'
import { commands, listen } from '../../lib/os/answers.ts'
import { chainedNetwork } from '../support/chained-network.ts'
import { type Answer, type Namespace, namespaceAt, ping, plugin, type Row, until } from '../support/harness.ts'
import { bridgeConf, containerId } from '../support/network.ts'
import { type Cluster, fileStore, inCluster, type Node } from '../support/nodes.ts'
import { type Answering, startPod } from '../support/policy-fixture.ts'
import { ADMITTING } from '../support/samples.ts'
import { testPlugin } from '../support/suites/testPlugin.ts'

const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const options = (cluster: Cluster) => [
  ...fileStore(cluster, CONF),
  `--network-policy=${join(cluster.dir, 'manifests')}`,
]
const IN = { policyTypes: ['Ingress'] }
/** x/a takes what x/b sends, and nothing else. */
const ONLY_B = {
  kind: 'NetworkPolicy',
  metadata: { namespace: 'x', name: 'only-b' },
  spec: {
    podSelector: { matchLabels: { app: 'a' } },
    ingress: [{ from: [{ podSelector: { matchLabels: { app: 'b' } } }] }],
  },
}
const DENY = { kind: 'NetworkPolicy', metadata: { namespace: 'x', name: 'deny' }, spec: { podSelector: {}, ...IN } }

/** Pods of one node, and its agent's manifests. */
class Bench {
  readonly node: Node
  readonly pods: readonly Namespace[]
  /** K8S_POD_UID of the next calls. */
  uid: string | undefined
  readonly #dir: string

  constructor({ nodes, dir }: Cluster) {
    const [node, ...others] = nodes as [Node, ...Node[]]
    this.node = node
    this.pods = others.map(({ ns }) => ns)
    this.#dir = join(dir, 'manifests')
    mkdirSync(this.#dir)
    // The agent's settings name the folder, which must be there before.
    this.write('none.yaml')
  }

  write(file: string, ...objects: object[]): void {
    writeFileSync(join(this.#dir, file), `${objects.map((object) => JSON.stringify(object)).join('\n---\n')}\n`)
  }

  /** A Pod without an address, as the API has it before the kubelet knows one. */
  podObject(name: string, metadata: object = {}): object {
    return {
      kind: 'Pod',
      metadata: { namespace: 'x', name, labels: { app: name }, ...metadata },
      spec: { nodeName: this.node.name, containers: [] },
      status: { phase: 'Pending' },
    }
  }

  call(command: string, pod: Namespace, name: string, policy: object = {}, more: object = {}): Promise<Answer> {
    const { dir, ns } = this.node
    const uid = this.uid === undefined ? '' : `;K8S_POD_UID=${this.uid}`
    const conf = {
      cniVersion: '1.1.0',
      name: 'policed',
      type: 'ptp',
      ipam: {
        type: 'host-local',
        dataDir: join(dir, 'networks'),
        ranges: [[{ subnet: '10.61.0.0/23' }], [{ subnet: 'fd00:61::/64' }]],
      },
      policy: { socket: join(dir, 'policy.sock'), ...policy },
      ...more,
    }
    return plugin(
      conf.type,
      {
        command,
        conf,
        containerId: pod.name,
        netns: pod,
        ifname: 'eth0',
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${name};K8S_POD_INFRA_CONTAINER_ID=${pod.name}${uid}`,
      },
      ns,
    )
  }

  /** ADD, which works. Gives the addresses. */
  async add(pod: Namespace, name: string, policy: object = {}): Promise<string[]> {
    await pod.exec(['ip', 'link', 'del', 'eth0'])
    const done = await this.call('ADD', pod, name, policy)
    assert.equal(done.status, 0, done.stdout)
    return done.result['ips'].map(({ address }: Row) => address.split('/')[0])
  }

  async table(): Promise<string> {
    return (await this.node.ns.exec(['nft', 'list', 'table', 'inet', 'plumb_policy'])).stdout
  }

  /** Where the maps lead from an address: `ingress4 goto in_…`, `egress4 drop`. */
  async verdicts(ip: string): Promise<string[]> {
    const found = [...(await this.table()).matchAll(/\tmap (\w+) \{(.*?)\n\t\}/gs)]
    return found.flatMap(([, map, text = '']) => {
      const [, verdict] = new RegExp(`[\\s,]${ip.replaceAll('.', '\\.')} : ([\\w ]+)`).exec(text) ?? []
      return verdict === undefined ? [] : [`${map} ${verdict.trim()}`]
    })
  }
}

/** Serves TCP 80 in a pod until the test ends, and counts what comes for the UDP ports. */
async function serve(pod: Namespace, stopped: Stopped): Promise<void> {
  stopped.start(
    pod,
    "Bun.listen({ hostname: '::', port: 80, socket: { open: (socket) => void socket.end('ok'), data() {} } })",
  )
  const ports = Object.values(UDP)
  const text = [
    'table inet seen {',
    ...ports.map((port) => `  counter c${port} { }`),
    '  chain in {',
    '    type filter hook input priority 0;',
    ...ports.map((port) => `    udp dport ${port} counter name c${port}`),
    '  }',
    '}',
  ].join('\n')
  const done = await pod.exec(['nft', '-f', '-'], { stdin: `${text}\n` })
  assert.equal(done.status, 0, done.stderr)
}

async function seen(pod: Namespace, port: number): Promise<number> {
  const { stdout } = await pod.exec(['nft', 'list', 'counter', 'inet', 'seen', `c${port}`])
  return Number(/packets (\d+)/.exec(stdout)?.[1])
}

/** Counts the TCP packets of an address to pods, before the node's policies and behind them. */
async function meter(node: Namespace, from: string): Promise<void> {
  const text = ['table inet metered {', ...['ahead', 'behind'].map((name) => `counter ${name} { }`)]
  for (const [name, priority] of [
    ['ahead', -1],
    ['behind', 1],
  ] as const)
    text.push(
      `chain ${name}_chain {`,
      `type filter hook forward priority ${priority};`,
      `ip saddr ${from} ip daddr 10.61.0.0/23 tcp dport 80 counter name ${name}`,
      '}',
    )
  const done = await node.exec(['nft', '-f', '-'], { stdin: `${[...text, '}'].join('\n')}\n` })
  assert.equal(done.status, 0, done.stderr)
}

/** How many came, and how many of them the policies dropped. */
async function metered(node: Namespace): Promise<{ readonly came: number; readonly dropped: number }> {
  const { stdout } = await node.exec(['nft', 'list', 'counters', 'table', 'inet', 'metered'])
  const [ahead = Number.NaN, behind = Number.NaN] = ['ahead', 'behind'].map((name) =>
    Number(new RegExp(`counter ${name} \\{\\s+packets (\\d+)`).exec(stdout)?.[1]),
  )
  return { came: ahead, dropped: ahead - behind }
}

/** Programs of a test, which end with it. */
class Stopped {
  readonly #all: { kill(signal: 'SIGKILL'): void }[] = []

  start(ns: Namespace, script: string): void {
    this.#all.push(
      Bun.spawn(['nsenter', `--net=${ns.path}`, '--', process.execPath, '-e', script], {
        stdin: 'ignore',
        stdout: 'ignore',
        stderr: 'inherit',
      }),
    )
  }

  end(): void {
    for (const one of this.#all) one.kill('SIGKILL')
  }
}

/** Streams of that test are told apart by their ports: the node may have masqueraded what came before the pod. */
const UDP = { allowed: 7, denied: 8 } as const

/** Sends a datagram every millisecond, as long as the test runs. */
const stream = (ip: string, port: number) =>
  `const socket = require('node:dgram').createSocket('udp4'); socket.on('error', () => {}); setInterval(() => socket.send('x', ${port}, '${ip}', () => {}), 1)`
const connects = async (from: Namespace, ip: string) =>
  (await from.exec(['timeout', '3', 'bash', '-c', `exec 3<>/dev/tcp/${ip}/80 && cat <&3`])).stdout === 'ok'

const STANDS = '/run/policy-stands.sock'
/** The containers that an agent of these tests has admitted. The agent of other tests needs a cluster. */
const held = new Set<string>()
const commandsOfAgent = admissionCommands({
  ready() {},
  admit: async ({ containerId }) => void held.add(containerId),
  release: async ({ containerId }) => void held.delete(containerId),
})
let stop = () => {}
before(() => {
  stop = listen({ unix: STANDS }, 'policy', commands('command', commandsOfAgent)).stop
})
after(() => stop())

testPlugin({
  type: 'policy',
  conf: () => ({ cniVersion: '1.1.0', name: bridgeConf().name, type: 'policy', socket: STANDS, whenAway: 'wait' }),
  refused: (conf) => ({ ...conf, whenAway: 'open' }),
  again: 'same',
  network: (node, conf) => chainedNetwork(node, conf),
  async works(pod, { ips = [] }, node) {
    assert.ok(held.has(containerId(pod)))
    for (const { address } of ips) assert.ok(await until(() => ping(node, address.split('/')[0])), address)
  },
})

// nft gives up when another transaction comes between, as many do here.
async function has({ exec }: Namespace, ip: string): Promise<boolean> {
  for (;;) {
    const { status, stderr } = await exec(['nft', 'get', 'element', 'inet', 'plumb_policy', 'ingress4', `{ ${ip} }`])
    if (!/Interrupted system call/.test(stderr)) return status === 0
  }
}

describe('the plugin policy', () => {
  it(
    'a new pod: of a denied flow no packet passes and of an allowed one none fails, from the instant ADD returns',
    inCluster(4, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b, c] = bench.pods as [Namespace, Namespace, Namespace]
      bench.write('pods.yaml', bench.podObject('a'), bench.podObject('b'), bench.podObject('c'), ONLY_B)
      await bench.node.agent().ready(30_000)
      const [stopped, streams] = [new Stopped(), new Stopped()]
      try {
        const [ipB = ''] = await bench.add(b, 'b')
        const [ipC = ''] = await bench.add(c, 'c')
        const last = Number(ipC.split('.')[3])
        await a.ip('link', 'set', 'lo', 'up')
        await serve(a, stopped)
        await until(() => connects(a, '127.0.0.1'))
        await meter(bench.node.ns, ipB)
        for (let round = 1; round <= 5; round++) {
          // host-local goes on with the next address.
          const expected = `10.61.0.${last + round}`
          for (const [from, port] of [
            [b, UDP.allowed],
            [c, UDP.denied],
          ] as const)
            streams.start(from, stream(expected, port))
          const already = await seen(a, UDP.allowed)
          const [ip = ''] = await bench.add(a, 'a')
          const before = await seen(a, UDP.denied)
          assert.equal(ip, expected)
          for (let i = 0; i < 20; i++)
            assert.ok(await connects(b, ip), `round ${round}, connection ${i} of an allowed flow`)
          await until(async () => (await seen(a, UDP.allowed)) > already + 100, 10_000)
          assert.equal(await seen(a, UDP.denied), before, `round ${round}: packets of a denied flow`)
          const { came, dropped } = await metered(bench.node.ns)
          assert.ok(came >= round * 20 * 4, `${came} packets of an allowed flow`)
          assert.equal(dropped, 0, `round ${round}: packets of an allowed flow that the policies dropped`)
          assert.equal(await connects(c, ip), false)
          assert.equal((await bench.call('DEL', a, 'a')).status, 0)
          assert.deepEqual(await bench.verdicts(ip), [])
          streams.end()
        }
      } finally {
        streams.end()
        stopped.end()
        for (const pod of [b, c]) await bench.call('DEL', pod, pod.name)
      }
    }),
  )

  it(
    'a pod of a known name with another UID: ADD waits for the object of its UID, also across a restart of the agent; until then it is closed, and the earlier pod is as it was',
    inCluster(3, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b] = bench.pods as [Namespace, Namespace]
      const closed = ['egress4 goto unknown', 'ingress4 goto unknown']
      bench.write('only-b.yaml', ONLY_B)
      bench.write('a.yaml', bench.podObject('a', { uid: 'u1', labels: { app: 'free' } }))
      const agent = bench.node.agent()
      await agent.ready(30_000)
      bench.uid = 'u1'
      const [first = ''] = await bench.add(a, 'a')
      const before = await bench.verdicts(first)
      assert.deepEqual([...before].sort(), ['egress4 accept', 'ingress4 accept'])
      bench.uid = 'u2'
      await b.exec(['ip', 'link', 'del', 'eth0'])
      const refused = await bench.call('ADD', b, 'a', { whenAway: 'wait', timeout: 1 })
      assert.deepEqual(
        [refused.error.code, /has no Pod x\/a of the UID u2, but one of the UID u1$/.test(refused.error.msg)],
        [11, true],
        refused.stdout,
      )
      const [second = ''] = await bench.add(b, 'a', { whenAway: 'closed', timeout: 1 })
      assert.deepEqual([(await bench.verdicts(second)).sort(), await bench.verdicts(first)], [closed, before])
      // An agent that starts knows both by the journal.
      await agent.stop()
      await bench.node.agent().ready(30_000)
      assert.deepEqual([(await bench.verdicts(second)).sort(), await bench.verdicts(first)], [closed, before])
      bench.write('a.yaml', bench.podObject('a', { uid: 'u2' }))
      await until(async () => /^ingress4 goto in_/.test((await bench.verdicts(second)).join()), 10_000)
      await until(async () => Bun.deepEquals((await bench.verdicts(first)).sort(), closed), 10_000)
      // The earlier pod goes late.
      bench.uid = 'u1'
      assert.equal((await bench.call('DEL', a, 'a')).status, 0)
      assert.match((await bench.verdicts(second)).join(), /^ingress4 goto in_/)
      assert.deepEqual(await bench.verdicts(first), [])
    }),
  )

  it(
    'a pod whose object comes late, such as a static pod: ADD waits for it; without one the pod is closed, or ADD fails with code 11',
    inCluster(3, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b] = bench.pods as [Namespace, Namespace]
      bench.write('deny.yaml', DENY)
      await bench.node.agent().ready(30_000)
      const adding = bench.add(a, 'a')
      // The address is closed while ADD waits.
      await until(async () => (await bench.verdicts('10.61.0.2')).includes('ingress4 goto unknown'), 10_000)
      bench.write('a.yaml', bench.podObject('a'))
      const [ip = ''] = await adding
      assert.match((await bench.verdicts(ip)).join(), /^ingress4 goto in_\w+,egress4 accept$/)
      await b.exec(['ip', 'link', 'del', 'eth0'])
      const refused = await bench.call('ADD', b, 'b', { whenAway: 'wait', timeout: 1 })
      assert.deepEqual(
        [refused.error.code, /within \d+ ms: .* has no Pod x\/b/.test(refused.error.msg)],
        [11, true],
        refused.stdout,
      )
      const [closed = ''] = await bench.add(b, 'b', { whenAway: 'closed', timeout: 1 })
      assert.deepEqual((await bench.verdicts(closed)).sort(), ['egress4 goto unknown', 'ingress4 goto unknown'])
      bench.write('b.yaml', bench.podObject('b'))
      await until(async () => /^ingress4 goto in_/.test((await bench.verdicts(closed)).join()), 10_000)
      // The names of the pod are missing.
      const nameless = await plugin(
        'policy',
        {
          command: 'ADD',
          conf: { cniVersion: '1.1.0', name: 'policed', type: 'policy', prevResult: { cniVersion: '1.1.0', ips: [] } },
          netns: b,
          args: '',
        },
        bench.node.ns,
      )
      assert.deepEqual(
        [nameless.error.code, nameless.error.msg],
        [4, 'Cannot apply network policy: CNI_ARGS has no K8S_POD_NAMESPACE'],
      )
    }),
  )

  it(
    'an agent that is away: the pod is closed until the agent is back, or ADD waits for it; DEL takes the addresses out of the maps by itself; a new agent knows all pods by the journal',
    inCluster(4, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b, c] = bench.pods as [Namespace, Namespace, Namespace]
      const stopped = new Stopped()
      bench.write('pods.yaml', bench.podObject('a'), bench.podObject('b'), bench.podObject('c'), ONLY_B)
      // No agent has run since the node started: nothing can close a pod.
      await a.exec(['ip', 'link', 'del', 'eth0'])
      const early = await bench.call('ADD', a, 'a')
      assert.deepEqual(
        [early.error.code, /Cannot close pod x\/a: the agent has not loaded its policies/.test(early.error.msg)],
        [11, true],
        early.stdout,
      )
      const agent = bench.node.agent()
      await agent.ready(30_000)
      try {
        const [ipB = ''] = await bench.add(b, 'b')
        await agent.stop('SIGKILL')
        await serve(a, stopped)
        const [ip = ''] = await bench.add(a, 'a', { whenAway: 'closed' })
        assert.deepEqual((await bench.verdicts(ip)).sort(), ['egress4 drop', 'ingress4 drop'])
        assert.equal(await connects(b, ip), false)
        // ADD of c waits for the agent.
        const adding = bench.add(c, 'c', { whenAway: 'wait' })
        const again = bench.node.agent()
        const [ipC = ''] = await adding
        await again.ready(30_000)
        await until(async () => /^ingress4 goto in_/.test((await bench.verdicts(ip)).join()), 10_000)
        assert.deepEqual([await connects(b, ip), await connects(c, ip)], [true, false])
        await again.stop('SIGKILL')
        const refused = await bench.call('ADD', c, 'c', { whenAway: 'wait', timeout: 1 }, { name: 'other' })
        assert.equal(refused.error.code, 4, refused.stdout)
        assert.equal((await bench.call('DEL', a, 'a')).status, 0)
        assert.equal((await bench.call('DEL', a, 'a')).status, 0)
        assert.deepEqual(await bench.verdicts(ip), [])
        const last = bench.node.agent()
        await last.ready(30_000)
        // x/b and x/c are known, x/a is not.
        await until(async () => new RegExp(`set pods4_\\w+ \\{[^}]*${ipB}`).test(await bench.table()), 10_000)
        assert.ok((await bench.table()).includes(`${ipC} . ${ipC}`))
        assert.ok(!(await bench.table()).includes(`${ip} . ${ip}`))
        await last.stop('SIGKILL')
        await bench.node.ns.exec(['nft', 'delete', 'table', 'inet', 'plumb_policy'])
        for (const pod of [b, c]) assert.equal((await bench.call('DEL', pod, pod.name)).status, 0)
      } finally {
        stopped.end()
      }
    }),
  )

  it(
    'an address that the kernel still knows as that of a former pod is closed for the next pod while the agent is away',
    inCluster(3, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b] = bench.pods as [Namespace, Namespace]
      const ipam = {
        type: 'host-local',
        dataDir: join(bench.node.dir, 'networks'),
        subnet: '10.61.0.0/24',
        rangeStart: '10.61.0.2',
        rangeEnd: '10.61.0.2',
      }
      const call = async (command: string, pod: Namespace, name: string) => {
        const { status, stdout } = await bench.call(command, pod, name, { whenAway: 'closed', timeout: 1 }, { ipam })
        assert.equal(status, 0, stdout)
      }
      // The object of the former pod stays, as that of a pod that the kubelet has not finished with.
      bench.write('pods.yaml', { ...bench.podObject('a'), status: { phase: 'Running', podIPs: [{ ip: '10.61.0.2' }] } })
      const first = bench.node.agent()
      await first.ready(30_000)
      for (const one of [a, b]) await one.exec(['ip', 'link', 'del', 'eth0'])
      await call('ADD', a, 'a')
      assert.deepEqual((await bench.verdicts('10.61.0.2')).sort(), ['egress4 accept', 'ingress4 accept'])
      await call('DEL', a, 'a')
      assert.deepEqual(await bench.verdicts('10.61.0.2'), [])
      await first.stop('SIGKILL')
      // The next agent knows nothing of the DEL.
      const second = bench.node.agent()
      await second.ready(30_000)
      await second.stop('SIGKILL')
      await call('ADD', b, 'b')
      assert.deepEqual((await bench.verdicts('10.61.0.2')).sort(), ['egress4 drop', 'ingress4 drop'])
      const third = bench.node.agent()
      await third.ready(30_000)
      await until(async () => (await bench.verdicts('10.61.0.2')).includes('ingress4 goto unknown'), 10_000)
      await call('DEL', b, 'b')
    }),
  )

  for (const type of ['ptp', 'bridge'])
    it(
      `a pod of ${type} that is closed while the agent is away sends from its own addresses only`,
      inCluster(3, options, async (cluster, test) => {
        test.timeout(120_000)
        const bench = new Bench(cluster)
        const [a, b] = bench.pods as [Namespace, Namespace]
        const ipam = {
          type: 'host-local',
          dataDir: join(bench.node.dir, 'networks'),
          subnet: '10.61.0.0/24',
          routes: [{ dst: '0.0.0.0/0' }],
        }
        const call = async (command: string, pod: Namespace, name: string) => {
          const { status, stdout, result } = await bench.call(
            command,
            pod,
            name,
            { whenAway: 'closed', timeout: 1 },
            { type, ...(type === 'bridge' && { bridge: 'br0', isGateway: true }), ipam },
          )
          assert.equal(status, 0, stdout)
          return command === 'ADD' ? (result['ips'].map(({ address }: Row) => address.split('/')[0])[0] as string) : ''
        }
        bench.write('pods.yaml', bench.podObject('a'))
        const first = bench.node.agent()
        await first.ready(30_000)
        for (const one of [a, b]) await one.exec(['ip', 'link', 'del', 'eth0'])
        const to = await call('ADD', a, 'a')
        await first.stop('SIGKILL')
        const own = await call('ADD', b, 'b')
        const forged = '10.61.0.99'
        await a.exec(['nft', '-f', '-'], {
          stdin: `table inet seen {\n counter forged { }\n chain in {\n type filter hook input priority 0;\n ip saddr ${forged} counter name forged\n }\n}\n`,
        })
        await b.exec(['ip', 'addr', 'add', `${forged}/32`, 'dev', 'eth0'])
        await b.exec(['ping', '-n', '-q', '-c', '3', '-i', '0.2', '-W', '1', '-I', forged, to])
        assert.match((await a.exec(['nft', 'list', 'counter', 'inet', 'seen', 'forged'])).stdout, /packets 0 /)
        const guard = async () =>
          (await bench.node.ns.exec(['nft', 'list', 'table', type === 'bridge' ? 'bridge' : 'inet', 'plumb_guard']))
            .stdout
        assert.ok((await guard()).includes(`. ${own}`))
        await call('DEL', b, 'b')
        assert.ok(!(await guard()).includes(`. ${own}`))
        const second = bench.node.agent()
        await second.ready(30_000)
        await call('DEL', a, 'a')
      }),
    )

  it(
    'a pod whose ADD comes between the start of an agent and its socket is known to that agent',
    inCluster(2, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [pod] = bench.pods as [Namespace]
      const socket = join(bench.node.dir, 'policy.sock')
      bench.write('pods.yaml', bench.podObject('a'), DENY)
      const first = bench.node.agent()
      await first.ready(30_000)
      await first.stop('SIGKILL')
      rmSync(socket)
      // Stands for the socket of an agent that dies slowly. The next agent asks it before it listens, and stands still
      // then.
      const asked = Promise.withResolvers<void>()
      const dying = Bun.listen({
        unix: socket,
        socket: {
          open(one) {
            one.end()
            asked.resolve()
          },
          data() {},
        },
      })
      const second = bench.node.agent()
      await asked.promise
      process.kill(second.pid, 'SIGSTOP')
      try {
        const [ip = ''] = await bench.add(pod, 'a', { whenAway: 'closed', timeout: 1 })
        assert.deepEqual((await bench.verdicts(ip)).sort(), ['egress4 drop', 'ingress4 drop'])
        dying.stop(true)
        process.kill(second.pid, 'SIGCONT')
        await second.ready(30_000)
        assert.match((await bench.verdicts(ip)).join(), /^ingress4 goto in_\w+,egress4 accept$/)
        assert.equal((await bench.call('DEL', pod, 'a')).status, 0)
      } finally {
        dying.stop(true)
        process.kill(second.pid, 'SIGCONT')
      }
    }),
  )

  it(
    'a closed pod has no connections: neither one from before its object went, nor one that began before ADD had closed it',
    inCluster(3, options, async (cluster, test) => {
      test.timeout(120_000)
      const bench = new Bench(cluster)
      const [a, b] = bench.pods as [Namespace, Namespace]
      bench.write('a.yaml', bench.podObject('a'))
      bench.write('b.yaml', bench.podObject('b'))
      const agent = bench.node.agent()
      await agent.ready(30_000)
      const [ipA = ''] = await bench.add(a, 'a')
      const [ipB = ''] = await bench.add(b, 'b')
      const [server, client] = [a, b].map(({ path }) => startPod(path.slice('/run/netns/'.length))) as [
        Answering,
        Answering,
      ]
      const came = async (ip: string) => (await server.tell()).came[ip] ?? 0
      const isSilent = async (ip: string) => {
        const before = await came(ip)
        await Bun.sleep(300)
        return before === (await came(ip))
      }
      try {
        for (const one of [server, client]) await one.ready()
        await client.flow('udp', ipA, false)
        await until(async () => (await came(ipB)) > 20, 10_000)
        bench.write('b.yaml')
        await until(async () => (await bench.verdicts(ipB)).includes('ingress4 goto unknown'), 10_000)
        await until(() => isSilent(ipB), 10_000)
        assert.equal((await bench.call('DEL', b, 'b')).status, 0)
        await agent.stop('SIGKILL')
        // The flow goes on in the namespace. ADD makes its link before it closes the pod.
        const [next = ''] = await bench.add(b, 'b', { whenAway: 'closed', timeout: 1 })
        assert.deepEqual((await bench.verdicts(next)).sort(), ['egress4 drop', 'ingress4 drop'])
        assert.equal(await isSilent(next), true)
        for (const pod of [a, b]) assert.equal((await bench.call('DEL', pod, pod === a ? 'a' : 'b')).status, 0)
      } finally {
        for (const one of [server, client]) one.kill()
      }
    }),
  )

  it(
    'a storm of 250 ADDs, with an agent that is killed and started again in its midst: each pod is in the kernel when its ADD returns',
    inCluster(1, options, async (cluster, test) => {
      test.timeout(420_000)
      const bench = new Bench(cluster)
      const names = Array.from({ length: 250 }, (_, i) => `p${i}`)
      const unique = bench.node.ns.path.slice(bench.node.ns.path.lastIndexOf('/') + 1)
      bench.write('pods.yaml', DENY, ...names.map((name) => bench.podObject(name)))
      const [first] = [bench.node.agent()]
      await first?.ready(30_000)
      try {
        await execa('ip', ['-batch', '-'], { input: names.map((name) => `netns add ${unique}-${name}\n`).join('') })
        const pods = names.map((name) => ({ name, ns: namespaceAt(`${unique}-${name}`, name) }))
        let done = 0
        const rest = [...pods]
        const missing: string[] = []
        const worker = async () => {
          for (let one = rest.shift(); one; one = rest.shift()) {
            const [ip = ''] = await bench.add(one.ns, one.name, { whenAway: 'wait', timeout: 25 })
            done++
            if (!(await has(bench.node.ns, ip))) missing.push(one.name)
          }
        }
        const storm = Promise.all(Array.from({ length: 16 }, worker))
        await until(() => done >= 100, 200_000)
        await first?.stop('SIGKILL')
        const again = bench.node.agent()
        await storm
        await again.ready(30_000)
        assert.deepEqual([done, missing], [250, []])
        assert.equal((await bench.table()).match(/10\.61\.\d+\.\d+ : goto in_/g)?.length, 250)
      } finally {
        await execa('ip', ['-force', '-batch', '-'], {
          input: names.map((name) => `netns delete ${unique}-${name}\n`).join(''),
          reject: false,
        })
      }
    }),
  )

  for (const { file, dir, plugins } of ADMITTING)
    it(
      `conf/${file}: STATUS, ADD, CHECK, GC and DEL, plugin by plugin`,
      inCluster(2, options, async (cluster, test) => {
        test.timeout(60_000)
        const bench = new Bench(cluster)
        const [pod] = bench.pods as [Namespace]
        const { ns } = bench.node
        bench.write('pods.yaml', bench.podObject('a'), DENY)
        const { name, cniVersion } = JSON.parse(readFileSync(join(dir, file), 'utf8'))
        const call = (command: string, conf: Row, more: object = {}) =>
          plugin(
            conf['type'],
            {
              command,
              conf: { ...conf, name, cniVersion, ...more },
              containerId: 'c1',
              netns: pod,
              args: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=a',
            },
            ns,
          )
        const [main, policy] = plugins as [Row, Row]
        const away = await call('STATUS', policy)
        assert.deepEqual(
          [
            away.error.code,
            /^Cannot reach the agent for network policy at \/run\/plumb\/policy\.sock/.test(away.error.msg),
          ],
          [50, true],
          away.stdout,
        )
        await bench.node.agent('--policy-socket=/run/plumb/policy.sock').ready(30_000)
        assert.equal((await call('STATUS', policy)).status, 0)
        await pod.ip('link', 'del', 'eth0')
        const made = await call('ADD', main)
        const prevResult = made.result
        const done = await call('ADD', policy, { prevResult })
        assert.deepEqual(done.result, prevResult)
        const [ip = ''] = prevResult['ips'].map(({ address }: Row) => address.split('/')[0])
        assert.match((await bench.verdicts(ip)).join(), /^ingress4 goto in_/)
        assert.equal((await call('CHECK', policy, { prevResult })).status, 0)
        assert.equal(
          (await call('GC', policy, { 'cni.dev/valid-attachments': [{ containerID: 'c1', ifname: 'eth0' }] })).status,
          0,
        )
        assert.match((await bench.verdicts(ip)).join(), /^ingress4 goto in_/)
        assert.equal((await call('GC', policy, { 'cni.dev/valid-attachments': [] })).status, 0)
        assert.deepEqual(await bench.verdicts(ip), [])
        for (const conf of [policy, main, policy, main])
          assert.equal((await call('DEL', conf, { prevResult })).status, 0)
        assert.equal(existsSync('/run/plumb/policy.sock'), true)
        rmSync('/run/plumb/policy.sock')
      }),
    )

  it(
    'a bridge whose frames do not pass the firewall: STATUS says so, and the agent puts the settings of br_netfilter back within seconds, as a repair',
    inCluster(2, options, async (cluster, test) => {
      test.timeout(60_000)
      const bench = new Bench(cluster)
      const [pod] = bench.pods as [Namespace]
      bench.write('pods.yaml', bench.podObject('a'), DENY)
      const agent = bench.node.agent()
      await agent.ready(30_000)
      const set = (value: number) =>
        bench.node.ns.exec([
          'sysctl',
          '-qw',
          `net.bridge.bridge-nf-call-iptables=${value}`,
          `net.bridge.bridge-nf-call-ip6tables=${value}`,
        ])
      const conf = {
        type: 'bridge',
        bridge: 'br9',
        isGateway: true,
        ipam: { type: 'host-local', dataDir: join(bench.node.dir, 'networks'), subnet: '10.62.0.0/24' },
      }
      await set(0)
      const status = () => bench.call('STATUS', pod, 'a', {}, conf)
      assert.match((await status()).error.msg, /bridged frames do not pass the firewall/)
      await bench.node.ns.exec(['sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=1'])
      assert.match((await status()).error.msg, /bridged frames do not pass the firewall/, 'those of IPv6')
      await pod.ip('link', 'del', 'eth0')
      assert.equal((await bench.call('ADD', pod, 'a', {}, conf)).status, 0)
      // With a pod on a bridge the settings are the agent's.
      const value = async () =>
        (
          await bench.node.ns.exec([
            'sysctl',
            '-n',
            'net.bridge.bridge-nf-call-iptables',
            'net.bridge.bridge-nf-call-ip6tables',
          ])
        ).stdout
      await until(async () => (await value()) === '1\n1\n', 20_000)
      assert.equal((await status()).status, 0)
      await set(0)
      await until(async () => (await value()) === '1\n1\n', 20_000)
      await until(
        async () => JSON.stringify((await agent.status())?.['repairs']).includes('net.bridge.bridge-nf-call-iptables'),
        20_000,
      )
      assert.equal((await bench.call('DEL', pod, 'a', {}, conf)).status, 0)
      await until(async () => /^200/.test(await agent.readyz()), 10_000)
    }),
  )
})
