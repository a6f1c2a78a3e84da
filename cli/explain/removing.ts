import type { Call } from '../../lib/cni/call.ts'
import type { Plugin } from '../../lib/cni/plugin.ts'
import { partsOf, readEntry } from '../../lib/journal/journal.ts'
import { following, holds } from '../../lib/journal/ports.ts'
import { MASQUERADE } from '../../lib/nft/masquerade.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { readLoose } from '../../lib/text/shape.ts'
import { through } from '../../lib/verbs/delegating.ts'
import { apart, removing } from '../../lib/verbs/journal-parts.ts'
import { findDelegate } from '../../lib/verbs/meta.ts'
import { lastOf } from '../../lib/verbs/shared-links.ts'
import { ROUTED } from '../../lib/wiring/routed.ts'
import { noted } from './adding.ts'
import { mayBeDeleted } from './calls.ts'
import type { ExplainedPlugin, ExplainedRun } from './explanation.ts'
import { runOf, runsOf, unwiring } from './runs.ts'
import { isOthersToo, visible } from './visibility.ts'

type Removed = Pick<ExplainedPlugin, 'runs' | 'isWhole' | 'notes'>

/**
 * Explains DEL by a plugin of this executable. `own` is what ADD of the plugin would note, when that is known. Throws
 * the error that the plugin would answer.
 */
export async function deleting(plugin: Plugin, call: Call, own: readonly Resource[] | undefined): Promise<Removed> {
  if (plugin.role === 'delegating') {
    const { other, inner } = await through(plugin, call, readLoose(plugin.conf, call.raw))
    return deleting(other, inner, own)
  }
  mayBeDeleted(call)
  if (plugin.role === 'interface') {
    const conf = readLoose(plugin.conf, call.raw)
    const theirs = 'what a reference plugin made of the same attachment is looked for and removed'
    const foreign = plugin.unwireForeign ? [`when nothing of plumb was there, ${theirs}`] : []
    const types = [MASQUERADE, ROUTED, ...(plugin.within?.(conf) ?? []).map(({ type }) => type)]
    const parts = types.flatMap((type) => noted(type, call) ?? [])
    const held = parts.length > 0 || !own ? following(parts, holds) : following(own, () => true)
    const entry = visible(() => readEntry(call.at))
    const gone = entry ? partsOf(entry).map(([part]) => part) : []
    const holders = unwiring(visible(() => lastOf(call.at)) ?? []).map((run) => ({
      ...run,
      when: 'only when no other attachment needs it by then',
    }))
    const isRepeated = (one: Resource, i: number) => held.slice(i + 1).some((other) => isSameElement(one, other))
    const going = held.filter((one, i) => !isOthersToo(one, gone) && !isRepeated(one, i))
    return {
      runs: [...removingAround(going, plugin.unwire(call.at)), ...holders],
      isWhole: true,
      notes: [...foreign, ...(conf.ipam?.type ? [`then the pool ${conf.ipam.type} frees its addresses`] : [])],
    }
  }
  if (plugin.role === 'meta') {
    const { found, inner } = await findDelegate(plugin.outline(readLoose(plugin.conf, call.raw)), call)
    return typeof found === 'string'
      ? { runs: [], isWhole: false, notes: [`it has ${found}, which is not this plumb's, undo what ADD asked of it`] }
      : deleting(found, inner, own)
  }
  if (plugin.role === 'ipam' || plugin.role === 'lease')
    return { runs: [], isWhole: true, notes: ['it frees the addresses of the attachment'] }
  if (plugin.role === 'chained') {
    const record = noted(plugin.type, call)
    const held = record ?? own
    const stands = record ? holds : () => true
    const known = held
      ? 'no record of the attachment can be read: this is what a DEL after the ADD that explain shows would run'
      : 'no record of the attachment can be read, and what ADD would have noted is not known'
    const going = (held ?? []).filter((one) => !isOthersToo(one))
    const runs = removing(going, stands).flatMap((plan) => runsOf(plan))
    return { runs, isWhole: held !== undefined, notes: record ? [] : [known] }
  }
  const preview = plugin.preview?.('DEL', readLoose(plugin.conf, call.raw), call.at)
  return preview
    ? { runs: preview.work.map(runOf), isWhole: true, notes: [] }
    : { runs: [], isWhole: false, notes: ['what it runs depends on what it finds: it cannot be told beforehand'] }
}

// Two plugins of one attachment may use the same nft element.
function isSameElement(one: Resource, other: Resource): boolean {
  return one.kind === 'element' && other.kind === 'element' && one.set === other.set && one.key === other.key
}

// The noted resources and the link go in the same processes. The node's links are removed in parallel with the rest.
function removingAround(held: readonly Resource[], own: readonly Resource[]): ExplainedRun[] {
  if (held.length === 0) return unwiring(own)
  return removing([...held, ...own], () => true).flatMap((plan) => {
    const { links, rest } = apart(plan)
    return [...unwiring(links.drop).map((run) => ({ ...run, inBackground: true as const })), ...runsOf(rest)]
  })
}
