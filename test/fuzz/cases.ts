import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Given } from './grammar.ts'
import { type Node, type Place, places, text, tree } from './json.ts'
import { type Dice, dice, HUGE, mutate, mutateBytes, STRINGS } from './mutate.ts'
import { FAULTS, type Fault } from './recorder.ts'

export const TYPES = [
  'bridge',
  'ptp',
  'minicni',
  'host-local',
  'static',
  'loopback',
  'portmap',
  'flannel',
  'host-device',
  'dhcp',
  'tuning',
  'sbr',
  'vrf',
  'firewall',
  'bandwidth',
  'macvlan',
  'ipvlan',
  'vlan',
  'dummy',
  'tap',
] as const
/** Those that add to what another plugin made: its link is there. */
export const CHAINED: readonly string[] = ['tuning', 'sbr', 'vrf']
/** One call: what the runtime sets, and what it writes. */
export interface Input {
  readonly env: Readonly<Record<string, string>>
  readonly stdin: string
}
/** One test: a call that may have something wrong in it, after another that is right. */
export interface Case {
  readonly type: (typeof TYPES)[number]
  /** An ADD of the same attachment, well formed. */
  readonly before?: Input
  readonly call: Input
  /** What the tools do during `call`. */
  readonly fault?: Fault
  /** After `before`, one of the files is spoiled as these dice say. */
  readonly spoiled?: Dice
  /** A link of the bridge's name that is no bridge. */
  readonly squatter?: string
}
/** Where cases find a namespace for the pod, and a folder for addresses. */
export interface Site {
  readonly netns: string
  readonly dir: string
}

const COMMANDS = ['ADD', 'ADD', 'ADD', 'CHECK', 'DEL', 'GC', 'STATUS'] as const
const VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']
const ARGS = [
  '',
  'IgnoreUnknown=1;K8S_POD_NAME=x',
  'MAC=02:00:00:00:00:03',
  'IP=10.1.0.40;IgnoreUnknown=true',
  'IP=10.1.0.40/24,fd00:1::40/64;GATEWAY=10.1.0.1, fd00:1::1',
]
const CORPUS = Object.fromEntries(
  TYPES.map((type) => [type, readFileSync(join(import.meta.dir, `corpus/${type}.json`), 'utf8')]),
)

/**
 * The case of a number. Every other case replaces a string of a configuration or variable by a hostile text, each with
 * each, as long as there are any. The other cases are random.
 */
export function makeCase(seed: number, number: number, site: Site): Case {
  const roll = dice(seed, number)
  const turn = number / 2
  const slot = Number.isInteger(turn) ? SLOTS[Math.floor(turn / EACH)] : undefined
  return slot ? planted(slot, turn, roll, site) : random(roll.pick(TYPES), roll, site)
}

/** Puts the files into a folder that configurations name. */
export function furnish(dir: string): void {
  writeFileSync(`${dir}/resolv.conf`, 'nameserver 10.1.0.1\nsearch example.org\noptions ndots:5\n')
  writeFileSync(
    `${dir}/subnet.env`,
    'FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.0.1/24\nFLANNEL_IPV6_NETWORK=fd00:1::/48\nFLANNEL_IPV6_SUBNET=fd00:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n',
  )
}

/** Shell commands that give a node and a pod (a namespace below /run/netns) the links that configurations name. */
export const LINKS = (pod: string) => `
ip link add fuzz0 type veth peer name fuzz1
ip -n ${pod} link add fuzz2 type veth peer name fuzz3
ip -n ${pod} link add fuzzbr type bridge`

/** Every string that is in a call, at any depth. */
export function givenBy({ env, stdin }: Input): Given {
  const given = new Set(Object.values(env))
  let left: unknown[] = []
  try {
    left = [JSON.parse(stdin)]
  } catch {
    // No JSON: then nothing of it can be used.
  }
  for (let one = left.pop(); one !== undefined; one = left.pop()) {
    if (typeof one === 'string') given.add(one)
    if (typeof one === 'object' && one !== null)
      for (const inner of Object.values(one)) if (inner !== undefined) left.push(inner)
  }
  return given
}

const VARIABLES = [
  'CNI_COMMAND',
  'CNI_CONTAINERID',
  'CNI_NETNS',
  'CNI_IFNAME',
  'CNI_ARGS',
  'CNI_PATH',
  'CNI_NETNS_OVERRIDE',
] as const
// Of the huge texts each slot has one.
const EACH = STRINGS.length + 1

/** A variable, or a string of one of a plugin's configurations by its number among the places. */
interface Slot {
  readonly type: Case['type']
  readonly conf: number
  readonly at: number | (typeof VARIABLES)[number]
}
// Of each plugin every key once: that of another configuration, or of another item of a list, is for the dice.
const SLOTS: readonly Slot[] = TYPES.flatMap((type) => {
  const seen = new Set<string>()
  const isNew = ({ path }: Place) => seen.size < seen.add(path.replace(/\d+/g, '')).size
  const strings = confs(type, { netns: '', dir: '' }).flatMap((node, conf) =>
    places(node).flatMap((place, at) => (typeof place.get() === 'string' && isNew(place) ? [{ type, conf, at }] : [])),
  )
  return [...strings, ...VARIABLES.map((at) => ({ type, conf: 0, at }))]
})

function planted({ type, conf: nth, at }: Slot, number: number, roll: Dice, site: Site): Case {
  const conf = confs(type, site)[nth] as Node
  const value = STRINGS[number % EACH] ?? (HUGE[Math.floor(number / EACH) % HUGE.length] as string)
  const before = text(conf)
  const place = typeof at === 'number' ? (places(conf)[at] as Place) : undefined
  place?.set(value)
  const path = place?.path ?? ''
  // Most of what is in a previous result only CHECK looks at, except a plugin that adds to it, and GC is the one to
  // read the lists.
  const command =
    roll.below(5) === 0
      ? roll.pick(COMMANDS)
      : path.startsWith('prevResult')
        ? type === 'portmap' || type === 'firewall' || type === 'bandwidth' || CHAINED.includes(type)
          ? roll.pick(['ADD', 'CHECK', 'DEL'])
          : 'CHECK'
        : path.startsWith('cni.dev')
          ? 'GC'
          : roll.pick(COMMANDS)
  return {
    type,
    ...preceded(roll, before, site),
    call: { env: { ...environment(command, roll, site), ...(place ? {} : { [at]: value }) }, stdin: text(conf) },
  }
}

function random(type: Case['type'], roll: Dice, site: Site): Case {
  const all = confs(type, site)
  const conf = roll.pick(all)
  const good = text(conf)
  const env = environment(roll.pick([...COMMANDS, 'VERSION', '']), roll, site)
  const bytes = roll.below(5) === 0
  const others = roll.below(10) === 0 ? TYPES.flatMap((one) => confs(one, site)) : all
  if (!bytes && roll.below(8) > 0) mutate(conf, others, roll)
  if (roll.below(4) === 0)
    for (const place of places(conf)) if (place.path === 'cniVersion') place.set(roll.pick(VERSIONS))
  if (roll.below(4) === 0) disturb(env, roll)
  const stdin = bytes ? mutateBytes(Buffer.from(text(conf)), roll).toString() : text(conf)
  const squatter = roll.below(30) === 0 && { squatter: 'br0' }
  const fault = roll.below(6) === 0 && {
    fault: { at: roll.below(8), on: roll.below(3) === 0, kind: roll.pick(FAULTS) },
  }
  // A second ADD that fails cannot tell, without a pool, whether the link was its own.
  const before = !squatter && !(fault && env['CNI_COMMAND'] === 'ADD') && preceded(roll, good, site)
  const spoiled = !fault && roll.below(4) === 0 && { spoiled: roll }
  return { type, ...squatter, ...before, call: { env, stdin }, ...fault, ...spoiled }
}

function confs(type: string, { netns, dir }: Site): Node[] {
  const filled = (CORPUS[type] as string).replaceAll('$DIR', dir).replaceAll('$NETNS', netns)
  return (JSON.parse(filled) as unknown[]).map(tree)
}

function environment(command: string, roll: Dice, { netns }: Site): Record<string, string> {
  return {
    CNI_COMMAND: command,
    CNI_CONTAINERID: 'c1',
    CNI_NETNS: netns,
    CNI_IFNAME: 'eth0',
    CNI_PATH: '',
    ...(roll.below(4) === 0 && { CNI_ARGS: roll.pick(ARGS) }),
  }
}

function preceded(roll: Dice, stdin: string, { netns }: Site): { before?: Input } {
  return roll.below(3) === 0
    ? {
        before: {
          env: { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: netns, CNI_IFNAME: 'eth0', CNI_PATH: '' },
          stdin,
        },
      }
    : {}
}

function disturb(env: Record<string, string>, { below, pick }: Dice): void {
  for (let left = 1 + below(2); left > 0; left--) {
    const name = pick(VARIABLES)
    const value = env[name]
    const kind = below(5)
    if (kind === 0) delete env[name]
    else if (kind === 1 && value !== undefined) {
      delete env[name]
      env[name.toLowerCase()] = value
    } else if (kind === 2 && value !== undefined)
      env[name] = mutateBytes(Buffer.from(value), { below, pick }).toString()
    else if (kind === 3) env[name] = env[pick(VARIABLES)] ?? ''
    else env[name] = pick(STRINGS)
  }
}
