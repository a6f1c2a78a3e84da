// A node of the isolation histories: its agent, four pods that come and go, a host outside, a Service, and the flows
// between all of them. `check` compares what passes with the oracle.
import assert from 'node:assert/strict'
import { copyFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { GUARD } from '../../../../agent/policy/guard.ts'
import type { Ip } from '../../../../lib/text/ip.ts'
import { namespaceAt, plugin, type Row, until } from '../../../support/harness.ts'
import type { Agent, Node } from '../../../support/nodes.ts'
import { patient, SILENT_MS } from '../../../support/patience.ts'
import { type RawFrame, TAGGED } from '../../../support/raw-frames.ts'
import type { Probe } from './end.ts'
import {
  type End,
  FIXED,
  type Flow,
  familyOf,
  HTTP,
  MOST,
  NODE,
  NODE_NAME,
  NODE_PORT,
  OUTSIDE,
  OUTSIDE_NAME,
  ofFamily,
  PROTOCOLS,
  type Prober,
  type Protocol,
  RANGES,
  type Slot,
  type Target,
  type Told,
  type Type,
  VIP,
} from './ends.ts'
import { Expected, isSlot } from './expected.ts'
import { AGENT } from './mode.ts'
import { ofKind, type World } from './world.ts'

/** How long the kernel may take to have what a step changed, and an allowed probe or flow to come through. */
const LATE_MS = 15_000
/** The same for a frame that is sent at once: it arrives before the process that sends it has answered. */
const FRAME_MS = SILENT_MS / 20
/**
 * What a conversation may be in the kernel: nothing, or a connection that one of the two ends began. Without knowing it,
 * several are possible.
 */
type Began = 'none' | 'client' | 'server'

/** While it is there, nft fails (`failingNft`). The path belongs to the worker's own /run. */
const NFT_FAILS = '/run/nft-fails'

/** All that the worker starts gets a program instead of nft that can be made to fail. */
export async function failingNft(): Promise<void> {
  const own = realpathSync('/usr/sbin/nft')
  copyFileSync(own, '/run/nft')
  const script = `#!/bin/sh\n[ -e ${NFT_FAILS} ] && { echo 'Error: nft fails' >&2; exit 1; }\nexec /run/nft "$@"\n`
  writeFileSync('/run/nft-or-not', script, { mode: 0o755 })
  assert.equal(await Bun.spawn(['mount', '--bind', '/run/nft-or-not', own]).exited, 0)
}

/** How the Service leads to its endpoint. */
export interface ServiceOptions {
  readonly isSticky?: boolean
  /** Its slices do not say on which node the endpoint is. */
  readonly isUnplaced?: boolean
}

/** A node with its agent, and four pods that come and go. */
export class Fixture {
  readonly world: World
  readonly slots: readonly Slot[]
  readonly node: End
  readonly outside: End
  readonly #node: Node
  #agent: Agent | undefined
  readonly #expected: Expected
  /** The MAC of each attachment. */
  readonly #macs = new Map<string, string>()
  /** What a pod has claimed in the last step. */
  #claimed: { readonly mac: string; readonly target: string | undefined } | undefined
  #flows: Flow[] = []
  #flowCount = 0
  #serial = 0
  #conversations = new Map<string, ReadonlySet<Began>>()
  /** What the Service leads to: a pod, or a program of the node. */
  #backend: End | undefined
  #options: ServiceOptions = {}
  /** The steps of this history. */
  steps: string[] = []

  constructor(node: Node, world: World, slots: readonly Slot[], own: Prober, outside: Prober) {
    this.#node = node
    this.world = world
    this.slots = slots
    this.node = { name: NODE_NAME, prober: own, ips: [NODE[4], NODE[6]] as Ip[], serial: 0 }
    this.outside = { name: OUTSIDE_NAME, prober: outside, ips: [OUTSIDE[4], OUTSIDE[6]] as Ip[], serial: 0 }
    this.#expected = new Expected(world, slots, this.node, this.outside)
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

  /** Whether a new connection passes, by the oracle. */
  passes(from: End, target: Target, protocol: Protocol): boolean {
    return this.#expected.passes({ from, target, protocol, dport: HTTP })
  }

  /** Where a flow leads now. */
  endOf({ target }: Flow): End | undefined {
    const ip = this.#expected.destination(target)
    return ip === undefined ? undefined : this.#expected.ownerOf(ip)
  }

  get ends(): readonly End[] {
    return [...this.slots, this.node, this.outside]
  }

  get living(): readonly Slot[] {
    return this.slots.filter(({ ips }) => ips.length > 0)
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

  /** Points the Service at a pod, at the node, or at nobody. */
  point(backend: End | undefined, options: ServiceOptions = {}): void {
    this.#backend = backend
    this.#options = options
    this.service()
  }

  /** Writes the Service with its endpoints as they are now. */
  service(): void {
    const { isSticky, isUnplaced } = this.#options
    this.world.put(
      'Service',
      { namespace: 'x', name: 'svc' },
      {
        spec: {
          type: 'NodePort',
          clusterIP: VIP[4],
          clusterIPs: [VIP[4], VIP[6]],
          ipFamilies: ['IPv4', 'IPv6'],
          ...(isSticky && { sessionAffinity: 'ClientIP' }),
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
    for (const family of [4, 6] as const) {
      const ip = this.#backend && ofFamily(this.#backend, family)
      const place = isUnplaced ? {} : { nodeName: this.#node.name }
      this.world.put(
        'EndpointSlice',
        { namespace: 'x', name: `svc-${family}`, labels: { 'kubernetes.io/service-name': 'svc' } },
        {
          addressType: `IPv${family}`,
          ports: PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: HTTP })),
          endpoints: ip ? [{ addresses: [ip], ...place, conditions: { ready: true, serving: true } }] : [],
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
    this.service()
  }

  async start(): Promise<void> {
    this.#agent = AGENT === undefined ? this.#node.agent() : this.#node.agentAs(AGENT)
    await this.#agent.ready(60_000)
    this.#expected.goOn()
    for (const slot of this.slots) slot.isUnseen = false
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    this.#expected.freeze()
    await this.#agent?.stop(signal)
    this.#agent = undefined
  }

  /** Waits until the agent has as many policies of the cluster as the API has told it of. */
  async learned(): Promise<void> {
    if (this.isBlind) return
    const count = ofKind(this.world.known(), 'ClusterNetworkPolicy').length
    await until(async () => (await this.#agent?.status())?.policy?.clusterPolicies === count, LATE_MS)
  }

  /**
   * What another program does to the node's rules, and the agent repairs. It ends when the tables are back: an agent that
   * is killed before leaves a node without rules.
   */
  async nft(command: string): Promise<void> {
    // The guard of links comes back with the first pod on one.
    const isEmpty = (table: string) =>
      table.startsWith(`table inet ${GUARD}`) && !this.living.some(({ type }) => type === 'ptp')
    const shown = async () => {
      const { stdout } = await this.#node.ns.exec(['nft', '-t', 'list', 'ruleset'])
      const own = stdout.split(/^}\n/m).filter((text) => /^table \w+ plumb_(policy|guard) /.test(text))
      return new Map(own.map((text) => [text.split('\n', 1)[0] ?? '', !/flags dormant|policy drop/.test(text)]))
    }
    const before = await shown()
    await this.#node.ns.exec(['nft', command])
    const isBack = async () => {
      const now = await shown()
      return [...before.keys()].every((table) => now.get(table) ?? isEmpty(table))
    }
    await until(isBack, LATE_MS)
    // Without any rule that needs connections the kernel follows none, and translates no address: a connection whose
    // addresses are translated is reset.
    if (command === 'flush ruleset') for (const one of this.#flows) if (one.protocol === 'TCP') one.whole = undefined
    // Meanwhile each packet may have begun a connection.
    for (const [key, began] of this.#conversations)
      if (began.has('none')) this.#conversations.set(key, new Set<Began>([...began, 'client', 'server']))
  }

  /** Does something while every nft of the node fails. */
  async whileNftFails(work: () => Promise<void>): Promise<void> {
    writeFileSync(NFT_FAILS, '')
    await work()
    // The agent tries at once, and again after a second.
    await Bun.sleep(patient(500))
    rmSync(NFT_FAILS)
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
    const to = this.#expected.destination(target)
    const isSame = (one: Flow) =>
      (one.from === from &&
        one.sport === sport &&
        one.dport === dport &&
        this.#expected.destination(one.target) === to) ||
      (isFixed && one.dport === FIXED && to !== undefined && one.from === this.#expected.ownerOf(to))
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
    flow.whole = this.#expected.passes(flow) ? this.#keyOf(flow) : undefined
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

  #probes(from: End): { readonly probe: Probe; readonly passes: boolean; readonly text: string }[] {
    const targets: Target[] = [
      ...this.ends.flatMap((to) => (from === to || (!isSlot(from) && !isSlot(to)) ? [] : to.ips.map((ip) => ({ ip })))),
      ...([4, 6] as const).flatMap((family): Target[] => {
        const target = { service: from === this.outside ? ('port' as const) : ('address' as const), family }
        return from.ips.length > 0 && this.#expected.destination(target) ? [target] : []
      }),
    ]
    return targets.flatMap((target) =>
      PROTOCOLS.map((protocol) => {
        const passes = this.#expected.passes({ from, target, protocol, dport: HTTP })
        return {
          probe: { ...this.#wire({ target, dport: HTTP }), protocol, isAllowed: passes },
          passes,
          text: `${protocol} from ${from.name} (${from.ips}) to ${this.#nameOf(target)}`,
        }
      }),
    )
  }

  #nameOf(target: Target): string {
    const ip = this.#expected.destination(target)
    const where = `${ip && this.#expected.ownerOf(ip)?.name} (${ip})`
    return 'ip' in target ? where : `${where} by ${target.service} of the Service`
  }

  /**
   * Compares every pair and every flow with the oracle. After a step that changed nothing that the agent knows
   * (`isStrict`) not one refused probe may have an answer. After another step the agent gets time to have the change.
   * Gives what is wrong.
   */
  async check(isStrict: boolean): Promise<string | undefined> {
    const began = performance.now()
    for (let ms = SILENT_MS; ; ms = Math.min(10 * SILENT_MS, ms * 2)) {
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
      if (performance.now() - began > patient(LATE_MS)) return `${after}: ${wrong.join('; ')}`
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
            ...(this.#expected.allows(from, ip, 'UDP', HTTP) ? [] : kinds),
            { kind: 'forged source' as const, source: forged },
          ]
          return all.map((one) => ({ ...one, ip, mac, text: `raw${++this.#serial}` }))
        })
        await from.prober.ask({ raw: frames })
        await Bun.sleep(FRAME_MS)
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
    const key = `${slot.name}${slot.serial}`
    const known = this.#macs.get(key)
    if (known !== undefined) return known
    const [row] = await namespaceAt(slot.netns, slot.name).json('link', 'show', 'dev', 'eth0')
    const mac = row?.['address'] as string
    this.#macs.set(key, mac)
    return mac
  }

  #keyOf({ from, target, sport, dport, protocol }: Flow): string | undefined {
    const ip = this.#expected.destination(target)
    const to = ip === undefined ? undefined : this.#expected.ownerOf(ip)
    if (!to || ip === undefined || from.ips.length === 0) return undefined
    const way = 'ip' in target ? 'direct' : target.service
    return `${way} ${protocol} ${from.name}${from.serial}:${sport} ${to.name}${to.serial} ${ip}:${dport}`
  }

  /** What all ends have heard so far. */
  async heard(): Promise<Map<End, Told>> {
    const all = await Promise.all(
      this.ends.map(async (one) => [one, await one.prober.ask<Told>({ tell: true })] as const),
    )
    return new Map(all)
  }

  /** What a flow must do now, in both directions. */
  verdictOf(flow: Flow, told: ReadonlyMap<End, Told>): 'passes' | 'silent' | 'either' {
    const [key, ip] = [this.#keyOf(flow), this.#expected.destination(flow.target)]
    if (key === undefined || ip === undefined) return 'either'
    const { from, sport, protocol } = flow
    const to = this.#expected.ownerOf(ip) as End
    // What a pod sends to its own address, which was another pod's, does not leave it.
    if ('ip' in flow.target && from === to) return 'either'
    const before = this.#conversations.get(key) ?? new Set<Began>(['none'])
    const byClient = this.#expected.passes(flow)
    const back = ofFamily(from, familyOf(ip)) as Ip
    // What the answering side sends on its own goes to the address that it has seen: the node's own, where the node has
    // translated.
    const isHeard = from === this.outside ? 'ip' in flow.target : isSlot(from)
    // A pod may have reached the node before ADD had closed it: what runs in it did not wait for ADD. The node goes on to
    // send to it, as it may.
    const heardAt = told.get(to)?.backs[flow.id]
    const talks = isSlot(to) ? heardAt !== undefined : to === this.node && heardAt?.includes(`${back} `) === true
    const talksBack = protocol === 'UDP' && isHeard && talks
    const byServer = talksBack && this.#expected.allows(to, back, 'UDP', sport)
    const began = new Set<Began>(before)
    if (began.has('none') && byClient) began.add('client')
    if (began.has('none') && byServer) began.add('server')
    if (byClient) began.delete('none')
    this.#conversations.set(key, began)
    // Only between two pods are both directions one connection. Elsewhere the addresses differ.
    if (!(isSlot(from) && isSlot(to) && 'ip' in flow.target)) {
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

  /** What each flow must do now. */
  judged(heard: ReadonlyMap<End, Told>): ReadonlyMap<Flow, ReturnType<Fixture['verdictOf']>> {
    const judged = new Map(this.#flows.map((one) => [one, this.verdictOf(one, heard)]))
    for (const [one, verdict] of judged)
      if (verdict !== 'passes' || this.#keyOf(one) !== one.whole) one.whole = undefined
    return judged
  }

  /** Whether nothing has refused a flow of TCP. One that was refused once may be given up by its ends. */
  isWhole({ protocol, whole }: Flow): boolean {
    return protocol === 'UDP' || whole !== undefined
  }

  async #checkFlows(isStrict: boolean): Promise<string | undefined> {
    const told = await this.heard()
    // A TCP connection stays with its endpoint, and ends with it.
    for (const one of this.#flows)
      if (one.protocol === 'TCP' && 'service' in one.target && one.whole !== this.#keyOf(one)) await this.stop(one)
    const judged = this.judged(told)
    const silent = [...judged].flatMap(([one, verdict]) => (verdict === 'silent' ? [one] : []))
    // The agent ends the connections that a policy closes after the policy is in the kernel.
    for (const end = performance.now() + (isStrict ? 0 : patient(LATE_MS)); ; ) {
      const loud = await this.#loud(silent)
      if (loud === undefined) break
      if (performance.now() >= end) return loud
    }
    for (const [one, verdict] of judged) {
      // A TCP connection that was refused once may be given up by its ends.
      if (verdict !== 'passes' || !this.isWhole(one)) continue
      const first = await this.#came(one)
      const isOn = async () => (await this.#came(one)) !== first
      if (!(await until(isOn, LATE_MS).catch(() => false))) return `the allowed ${this.textOf(one)} stands still`
    }
    return undefined
  }

  textOf(flow: Flow): string {
    const { id, from, target, protocol, sport, dport } = flow
    const key = this.#keyOf(flow)
    const began = key === undefined ? [] : [...(this.#conversations.get(key) ?? [])]
    return `${protocol} flow ${id} from ${from.name} (${from.ips}) port ${sport} to ${this.#nameOf(target)} port ${dport}, begun by ${began.join(' or ')}`
  }

  async #came(flow: Flow): Promise<number> {
    const to = this.endOf(flow)
    return to ? ((await to.prober.ask<Told>({ tell: true })).came[flow.id] ?? 0) : 0
  }

  // A message of these flows, or an answer to it, that comes while they must be silent.
  async #loud(flows: readonly Flow[]): Promise<string | undefined> {
    const count = async () => {
      const told = await this.heard()
      return flows.map((one) => {
        const to = this.endOf(one)
        return [(to && told.get(to)?.came[one.id]) ?? 0, told.get(one.from)?.came[backOf(one, to)] ?? 0] as const
      })
    }
    // On a busy machine an end reads late what came before.
    for (let looks = 0; looks < 2; looks++) await this.heard()
    const before = await count()
    // Each end of a flow sends ten messages meanwhile.
    await Bun.sleep(SILENT_MS)
    for (const [i, [there, back]] of (await count()).entries()) {
      const [first, firstBack] = before[i] as readonly [number, number]
      const one = flows[i] as Flow
      if (there !== first) return `${there - first} messages of the refused ${this.textOf(one)}`
      // What the node sends to its own pods meets no rule.
      if (back !== firstBack && this.endOf(one) !== this.node)
        return `${back - firstBack} messages back of the refused ${this.textOf(one)}`
    }
    return undefined
  }

  /** Ends everything of a history, so that the next one begins like the first. With `keeps` the pods stay. */
  async clear(keeps = false): Promise<void> {
    await this.stopAll()
    this.world.release()
    this.world.serve(['v1alpha2'])
    if (this.isAway) await this.start()
    this.point(undefined)
    for (const slot of keeps ? [] : this.slots) {
      if (slot.ips.length > 0) await this.del(slot)
      this.object(slot, undefined)
    }
    const known = this.world.known()
    for (const kind of ['NetworkPolicy', 'ClusterNetworkPolicy'] as const)
      for (const { metadata } of ofKind(known, kind)) this.world.put(kind, metadata, undefined)
    this.#conversations = new Map()
    this.#macs.clear()
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

/** What comes back of a flow from where it leads now. A connection of TCP has one end alone. */
export function backOf({ id, protocol }: Flow, to: End | undefined): string {
  return protocol === 'TCP' ? `back ${id}` : `back ${id} of ${to?.name}`
}
