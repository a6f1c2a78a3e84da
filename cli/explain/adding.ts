import type { Call } from '../../lib/cni/call.ts'
import type {
  ChainedPlugin,
  CustomPlugin,
  Foreseen,
  InterfacePlugin,
  IpamPlugin,
  LeasePlugin,
  MetaPlugin,
  NetConf,
  NodeFacts,
  Plugin,
  Wiring,
} from '../../lib/cni/plugin.ts'
import type { Result } from '../../lib/cni/result.ts'
import { decode, encode } from '../../lib/cni/versions.ts'
import { LINK, partName, readEntry, readPart } from '../../lib/journal/journal.ts'
import { holds, isElsewhere, isFree, lapsed } from '../../lib/journal/ports.ts'
import { asking } from '../../lib/os/batch-tools.ts'
import { isLink } from '../../lib/os/link-state.ts'
import { inodeOf } from '../../lib/os/netns.ts'
import type { Json } from '../../lib/runtime/network-list.ts'
import { type Claim, isClaim } from '../../lib/state/kinds/claim.ts'
import { handler } from '../../lib/state/kinds/index.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { firstLinks, remaining, requireAddress } from '../../lib/verbs/add.ts'
import { readConf, requirePrevious } from '../../lib/verbs/call.ts'
import { facts, making } from '../../lib/verbs/chained.ts'
import { through } from '../../lib/verbs/delegating.ts'
import { together } from '../../lib/verbs/fused.ts'
import { outdated, removing } from '../../lib/verbs/journal-parts.ts'
import { findDelegate } from '../../lib/verbs/meta.ts'
import { findPool, inVersion } from '../../lib/verbs/pool.ts'
import { openPool } from '../../lib/verbs/pools.ts'
import { questionOf } from '../../lib/wiring/duplicate-addresses.ts'
import { nodeFacts } from '../../lib/wiring/node-facts.ts'
import { mayBePod } from './calls.ts'
import type { ExplainedPlugin, ExplainedPool, ExplainedRun } from './explanation.ts'
import { runOf, runsOf, unwiring } from './runs.ts'
import { settling } from './settle.ts'
import { isOthersToo, visible } from './visibility.ts'

/** The phrase for the answer of a pool that comes from `--prev-result`. */
export const GIVEN = 'as --prev-result says'

/** The explanation of ADD by one plugin of this executable. `own` is what the plugin would note as its own. */
export interface Added extends Pick<ExplainedPlugin, 'pool' | 'runs' | 'isWhole' | 'result' | 'notes'> {
  readonly own?: readonly Resource[]
}

/**
 * Explains ADD by a plugin of this executable. `answer` is the result of a pool whose answer plumb cannot foresee, when
 * that result is known. Throws the error that the plugin would answer.
 */
export function adding(plugin: Plugin, call: Call, answer: Json | undefined): Promise<Added> {
  if (plugin.role === 'interface') return byInterface(plugin, call, answer)
  if (plugin.role === 'chained') return chained(plugin, call)
  if (plugin.role === 'ipam') return lone(plugin, call)
  if (plugin.role === 'lease') return leased(plugin, call)
  if (plugin.role === 'meta') return byDelegate(plugin, call, answer)
  return plugin.role === 'delegating'
    ? through(plugin, call, readConf(plugin, call)).then(({ other, inner }) => byInterface(other, inner, answer))
    : custom(plugin, call)
}

async function byInterface(alone: InterfacePlugin<NetConf>, call: Call, answer: Json | undefined): Promise<Added> {
  const { at, version } = call
  mayBePod(call)
  const conf = readConf(alone, call)
  const plugin = await together(alone, conf, call)
  const given = conf.ipam?.type ? await asked(conf.ipam.type, call, answer) : undefined
  if (!given) encode(plugin.wire(conf, at, {}, nodeFacts).result, version)
  const links = firstLinks(plugin, conf, at, nodeFacts, given?.byLink === true)
  const before = [
    ...unfinished(plugin, call),
    ...(given?.pool.program && !given.byLink && !plugin.inPod ? [present(plugin, call)] : []),
  ]
  const first = runsOf({ put: links, drop: [] })
  if (given && !given.result) {
    const fact = `what follows depends on the addresses that ${given.pool.program ?? given.pool.type} gives`
    const notes = [`${fact}: --prev-result FILE with them shows it`]
    return { pool: given.pool, runs: [...before, ...first], isWhole: false, notes }
  }
  if (given) requireAddress(given.result ?? {}, given.pool.type)
  const wiring = plugin.wire(conf, at, given?.result ?? {}, nodeFacts)
  encode(wiring.result, version)
  const settled = settling(wiring)
  const own = wiring.noted?.flatMap((one) => one.own) ?? []
  const { runs: claiming, notes } = claimed(own)
  return {
    ...(given && { pool: given.pool }),
    runs: [
      ...before,
      ...first,
      ...claiming,
      ...runsOf(remaining(links, wiring, (claim) => !isElsewhere(claim))),
      ...settled.runs,
      ...waiting(wiring),
    ],
    isWhole: true,
    result: JSON.parse(encode(settled.result, version)),
    notes: [...notes, ...settled.notes],
    ...(wiring.noted && { own }),
  }
}

// Renders the request that ADD would send to its delegate now. Uses STATUS, which fails at once where ADD would wait.
async function byDelegate(plugin: MetaPlugin<NetConf>, call: Call, answer: Json | undefined): Promise<Added> {
  const { found, inner } = await findDelegate(await plugin.render(readConf(plugin, call), 'STATUS'), call)
  if (typeof found !== 'string') return byInterface(found, inner, answer)
  return {
    runs: [],
    isWhole: false,
    notes: [`it has ${found}, which is not this plumb's, do the work with ${inner.text}`],
  }
}

/** The answer of a pool, as far as it is known. */
async function asked(
  type: string,
  call: Call,
  answer: Json | undefined,
): Promise<{ pool: ExplainedPool; byLink: boolean; result?: Result }> {
  const found = await findPool(type, call)
  const program = typeof found === 'string' ? { program: found } : {}
  if (typeof found !== 'string' && found.role === 'lease')
    found.valid(readConf(found, call), call.io.env['CNI_ARGS'] ?? '')
  const expected = typeof found === 'string' || found.role === 'lease' ? undefined : await foreseen(found, call)
  const byLink = typeof found === 'string' ? type === 'dhcp' : found.role === 'lease'
  if (expected)
    return {
      byLink,
      pool: { type, result: shape(expected.result, call), about: expected.why },
      result: inVersion(expected.result, call.version),
    }
  if (answer === undefined) return { byLink, pool: { type, ...program, about: 'what it answers is not known' } }
  const { interfaces: _, ...result } = decode(answer, call.version, '--prev-result')
  return { byLink, pool: { type, ...program, result: shape(result, call), about: GIVEN }, result }
}

async function foreseen(plugin: IpamPlugin<NetConf>, call: Call): Promise<Foreseen | undefined> {
  const pool = openPool(plugin, call)
  pool.valid()
  return await pool.foresee?.(call.at, readEntry(call.at)?.unfinished === true)
}

function shape(result: Result, { version }: Call): Json {
  return JSON.parse(encode(result, version))
}

// ADD first removes what a killed call left for the same attachment, and what an earlier attachment left whose
// namespace is gone.
function unfinished(plugin: InterfacePlugin<NetConf>, { at }: Call): ExplainedRun[] {
  const entry = readEntry(at)
  const link = entry?.parts[LINK]
  // The inode alone tells: the cookie would mean to enter the namespace.
  const isGone = link?.netns !== undefined && inodeOf(link.netns) !== link.inode
  if (!entry?.unfinished && !isGone) return []
  const when = entry?.unfinished
    ? 'only now: an ADD or DEL of this attachment was killed on its way'
    : 'only now: the namespace of an earlier attachment of this name is gone'
  return unwiring(plugin.unwire(at)).map((run) => ({ ...run, when }))
}

// When ADD fails, plumb gives the address back to the pool of another program. An attachment that was there before
// keeps its address, so plumb asks for the link first.
function present(plugin: InterfacePlugin<NetConf>, { at }: Call): ExplainedRun {
  const lines = plugin.unwire(at).map((one) => ({
    text: handler(one.kind).ask(one),
    about: 'whether the attachment is there already: then a failure leaves its address with it',
  }))
  return { namespace: 'host', tool: 'ip', argv: asking(['ip']), lines }
}

function waiting({ own }: Wiring): ExplainedRun[] {
  const question = questionOf(own)
  if (!question) return []
  const about = 'again and again, up to 5 s, until the kernel is sure that nobody else has the address (enabledad)'
  return [{ namespace: question.ns, tool: 'ip', argv: question.argv, lines: [], about }]
}

async function chained(plugin: ChainedPlugin<NetConf>, call: Call): Promise<Added> {
  const { at } = call
  const conf = readConf(plugin, call)
  mayBePod(call)
  const given = requirePrevious(call)
  if (plugin.isBlind && !hasLink(at))
    return {
      runs: [],
      isWhole: false,
      notes: [...(plugin.notes?.(conf) ?? []), plugin.isBlind],
      result: shape(plugin.wire(conf, at, given, nodeFacts).result, call),
    }
  const { shared, own, result } = plugin.wire(conf, at, given, looked(plugin, conf, call, given))
  const explained = { result: shape(result, call), isWhole: true, notes: plugin.notes?.(conf) ?? [], own }
  const before = noted(plugin.type, call)
  const first = before ? clearing(before, own) : []
  if (own.length === 0 && shared.length === 0) return { ...explained, runs: first }
  const { runs: claiming, notes: hidden } = claimed(own)
  const { links, rest } = making({ shared, own }, (claim) => !isElsewhere(claim))
  const ahead = runsOf(links).map((run) => ({ ...run, inBackground: true as const }))
  const runs = [...first, ...claiming, ...ahead, ...runsOf(rest)]
  return { ...explained, notes: [...explained.notes, ...hidden], runs }
}

// The objects of an earlier ADD go before this one makes its own.
function clearing(before: readonly Resource[], own: readonly Resource[]): ExplainedRun[] {
  const isSame = JSON.stringify(before) === JSON.stringify(own)
  if (!isSame && before.some(isClaim)) return removing(before, holds).flatMap((plan) => runsOf(plan))
  return runsOf({ put: [], drop: outdated(before, own) })
}

// ADD reserves the host ports among the noted resources before it makes anything else.
function claimed(own: readonly Resource[]): { runs: ExplainedRun[]; notes: string[] } {
  const claims = own.filter(isClaim)
  const freed = visible(() => freeing(claims))
  return {
    runs: [...(freed ?? []), ...runsOf({ put: claims, drop: [] })],
    notes: freed ? [] : ['whether its host ports are free cannot be read'],
  }
}

// A pod that does not exist yet, or that this user may not enter, counts as empty.
function looked(plugin: ChainedPlugin<NetConf>, conf: NetConf, call: Call, given: Result): NodeFacts {
  try {
    return facts(plugin, conf, call, given)
  } catch {
    return Object.create(nodeFacts, { before: { value: [] } })
  }
}

function hasLink({ netns, ifname }: Call['at']): boolean {
  try {
    return netns !== undefined && isLink(ifname, netns)
  } catch {
    return false
  }
}

// An attachment that holds a wanted host port loses its resources when its pod is gone. A holder with a living pod
// keeps its resources. Throws CniError 7.
function freeing(claims: readonly Claim[]): ExplainedRun[] {
  try {
    claims.map(isFree)
    return []
  } catch (cause) {
    const gone = lapsed(claims)
    if (gone.length === 0) throw cause
    const when = 'only now: a host port is still held for a container whose namespace is gone'
    return gone
      .flatMap((part) =>
        removing(
          (readPart(part)?.own ?? []).filter((one) => !isOthersToo(one)),
          holds,
        ).flatMap((plan) => runsOf(plan)),
      )
      .map((run) => ({ ...run, when }))
  }
}

/**
 * Returns what a chained plugin noted about an attachment. Returns undefined when there is no note, or when this user
 * may not read it.
 */
export function noted(type: string, { at }: Call): readonly Resource[] | undefined {
  return visible(() => readPart(partName(type, at))?.own)
}

async function lone(plugin: IpamPlugin<NetConf>, call: Call): Promise<Added> {
  const expected = await foreseen(plugin, call)
  if (!expected) return { runs: [], isWhole: true, notes: ['what it answers is not known'] }
  const result = shape(expected.result, call)
  return {
    pool: { type: call.raw['type'] as string, result, about: expected.why },
    runs: [],
    isWhole: true,
    notes: [],
    result,
  }
}

// Throws the error that ADD would answer.
async function leased(plugin: LeasePlugin<NetConf>, call: Call): Promise<Added> {
  plugin.valid(readConf(plugin, call), call.io.env['CNI_ARGS'] ?? '')
  mayBePod(call)
  return { runs: [], isWhole: true, notes: ['what it answers is for a server on the link to say'] }
}

async function custom(plugin: CustomPlugin<NetConf>, call: Call): Promise<Added> {
  const conf = readConf(plugin, call)
  mayBePod(call)
  const preview = plugin.preview?.('ADD', conf, call.at)
  if (!preview)
    return { runs: [], isWhole: false, notes: ['what it runs depends on what it finds: it cannot be told beforehand'] }
  return {
    runs: preview.work.map(runOf),
    isWhole: true,
    notes: [],
    ...(preview.result && { result: shape(preview.result, call) }),
  }
}
