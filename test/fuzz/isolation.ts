// Random histories of one node: pods that come, go and use addresses again, policies, flows, and agents that end. After
// each step every pair of pods and every flow is compared with the oracle (agent/policy/oracle.ts). isolation.test.ts
// runs this file in its own namespaces. Arguments: FIRST COUNT MS. It plays the histories FIRST, FIRST + 1 and so on
// for at most MS milliseconds, and prints JSON, a line for each.
import assert from 'node:assert/strict'
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { namespaceOf, type Pod, type Policy, podOf, policyOf } from '../../agent/cluster/objects.ts'
import { decide, type Objects } from '../../agent/policy/oracle.ts'
import type { Ip } from '../../lib/text/ip.ts'
import { namespaceAt, plugin, type Row } from '../support/harness.ts'
import { linesOf } from '../support/lines.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from '../support/nodes.ts'
import type { Order } from './isolation-pod.ts'

/** What came of one history. `failure` says what the kernel did that the oracle does not, with the steps before. */
export interface Played {
  readonly seed: number
  readonly steps: number
  readonly ms: number
  readonly failure?: string
}

const STEPS = 8
const NAMES = ['a', 'b', 'c', 'd'] as const
const PROTOCOLS = ['TCP', 'UDP'] as const
/** Two more addresses than a type of link has pods at most: the next pod soon gets the address of a former one. */
const MOST = 2
const RANGES = {
  bridge: [
    [{ subnet: '10.244.1.0/24', rangeStart: '10.244.1.2', rangeEnd: '10.244.1.4' }],
    [{ subnet: 'fd00:61::/64', rangeStart: 'fd00:61::2', rangeEnd: 'fd00:61::4' }],
  ],
  ptp: [
    [{ subnet: '10.62.0.0/24', rangeStart: '10.62.0.2', rangeEnd: '10.62.0.4' }],
    [{ subnet: 'fd00:62::/64', rangeStart: 'fd00:62::2', rangeEnd: 'fd00:62::4' }],
  ],
} as const
type Type = keyof typeof RANGES
// The pods of bridges are in the node's subnet, and those of ptp are not.
const CONF = { Network: '10.244.0.0/16', SubnetMin: '10.244.1.0', SubnetMax: '10.244.1.0', Backend: { Type: 'vxlan' } }
/**
 * How long the kernel may take to have what a step changed, and an allowed probe or flow to come through, on a busy
 * machine.
 */
const LATE_MS = 30_000
const PROBE_MS = 120
/** A refused flow is silent for so long. Ten of its messages were sent. */
const SILENT_MS = 100

type Numbers = (below: number) => number

interface Slot {
  readonly name: string
  readonly netns: string
  readonly prober: Prober
  type: Type
  /** Its addresses, while it has an attachment. */
  ips: readonly Ip[]
  /** Its object among the manifests. An object may stay after its pod. */
  labels: Readonly<Record<string, string>> | undefined
  /** ADD came while the agent was away. */
  isUnseen: boolean
}

interface Flow {
  readonly id: string
  readonly from: Slot
  readonly ip: Ip
  readonly protocol: 'TCP' | 'UDP'
  /** Of TCP: the two ends that it was made between, as long as nothing has refused it. */
  whole: string | undefined
}

type Prober = ReturnType<typeof startProber>

function startProber(netns: string) {
  const child = Bun.spawn(['ip', 'netns', 'exec', netns, process.execPath, join(import.meta.dir, 'isolation-pod.ts')], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => (await lines.next()).value as string
  return {
    ready: async () => assert.equal(await next(), 'ready'),
    async ask<T>(order: Order): Promise<T> {
      child.stdin.write(`${JSON.stringify(order)}\n`)
      child.stdin.flush()
      return JSON.parse(await next()) as T
    },
    async end() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

/** A node with its agent, and four pods that come and go. */
class Fixture {
  readonly #node: Node
  readonly #manifests: string
  readonly slots: readonly Slot[]
  #agent: Agent | undefined
  #policies = new Map<string, object>()
  /** What the agent knew when it ended. */
  #frozen: Objects | undefined
  #flows: Flow[] = []
  #flowCount = 0
  #serial = 0
  /** The steps of this history. */
  steps: string[] = []

  constructor(node: Node, manifests: string, slots: readonly Slot[]) {
    this.#node = node
    this.#manifests = manifests
    this.slots = slots
  }

  get isAway(): boolean {
    return this.#agent === undefined
  }

  get flows(): readonly Flow[] {
    return this.#flows
  }

  get policies(): readonly string[] {
    return [...this.#policies.keys()]
  }

  #write(file: string, object: object | undefined): void {
    const path = join(this.#manifests, file)
    if (!object) {
      rmSync(path, { force: true })
      return
    }
    writeFileSync(`${path}.new`, JSON.stringify(object))
    renameSync(`${path}.new`, path)
  }

  #raw({ name, labels, ips }: Slot): object {
    return {
      kind: 'Pod',
      metadata: { namespace: 'x', name, labels },
      spec: { nodeName: this.#node.name, containers: [] },
      status: { phase: 'Running', podIPs: ips.map((ip) => ({ ip })) },
    }
  }

  // What the agent knows now. An object without an attachment counts for nothing.
  #now(): Objects {
    const pods = this.slots.flatMap((slot) =>
      slot.labels && slot.ips.length > 0 ? [podOf(this.#raw(slot)) as Pod] : [],
    )
    const policies = [...this.#policies].map(
      ([name, spec]): Policy => policyOf({ metadata: { namespace: 'x', name }, spec }),
    )
    return { pods, policies, namespaces: [namespaceOf({ metadata: { name: 'x' } })] }
  }

  /** Writes a pod's object with these labels, or removes it. It has the pod's addresses, as the kubelet writes them. */
  object(slot: Slot, labels: Slot['labels']): void {
    slot.labels = labels
    this.#write(`pod-${slot.name}.yaml`, labels && this.#raw(slot))
  }

  /** Writes the addresses that a pod has now into its object. */
  status(slot: Slot): void {
    this.object(slot, slot.labels)
  }

  policy(name: string, spec: object | undefined): void {
    if (spec) this.#policies.set(name, spec)
    else this.#policies.delete(name)
    this.#write(`policy-${name}.yaml`, spec && { kind: 'NetworkPolicy', metadata: { namespace: 'x', name }, spec })
  }

  async start(): Promise<void> {
    this.#agent = this.#node.agent()
    await this.#agent.ready(60_000)
    this.#frozen = undefined
    for (const slot of this.slots) slot.isUnseen = false
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    this.#frozen = this.#now()
    await this.#agent?.stop(signal)
    this.#agent = undefined
  }

  #call(command: 'ADD' | 'DEL', slot: Slot) {
    const { dir, ns } = this.#node
    const conf = {
      cniVersion: '1.1.0',
      name: `pods-${slot.type}`,
      type: slot.type,
      ...(slot.type === 'bridge' ? { bridge: 'br0', isGateway: true } : { routed: this.#serial % 2 === 0 }),
      ipam: {
        type: 'host-local',
        dataDir: join(dir, 'networks'),
        ranges: RANGES[slot.type],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
      },
      policy: { socket: join(dir, 'policy.sock'), whenAway: 'closed', timeout: 1 },
    }
    const netns = namespaceAt(slot.netns, slot.name)
    return plugin(
      slot.type,
      {
        command,
        conf,
        containerId: `${slot.name}${this.#serial}`,
        netns,
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=${slot.name}`,
      },
      ns,
    )
  }

  #ids = new Map<Slot, number>()

  async add(slot: Slot, type: Type): Promise<void> {
    const isFull = this.slots.filter((one) => one.ips.length > 0 && one.type === type).length >= MOST
    slot.type = isFull ? (type === 'ptp' ? 'bridge' : 'ptp') : type
    this.#ids.set(slot, ++this.#serial)
    const { status, stdout, stderr, result } = await this.#call('ADD', slot)
    assert.equal(status, 0, `${stdout}${stderr}`)
    slot.ips = result['ips'].map(({ address }: Row) => address.split('/')[0])
    slot.isUnseen = this.isAway
  }

  async del(slot: Slot): Promise<void> {
    const last = this.#serial
    this.#serial = this.#ids.get(slot) as number
    const { status, stdout, stderr } = await this.#call('DEL', slot)
    this.#serial = last
    assert.equal(status, 0, `${stdout}${stderr}`)
    slot.ips = []
  }

  async flow(from: Slot, ip: Ip, protocol: 'TCP' | 'UDP'): Promise<void> {
    const own = this.#flows.filter((one) => one.from === from).length
    const flow: Flow = { id: `flow${this.#flowCount++}`, from, ip, protocol, whole: undefined }
    flow.whole = this.#allows(from, ip, protocol) ? this.#ends(flow) : undefined
    this.#flows.push(flow)
    // The pods use the same ports, so that the next owner of an address sends from the ports of the former one.
    await from.prober.ask({ flow: flow.id, ip, protocol, port: 5000 + own })
  }

  async stop(flow: Flow): Promise<void> {
    this.#flows = this.#flows.filter((one) => one !== flow)
    await flow.from.prober.ask({ stop: flow.id })
  }

  async stopAll(from?: Slot): Promise<void> {
    for (const flow of this.#flows.filter((one) => from === undefined || one.from === from)) await this.stop(flow)
  }

  ownerOf(ip: Ip): Slot | undefined {
    return this.slots.find(({ ips }) => ips.includes(ip))
  }

  #ends({ from, ip }: Flow): string {
    return `${this.#ids.get(from)} ${this.#ids.get(this.ownerOf(ip) as Slot)}`
  }

  #isOpen(slot: Slot): boolean {
    return (
      slot.ips.length > 0 &&
      !slot.isUnseen &&
      (this.#frozen ? this.#frozen.pods.some(({ name }) => name === slot.name) : slot.labels !== undefined)
    )
  }

  // Whether a new connection from a pod to an address passes, by the oracle.
  #allows(from: Slot, ip: Ip, protocol: 'TCP' | 'UDP'): boolean {
    const to = this.ownerOf(ip)
    if (!to || !this.#isOpen(from) || !this.#isOpen(to)) return false
    const objects = this.#frozen ?? this.#now()
    const pod = (slot: Slot) => objects.pods.find(({ name }) => name === slot.name) as Pod
    const source = from.ips.find((one) => one.includes(':') === ip.includes(':')) as Ip
    return decide(objects, { from: pod(from), to: pod(to), source, destination: ip, protocol, port: 80 }).passes
  }

  /**
   * Compares every pair and every flow with the oracle. After a step that changed no object (`isStrict`) not one
   * refused probe may have an answer. After another step the agent gets time to have the change. Gives what is wrong.
   */
  async check(isStrict: boolean): Promise<string | undefined> {
    const living = this.slots.filter(({ ips }) => ips.length > 0)
    const probes = living.flatMap((from) =>
      living.flatMap((to) =>
        from === to
          ? []
          : to.ips.flatMap((ip) =>
              PROTOCOLS.map((protocol) => ({ from, to, ip, protocol, passes: this.#allows(from, ip, protocol) })),
            ),
      ),
    )
    const began = performance.now()
    for (let ms = PROBE_MS; ; ms = Math.min(1000, ms * 2)) {
      const wrong: string[] = []
      await Promise.all(
        living.map(async (from) => {
          const own = probes.filter((one) => one.from === from)
          const answers = await from.prober.ask<boolean[]>({ probes: own, ms })
          for (const [i, { to, ip, protocol, passes }] of own.entries())
            if (answers[i] !== passes)
              wrong.push(
                `${protocol} from ${from.name} (${from.ips}) to ${to.name} (${ip}) ${passes ? 'does not pass' : 'passes'}`,
              )
        }),
      )
      if (wrong.length === 0) break
      const after = `${Math.round(performance.now() - began)} ms after the step`
      const leaks = wrong.filter((one) => one.endsWith(' passes'))
      if (isStrict && leaks.length > 0) return `a leak, ${after}: ${leaks.join('; ')}`
      if (performance.now() - began > LATE_MS) return `${after}: ${wrong.join('; ')}`
    }
    return this.#checkFlows(isStrict)
  }

  async #came(flow: Flow): Promise<number> {
    const to = this.ownerOf(flow.ip)
    return to ? ((await to.prober.ask<Record<string, number>>({ tell: true }))[flow.id] ?? 0) : 0
  }

  async #checkFlows(isStrict: boolean): Promise<string | undefined> {
    const flows = this.#flows.filter(({ from, ip }) => this.ownerOf(ip) !== from && this.ownerOf(ip) !== undefined)
    const refused = flows.filter(({ from, ip, protocol }) => !this.#allows(from, ip, protocol))
    for (const one of this.#flows) if (refused.includes(one) || this.#ends(one) !== one.whole) one.whole = undefined
    // The agent ends the connections that a policy closes after the policy is in the kernel.
    for (const end = performance.now() + (isStrict ? 0 : LATE_MS); ; ) {
      const loud = await this.#loud(refused)
      if (loud === undefined) break
      if (performance.now() >= end) return loud
    }
    for (const one of flows) {
      // A TCP connection that was refused once may be given up by its ends.
      if (refused.includes(one) || (one.protocol === 'TCP' && one.whole === undefined)) continue
      const first = await this.#came(one)
      for (const end = performance.now() + LATE_MS; (await this.#came(one)) === first; await Bun.sleep(20))
        if (performance.now() > end)
          return `the allowed ${one.protocol} flow ${one.id} from ${one.from.name} to ${this.ownerOf(one.ip)?.name} (${one.ip}) stands still`
    }
    return undefined
  }

  // A message of these flows that comes while they must be silent.
  async #loud(flows: readonly Flow[]): Promise<string | undefined> {
    const before = await Promise.all(flows.map((one) => this.#came(one)))
    await Bun.sleep(SILENT_MS)
    for (const [i, one] of flows.entries()) {
      const now = await this.#came(one)
      if (now !== before[i])
        return `${now - (before[i] as number)} messages of the refused ${one.protocol} flow ${one.id} from ${one.from.name} (${one.from.ips}) to ${this.ownerOf(one.ip)?.name} (${one.ip})`
    }
    return undefined
  }

  /** Ends everything of a history, so that the next one begins like the first. */
  async clear(): Promise<void> {
    await this.stopAll()
    if (this.isAway) await this.start()
    for (const slot of this.slots) {
      if (slot.ips.length > 0) await this.del(slot)
      this.object(slot, undefined)
    }
    for (const name of this.policies) this.policy(name, undefined)
    this.steps = []
  }

  /** The table of the policies, and what the agent has said at last. */
  async told(): Promise<string> {
    const { stdout } = await this.#node.ns.exec([
      'sh',
      '-c',
      'nft list table inet plumb_policy; nft list table inet plumb_guard; nft list table bridge plumb_guard; conntrack -L; conntrack -L -f ipv6',
    ])
    return `${stdout}\n${this.#agent?.log().split('\n').slice(-10).join('\n') ?? 'no agent'}`
  }
}

/** A step of a history: what it does, in words, and whether it leaves the objects that the agent knows as they are. */
interface Step {
  readonly text: string
  readonly isStrict: boolean
  work(): Promise<void> | void
}

function labelsOf(random: Numbers, name: string): Record<string, string> {
  return { app: name, tier: `${random(2)}` }
}

function specOf(random: Numbers): object {
  const one = NAMES[random(NAMES.length)] as string
  const selectors = [{}, { matchLabels: { app: one } }, { matchLabels: { tier: `${random(2)}` } }]
  const range = [...RANGES.bridge, ...RANGES.ptp][random(4)]?.[0]
  const peers = [
    { podSelector: selectors[random(3)] },
    { podSelector: selectors[random(3)] },
    { ipBlock: { cidr: `${range?.rangeStart}/${range?.rangeStart.includes(':') ? 128 : 32}` } },
    { ipBlock: { cidr: range?.subnet } },
  ]
  const rule = (key: 'from' | 'to') => [
    {
      [key]: [peers[random(4)]],
      ...(random(4) === 0 && { ports: [{ port: random(2) === 0 ? 80 : 81, protocol: PROTOCOLS[random(2)] }] }),
    },
  ]
  const [ingress, egress] = [random(3) === 0 ? [] : rule('from'), random(3) === 0 ? [] : rule('to')]
  const types = [['Ingress'], ['Egress'], ['Ingress', 'Egress']][random(3)] as string[]
  return {
    podSelector: selectors[random(3)],
    policyTypes: types,
    ...(types.includes('Ingress') && { ingress }),
    ...(types.includes('Egress') && { egress }),
  }
}

function stepOf(fixture: Fixture, random: Numbers): Step {
  const pick = <T>(all: readonly T[]) => all[random(all.length)] as T
  for (;;) {
    const slot = pick(fixture.slots)
    const kind = random(20)
    if (kind < 6) {
      if (slot.ips.length > 0) {
        const [stays, former] = [random(3) === 0, slot.ips]
        return {
          text: `DEL of ${slot.name} (${former})${stays ? ', its object stays' : ''}`,
          isStrict: true,
          async work() {
            await fixture.del(slot)
            // The object keeps the addresses that it had.
            if (!stays) fixture.object(slot, undefined)
          },
        }
      }
      const [type, isLate, labels] = [pick(['bridge', 'ptp'] as const), random(5) === 0, labelsOf(random, slot.name)]
      return {
        text: `ADD of ${slot.name} by ${type}${isLate ? ', without its object' : ''}`,
        isStrict: isLate && slot.labels === undefined,
        async work() {
          if (!isLate) fixture.object(slot, labels)
          else if (slot.labels) fixture.object(slot, undefined)
          await fixture.add(slot, type)
        },
      }
    }
    if (kind < 8 && slot.ips.length > 0) {
      if (slot.labels && random(2) === 0)
        return { text: `status of ${slot.name}`, isStrict: true, work: () => fixture.status(slot) }
      const labels = slot.labels && random(4) === 0 ? undefined : labelsOf(random, slot.name)
      return {
        text: `labels of ${slot.name}: ${JSON.stringify(labels)}`,
        isStrict: fixture.isAway,
        work: () => fixture.object(slot, labels),
      }
    }
    if (kind < 11) {
      const name = `policy${random(3)}`
      const spec = fixture.policies.includes(name) && random(2) === 0 ? undefined : specOf(random)
      return {
        text: `${name}: ${JSON.stringify(spec)}`,
        isStrict: fixture.isAway,
        work: () => fixture.policy(name, spec),
      }
    }
    if (kind < 16) {
      const other = pick(fixture.slots)
      if (slot === other || slot.ips.length === 0 || other.ips.length === 0) continue
      const [ip, protocol] = [pick(other.ips), pick(PROTOCOLS)]
      if (fixture.flows.length > 6)
        return {
          text: `no more of ${fixture.flows[0]?.id}`,
          isStrict: true,
          work: () => fixture.stop(fixture.flows[0] as Flow),
        }
      return {
        text: `${protocol} flow from ${slot.name} (${slot.ips}) to ${other.name} (${ip})`,
        isStrict: true,
        work: () => fixture.flow(slot, ip, protocol),
      }
    }
    if (kind < 20 && fixture.isAway) return { text: 'the agent starts', isStrict: false, work: () => fixture.start() }
    const signal = pick(['SIGKILL', 'SIGTERM'] as const)
    const again = random(2) === 0
    return {
      text: again ? `${signal}, and the agent starts again` : signal,
      isStrict: true,
      async work() {
        await fixture.kill(signal)
        if (again) await fixture.start()
      },
    }
  }
}

async function play(fixture: Fixture, seed: number): Promise<Played> {
  const began = performance.now()
  const random = randoms(seed)
  // A history begins with two pods.
  for (const slot of fixture.slots.slice(0, 2)) {
    fixture.object(slot, labelsOf(random, slot.name))
    await fixture.add(slot, random(2) === 0 ? 'ptp' : 'bridge')
  }
  let failure = await fixture.check(false)
  let steps = 0
  for (; failure === undefined && steps < STEPS; steps++) {
    const step = stepOf(fixture, random)
    fixture.steps.push(step.text)
    await step.work()
    failure = await fixture.check(step.isStrict)
  }
  const ms = Math.round(performance.now() - began)
  if (failure === undefined) {
    await fixture.clear()
    return { seed, steps, ms }
  }
  return {
    seed,
    steps,
    ms,
    failure: `history ${seed}:\n  ${fixture.steps.join('\n  ')}\n${failure}\n${await fixture.told()}`,
  }
}

// mulberry32
function randoms(seed: number): Numbers {
  let state = Math.imul(seed + 1, 0x9e3779b1)
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

async function histories(cluster: Cluster, first: number, count: number, ms: number): Promise<void> {
  const node = cluster.nodes[0] as Node
  const unique = node.ns.path.slice(node.ns.path.lastIndexOf('/') + 1)
  const names = NAMES.map((name) => ({ name, netns: `${unique}-${name}` }))
  const setup = [
    'sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1',
    'ip link add br0 type bridge',
    'sysctl -qw net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1',
    ...names.flatMap(({ netns }) => [`ip netns add ${netns}`, `ip -n ${netns} link set lo up`]),
  ]
  const made = await node.ns.exec(['sh', '-ec', setup.join('\n')])
  assert.equal(made.status, 0, made.stderr)
  const slots = names.map(
    (one): Slot => ({
      ...one,
      prober: startProber(one.netns),
      type: 'ptp',
      ips: [],
      labels: undefined,
      isUnseen: false,
    }),
  )
  try {
    await Promise.all(slots.map(({ prober }) => prober.ready()))
    const fixture = new Fixture(node, join(cluster.dir, 'manifests'), slots)
    await fixture.start()
    const end = performance.now() + ms
    for (let seed = first; seed < first + count && performance.now() < end; seed++) {
      const played = await play(fixture, seed)
      process.stdout.write(`${JSON.stringify(played)}\n`)
      if (played.failure !== undefined) return
    }
    await fixture.kill('SIGTERM')
  } finally {
    await Promise.all(slots.map(({ prober }) => prober.end()))
    await node.ns.exec(['sh', '-c', names.map(({ netns }) => `ip netns delete ${netns}`).join('\n')])
  }
}

if (import.meta.main) {
  const [first = 1, count = 1, ms = 0] = process.argv.slice(2).map(Number)
  const options = (cluster: Cluster) => {
    mkdirSync(join(cluster.dir, 'manifests'), { recursive: true })
    return [...fileStore(cluster, CONF), `--network-policy=${join(cluster.dir, 'manifests')}`]
  }
  // The namespaces are those of a test, and there is no test to give to it.
  await inCluster(1, options, (cluster) => histories(cluster, first, count, ms)).call({} as Mocha.Context)
  process.exit(0)
}
