// The alphabet of the isolation histories: all that may happen to a node, one step at a time.
import type { Ip } from '../../../../lib/text/ip.ts'
import { type Flow, NAMES, OUTSIDE, PROTOCOLS, RANGES, type Slot, type Target } from './ends.ts'
import { isSlot } from './expected.ts'
import type { Fixture } from './fixture.ts'
import { ofKind, VERSIONS } from './world.ts'

/** A random number from 0 to one less than this. */
export type Numbers = (below: number) => number
/** A step of a history: what it does, in words, and whether it leaves the objects that the agent knows as they are. */
export interface Step {
  readonly text: string
  readonly isStrict: boolean
  /** The agent learns of one change, and makes one transaction of it. */
  readonly isOne?: boolean
  work(): Promise<void> | void
}
/** Gives a step, or undefined when it makes no sense now. */
export type Letter = (fixture: Fixture, random: Numbers) => Step | undefined

const pickOf =
  (random: Numbers) =>
  <T>(all: readonly T[]): T =>
    all[random(all.length)] as T

export function labelsOf(random: Numbers, name: string): Record<string, string> {
  return { app: name, tier: `${random(2)}` }
}

function podSelector(random: Numbers): object {
  return pickOf(random)([
    {},
    { matchLabels: { app: pickOf(random)(NAMES) } },
    { matchLabels: { tier: `${random(2)}` } },
  ])
}

const namespaceSelector = (random: Numbers): object =>
  pickOf(random)([{}, { matchLabels: { team: pickOf(random)(['x', 'y', 'z']) } }])
const nodeSelector = (random: Numbers): object =>
  pickOf(random)([{}, { matchLabels: { zone: pickOf(random)(['outside', 'n1', 'z']) } }])

function blockOf(random: Numbers): string {
  const pick = pickOf(random)
  const [range] = pick([...RANGES.bridge, ...RANGES.ptp])
  const width = range.subnet.includes(':') ? 128 : 32
  return pick([`${range.rangeStart}/${width}`, range.subnet, `${pick([OUTSIDE[4]])}/32`, `${OUTSIDE[6]}/128`])
}

/** The spec of a NetworkPolicy. */
function specOf(random: Numbers): object {
  const pick = pickOf(random)
  const peer = () =>
    pick([
      () => ({ podSelector: podSelector(random) }),
      () => ({ podSelector: podSelector(random) }),
      () => ({ namespaceSelector: namespaceSelector(random) }),
      () => ({ namespaceSelector: namespaceSelector(random), podSelector: podSelector(random) }),
      () => ({ ipBlock: { cidr: blockOf(random) } }),
    ])()
  const rule = (key: 'from' | 'to') => [
    {
      [key]: [peer()],
      ...(random(4) === 0 && { ports: [{ port: pick([80, 81, 7946]), protocol: pick(PROTOCOLS) }] }),
    },
  ]
  const [ingress, egress] = [random(3) === 0 ? [] : rule('from'), random(3) === 0 ? [] : rule('to')]
  const types = pick([['Ingress'], ['Egress'], ['Ingress', 'Egress']])
  return {
    podSelector: podSelector(random),
    policyTypes: types,
    ...(types.includes('Ingress') && { ingress }),
    ...(types.includes('Egress') && { egress }),
  }
}

/** The spec of a ClusterNetworkPolicy. */
function tierSpecOf(random: Numbers): object {
  const pick = pickOf(random)
  const pods = () => ({ pods: { namespaceSelector: namespaceSelector(random), podSelector: podSelector(random) } })
  const peer = (side: 'ingress' | 'egress') =>
    pick([
      () => ({ namespaces: namespaceSelector(random) }),
      pods,
      pods,
      ...(side === 'egress' ? [() => ({ nodes: nodeSelector(random) }), () => ({ networks: [blockOf(random)] })] : []),
    ])()
  const rules = (side: 'ingress' | 'egress') =>
    Array.from({ length: random(3) }, () => ({
      action: pick(['Accept', 'Deny', 'Deny', 'Pass']),
      [side === 'ingress' ? 'from' : 'to']: [peer(side)],
      ...(random(4) === 0 && {
        protocols: [{ [pick(['tcp', 'udp'])]: { destinationPort: { number: pick([80, 81, 7946]) } } }],
      }),
    }))
  return {
    tier: pick(['Admin', 'Baseline']),
    priority: random(4),
    subject: pick([{ namespaces: namespaceSelector(random) }, pods()]),
    ingress: rules('ingress'),
    egress: rules('egress'),
  }
}

export const attach: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const slot = pick(fixture.slots)
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
  const [type, labels, uid] = [pick(['bridge', 'ptp'] as const), labelsOf(random, slot.name), fixture.newUid()]
  // The object of the pod, no object, or that of a former pod of the name.
  const knows = pick(['its', 'its', 'its', 'no', 'a former'] as const)
  if (knows === 'a former' && !slot.labels) return undefined
  return {
    text: `ADD of ${slot.name} by ${type}, the API has ${knows} object${knows === 'its' ? ` ${JSON.stringify(labels)}` : ''}`,
    isStrict: knows === 'a former' || (knows === 'no' && slot.labels === undefined) || fixture.isBlind,
    async work() {
      if (knows === 'no' && slot.labels) fixture.object(slot, undefined)
      slot.uid = uid
      if (knows === 'its') fixture.object(slot, labels)
      await fixture.add(slot, type)
    },
  }
}

export const object: Letter = (fixture, random) => {
  const slot = pickOf(random)(fixture.living)
  if (!slot) return undefined
  if (slot.labels && random(3) === 0)
    return { text: `status of ${slot.name}`, isStrict: true, work: () => fixture.object(slot, slot.labels) }
  const labels = slot.labels && random(4) === 0 ? undefined : labelsOf(random, slot.name)
  return {
    text: `labels of ${slot.name}: ${JSON.stringify(labels)}`,
    isStrict: fixture.isBlind,
    work: () => fixture.object(slot, labels),
  }
}

export const relabel: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const [kind, name, labels] = pick([
    ['Namespace', pick(['x', 'y']), { team: pick(['x', 'y', 'z']) }],
    ['Namespace', pick(['x', 'y']), { team: pick(['x', 'y', 'z']) }],
    ['Node', 'outside', { zone: pick(['outside', 'n1', 'z']) }],
  ] as const)
  const before = ofKind(fixture.world.known(), kind).find(({ metadata }) => metadata.name === name)
  if (!before) return undefined
  const { metadata, ...rest } = before
  return {
    text: `labels of ${kind} ${name}: ${JSON.stringify(labels)}`,
    isStrict: fixture.isBlind,
    work: () => fixture.world.put(kind, { ...metadata, labels }, rest),
  }
}

// A pod, a namespace or the Node outside gets the labels that a policy in force names, or loses them. Often it is an end
// of a flow.
export const match: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const known = fixture.world.known()
  const one = pick([...ofKind(known, 'NetworkPolicy'), ...ofKind(known, 'ClusterNetworkPolicy')])
  const named = pick(labelsIn(one))
  if (!named) return undefined
  const loses = random(2) === 0
  const others = Object.entries(named).map(([key, value]) => [key, key === 'tier' ? `${1 - Number(value)}` : 'z'])
  const wanted: Record<string, string> = loses ? Object.fromEntries(others) : named
  const text = (what: string) =>
    `labels of ${what} ${loses ? 'unlike' : 'as'} a policy names them: ${JSON.stringify(wanted)}`
  const isStrict = fixture.isBlind
  if ('team' in wanted || 'zone' in wanted) {
    const [kind, name] = 'team' in wanted ? (['Namespace', pick(['x', 'y'])] as const) : (['Node', 'outside'] as const)
    const found = ofKind(known, kind).find(({ metadata }) => metadata.name === name)
    if (!found) return undefined
    const { metadata, ...rest } = found
    const work = () => fixture.world.put(kind, { ...metadata, labels: wanted }, rest)
    return { text: text(`${kind} ${name}`), isStrict, work }
  }
  const ends = fixture.flows.flatMap((flow) => [flow.from, fixture.endOf(flow)])
  const busy = ends.filter((end): end is Slot => end !== undefined && isSlot(end))
  const slot = pick([...busy, ...fixture.living].filter(({ labels, ips }) => labels && ips.length > 0))
  const labels = { ...slot?.labels, ...wanted }
  return slot && { text: text(slot.name), isStrict, work: () => fixture.object(slot, labels) }
}

function labelsIn(value: unknown): Record<string, string>[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, one]) => (key === 'matchLabels' ? [one] : labelsIn(one)))
}

export const policy: Letter = (fixture, random) => {
  const isTier = random(2) === 0
  const kind = isTier ? 'ClusterNetworkPolicy' : 'NetworkPolicy'
  const metadata = isTier
    ? { name: `tier${random(3)}` }
    : { namespace: pickOf(random)(['x', 'y']), name: `policy${random(2)}` }
  const isThere = ofKind(fixture.world.known(), kind).some(
    (one) => one.metadata.name === metadata.name && one.metadata.namespace === (metadata as Metadata).namespace,
  )
  const spec = isThere && random(2) === 0 ? undefined : isTier ? tierSpecOf(random) : specOf(random)
  return {
    text: `${kind} ${Object.values(metadata).join('/')}: ${JSON.stringify(spec)}`,
    isStrict: fixture.isBlind || (isTier && !fixture.world.isServed),
    work: () => fixture.world.put(kind, metadata, spec && { spec }),
  }
}
type Metadata = { readonly namespace?: string; readonly name: string }

// A Deny between the two ends of a flow: for labels that one of them has, or may get soon.
export const against: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const one = pick(fixture.flows)
  const to = one && fixture.endOf(one)
  if (!to) return undefined
  const side = pick(['ingress', 'egress'] as const)
  const [own, other] = side === 'ingress' ? [to, one.from] : [one.from, to]
  if (!isSlot(own) || (!isSlot(other) && side === 'ingress')) return undefined
  const peer = isSlot(other)
    ? { pods: { namespaceSelector: {}, podSelector: { matchLabels: { tier: `${random(2)}` } } } }
    : { nodes: { matchLabels: { zone: pick(['outside', 'z']) } } }
  const spec = {
    tier: 'Admin',
    priority: 0,
    subject: { pods: { namespaceSelector: {}, podSelector: {} } },
    [side]: [{ action: 'Deny', [side === 'ingress' ? 'from' : 'to']: [peer] }],
  }
  return {
    text: `ClusterNetworkPolicy against ${one.id}: ${JSON.stringify(spec)}`,
    isStrict: fixture.isBlind || !fixture.world.isServed,
    work: () => fixture.world.put('ClusterNetworkPolicy', { name: 'against' }, { spec }),
  }
}

// A NetworkPolicy for one end of a flow that allows the other end by its labels, in both directions, and nobody else.
export const only: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const pairs = fixture.flows.flatMap((flow) => {
    const to = fixture.endOf(flow)
    return to && isSlot(to) && isSlot(flow.from) && to !== flow.from ? [{ flow, ends: [flow.from, to] as const }] : []
  })
  const pair = pick(pairs)
  if (!pair) return undefined
  const [own, other] = random(2) === 0 ? pair.ends : [pair.ends[1], pair.ends[0]]
  if (!other.labels) return undefined
  const peers = [{ namespaceSelector: {}, podSelector: { matchLabels: { tier: other.labels['tier'] } } }]
  const spec = {
    podSelector: { matchLabels: { app: own.name } },
    policyTypes: ['Ingress', 'Egress'],
    ingress: [{ from: peers }],
    egress: [{ to: peers }],
  }
  const metadata = { namespace: own.namespace, name: 'only' }
  return {
    text: `NetworkPolicy ${Object.values(metadata).join('/')} for ${pair.flow.id}: ${JSON.stringify(spec)}`,
    isStrict: fixture.isBlind,
    work: () => fixture.world.put('NetworkPolicy', metadata, { spec }),
  }
}

// A policy in force is deleted.
export const lift: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const known = fixture.world.known()
  const all = (['NetworkPolicy', 'ClusterNetworkPolicy'] as const).flatMap((kind) =>
    ofKind(known, kind).map(({ metadata }) => ({ kind, metadata })),
  )
  const one = pick(all)
  if (!one) return undefined
  const { kind, metadata } = one
  return {
    text: `${kind} ${metadata.name} is deleted`,
    isStrict: fixture.isBlind || (kind === 'ClusterNetworkPolicy' && !fixture.world.isServed),
    work: () => fixture.world.put(kind, metadata, undefined),
  }
}

const flow: Letter = (fixture, random) => {
  const pick = pickOf(random)
  if (fixture.flows.length > 6) {
    const first = fixture.flows[0] as Flow
    return { text: `no more of ${first.id}`, isStrict: true, work: () => fixture.stop(first) }
  }
  const from = pick([...fixture.living, ...fixture.living, fixture.node, fixture.outside])
  const to = pick([...fixture.living, ...fixture.living, fixture.node, fixture.outside])
  const family = pick([4, 6] as const)
  const isByService = random(3) === 0
  if (!from || !to || (!isByService && from === to)) return undefined
  const ip = to.ips.find((one) => one.includes(':') === (family === 6)) as Ip
  if (!isByService && ![from, to].some((one) => fixture.slots.includes(one as Slot))) return undefined
  const target: Target = isByService ? { service: from === fixture.outside ? 'port' : 'address', family } : { ip }
  const [protocol, isFixed] = [pick([...PROTOCOLS, 'UDP'] as const), random(3) === 0]
  if (!fixture.canFlow(from, target, protocol, isFixed)) return undefined
  const where = 'ip' in target ? `${to.name} (${ip})` : `the Service by its ${target.service}, IPv${family}`
  return {
    text: `${protocol} flow from ${from.name} (${from.ips}) to ${where}${isFixed && protocol === 'UDP' ? ', port 7946 on both sides' : ''}`,
    isStrict: true,
    work: () => fixture.flow(from, target, protocol, isFixed),
  }
}

const service: Letter = (fixture, random) => {
  const backend = pickOf(random)([...fixture.living, fixture.node, undefined])
  const [isSticky, isUnplaced] = [random(2) === 0, random(3) === 0]
  const more = [...(isSticky ? ['with session affinity'] : []), ...(isUnplaced ? ['on a node that is not named'] : [])]
  return {
    text: [`the Service leads to ${backend?.name ?? 'nobody'}`, ...more].join(', '),
    isStrict: fixture.isBlind,
    work: () => fixture.point(backend, { isSticky, isUnplaced }),
  }
}

export const restart: Letter = (fixture, random) => {
  if (fixture.isAway) {
    // It is ready when it knows all objects.
    if (fixture.world.isLate || !fixture.world.isServed) return undefined
    return { text: 'the agent starts', isStrict: false, work: () => fixture.start() }
  }
  const signal = pickOf(random)(['SIGKILL', 'SIGTERM'] as const)
  const again = !fixture.world.isLate && fixture.world.isServed && random(2) === 0
  return {
    text: again ? `${signal}, and the agent starts again` : signal,
    isStrict: true,
    async work() {
      await fixture.kill(signal)
      if (again) await fixture.start()
    },
  }
}

export const lag: Letter = (fixture, random) => {
  if (fixture.world.isLate)
    return { text: 'the late changes come', isStrict: fixture.isAway, work: () => fixture.world.release() }
  const isAway = random(3) === 0
  return {
    text: isAway ? 'the API server is away' : 'the watch lags',
    isStrict: true,
    work: () => fixture.world.hold(isAway),
  }
}

// The API moves on to another version of ClusterNetworkPolicy, or back.
const serve: Letter = (fixture, random) => {
  if (fixture.world.isLate) return undefined
  const [first, second, third] = VERSIONS
  const versions = pickOf(random)([[first], [second], [first, second], [second, third], [third], [third]])
  return {
    text: `the API serves ClusterNetworkPolicy as ${versions}`,
    isStrict: fixture.isAway || !versions.some((one) => one !== third),
    // What the agent has not read before is lost with its version.
    async work() {
      await fixture.learned()
      fixture.world.serve(versions)
    },
  }
}

const foreign: Letter = (fixture, random) => {
  // Without the agent nobody repairs.
  if (fixture.isAway) return undefined
  const commands = [
    'flush ruleset',
    'delete table inet plumb_policy',
    'delete table inet plumb_guard',
    'delete table bridge plumb_guard',
    'add table inet plumb_policy { flags dormant; }',
    'add table bridge plumb_guard { flags dormant; }',
    'add chain inet plumb_policy forward_in { policy drop; }',
  ]
  const command = pickOf(random)(commands)
  return { text: `nft ${command}`, isStrict: false, work: () => fixture.nft(command) }
}

// A pod takes the address of another one, or of the gateway, for its own, or says that it is a router.
const claim: Letter = (fixture, random) => {
  const pick = pickOf(random)
  const ports = fixture.living.filter(({ type, isUnseen }) => type === 'bridge' && !isUnseen)
  const [from, to] = [pick(ports), pick([...ports, undefined])]
  if (!from || from === to) return undefined
  const target = random(3) === 0 ? undefined : (to?.ips.find((one) => one.includes(':')) ?? RANGES.bridge[1][0].gateway)
  return {
    text: `${from.name} says that it is ${target ?? 'a router'}`,
    isStrict: true,
    work: () => fixture.claim(from, target),
  }
}

const hour: Letter = (fixture) => ({ text: 'an hour passes', isStrict: true, work: () => fixture.hour() })

/** The letters, and how often each comes. */
const ALPHABET: readonly (readonly [letter: Letter, weight: number])[] = [
  [attach, 7],
  [object, 3],
  [relabel, 3],
  [match, 6],
  [policy, 6],
  [against, 4],
  [only, 4],
  [lift, 4],
  [flow, 8],
  [service, 4],
  [restart, 3],
  [lag, 2],
  [serve, 2],
  [foreign, 1],
  [claim, 2],
  [hour, 1],
]
const ALL = ALPHABET.flatMap(([letter, weight]) => Array.from({ length: weight }, () => letter))

/** The next step of a history. */
export function stepOf(fixture: Fixture, random: Numbers): Step {
  for (;;) {
    const step = pickOf(random)(ALL)(fixture, random)
    if (step) return step
  }
}
