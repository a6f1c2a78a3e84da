import type { Run } from '../../lib/os/run.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { title } from '../../lib/state/resource.ts'
import { isTraced, traced } from '../scheduler/spans.ts'
import { perform, type Step, sentences, type Tool } from './batch.ts'
import { face } from './diff.ts'
import { deviceOf, type KernelState, KINDS, type Waiting } from './memory.ts'

/** A resource that another program had changed and a step repaired. */
export interface Repaired {
  readonly key: string
  readonly title: string
}
/** The result of a step. */
export interface Outcome {
  /** The number of resources that were made, changed or removed. */
  readonly changed: number
  /** The failed steps, each with the tool's message. */
  readonly failures: ReadonlyMap<Step, string>
  /** The failures with one sentence per kind and reason. */
  readonly failed: readonly string[]
  /** The repaired resources by kind. Another program had changed them. */
  readonly repaired: Readonly<Record<string, readonly Repaired[]>>
  readonly counts: Readonly<Record<string, { readonly wanted: number; readonly programmed: number }>>
}

/** The wanted resources by kind. */
export type Group = Readonly<Record<(typeof KINDS)[number], readonly Resource[]>>

/** Counts the changes, the failures and the repairs of one step. */
export class Tally {
  readonly #state: KernelState
  readonly #failed = new Map<Step, string>()
  readonly #resources = new Set<Resource>()
  readonly #repaired: Record<string, Repaired[]> = {}
  readonly #waiting = new Map<string, Waiting>()
  readonly #drifted = new Set<string>()
  #changed = 0

  constructor(state: KernelState) {
    this.#state = state
    this.notice()
  }

  /** Takes in the changes by other programs that are known by now. */
  notice(): void {
    for (const key of this.#state.takeDrift()) this.#drifted.add(key)
  }

  /**
   * Performs the steps. Their results count as known before the tool runs, so that their events match when they come.
   * Throws ExecError.
   */
  async perform(tool: Tool, steps: readonly Step[], run: Run): Promise<void> {
    const before = steps.map(({ resource, put }) => this.#assume(resource, put))
    const failed = await (isTraced() && steps.length > 0 ? tracedPerform(tool, steps, run) : perform(tool, steps, run))
    for (const [i, step] of steps.entries()) {
      const message = failed.get(step)
      if (message === undefined) {
        this.done(step.resource)
        continue
      }
      this.fail(step, message)
      const known = this.#state.of(step.resource.kind)
      if (step.put || !before[i]) known.delete(face(step.resource).key)
      else known.set(face(step.resource).key, before[i])
    }
  }

  done(resource: Resource): void {
    this.#changed++
    const { key } = face(resource)
    if (this.#drifted.size === 0 || !this.#drifted.delete(key)) return
    const repaired = this.#repaired[resource.kind] ?? []
    repaired.push({ key, title: title(resource) })
    this.#repaired[resource.kind] = repaired
  }

  fail(step: Step, message: string): void {
    const { resource } = step
    const { key } = face(resource)
    // The resource may exist without being known, so its kind is listed again. After the same message, another list
    // shows nothing new.
    if (this.#state.waiting.get(key)?.message !== message) this.#state.invalidate(resource.kind)
    this.#state.unsettle(resource.kind)
    this.#failed.set(step, message)
    this.#resources.add(resource)
    this.#waiting.set(key, { dev: resource.kind === 'link' ? resource.vxlan?.dev : deviceOf(resource), message })
  }

  /** Notes a resource that must wait, for example for a taken id. Meanwhile another resource serves instead. */
  awaits(resource: Resource, message: string): void {
    this.#waiting.set(face(resource).key, { dev: deviceOf(resource), message })
  }

  /** Notes a resource that is left unchanged for now. It counts as not made. */
  holdBack(resource: Resource): void {
    this.#state.unsettle(resource.kind)
    this.#resources.add(resource)
    this.awaits(resource, 'it is held back')
  }

  hasFailed(resource: Resource): boolean {
    return this.#resources.has(resource)
  }

  outcome(group: Group, unusable: ReadonlySet<string>): Outcome {
    for (const key of this.#drifted) if (this.#waiting.has(key)) this.#state.drifted.add(key)
    this.#state.waiting = this.#waiting
    const missing = (one: Resource) =>
      this.#resources.has(one) || (unusable.size > 0 && unusable.has(deviceOf(one) ?? ''))
    const lacking = this.#resources.size > 0 || unusable.size > 0
    const counted = (all: readonly Resource[]) => {
      return { wanted: all.length, programmed: lacking ? all.filter((one) => !missing(one)).length : all.length }
    }
    const counts = Object.fromEntries(KINDS.map((kind) => [kind, counted(group[kind])]))
    return {
      changed: this.#changed,
      failures: this.#failed,
      failed: sentences(this.#failed),
      repaired: this.#repaired,
      counts,
    }
  }

  #assume(resource: Resource, put: boolean) {
    const entry = face(resource)
    const { key } = entry
    const known = this.#state.of(resource.kind)
    const before = known.get(key)
    if (put) known.set(key, entry)
    else known.delete(key)
    this.#state.uses(resource)
    if (resource.kind === 'link') this.#state.making(resource.name)
    return before
  }
}

// The changes of one tool, as a span around the tool.
function tracedPerform(tool: Tool, steps: readonly Step[], run: Run): ReturnType<typeof perform> {
  const puts = steps.filter(({ put }) => put).length
  return traced(
    `apply ${tool}`,
    {
      attributes: { 'plumb.puts': puts, 'plumb.drops': steps.length - puts },
      outcome: (failed) => ({ error: failed.size === 0 ? undefined : sentences(failed).join('; ') }),
    },
    () => perform(tool, steps, run),
  )
}
