// Resources are links, addresses, routes, nft elements and other kernel objects, as plain data. This folder makes,
// removes (here) and reads (observe.ts) them. Begin with `apply` below, then handler.ts. kinds/ has the handlers.

import { giveBack, take } from '../journal/ports.ts'
import { admit, release } from '../nft/admission.ts'
import { applyElements } from '../nft/elements.ts'
import { zone } from '../nft/firewalld.ts'
import { forgetFlows } from '../nft/flows.ts'
import { pass } from '../nft/passage.ts'
import { BLIND, NFT, SHAPING } from '../os/batch-tools.ts'
import { failures } from '../os/iproute2.ts'
import { inside } from '../os/netns.ts'
import type { Run } from '../os/run.ts'
import { readSysctl, restoreSysctl, writeSysctl } from '../os/sysctls.ts'
import { shortDigest } from '../text/digest.ts'
import { ExecError } from '../text/errors.ts'
import type { Netns } from '../text/values.ts'
import type { Batch, Step } from './batch.ts'
import type { Line } from './handler.ts'
import type { Flows } from './kinds/flows.ts'
import { handler } from './kinds/index.ts'
import type { Plan, Resource } from './resource.ts'
import { keepSaved } from './tuning-file.ts'

/** The outcome of a plan. `already` lists the resources that existed before the plan ran. */
export interface Applied {
  readonly already: readonly Resource[]
}
/**
 * A tool refused a line. `resource` is the resource of that line. `exists` says that a link to create exists already.
 */
export class ApplyError extends ExecError {
  override name = 'ApplyError'
  readonly resource: Resource
  readonly exists: boolean
  constructor(batch: Batch, step: Step, said: string) {
    super([batch.tool, ...(batch.ns === 'host' ? [] : ['in', batch.ns])], step.line.text, said)
    this.resource = step.resource
    this.exists = /File exists|VLAN device already exists/.test(said) && step.resource.kind === 'link'
  }
}

const NOTHING: Applied = { already: [] }

/**
 * Removes and makes the resources of a plan without looking at them first. Starts one process per namespace and tool,
 * one after the other in the order of `batches`. Every line is idempotent, except exclusive creations such as that of a
 * link. The node agent works beside all of them, and its answer is awaited at the end. Throws ApplyError for the first
 * line that failed.
 */
export function apply(plan: Plan, run: Run): Promise<Applied> {
  return carryOut(lacking(plan, run), plan, run)
}

async function carryOut(all: readonly Batch[], plan: Plan, run: Run): Promise<Applied> {
  const already: Resource[] = []
  for (const { tool, ns } of all.slice(1))
    if (tool === 'nft' || tool === 'tc') run.prepare?.(tool === 'nft' ? NFT : SHAPING, ns)
  // The agent needs nothing of what this plan makes.
  const agent = all.find(({ tool }) => tool === 'agent')
  const answered = agent && asking(agent, plan, run)
  try {
    for (const batch of all) if (batch !== agent) already.push(...(await perform(batch, plan, run)).already)
    await answered?.()
  } catch (cause) {
    // The caller undoes the plan after this error. The agent must have answered first.
    await answered?.().catch(() => {})
    throw cause
  }
  return { already }
}

/**
 * A started plan. `ahead` gives the first process its input when that process needs no other batch first. `finish` does
 * the rest and waits. Repeated calls of `finish` run the plan once.
 */
export interface Begun {
  ahead(): void
  finish(): Promise<Applied>
}

/** `apply` in two steps: `ahead`, which is optional, and `finish`. */
export function gradually(plan: Plan, run: Run): Begun {
  let all: readonly Batch[] | undefined
  let done: Promise<Applied> | undefined
  return {
    ahead() {
      all = lacking(plan, run)
      const [first] = all
      if (first?.tool === 'ip') run.feed?.(argvOf(first), inputOf(first.steps), first.ns)
    },
    finish: () => (done ??= carryOut(all ?? lacking(plan, run), plan, run)),
  }
}

const ON_NODE = ['ip', 'ip6', 'file', 'bridge', 'tc'] as const
const IN_POD = ['file', 'ip', 'ip6', 'bridge'] as const

/**
 * The processes of a plan, in order. Pure. The rules of the order:
 * - The node comes before pods.
 * - In a pod sysctls come before addresses.
 * - Within a process, removed resources come before made resources.
 * - nft comes after the links, files, addresses and qdiscs of all namespaces. conntrack, iptables and firewalld come
 *   after nft.
 */
export function batches({ put, drop }: Plan): Batch[] {
  const steps = new Map<string, Step[]>()
  const add = (resource: Resource, lines: readonly Line[]) => {
    const tool = toolOf(resource)
    for (const line of lines) {
      const place = placeOf({ ns: line.ns ?? resource.ns, tool })
      const before = steps.get(place)
      if (before) before.push({ resource, line })
      else steps.set(place, [{ resource, line }])
    }
  }
  for (const resource of drop) add(resource, handler(resource.kind).drop(resource))
  for (const resource of put) add(resource, handler(resource.kind).put(resource))
  const spaces = [...new Set<Netns>(['host', ...[...drop, ...put].map(({ ns }) => ns)])]
  const order: Pick<Batch, 'ns' | 'tool'>[] = [
    ...spaces.flatMap((ns) => (ns === 'host' ? ON_NODE : IN_POD).map((tool) => ({ ns, tool }))),
    ...spaces.map((ns) => ({ ns, tool: 'nft' as const })),
    ...spaces.map((ns) => ({ ns, tool: 'conntrack' as const })),
    ...(['iptables', 'firewalld', 'agent'] as const).map((tool) => ({ ns: 'host' as const, tool })),
  ]
  return order.flatMap(({ ns, tool }) => {
    const own = steps.get(placeOf({ ns, tool }))
    return own ? [{ ns, tool, steps: tool === 'ip' ? atOnce(own) : own }] : []
  })
}

function placeOf({ ns, tool }: Pick<Batch, 'ns' | 'tool'>): string {
  return `${tool} ${ns}`
}

// Leaves out lines that only run when a link is absent (`absent`) and the link exists. Without `run.link` the tool
// itself finds out.
function lacking(plan: Plan, run: Run): Batch[] {
  return batches(plan)
    .map((batch) => ({
      ...batch,
      steps: batch.steps.filter(({ line }) => line.absent === undefined || !run.link?.(line.absent, batch.ns)),
    }))
    .filter((batch) => batch.steps.length > 0)
}

const DELETION = 'link delete dev '

// The kernel waits about 20 ms for each deleted link, until no reader uses the link any more. For a group of links it
// waits once. So the links get a common group, and one line deletes the group. One link gets a group of its own, because
// the group shows in the kernel's report who deleted the link (lib/os/link-removal.ts). That counts only at the end.
function atOnce(steps: readonly Step[]): readonly Step[] {
  const names = steps.flatMap(({ line }) => deleted(line) ?? [])
  const last = steps.findLastIndex(({ line }) => deleted(line) !== undefined)
  if (names.length === 0 || (names.length === 1 && last < steps.length - 1)) return steps
  // The number derives from the last link's name, so that no other program uses the same group.
  const group = 0x5000_0000 + (shortDigest(names.at(-1) as string) >>> 4)
  return steps.flatMap(({ resource, line }, i) => {
    const name = deleted(line)
    if (name === undefined) return { resource, line }
    const grouped = { resource, line: { ...line, text: `link set dev ${name} group ${group}` } }
    if (i < last) return grouped
    const deletion = { text: `link delete group ${group}`, unless: /No such device|Cannot find device/ }
    return [grouped, { resource, line: deletion }]
  })
}

function deleted({ text }: Line): string | undefined {
  return text.startsWith(DELETION) ? text.slice(DELETION.length) : undefined
}

function toolOf(resource: Resource): Batch['tool'] {
  const { tool, toolOf } = handler(resource.kind)
  return toolOf?.(resource) ?? tool
}

async function perform(batch: Batch, plan: Plan, run: Run): Promise<Applied> {
  const { ns, tool } = batch
  if (tool === 'file') return files(batch, plan)
  if (tool === 'iptables') {
    for (const resource of new Set(batch.steps.map((step) => step.resource)))
      if (resource.kind === 'passage') await pass(resource, run)
    return NOTHING
  }
  if (tool === 'firewalld') {
    for (const { resource } of batch.steps)
      if (resource.kind === 'zoned')
        await zone(plan.drop.includes(resource) ? 'removeSource' : 'addSource', resource, run)
    return NOTHING
  }
  if (tool !== 'nft' && tool !== 'conntrack') return lines(batch, run)
  if (tool === 'nft') await applyElements(batch, run)
  else await forgetFlows(ns, { given: plan.put.filter(isFlows), taken: plan.drop.filter(isFlows) }, run)
  return NOTHING
}

// Sends the questions at once. The returned function waits for the answers, once.
function asking({ steps }: Batch, { drop }: Plan, run: Run): () => Promise<void> {
  const answers = steps.flatMap(({ resource }) =>
    resource.kind === 'admission' ? (drop.includes(resource) ? release : admit)(resource, run) : [],
  )
  return async () => {
    for (let next = answers.shift(); next; next = answers.shift()) await next()
  }
}

function isFlows(resource: Resource): resource is Flows {
  return resource.kind === 'flows'
}

// Without -force the tool stops at the first failed line. When the message only says that the wanted state exists, a
// new process runs the remaining lines.
async function lines(batch: Batch, run: Run): Promise<Applied> {
  const { ns, tool } = batch
  const already: Resource[] = []
  for (let rest = batch.steps; rest.length > 0; ) {
    const argv = argvOf({ tool, steps: rest })
    const { status, stderr } = await run(argv, inputOf(rest), ns)
    const [failed] = failures(stderr).byLine
    const [number, said] = failed ?? [rest.length + 1, '']
    if (status === 0) break
    const step = rest[number - 1]
    // A value that the tool cannot parse ends the tool without a line number.
    if (!failed || !step) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
    if (!step.line.unless?.test(said)) throw new ApplyError(batch, step, said)
    already.push(step.resource)
    rest = [...(step.line.otherwise ?? []).map((line) => ({ resource: step.resource, line })), ...rest.slice(number)]
  }
  return { already }
}

/**
 * The argv of a batch of `ip`, `ip -6`, `bridge` or `tc` lines. `runcon` sets the SELinux context when a link in the
 * batch asks for one.
 */
export function argvOf({ tool, steps }: Pick<Batch, 'tool' | 'steps'>): string[] {
  const contexts = steps.flatMap(({ resource }) => (resource.kind === 'link' && resource.born?.context) || [])
  return [
    ...(contexts[0] === undefined ? [] : ['runcon', contexts[0]]),
    ...(tool === 'ip6' ? ['ip', '-6'] : [tool]),
    ...BLIND.slice(1),
  ]
}

function inputOf(steps: readonly Step[]): string {
  return steps.map(({ line }) => `${line.text}\n`).join('')
}

function files({ ns, steps }: Batch, { put, drop }: Plan): Applied {
  const claims = (resources: readonly Resource[]) => resources.filter((one) => one.kind === 'claim')
  if (ns === 'host' && claims(drop).length > 0) giveBack(claims(drop))
  if (ns === 'host' && claims(put).length > 0) take(claims(put))
  const gone = new Set(drop)
  inside(ns, () => {
    for (const { resource } of steps) {
      if (resource.kind === 'saved') keepSaved(resource, !gone.has(resource))
      if (resource.kind !== 'sysctl') continue
      if (gone.has(resource)) {
        restoreSysctl(resource)
        continue
      }
      const { name, value, through = name, optional } = resource
      // A sysctl of the node usually has the wanted value already, and may be read-only. So the node's value is read
      // first. A new link's sysctl usually differs, so it is written without a look.
      if (ns === 'host' && readSysctl(name) === value) continue
      if (!writeSysctl(through, value) && !optional)
        throw new ExecError(['sysctl', '-w'], `net/${name}=${value}`, 'this kernel has no such setting')
    }
  })
  return NOTHING
}
