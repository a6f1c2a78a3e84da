// lane: long
// Tests agent/policy/guard.ts and places.ts with a running agent: packets for addresses that no policy can decide,
// between pods of a bridge.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Namespace, plugin, type Row, until } from '../../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { policyOf } from '../../support/policy-live.ts'

const CONF = {
  Network: '10.244.0.0/16',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.1.0',
  IPv6SubnetMin: 'fd00:244:0:1::',
  IPv6SubnetMax: 'fd00:244:0:1::',
  Backend: { Type: 'vxlan' },
}
const options = (cluster: Cluster) => [
  ...fileStore(cluster, CONF),
  `--network-policy=${join(cluster.dir, 'manifests')}`,
]
const NAMES = ['a', 'b', 'c'] as const
type Name = (typeof NAMES)[number]
const LATE = 20_000
const DENY_B = policyOf('deny', { podSelector: { matchLabels: { app: 'b' } }, policyTypes: ['Ingress'] })
const OPEN_B = policyOf('open', { podSelector: { matchLabels: { app: 'b' } }, ingress: [{}] })
const QUIET_A = policyOf('quiet', { podSelector: { matchLabels: { app: 'a' } }, policyTypes: ['Egress'] })

/** Who makes the pods' links: plumb's plugins, with the plugin `policy` in the list and without, or another program. */
const LISTS = [
  'plumb’s bridge with the plugin policy',
  'plumb’s bridge without the plugin policy',
  'another program’s bridge',
] as const
type List = (typeof LISTS)[number]

/**
 * Packets that have no pod's own address, and one that has: what a sends, by the name of the counter in the receiver.
 */
const SENT = ['broadcast', 'directed', 'multicast', 'all_nodes', 'local_udp', 'local_tcp', 'local_echo', 'own'] as const
const PORT = {
  broadcast: 7001,
  directed: 7002,
  multicast: 7003,
  all_nodes: 7004,
  local_udp: 7005,
  own: 7006,
  dhcp: 68,
} as const

class Pods {
  readonly #node: Node
  readonly #dir: string
  readonly spaces: Readonly<Record<Name, Namespace>>
  readonly ips = new Map<string, readonly string[]>()

  constructor({ nodes, dir }: Cluster) {
    const [node, a, b, c] = nodes as [Node, Node, Node, Node]
    this.#node = node
    this.spaces = { a: a.ns, b: b.ns, c: c.ns }
    this.#dir = join(dir, 'manifests')
    mkdirSync(this.#dir)
    this.write('none.yaml')
  }

  write(file: string, ...objects: object[]): void {
    writeFileSync(join(this.#dir, file), objects.map((object) => JSON.stringify(object)).join('\n---\n'))
  }

  object(name: Name): object {
    return {
      kind: 'Pod',
      metadata: { namespace: 'x', name, labels: { app: name } },
      spec: { nodeName: this.#node.name, containers: [] },
      status: { phase: 'Running', podIPs: (this.ips.get(name) ?? []).map((ip) => ({ ip })) },
    }
  }

  /** Attaches the three pods. */
  async attach(list: List): Promise<void> {
    // The objects of pods without addresses, for a list that waits for them.
    this.write('pods.yaml', ...NAMES.map((name) => this.object(name)))
    for (const [i, name] of NAMES.entries()) {
      const pod = this.spaces[name]
      await pod.exec(['ip', 'link', 'del', 'eth0'])
      if (list === LISTS[2]) await this.#byHand(name, i)
      else await this.#add(name, list === LISTS[0])
      // Each counter of a receiver, before the pod's own stack decides.
      const counted = Object.entries(PORT).map(([counter, port]) => `    udp dport ${port} counter name ${counter}`)
      const lines = [
        'table inet seen {',
        ...[...Object.keys(PORT), 'local_tcp', 'local_echo'].map((counter) => `  counter ${counter} { }`),
        '  chain in {',
        '    type filter hook prerouting priority -300;',
        ...counted,
        '    ip6 saddr fe80::/10 tcp dport 80 counter name local_tcp',
        '    ip6 saddr fe80::/10 icmpv6 type echo-request counter name local_echo',
        '  }',
        '}',
      ]
      const done = await pod.exec(['nft', '-f', '-'], { stdin: `${lines.join('\n')}\n` })
      assert.equal(done.status, 0, done.stderr)
    }
    this.write('pods.yaml', ...NAMES.map((name) => this.object(name)))
  }

  async #add(name: Name, isPoliced: boolean): Promise<void> {
    const { dir, ns } = this.#node
    const conf = {
      cniVersion: '1.1.0',
      name: 'unaddressed',
      type: 'bridge',
      bridge: 'cni0',
      isDefaultGateway: true,
      ipam: {
        type: 'host-local',
        dataDir: join(dir, 'networks'),
        ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:244:0:1::/64' }]],
      },
      ...(isPoliced && { policy: { socket: join(dir, 'policy.sock') } }),
    }
    const done = await plugin(
      'bridge',
      {
        command: 'ADD',
        conf,
        containerId: `unaddressed-${name}`,
        netns: this.spaces[name],
        ifname: 'eth0',
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${name}`,
      },
      ns,
    )
    assert.equal(done.status, 0, done.stdout)
    this.ips.set(
      name,
      done.result['ips'].map(({ address }: Row) => address.split('/')[0]),
    )
  }

  async #byHand(name: Name, i: number): Promise<void> {
    const [node, pod] = [this.#node.ns, this.spaces[name]]
    const [v4, v6] = [`10.244.1.${10 + i}`, `fd00:244:0:1::${10 + i}`]
    const outside = [
      ...(i === 0
        ? [
            'ip link add cni0 type bridge',
            'ip addr add 10.244.1.1/24 dev cni0',
            'ip addr add fd00:244:0:1::1/64 dev cni0 nodad',
            'ip link set cni0 up',
          ]
        : []),
      `ip link add v${name} master cni0 up type veth peer name eth0 netns ${pod.path}`,
    ]
    const inside = [
      `ip addr add ${v4}/24 brd + dev eth0`,
      `ip addr add ${v6}/64 dev eth0 nodad`,
      'ip link set eth0 up',
      'ip route add default via 10.244.1.1',
      'ip -6 route add default via fd00:244:0:1::1',
    ]
    for (const [{ exec }, lines] of [
      [node, outside],
      [pod, inside],
    ] as const) {
      const done = await exec(['sh', '-ec', lines.join('\n')])
      assert.equal(done.status, 0, done.stderr)
    }
    this.ips.set(name, [v4, v6])
  }

  async local(name: Name): Promise<string> {
    let found = ''
    await until(async () => {
      const [link] = await this.spaces[name].json('addr', 'show', 'dev', 'eth0')
      found = link?.['addr_info'].find(({ scope, tentative }: Row) => scope === 'link' && !tentative)?.local ?? ''
      return found !== ''
    }, LATE)
    return found
  }

  /** Sends one packet of each kind from a pod to another. */
  async send(from: Name, to: Name): Promise<void> {
    const [fe80, own] = [await this.local(to), this.ips.get(to)?.[0]]
    const script = `
      const { createSocket } = require('node:dgram')
      const four = createSocket('udp4'), six = createSocket('udp6')
      const sent = (socket, port, to) => new Promise((done) => socket.send('?', port, to, (cause) => done(cause)))
      four.bind(0, () => {
        four.setBroadcast(true)
        four.setMulticastTTL(2)
        six.bind(0, async () => {
          six.setMulticastInterface('::%eth0')
          const failed = [
            await sent(four, ${PORT.broadcast}, '255.255.255.255'), await sent(four, ${PORT.directed}, '10.244.1.255'), await sent(four, ${PORT.multicast}, '224.0.0.1'),
            await sent(six, ${PORT.all_nodes}, 'ff02::1%eth0'), await sent(six, ${PORT.local_udp}, '${fe80}%eth0'), await sent(four, ${PORT.own}, '${own}'),
          ].filter(Boolean)
          for (const cause of failed) console.error(String(cause))
          process.exit(0)
        })
      })`
    const { exec } = this.spaces[from]
    await Promise.all([
      exec([process.execPath, '-e', script]),
      exec(['timeout', '0.5', 'bash', '-c', `exec 3<>/dev/tcp/${fe80}%eth0/80`]),
      exec(['ping', '-n', '-q', '-c', '1', '-W', '1', `${fe80}%eth0`]),
    ])
  }

  /** How many packets of each kind have come to a pod. */
  async came(name: Name): Promise<Record<string, number>> {
    const { stdout } = await this.spaces[name].exec(['nft', 'list', 'counters', 'table', 'inet', 'seen'])
    return Object.fromEntries(
      [...stdout.matchAll(/counter (\w+) \{\s+packets (\d+)/g)].map(([, counter, packets]) => [
        counter as string,
        Number(packets),
      ]),
    )
  }

  /** The kinds that reach a pod from another one: what came of three times each. */
  async reach(from: Name, to: Name): Promise<string[]> {
    const before = await this.came(to)
    for (let i = 0; i < 3; i++) await this.send(from, to)
    const after = await this.came(to)
    return SENT.filter((kind) => (after[kind] ?? 0) > (before[kind] ?? 0))
  }
}

function inPods(
  list: List,
  work: (pods: Pods, node: Node, agent: Agent) => Promise<void>,
  ...more: readonly string[]
): (this: Mocha.Context) => Promise<void> {
  return inCluster(4, options, async (cluster, test) => {
    test.timeout(180_000)
    const pods = new Pods(cluster)
    const node = cluster.nodes[0] as Node
    const agent = node.agent(...more)
    await agent.ready(60_000)
    await pods.attach(list)
    await work(pods, node, agent)
  })
}

const isolated = (node: Node) =>
  until(
    async () =>
      (await node.ns.exec(['nft', 'list', 'map', 'inet', 'plumb_policy', 'ingress4'])).stdout.includes('goto in_'),
    LATE,
  )

describe('packets that no policy can decide', () => {
  for (const list of LISTS)
    it(
      `broadcast, multicast and link-local addresses do not reach an isolated pod, and reach an open one: ${list}`,
      inPods(list, async (pods, node) => {
        // The subnet's own broadcast address is an address of no known pod, and a known pod sends no data from its
        // link-local address.
        assert.deepEqual(
          await pods.reach('a', 'b'),
          list === LISTS[2] ? SENT.filter((kind) => kind !== 'directed') : ['broadcast', 'multicast', 'own'],
        )
        pods.write('deny.yaml', DENY_B)
        await isolated(node)
        await until(async () => (await pods.reach('a', 'b')).length === 0, LATE)
        // What a policy allows is allowed to the pod's own address. The rest stays closed.
        pods.write('open.yaml', OPEN_B)
        await until(async () => (await pods.reach('a', 'b')).join() === 'own', LATE)
        // Neighbour discovery, address resolution and DHCP work on.
        await pods.spaces.a.ip('neigh', 'flush', 'dev', 'eth0')
        await pods.spaces.a.ip('-6', 'neigh', 'flush', 'dev', 'eth0')
        for (const ip of pods.ips.get('b') ?? [])
          assert.equal((await pods.spaces.a.exec(['ping', '-n', '-q', '-c', '1', '-W', '5', ip])).status, 0, ip)
        const offer =
          "const socket = require('node:dgram').createSocket('udp4'); socket.bind(67, () => { socket.setBroadcast(true); socket.send('?', 68, '255.255.255.255', () => process.exit(0)) })"
        await pods.spaces.c.exec([process.execPath, '-e', offer])
        await until(async () => ((await pods.came('b'))['dhcp'] ?? 0) > 0, LATE)
        // Another pod of the bridge hears what it heard before, unless nobody knows which port is whose.
        const open = await pods.reach('a', 'c')
        assert.equal(open.includes('broadcast'), list !== LISTS[2], open.join())
        assert.ok(open.includes('own'))
        // What a pod may not send does not reach an open pod.
        pods.write('deny.yaml', QUIET_A)
        await until(
          async () =>
            (await node.ns.exec(['nft', 'list', 'map', 'inet', 'plumb_policy', 'egress4'])).stdout.includes(
              'goto out_',
            ),
          LATE,
        )
        await until(async () => (await pods.reach('a', 'c')).length === 0, LATE)
      }),
    )

  it(
    'an agent that only audits closes nothing',
    inPods(
      LISTS[2],
      async (pods, node) => {
        pods.write('deny.yaml', DENY_B)
        await isolated(node)
        assert.deepEqual(await pods.reach('a', 'b'), [...SENT])
      },
      '--policy-audit',
    ),
  )

  it(
    'the table is put back when another program removes it',
    inPods(LISTS[2], async (pods, node) => {
      pods.write('deny.yaml', DENY_B)
      await isolated(node)
      await until(async () => (await pods.reach('a', 'b')).length === 0, LATE)
      await node.ns.exec(['nft', 'delete', 'table', 'bridge', 'plumb_guard'])
      await until(
        async () =>
          (await node.ns.exec(['nft', 'list', 'set', 'bridge', 'plumb_guard', 'strangers'])).stdout.includes('"vb"'),
        LATE,
      )
      assert.deepEqual(await pods.reach('a', 'b'), [])
    }),
  )
})
