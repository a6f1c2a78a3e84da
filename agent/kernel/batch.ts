import { failures } from '../../lib/os/iproute2.ts'
import type { Run } from '../../lib/os/run.ts'
import type { Line } from '../../lib/state/handler.ts'
import { handler } from '../../lib/state/kinds/index.ts'
import { linesOf, type Resource, title } from '../../lib/state/resource.ts'
import { ExecError, missingModule } from '../../lib/text/errors.ts'
import { andMore } from '../../lib/text/listing.ts'
import { tidy } from '../node/garbage.ts'
import { deviceOf } from './memory.ts'
import { performWireguard } from './wireguard.ts'

/** One resource to make (`put`) or to remove. The tool's lines are made on demand, as there may be forty thousand. */
export interface Step {
  readonly resource: Resource
  readonly put: boolean
  /** The resource in the kernel that the step replaces. */
  readonly over?: Resource
}

/** The programs that the converger gives its steps to. */
export type Tool = 'ip' | 'bridge' | 'wg'

/**
 * The step that makes a missing resource. With `takeOver`, a route also replaces another program's route to the same
 * destination.
 */
export function putOf(resource: Resource, takeOver?: true): Step {
  return takeOver && resource.kind === 'route' ? { resource, put: true, over: resource } : { resource, put: true }
}

/** The step that changes an existing resource into the wanted one. */
export function changeOf(want: Resource, have: Resource): Step {
  return { resource: want, put: true, over: have }
}

/** The step that removes a resource. */
export function dropOf(resource: Resource): Step {
  return { resource, put: false }
}

/**
 * Gives a tool all lines in one process, at most ten thousand steps at a time. After an error it still tries the
 * following lines. It skips the lines of a device that is gone. Gives the failed steps, each with the tool's message.
 * Throws ExecError when the tool ended before the last line.
 */
export async function perform(tool: Tool, steps: readonly Step[], run: Run): Promise<Map<Step, string>> {
  if (tool === 'wg') return wireguard(steps, run)
  const failed = new Map<Step, string>()
  for (let at = 0; at < steps.length; at += MOST) {
    const slice = steps.length <= MOST ? steps : steps.slice(at, at + MOST)
    const left = slice.length < MANY ? slice : await eager(tool, slice, failed, run)
    if (left.length === 0) continue
    const messages = await tried([tool, '-force', '-batch', '-'], left, run)
    const all = messages.size > 0 ? numbered(left) : []
    for (const [number, text] of messages) {
      const step = all[number - 1]
      if (step && !step.line.unless?.test(text) && !failed.has(step.step)) failed.set(step.step, text)
    }
  }
  return failed
}

async function wireguard(steps: readonly Step[], run: Run): Promise<Map<Step, string>> {
  const made = (isPut: boolean) =>
    steps.flatMap(({ resource, put }) =>
      put === isPut && (resource.kind === 'wgdevice' || resource.kind === 'wgpeer') ? [resource] : [],
    )
  const failed = await performWireguard(made(true), made(false), run)
  return new Map(
    steps.flatMap((step) => {
      const message = failed.get(step.resource)
      return message === undefined ? [] : [[step, message] as const]
    }),
  )
}

// From MANY steps on, `eager` looks for a missing device first. MOST limits one process, because more text takes
// several copies of many megabytes.
const [MANY, MOST] = [500, 10_000]

// Without `-force`, the tool stops at the first error. If a device is gone, this error stands for all lines of that
// device. Otherwise thousands of lines fail one by one, for seconds. Gives the steps that still must be tried.
async function eager(tool: string, steps: readonly Step[], failed: Map<Step, string>, run: Run): Promise<Step[]> {
  const [first] = await tried([tool, '-batch', '-'], steps, run)
  if (!first) return []
  const [number, message] = first
  const at = numbered(steps)[number - 1]?.step ?? (steps[0] as Step)
  const left = steps.slice(steps.indexOf(at))
  if (!/^Cannot find device/.test(message)) return left
  const dev = deviceOf(at.resource)
  const stands = (one: Step) => deviceOf(one.resource) === dev
  for (const one of left) if (one.put && stands(one)) failed.set(one, message)
  return left.filter((one) => !stands(one))
}

async function tried(argv: readonly string[], steps: readonly Step[], run: Run): Promise<ReadonlyMap<number, string>> {
  const text = script(steps)
  tidy(steps.length)
  const { status, stderr } = await run(argv, text)
  if (status === 0) return new Map()
  const { byLine, rest } = failures(stderr)
  // iproute2 stops at a word that it cannot parse, and gives no line number.
  if (byLine.size === 0 || !/^(Warning: .*)?$/.test(rest))
    throw new ExecError(argv, undefined, rest || `ended with status ${status}`)
  return byLine
}

function numbered(steps: readonly Step[]): readonly { readonly step: Step; readonly line: Line }[] {
  return steps.flatMap((step) => linesFor(step).map((line) => ({ step, line })))
}

function linesFor({ resource, put, over }: Step): readonly Line[] {
  return put ? linesOf({ want: resource, ...(over && { have: over }) }) : handler(resource.kind).drop(resource)
}

function script(steps: readonly Step[]): string {
  const texts: string[] = []
  for (const step of steps) for (const { text } of linesFor(step)) texts.push(text)
  texts.push('')
  return texts.join('\n')
}

/** Describes the failures with one sentence per kind and reason. One sentence may stand for many resources. */
export function sentences(failed: ReadonlyMap<Step, string>): string[] {
  const groups = new Map<string, Step[]>()
  for (const [step, message] of failed) {
    const reason = `${step.put ? 'make' : 'remove'} ${step.resource.kind} ${message}`
    const group = groups.get(reason)
    if (group) group.push(step)
    else groups.set(reason, [step])
  }
  return [...groups.values()].map((steps) => {
    const [first] = steps as [Step]
    const what = `${first.put ? 'make' : 'remove'} ${title(first.resource)}${andMore(steps.length - 1)}`
    return `Cannot ${what}: ${reasonOf(first, failed.get(first) as string)}`
  })
}

function reasonOf({ resource }: Step, message: string): string {
  const missing = resource.kind === 'link' ? missingModule(`link add type ${resource.type}`, message) : undefined
  if (missing) return `${message}: ${missing}`
  if (resource.kind === 'route' && /File exists/.test(message))
    return `another program has a route there (see: ip route show ${resource.dst})`
  if (resource.kind !== 'route' && resource.kind !== 'nexthop') return message
  if (!resource.onlink || !/device mismatch/.test(message)) return message
  const gateway = resource.kind === 'route' ? resource.via[0] : resource.via
  return `another program has a route there (see: ip -6 route get ${gateway})`
}
