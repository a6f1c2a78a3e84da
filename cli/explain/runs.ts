import type { Work } from '../../lib/cni/plugin.ts'
import { addingTo, loading } from '../../lib/nft/elements.ts'
import { asking } from '../../lib/nft/firewalld.ts'
import { restoring } from '../../lib/nft/passage.ts'
import { SETS, sectionsOf } from '../../lib/nft/ruleset.ts'
import { NFT } from '../../lib/os/batch-tools.ts'
import { has } from '../../lib/os/exec.ts'
import { argvOf, batches } from '../../lib/state/apply.ts'
import type { Batch } from '../../lib/state/batch.ts'
import type { Line } from '../../lib/state/handler.ts'
import { type Flows, listsOf } from '../../lib/state/kinds/flows.ts'
import { handler } from '../../lib/state/kinds/index.ts'
import type { Link } from '../../lib/state/kinds/link.ts'
import { type Plan, type Resource, title } from '../../lib/state/resource.ts'
import type { ExplainedLine, ExplainedRun } from './explanation.ts'

/** Returns the condition under which a resource of a plan is made or removed. Undefined means always. */
export type Condition = (resource: Resource) => string | undefined

/**
 * Returns what `apply` would run and write for a plan, in the order of `apply`. `when` gives a resource's condition.
 */
export function runsOf(plan: Plan, when: Condition = () => undefined): ExplainedRun[] {
  const all = batches(plan)
  return all.flatMap((batch): ExplainedRun[] => {
    if (batch.tool === 'nft') return transactions(batch, plan)
    if (batch.tool === 'conntrack') return forgetting(batch, plan)
    if (batch.tool === 'iptables') return passing(batch)
    if (batch.tool === 'firewalld') return zoning(batch, plan)
    const { ns: namespace, tool } = batch
    const lines = batch.steps.flatMap(({ resource, line }) =>
      lineOf(resource, line, plan.drop.includes(resource), when(resource)),
    )
    if (tool === 'agent') {
      const about = 'questions to the node agent, no process'
      return [{ namespace, tool, argv: [], lines, about, ...(all.length > 1 && { inBackground: true as const }) }]
    }
    if (tool !== 'file') return [{ namespace, tool, argv: argvOf(batch), lines }]
    const about = batch.steps.some(({ resource }) => resource.kind === 'claim')
      ? 'links below /run/cni/plumb/shared/ports, no process'
      : 'files below /proc/sys, no process'
    return [{ namespace, tool, argv: [], lines, about }]
  })
}

/** Returns the runs that remove an attachment's own resources. A link that the kernel does not know needs no run. */
export function unwiring(own: readonly Resource[]): ExplainedRun[] {
  return runsOf({ put: [], drop: own }, (one) => (one.kind === 'link' ? whenThere(one) : undefined))
}

// In a pod any program may use the name of the link. Only the alias shows that the link is plumb's.
function whenThere(one: Link): string {
  if (one.ns === 'host') return `only when ${title(one)} is there`
  return one.alias === undefined
    ? `only now: an ADD was killed before ${title(one)} had its name`
    : `only when ${title(one)} is there, with the alias ${one.alias}`
}

/** Converts the work of a custom plugin to a run. */
export function runOf({ ns, lines }: Work): ExplainedRun {
  return { namespace: ns, tool: 'kernel', argv: [], lines, about: 'calls of the kernel, no process' }
}

function lineOf(resource: Resource, line: Line, gone: boolean, when: string | undefined): ExplainedLine[] {
  const { text, unless, otherwise = [] } = line
  const there = `only when ${title(resource)} is there already`
  const condition =
    when ??
    (line.absent ? `only when ${title(resource)} is not there` : undefined) ??
    (resource.kind === 'sysctl' && resource.ns === 'host' ? 'only when it is not so already' : undefined)
  return [
    {
      text,
      about: purpose(resource, line, gone),
      ...(unless ? { already: unless.source } : {}),
      ...(condition === undefined ? {} : { when: condition }),
    },
    ...otherwise.flatMap((one) => lineOf(resource, one, gone, there)),
  ]
}

const OTHERS = 'with what other pods that live have of them'
const ABSENT = `only when table inet plumb has not got these rules, or another version of them; ${OTHERS}`
function rulesText(text: string): string {
  if (text.startsWith('add set')) return 'a mark, named after the rules'
  return text.startsWith('add element') ? 'the rules are loaded' : 'rules that plumb installs'
}
const ABOUT = new Map([
  ['add table inet plumb', 'the one table of plugins'],
  [SETS, 'the sets and maps that the rules look up'],
])

// The first transaction adds to a table that has the rules. Only when nft does not find the rules, a second transaction
// loads them first.
function transactions({ ns, tool, steps }: Batch, { drop }: Plan): ExplainedRun[] {
  const run = (lines: readonly ExplainedLine[], when = {}): ExplainedRun => ({
    namespace: ns,
    tool,
    argv: NFT,
    lines,
    ...when,
  })
  const linesOf = (some: Batch['steps']) =>
    some.flatMap(({ resource, line }) => lineOf(resource, line, drop.includes(resource), undefined))
  const removed = linesOf(steps.filter(({ line }) => line.unless))
  const made = linesOf(steps.filter(({ line }) => !line.unless))
  const sections = sectionsOf(steps.map(({ resource }) => resource))
  const about = new Map(made.map((line) => [line.text, line]))
  const MARKED = "the rules are loaded, and this version's; an error where they are not"
  const marked = [...addingTo(sections, []).map((text) => ({ text, about: MARKED })), ...made]
  const resources = [...new Set(steps.filter(({ line }) => !line.unless).map(({ resource }) => resource))]
  const load = loading(sections, resources).map(
    (text) => about.get(text) ?? { text, about: ABOUT.get(text) ?? rulesText(text) },
  )
  const repair = 'what another network is in the way of, or others flushed, is put right in a further one'
  const adding = made.length === 0 ? [] : [{ ...run(marked), about: repair }, run(load, { when: ABSENT })]
  return [...(removed.length > 0 ? [run(removed)] : []), ...adding]
}

// Rules that exist are not made again. When all rules exist, no process starts.
function passing({ ns, tool, steps }: Batch): ExplainedRun[] {
  const passages = new Map(steps.map(({ resource }) => [resource, steps.filter((one) => one.resource === resource)]))
  return [...passages].map(([resource, own]) => {
    const lines = own.map(({ line }) => ({ text: line.text, about: purpose(resource, line) }))
    const family = resource.kind === 'passage' && resource.family === 6 ? 'ip6' : 'ip'
    return {
      namespace: ns,
      tool,
      argv: restoring(`${family}tables-nft`),
      lines,
      when: 'only when it is not there yet, and then only what is missing',
      about: "what is to pass also passes iptables' own rules; the older iptables-legacy is asked where it is in use",
    }
  })
}

// One process for each source. A removal starts no process when firewalld does not run.
function zoning({ ns, tool, steps }: Batch, { drop }: Plan): ExplainedRun[] {
  return steps.map(({ resource, line }) => {
    const [method = '', zone = '', source = ''] = line.text.split(' ')
    const isGone = drop.includes(resource)
    return {
      namespace: ns,
      tool,
      argv: asking(method, zone, source),
      lines: [],
      about: purpose(resource, line, isGone),
      ...(isGone && { when: 'only when firewalld runs' }),
    }
  })
}

// Each family has one list for several ports, and two lists for a single port. Then one process forgets the stale
// connections of all lists.
function forgetting({ ns, tool, steps }: Batch, { put }: Plan): ExplainedRun[] {
  const when = has('conntrack') ? {} : { when: 'only when conntrack is installed, which it is not here' }
  const given = steps.filter(({ resource }) => put.includes(resource))
  const taken = steps.filter((step) => !given.includes(step))
  const lists = ([4, 6] as const).flatMap((family): ExplainedRun[] => {
    const [first, ...others] = given.map(({ resource }) => resource as Flows).filter((one) => one.family === family)
    if (!first) return []
    const ports = others.length > 0 ? 'these ports' : `port ${first.port}`
    const stale = `those to ${ports}, or from there, that lead elsewhere`
    const about = `IPv${family} connections of a former owner: ${stale} are forgotten (conntrack -R -)`
    return listsOf([first, ...others]).map((list) => ({
      namespace: ns,
      tool,
      argv: ['conntrack', ...list.split(' ')],
      lines: [],
      about,
      ...when,
    }))
  })
  const lines = taken.map(({ resource, line }) => ({ text: line.text, about: purpose(resource, line, true) }))
  return [
    ...lists,
    ...(lines.length > 0 ? [{ namespace: ns, tool, argv: ['conntrack', '-R', '-'], lines, ...when }] : []),
  ]
}

function purpose(resource: Resource, line: Line, gone = false): string {
  return handler(resource.kind).purpose(resource, line, gone)
}
