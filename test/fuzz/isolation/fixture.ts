// A node of the isolation histories: its agent, four pods that come and go, a host outside, a Service, and the flows
// between all of them. `check` compares what passes with the oracle.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Pod } from '../../../agent/cluster/objects.ts'
import { decide, type Objects } from '../../../agent/policy/oracle.ts'
import type { Ip } from '../../../lib/text/ip.ts'
import { type Namespace, namespaceAt, plugin, type Row } from '../../support/harness.ts'
import { linesOf } from '../../support/lines.ts'
import { type Agent, type Node, UNDERLAY } from '../../support/nodes.ts'
import { type RawFrame, TAGGED } from '../../support/raw-frames.ts'
import type { Order, Probe } from './end.ts'
import { type Draft, type Known, objectsOf, ofKind, type World } from './world.ts'

export const NAMES = ['a', 'b', 'c', 'd'] as const
/** The namespace of each pod. */
const SPACES = { a: 'x', b: 'x', c: 'y', d: 'y' } as const
export const PROTOCOLS = ['TCP', 'UDP'] as const
export type Protocol = (typeof PROTOCOLS)[number]
/** Two more addresses than a type of link has pods at most: the next pod soon gets the address of a former one. */
const MOST = 2
export const RANGES = {
  bridge: [
    [{ subnet: '10.244.1.0/24', rangeStart: '10.244.1.2', rangeEnd: '10.244.1.4' }],
    [{ subnet: 'fd00:61::/64', rangeStart: 'fd00:61::2', rangeEnd: 'fd00:61::4', gateway: 'fd00:61::1' }],
  ],
  ptp: [
    [{ subnet: '10.62.0.0/24', rangeStart: '10.62.0.2', rangeEnd: '10.62.0.4' }],
    [{ subnet: 'fd00:62::/64', rangeStart: 'fd00:62::2', rangeEnd: 'fd00:62::4' }],
  ],
} as const
export type Type = keyof typeof RANGES
/** The host outside, on the underlay. It is a Node of the cluster, too. */
export const OUTSIDE = { 4: '172.30.0.253', 6: 'fd00:30::253' } as const
const NODE = { 4: UNDERLAY.v4(1), 6: UNDERLAY.v6(1) } as const
const VIP = { 4: '10.96.0.10', 6: 'fd00:96::10' } as const
const NODE_PORT = 30_080
/**
 * How long the kernel may take to have what a step changed, and an allowed probe or flow to come through, on a busy
 * machine.
 */
const LATE_MS = 30_000
const PROBE_MS = 120
/** A refused flow is silent for so long. Ten of its messages were sent. */
const SILENT_MS = 100
const [HTTP, FIXED] = [80, 7946] as const

/** Who sends and answers: a pod, the node itself, or the host outside. */
export interface End {
  readonly name: string
  readonly prober: Prober
  /** Its addresses. A pod has them while it has an attachment. */
  ips: readonly Ip[]
  /** Another one with every attachment. */
  serial: number
}
export interface Slot extends End {
  readonly name: (typeof NAMES)[number]
  readonly netns: string
  readonly namespace: string
  type: Type
  /** The UID that ADD was told. */
  uid: string
  /** The labels of its object in the API. The object may stay after its pod. */
  labels: Readonly<Record<string, string>> | undefined
  /** ADD came while the agent was away. */
  isUnseen: boolean
}

/** Where a flow goes: an address, or the Service by its address or a node port. */
export type Target = { readonly ip: Ip } | { readonly service: 'address' | 'port'; readonly family: 4 | 6 }
export interface Flow {
  readonly id: string
  readonly from: End
  readonly target: Target
  readonly protocol: Protocol
  readonly sport: number
  readonly dport: number
  /** Of TCP: the two ends that it was made between, as long as nothing has refused it. */
  whole: string | undefined
}

/**
 * What a conversation may be in the kernel: nothing, or a connection that one of the two ends began. Without knowing it,
 * several are possible.
 */
type Began = 'none' | 'client' | 'server'

type Prober = ReturnType<typeof startProber>
interface Told {
  readonly came: Readonly<Record<string, number>>
  readonly backs: Readonly<Record<string, string>>
}

/** Starts an end's process in a namespace. */
export function startProber(way: readonly string[]) {
  const child = Bun.spawn([...way, process.execPath, join(import.meta.dir, 'end.ts')], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const lines = linesOf(child.stdout)
  const next = async () => (await lines.next()).value as string
  let last: Promise<unknown> = Promise.resolve()
  const ask = async <T>(order: Order): Promise<T> => {
    child.stdin.write(`${JSON.stringify(order)}\n`)
    child.stdin.flush()
    return JSON.parse(await next()) as T
  }
  return {
    ready: async () => assert.equal(await next(), 'ready'),
    // Answers come in the order of the questions.
    ask<T>(order: Order): Promise<T> {
      const answer = last.then(() => ask<T>(order))
      last = answer.catch(() => {})
      return answer
    },
    async end() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}

export function slotOf(name: (typeof NAMES)[number], netns: string): Slot {
  return {
    name,
    netns,
    prober: startProber(['ip', 'netns', 'exec', netns]),
    namespace: SPACES[name],
    type: 'ptp',
    uid: '',
    ips: [],
    serial: 0,
    labels: undefined,
    isUnseen: false,
  }
}

const familyOf = (ip: Ip) => (ip.includes(':') ? 6 : 4)
const ofFamily = ({ ips }: End, family: 4 | 6) => ips.find((one) => familyOf(one) === family)

/** A node with its agent, and four pods that come and go. */
export class Fixture {
  readonly world: World
  readonly slots: readonly Slot[]
  readonly node: End
  readonly outside: End
  readonly #node: Node
  #agent: Agent | undefined
  /** What the agent knew when it ended. */
  #frozen: Known | undefined
  /** What a pod has claimed in the last step. */
  #claimed: { readonly mac: string; readonly target: string | undefined } | undefined
  #flows: Flow[] = []
  #flowCount = 0
  #serial = 0
  #conversations = new Map<string, ReadonlySet<Began>>()
  /** What the Service leads to. */
  #backend: Slot | undefined
  /** The steps of this history. */
  steps: string[] = []

  constructor(node: Node, world: World, slots: readonly Slot[], own: Prober, outside: Prober) {
    this.#node = node
    this.world = world
    this.slots = slots
    this.node = { name: 'the node', prober: own, ips: [NODE[4], NODE[6]] as Ip[], serial: 0 }
    this.outside = { name: 'the outside', prober: outside, ips: [OUTSIDE[4], OUTSIDE[6]] as Ip[], serial: 0 }
  }

  get isAway(): boolean {
    return this.#agent === undefined
  }

  /** The agent learns nothing of what changes now. */
  get isBlind(): boolean {
    return this.isAway || this.world.isLate
  }

  get flows(): readonly Flow[] {
    return this.#flows
  }

  get ends(): readonly End[] {
    return [...this.slots, this.node, this.outside]
  }

  get living(): readonly Slot[] {
    return this.slots.filter(({ ips }) => ips.length > 0)
  }

  get #known(): Known {
    return this.#frozen ?? this.world.known()
  }

  /** Writes a pod's object with these labels, or removes it. It has the pod's addresses, as the kubelet writes them. */
  object(slot: Slot, labels: Slot['labels'], uid = slot.uid): void {
    slot.labels = labels
    const { namespace, name, ips } = slot
    this.world.put(
      'Pod',
      { namespace, name, labels, uid },
      labels && {
        spec: { nodeName: this.#node.name, containers: [] },
        status: { phase: 'Running', podIPs: ips.map((ip) => ({ ip })) },
      },
    )
  }

  /** Points the Service at a pod. */
  point(slot: Slot | undefined): void {
    this.#backend = slot
    this.service()
  }

  /** Writes the endpoints of the Service as they are now. */
  service(): void {
    const slot = this.#backend
    for (const family of [4, 6] as const) {
      const ip = slot && ofFamily(slot, family)
      this.world.put(
        'EndpointSlice',
        { namespace: 'x', name: `svc-${family}`, labels: { 'kubernetes.io/service-name': 'svc' } },
        {
          addressType: `IPv${family}`,
          ports: PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: HTTP })),
          endpoints: ip
            ? [{ addresses: [ip], nodeName: this.#node.name, conditions: { ready: true, serving: true } }]
            : [],
        },
      )
    }
  }

  /** What is there in every history. */
  furnish(): void {
    for (const name of ['x', 'y']) this.world.put('Namespace', { name, labels: { team: name } }, {})
    for (const [name, at] of [
      [this.#node.name, NODE],
      ['outside', OUTSIDE],
    ] as const)
      this.world.put(
        'Node',
        { name, labels: { zone: name } },
        { spec: {}, status: { addresses: [4, 6].map((f) => ({ type: 'InternalIP', address: at[f as 4 | 6] })) } },
      )
    // A pod on the node's network matches no policy.
    this.world.put(
      'Pod',
      { namespace: 'x', name: 'host', labels: { app: 'a', tier: '0' } },
      {
        spec: { nodeName: this.#node.name, hostNetwork: true, containers: [] },
        status: { phase: 'Running', podIPs: [{ ip: NODE[4] }, { ip: NODE[6] }] },
      },
    )
    this.world.put(
      'Service',
      { namespace: 'x', name: 'svc' },
      {
        spec: {
          type: 'NodePort',
          clusterIP: VIP[4],
          clusterIPs: [VIP[4], VIP[6]],
          ipFamilies: ['IPv4', 'IPv6'],
          ports: PROTOCOLS.map((protocol) => ({
            name: protocol.toLowerCase(),
            protocol,
            port: HTTP,
            targetPort: HTTP,
            nodePort: NODE_PORT,
          })),
        },
      },
    )
    this.service()
  }

  async start(): Promise<void> {
    this.#agent = this.#node.agent()
    await this.#agent.ready(60_000)
    this.#frozen = undefined
    for (const slot of this.slots) slot.isUnseen = false
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    this.#frozen = this.world.known()
    await this.#agent?.stop(signal)
    this.#agent = undefined
  }

  /** What another program does to the node's rules, and the agent repairs. */
  async nft(command: string): Promise<void> {
    await this.#node.ns.exec(['nft', command])
    // Meanwhile each packet may have begun a connection.
    for (const [key, began] of this.#conversations)
      if (began.has('none')) this.#conversations.set(key, new Set<Began>([...began, 'client', 'server']))
  }

  /**
   * What an hour does to rules: elements with a time go that no packet has extended. The elements of plumb's own sets
   * are only extended by rules that say so.
   */
  async hour(): Promise<void> {
    const { stdout } = await this.#node.ns.exec(['nft', '-j', 'list', 'sets'])
    const sets = (JSON.parse(stdout).nftables as Row[]).flatMap(({ set }) =>
      set?.flags?.includes('timeout') && set.table === 'plumb_policy' ? [set] : [],
    )
    for (const { family, table, name } of sets)
      await this.#node.ns.exec(['nft', `flush set ${family} ${table} ${name}`])
  }

  #call(command: 'ADD' | 'DEL', slot: Slot) {
    const { dir, ns } = this.#node
    const conf = {
      cniVersion: '1.1.0',
      name: `pods-${slot.type}`,
      type: slot.type,
      ...(slot.type === 'bridge'
        ? { bridge: 'br0', isGateway: true, hairpinMode: true }
        : { routed: slot.serial % 2 === 0 }),
      ipam: {
        type: 'host-local',
        dataDir: join(dir, 'networks'),
        ranges: RANGES[slot.type],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
      },
      policy: { socket: join(dir, 'policy.sock'), whenAway: 'closed', timeout: 1 },
    }
    const { namespace, name, uid, serial } = slot
    const pod = `K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name};K8S_POD_UID=${uid}`
    return plugin(
      slot.type,
      {
        command,
        conf,
        containerId: `${name}${serial}`,
        netns: namespaceAt(slot.netns, name),
        args: `IgnoreUnknown=1;${pod}`,
      },
      ns,
    )
  }

  async add(slot: Slot, type: Type): Promise<void> {
    const isFull = this.living.filter((one) => one.type === type).length >= MOST
    slot.type = isFull ? (type === 'ptp' ? 'bridge' : 'ptp') : type
    slot.serial = ++this.#serial
    const { status, stdout, stderr, result } = await this.#call('ADD', slot)
    assert.equal(status, 0, `${stdout}${stderr}`)
    slot.ips = result['ips'].map(({ address }: Row) => address.split('/')[0])
    slot.isUnseen = this.isAway
    if (this.#backend === slot) this.service()
  }

  async del(slot: Slot): Promise<void> {
    await slot.prober.ask({ hush: true })
    const { status, stdout, stderr } = await this.#call('DEL', slot)
    assert.equal(status, 0, `${stdout}${stderr}`)
    slot.ips = []
    if (this.#backend === slot) this.service()
  }

  /** A UID that no pod has had. */
  newUid(): string {
    return `00000000-0000-0000-0000-${String(++this.#serial).padStart(12, '0')}`
  }

  /** Whether a flow can be made that no other one has the addresses and ports of. */
  canFlow(from: End, target: Target, protocol: Protocol, isFixed: boolean): boolean {
    const { sport, dport } = this.#ports(from, protocol, isFixed)
    if ('service' in target && isFixed) return false
    const to = this.#destination(target)
    const isSame = (one: Flow) =>
      (one.from === from && one.sport === sport && one.dport === dport && this.#destination(one.target) === to) ||
      (isFixed && one.dport === FIXED && to !== undefined && one.from === this.ownerOf(to))
    return protocol === 'TCP' || !this.#flows.some((one) => one.protocol === 'UDP' && isSame(one))
  }

  #ports(from: End, protocol: Protocol, isFixed: boolean) {
    const own = this.#flows.filter((one) => one.from === from && one.protocol === 'UDP').length
    const isPeers = isFixed && protocol === 'UDP'
    return { sport: isPeers ? FIXED : 5000 + (own % 4), dport: isPeers ? FIXED : HTTP }
  }

  async flow(from: End, target: Target, protocol: Protocol, isFixed: boolean): Promise<void> {
    const id = `flow${this.#flowCount++}`
    const flow: Flow = { id, from, target, protocol, ...this.#ports(from, protocol, isFixed), whole: undefined }
    flow.whole = this.#passes(flow) ? this.#keyOf(flow) : undefined
    this.#flows.push(flow)
    const { ip, port } = this.#wire(flow)
    await from.prober.ask({ flow: id, ip, protocol, port, from: flow.sport })
  }

  #wire({ target, dport }: Pick<Flow, 'target' | 'dport'>): { readonly ip: string; readonly port: number } {
    if ('ip' in target) return { ip: target.ip, port: dport }
    return target.service === 'address'
      ? { ip: VIP[target.family], port: HTTP }
      : { ip: NODE[target.family], port: NODE_PORT }
  }

  async stop(flow: Flow): Promise<void> {
    this.#flows = this.#flows.filter((one) => one !== flow)
    const key = this.#keyOf(flow)
    if (key !== undefined && this.#conversations.has(key))
      this.#conversations.set(key, new Set<Began>([...(this.#conversations.get(key) ?? []), 'none']))
    for (const { prober } of this.ends) await prober.ask({ stop: flow.id })
  }

  async stopAll(): Promise<void> {
    for (const flow of [...this.#flows]) await this.stop(flow)
  }

  ownerOf(ip: Ip): End | undefined {
    return this.ends.find(({ ips }) => ips.includes(ip))
  }

  // Where packets for a target go, as far as the agent knows. Undefined when it leads nowhere.
  #destination(target: Target): Ip | undefined {
    if ('ip' in target) return target.ip
    const slice = ofKind(this.#known, 'EndpointSlice').find(({ metadata }) => metadata.name === `svc-${target.family}`)
    return (slice?.['endpoints'] as Row[] | undefined)?.[0]?.['addresses'][0]
  }

  #podOf(known: Known, slot: Slot): Draft | undefined {
    const found = ofKind(known, 'Pod').find(
      ({ metadata: { namespace, name } }) => namespace === slot.namespace && name === slot.name,
    )
    return found?.metadata['uid'] === slot.uid ? found : undefined
  }

  #isOpen(slot: Slot): boolean {
    return slot.ips.length > 0 && !slot.isUnseen && this.#podOf(this.#known, slot) !== undefined
  }

  #isSlot(end: End): end is Slot {
    return 'netns' in end
  }

  // What the agent knows. An object without an attachment counts for nothing.
  #objects(): Objects {
    const known = this.#known
    const ips = (pod: Draft) => {
      const slot = this.slots.find(
        ({ namespace, name }) => namespace === pod.metadata.namespace && name === pod.metadata.name,
      )
      return slot && this.#podOf(known, slot) ? slot.ips : []
    }
    return objectsOf(known, ips)
  }

  /** Whether a new connection from an end to an address passes, by the oracle. */
  #allows(from: End, ip: Ip, protocol: Protocol, port: number): boolean {
    const to = this.ownerOf(ip)
    if (!to || from.ips.length === 0) return false
    // The node reaches its own pods.
    if (from === this.node) return true
    if ([from, to].some((end) => this.#isSlot(end) && !this.#isOpen(end))) return false
    const objects = this.#objects()
    const source = ofFamily(from, familyOf(ip)) as Ip
    const end = (one: End, address: Ip) =>
      this.#isSlot(one)
        ? (objects.pods.find(({ namespace, name }) => namespace === one.namespace && name === one.name) as Pod)
        : { ip: address }
    const ends = { from: end(from, source), to: end(to, ip), source, destination: ip }
    return decide(objects, { ...ends, protocol, port, isHairpin: from === to }).passes
  }

  #passes({ from, target, protocol, dport }: Pick<Flow, 'from' | 'target' | 'protocol' | 'dport'>): boolean {
    const ip = this.#destination(target)
    return ip !== undefined && this.#allows(from, ip, protocol, dport)
  }

  #probes(from: End): { readonly probe: Probe; readonly passes: boolean; readonly text: string }[] {
    const targets: Target[] = [
      ...this.ends.flatMap((to) =>
        from === to || (!this.#isSlot(from) && !this.#isSlot(to)) ? [] : to.ips.map((ip) => ({ ip })),
      ),
      ...([4, 6] as const).flatMap((family): Target[] => {
        const target = { service: from === this.outside ? ('port' as const) : ('address' as const), family }
        return from.ips.length > 0 && this.#destination(target) ? [target] : []
      }),
    ]
    return targets.flatMap((target) =>
      PROTOCOLS.map((protocol) => ({
        probe: { ...this.#wire({ target, dport: HTTP }), protocol },
        passes: this.#passes({ from, target, protocol, dport: HTTP }),
        text: `${protocol} from ${from.name} (${from.ips}) to ${this.#nameOf(target)}`,
      })),
    )
  }

  #nameOf(target: Target): string {
    const ip = this.#destination(target)
    const where = `${ip && this.ownerOf(ip)?.name} (${ip})`
    return 'ip' in target ? where : `${where} by ${target.service} of the Service`
  }

  /**
   * Compares every pair and every flow with the oracle. After a step that changed nothing that the agent knows
   * (`isStrict`) not one refused probe may have an answer. After another step the agent gets time to have the change.
   * Gives what is wrong.
   */
  async check(isStrict: boolean): Promise<string | undefined> {
    const began = performance.now()
    for (let ms = PROBE_MS; ; ms = Math.min(1000, ms * 2)) {
      const wrong: string[] = []
      await Promise.all(
        this.ends.map(async (from) => {
          const own = this.#probes(from)
          if (own.length === 0) return
          const answers = await from.prober.ask<boolean[]>({ probes: own.map(({ probe }) => probe), ms })
          for (const [i, { passes, text }] of own.entries())
            if (answers[i] !== passes) wrong.push(`${text} ${passes ? 'does not pass' : 'passes'}`)
        }),
      )
      wrong.push(...(await this.#believers()), ...(await this.#rawFrames()))
      if (wrong.length === 0) break
      const after = `${Math.round(performance.now() - began)} ms after the step`
      const leaks = wrong.filter((one) => one.endsWith(' passes'))
      if (isStrict && leaks.length > 0) return `a leak, ${after}: ${leaks.join('; ')}`
      if (performance.now() - began > LATE_MS) return `${after}: ${wrong.join('; ')}`
    }
    return this.#checkFlows(isStrict)
  }

  // Frames with tags, and packets from addresses of others, between neighbours of the bridge: none may bring what a plain
  // packet may not.
  async #rawFrames(): Promise<string[]> {
    const ports = this.living.filter(({ type, isUnseen }) => type === 'bridge' && !isUnseen)
    const wrong: string[] = []
    for (const from of ports)
      for (const to of ports) {
        if (from === to) continue
        const mac = await this.#macOf(to)
        const frames = to.ips.flatMap((ip): RawFrame[] => {
          const source = ofFamily(from, familyOf(ip)) as Ip
          const forged = familyOf(ip) === 4 ? '10.244.1.99' : 'fd00:61::99'
          const kinds = TAGGED.map((kind) => ({ kind, source }))
          const all = [
            ...(this.#allows(from, ip, 'UDP', HTTP) ? [] : kinds),
            { kind: 'forged source' as const, source: forged },
          ]
          return all.map((one) => ({ ...one, ip, mac, text: `raw${++this.#serial}` }))
        })
        await from.prober.ask({ raw: frames })
        await Bun.sleep(5)
        const { came } = await to.prober.ask<Told>({ tell: true })
        for (const { kind, text, ip } of frames)
          if (came[text] !== undefined)
            wrong.push(`UDP with a ${kind} from ${from.name} (${from.ips}) to ${to.name} (${ip}) passes`)
      }
    return wrong
  }

  /** A pod of a bridge tells all neighbours that it has an address, or without one that it is a router. */
  async claim(slot: Slot, target: string | undefined): Promise<void> {
    const [row] = await namespaceAt(slot.netns, slot.name).json('addr', 'show', 'dev', 'eth0')
    const local = row?.['addr_info'].find(({ scope, family }: Row) => scope === 'link' && family === 'inet6')
    if (!local) return
    const kind = target === undefined ? 'router advertisement' : 'neighbour advertisement'
    const frame = { kind, text: target ?? '', source: local['local'], mac: '33:33:00:00:00:01', ip: 'ff02::1' }
    await slot.prober.ask({ raw: [frame] })
    this.#claimed = { mac: row?.['address'], target }
  }

  // Who believes the pod that has just claimed something.
  async #believers(): Promise<string[]> {
    const claimed = this.#claimed
    this.#claimed = undefined
    if (claimed === undefined) return []
    const { mac, target } = claimed
    const others = this.living.filter(({ type }) => type === 'bridge')
    const believing = await Promise.all(
      others.map(async ({ netns, name }) => {
        const { json } = namespaceAt(netns, name)
        const routes = await json('-6', 'route', 'show', 'proto', 'ra')
        const neighbours = await json('-6', 'neigh', 'show', 'dev', 'eth0')
        const isTaken = neighbours.some(({ dst, lladdr }) => dst === target && lladdr === mac)
        return routes.length > 0 || isTaken ? [`what a pod says of ${target ?? 'a router'}, to ${name}, passes`] : []
      }),
    )
    return believing.flat()
  }

  async #macOf(slot: Slot): Promise<string> {
    const [row] = await namespaceAt(slot.netns, slot.name).json('link', 'show', 'dev', 'eth0')
    return row?.['address']
  }

  #keyOf({ from, target, sport, dport, protocol }: Flow): string | undefined {
    const ip = this.#destination(target)
    const to = ip === undefined ? undefined : this.ownerOf(ip)
    if (!to || ip === undefined || from.ips.length === 0) return undefined
    const way = 'ip' in target ? 'direct' : target.service
    return `${way} ${protocol} ${from.name}${from.serial}:${sport} ${to.name}${to.serial} ${ip}:${dport}`
  }

  async #told(): Promise<Map<End, Told>> {
    const all = await Promise.all(
      this.ends.map(async (one) => [one, await one.prober.ask<Told>({ tell: true })] as const),
    )
    return new Map(all)
  }

  // What each flow must do now, in both directions.
  #judge(flow: Flow, told: ReadonlyMap<End, Told>): 'passes' | 'silent' | 'either' {
    const [key, ip] = [this.#keyOf(flow), this.#destination(flow.target)]
    if (key === undefined || ip === undefined) return 'either'
    const { from, sport, protocol } = flow
    const to = this.ownerOf(ip) as End
    const before = this.#conversations.get(key) ?? new Set<Began>(['none'])
    const byClient = this.#passes(flow)
    const back = ofFamily(from, familyOf(ip)) as Ip
    // What the answering side sends on its own goes to the address that it has seen: the node's own, where the node has
    // translated.
    const isHeard = from === this.outside ? 'ip' in flow.target : this.#isSlot(from)
    const talksBack = protocol === 'UDP' && isHeard && this.#isSlot(to) && told.get(to)?.backs[flow.id] !== undefined
    const byServer = talksBack && this.#allows(to, back, 'UDP', sport)
    const began = new Set<Began>(before)
    if (began.has('none') && byClient) began.add('client')
    if (began.has('none') && byServer) began.add('server')
    if (byClient) began.delete('none')
    this.#conversations.set(key, began)
    // Only between two pods are both directions one connection. Elsewhere the addresses differ.
    if (!(this.#isSlot(from) && 'ip' in flow.target)) {
      if (byClient) return 'passes'
      return byServer && !(before.size === 1 && before.has('client')) ? 'either' : 'silent'
    }
    const outcomes = [...before].map((one) => {
      if (one === 'client') return byClient
      return one === 'server' ? byServer : byClient || byServer
    })
    if (outcomes.every((one) => !one)) return 'silent'
    return outcomes.every((one) => one) ? 'passes' : 'either'
  }

  async #checkFlows(isStrict: boolean): Promise<string | undefined> {
    const told = await this.#told()
    // A TCP connection stays with its endpoint, and ends with it.
    for (const one of this.#flows)
      if (one.protocol === 'TCP' && 'service' in one.target && one.whole !== this.#keyOf(one)) await this.stop(one)
    const judged = new Map(this.#flows.map((one) => [one, this.#judge(one, told)]))
    for (const [one, verdict] of judged)
      if (verdict !== 'passes' || this.#keyOf(one) !== one.whole) one.whole = undefined
    const silent = [...judged].flatMap(([one, verdict]) => (verdict === 'silent' ? [one] : []))
    // The agent ends the connections that a policy closes after the policy is in the kernel.
    for (const end = performance.now() + (isStrict ? 0 : LATE_MS); ; ) {
      const loud = await this.#loud(silent)
      if (loud === undefined) break
      if (performance.now() >= end) return loud
    }
    for (const [one, verdict] of judged) {
      // A TCP connection that was refused once may be given up by its ends.
      if (verdict !== 'passes' || (one.protocol === 'TCP' && one.whole === undefined)) continue
      const first = await this.#came(one)
      for (const end = performance.now() + LATE_MS; (await this.#came(one)) === first; await Bun.sleep(20))
        if (performance.now() > end) return `the allowed ${this.#textOf(one)} stands still`
    }
    return undefined
  }

  #textOf(flow: Flow): string {
    const { id, from, target, protocol, sport, dport } = flow
    const key = this.#keyOf(flow)
    const began = key === undefined ? [] : [...(this.#conversations.get(key) ?? [])]
    return `${protocol} flow ${id} from ${from.name} (${from.ips}) port ${sport} to ${this.#nameOf(target)} port ${dport}, begun by ${began.join(' or ')}`
  }

  async #came({ id, target }: Flow): Promise<number> {
    const ip = this.#destination(target)
    const to = ip === undefined ? undefined : this.ownerOf(ip)
    return to ? ((await to.prober.ask<Told>({ tell: true })).came[id] ?? 0) : 0
  }

  // A message of these flows, or an answer to it, that comes while they must be silent.
  async #loud(flows: readonly Flow[]): Promise<string | undefined> {
    const count = async () => {
      const told = await this.#told()
      return flows.map((one) => {
        const ip = this.#destination(one.target)
        const to = ip === undefined ? undefined : this.ownerOf(ip)
        return [(to && told.get(to)?.came[one.id]) ?? 0, told.get(one.from)?.came[`back ${one.id}`] ?? 0] as const
      })
    }
    // On a busy machine an end reads late what came before.
    for (let looks = 0; looks < 2; looks++) await this.#told()
    const before = await count()
    await Bun.sleep(SILENT_MS)
    for (const [i, [there, back]] of (await count()).entries()) {
      const [first, firstBack] = before[i] as readonly [number, number]
      const one = flows[i] as Flow
      if (there !== first) return `${there - first} messages of the refused ${this.#textOf(one)}`
      // What the node sends to its own pods meets no rule.
      const ip = this.#destination(one.target)
      if (back !== firstBack && (ip === undefined || this.ownerOf(ip) !== this.node))
        return `${back - firstBack} messages back of the refused ${this.#textOf(one)}`
    }
    return undefined
  }

  /** Ends everything of a history, so that the next one begins like the first. */
  async clear(): Promise<void> {
    await this.stopAll()
    this.world.release()
    this.world.serve(['v1alpha2'])
    if (this.isAway) await this.start()
    this.point(undefined)
    for (const slot of this.slots) {
      if (slot.ips.length > 0) await this.del(slot)
      this.object(slot, undefined)
    }
    const known = this.world.known()
    for (const kind of ['NetworkPolicy', 'ClusterNetworkPolicy'] as const)
      for (const { metadata } of ofKind(known, kind)) this.world.put(kind, metadata, undefined)
    this.#conversations = new Map()
    this.steps = []
  }

  /** The tables of the policies, the connections, and what the agent has said at last. */
  async told(): Promise<string> {
    const { stdout } = await this.#node.ns.exec([
      'sh',
      '-c',
      'nft list table inet plumb_policy; nft list table inet plumb_guard; nft list table bridge plumb_guard; for f in ipv4 ipv6; do conntrack -L -f $f; done 2>/dev/null | grep -E "sport=(5000|5001|5002|5003|7946)|mark=4096" | head -60',
    ])
    return `${stdout}\n${this.#agent?.log().split('\n').slice(-10).join('\n') ?? 'no agent'}`
  }
}

/** Makes the ways between the host outside and the node. */
export async function lead(hub: Namespace, sh: (script: string) => Promise<unknown>): Promise<void> {
  const space = hub.path.slice(hub.path.lastIndexOf('/') + 1)
  const subnets = Object.values(RANGES).flatMap((ranges) => ranges.map(([{ subnet }]) => subnet))
  await sh(
    [
      `ip link add outside type veth peer name outside0 netns ${space}`,
      `ip -n ${space} link set outside0 master hub0 up`,
      `ip address add ${OUTSIDE[4]}/24 dev outside`,
      `ip address add ${OUTSIDE[6]}/64 dev outside nodad`,
      'ip link set outside up',
      ...subnets.map((one) => `ip route add ${one} via ${NODE[one.includes(':') ? 6 : 4]}`),
    ].join('\n'),
  )
}
