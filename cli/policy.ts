import type { Protocol } from '../agent/cluster/reading.ts'
import type { Decision, PodDetail, PodSummary, RuleView, SideView } from '../agent/policy/view.ts'
import { shown, ValueError } from '../lib/text/errors.ts'
import { askPolicy } from './ask-policy.ts'
import {
  choicesOf,
  describeOptions,
  type Entry,
  type Given,
  type Grammar,
  type OptionName,
  readOptions,
} from './options.ts'
import { print, table } from './output.ts'
import { compare } from './policy-compare.ts'
import { type Arrival, tryOut } from './policy-trial.ts'

const names: readonly OptionName[] = ['policy-socket', 'json', 'help']
/** The exit status when the kernel does not do what the objects want. */
const DIFFER = 3

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 13,
  about: 'show which policies select the pods of this node, and test whether a connection passes',
}

/** What may follow `plumb policy`. */
export const grammar: Grammar = {
  options: choicesOf(names),
  words: ['[NAMESPACE/POD]'],
  commands: {
    test: {
      about: 'ask whether a connection passes: the objects and the kernel side by side',
      grammar: { options: choicesOf(names), words: ['FROM', 'TO', 'PORT[/PROTOCOL]'] },
    },
    compare: {
      about: 'what policies would change that nobody has applied',
      grammar: { options: choicesOf(names), words: ['FILE'] },
    },
  },
}

/** What `plumb policy test` found. */
export interface Tested extends Decision {
  readonly from: string
  readonly to: string
  readonly protocol: Protocol
  /** The port that was asked for. */
  readonly asked: number
  readonly kernel: Arrival
  /** The kernel does what the objects want of this node. */
  readonly agree: boolean
}

/**
 * Runs `plumb policy ARGV` and returns the exit status: 0. `plumb policy test` returns 0 for a connection that passes,
 * 1 for one that is refused, and 3 when the kernel differs from the objects. `plumb policy compare` ends as `diff`.
 * Throws ValueError for a wrong command line, and when no agent answers.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb policy')
  if (values.help) {
    print(help())
    return 0
  }
  if (words[0] === 'test') return test(words.slice(1), values)
  if (words[0] === 'compare') return compare(words.slice(1), values)
  const [pod, more] = words
  if (more !== undefined)
    throw new ValueError(`plumb policy takes one pod, and no ${shown(more)}; see plumb policy --help`)
  if (pod !== undefined && !/^[^/]+\/[^/]+$/.test(pod))
    throw new ValueError(`Cannot read the pod ${shown(pod)}: want NAMESPACE/NAME`)
  if (pod === undefined) {
    const { pods } = askPolicy<{ readonly pods: readonly PodSummary[] }>({ command: 'list' }, values)
    print(values.json ? JSON.stringify(pods, null, 4) : listText(pods))
    return 0
  }
  const detail = askPolicy<PodDetail>({ command: 'show', pod }, values)
  print(values.json ? JSON.stringify(detail, null, 4) : podText(detail))
  return 0
}

async function test(words: readonly string[], values: Given['values']): Promise<number> {
  const [from, to, where, more] = words
  if (from === undefined || to === undefined || where === undefined || more !== undefined)
    throw new ValueError('plumb policy test takes FROM TO PORT[/PROTOCOL]; see plumb policy --help')
  const { port, protocol } = portOf(where)
  const decision = askPolicy<Decision>({ command: 'decide', from, to, port, protocol }, values)
  const { here, isAudit } = decision
  const kernel = await arrivalOf(decision, protocol)
  const tested: Tested = {
    from,
    to,
    protocol,
    asked: port,
    ...decision,
    kernel,
    agree: kernel.passes === (isAudit || here.passes),
  }
  print(values.json ? JSON.stringify(tested, null, 4) : testText(tested))
  return tested.agree ? (kernel.passes ? 0 : 1) : DIFFER
}

async function arrivalOf(decision: Decision, protocol: Protocol): Promise<Arrival> {
  const { source, destination, port, node, isRefusedByService } = decision
  if (isRefusedByService) return { passes: false, reason: 'the rules of Services come before those of policy' }
  if (node === 'source') return { passes: true, reason: "the node's own packets meet no policy" }
  return tryOut({ source, destination, protocol, port, isToNode: node === 'destination' })
}

function portOf(text: string): { readonly port: number; readonly protocol: Protocol } {
  const [, number = '', word = 'tcp'] = /^(\d{1,5})(?:\/(tcp|udp|sctp))?$/i.exec(text) ?? []
  const port = Number(number)
  if (port < 1 || port > 65_535)
    throw new ValueError(
      `Cannot read the port ${shown(text)}: want a number from 1 to 65535, and tcp, udp or sctp: 80/tcp`,
    )
  return { port, protocol: word.toUpperCase() as Protocol }
}

/** Formats the pods of the node as a table. */
export function listText(pods: readonly PodSummary[]): string {
  if (pods.length === 0) return 'there are no pods on this node'
  const rulesOf = (isClosed: boolean, policies: readonly string[]) =>
    isClosed ? 'closed: its object is not known yet' : policies.join(', ') || '-'
  return table(
    ['POD', 'ADDRESSES', 'INGRESS', 'EGRESS'],
    pods.map(({ pod, addresses, isClosed, ingress, egress }) => [
      pod,
      addresses.join(' '),
      rulesOf(isClosed, ingress),
      rulesOf(isClosed, egress),
    ]),
  )
}

/** Formats one pod with what may reach it and what it may reach. */
export function podText({ pod, addresses, isClosed, ingress, egress }: PodDetail): string {
  const head = `${pod}  ${addresses.join(' ')}`
  if (isClosed) return `${head}\n\nclosed in both directions: the cluster has no object of it yet`
  const sides = [sideText('what may reach it (ingress)', ingress), sideText('what it may reach (egress)', egress)]
  return [head, ...sides].join('\n\n')
}

function sideText(title: string, side: SideView): string {
  return [`${title}:`, ...side.rules.flatMap(ruleText), `  ${restText(side)}`].join('\n')
}

function restText({ isolatedBy, rules }: SideView): string {
  if (isolatedBy.length > 0) return `all else is refused: isolated by ${isolatedBy.join(', ')}`
  if (rules.length > 0) return 'all else passes: no NetworkPolicy selects the pod'
  return 'everything: no policy selects the pod'
}

const ACTIONS = { Accept: 'passes', Deny: 'is refused', Pass: 'is for the next tier to decide' } as const

function ruleText({ rule, action, peers, ports, pods }: RuleView): string[] {
  const who = peers.length > 0 ? peers.join('; ') : 'nobody'
  return [
    `  ${who}, ${ports.join(', ')}: ${ACTIONS[action]} (${rule})`,
    ...(pods.length > 0 ? [`    now ${pods.join(', ')}`] : []),
  ]
}

/** Formats what `plumb policy test` found. */
export function testText(tested: Tested): string {
  const { from, to, protocol, asked, port, source, destination, service } = tested
  const { verdict, here, kernel, isAudit, agree } = tested
  const differing = 'THEY DIFFER: the kernel does not do what the objects want'
  const describe = ({ passes, reason }: Arrival) => `${passes ? 'passes' : 'is refused'}: ${reason}`
  const isElsewhere = verdict.passes !== here.passes
  return [
    `${protocol} ${from} (${source}) to ${to} (${destination}${port === asked ? '' : ` port ${port}`}) port ${asked}`,
    ...(service === undefined ? [] : [`  service: ${service}`]),
    `  objects: ${describe(verdict)}`,
    ...(isElsewhere ? [`  of this node: ${describe(here)}; the other pod's node decides the rest`] : []),
    `  kernel:  ${describe(kernel)}`,
    ...(isAudit ? ['  audit mode: the kernel drops nothing'] : []),
    ...(agree ? [] : [`  ${differing}. plumb status and the log of the agent may say why`]),
  ].join('\n')
}

function help(): string {
  return `usage: plumb policy [options]: the pods of this node and the policies that select them
       plumb policy NAMESPACE/POD [options]: what may reach a pod, and what it may reach
       plumb policy test FROM TO PORT[/PROTOCOL] [options]: whether a connection passes
       plumb policy compare FILE [options]: what policies would change that nobody has applied

FROM and TO are pods, as NAMESPACE/NAME, or addresses; TO may be an address of a Service that
plumb serves. PROTOCOL is tcp, udp or sctp.
The test asks the objects of the cluster, and tries a packet on a copy of the node's
rules in a namespace of its own. It needs root.
FILE has NetworkPolicy or ClusterNetworkPolicy objects in YAML or JSON, and - is standard
input. The comparison is between the pods of this node and all pods. Nothing is applied.

${describeOptions(names)}

exit status: 0 done, 2 the command line is wrong or no agent answers.
Of test: 0 it passes, 1 it is refused, 3 the kernel differs from the objects.
Of compare: 0 nothing would change, 1 something would`
}
