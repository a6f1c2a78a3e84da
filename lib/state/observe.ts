import { holds } from '../journal/ports.ts'
import { isZoned } from '../nft/firewalld.ts'
import { isPassing } from '../nft/passage.ts'
import { lostRules, sectionsOf } from '../nft/ruleset.ts'
import { rows } from '../os/iproute2.ts'
import { inside } from '../os/netns.ts'
import type { Run } from '../os/run.ts'
import { listed, show, whole } from '../os/show.ts'
import { readSysctl } from '../os/sysctls.ts'
import { ExecError } from '../text/errors.ts'
import type { Cidr } from '../text/ip.ts'
import type { IfName, Netns } from '../text/values.ts'
import type { Handler } from './handler.ts'
import { handler } from './kinds/index.ts'
import { type Link, link } from './kinds/link.ts'
import { type Kind, type Resource, title } from './resource.ts'

/**
 * The differences between wanted and existing resources, one phrase each. Missing nft rules count as differences.
 * Compares only the keys that `want` has. Empty when all resources are right. Changes nothing.
 */
export async function differences(want: readonly Resource[], run: Run): Promise<string[]> {
  const have = await observe(want, run)
  const sections = sectionsOf(want)
  const rules = sections.length > 0 ? lostRules(run, sections) : []
  return [...want.flatMap((resource, i) => compare(resource, have[i])), ...rules]
}

/** The resources that exist. Their attributes may differ. */
export async function present(resources: readonly Resource[], run: Run): Promise<Resource[]> {
  const have = await observe(resources, run)
  return resources.filter((_, i) => have[i] !== undefined)
}

/** The node's links whose alias begins with this prefix. */
export async function aliased(prefix: string, run: Run): Promise<Link[]> {
  const stdout = await listed(['ip', '-d', '-j', 'addr', 'show'], run)
  const shape = { kind: 'link', ns: 'host', name: '' as IfName, type: 'veth', up: true } as const
  return rows(stdout)
    .flat()
    .flatMap((row) => link.read(row, shape) ?? [])
    .filter(({ alias }) => alias?.startsWith(prefix))
}

/**
 * The current state of each resource, or undefined when it does not exist. Starts one process per namespace and tool (a
 * second for IPv6 routes), and one per source of a firewalld zone.
 */
export async function observe(want: readonly Resource[], run: Run): Promise<(Resource | undefined)[]> {
  const answers = new Map<string, readonly unknown[]>()
  for (const question of questions(want.filter((one) => handler(one.kind).ask(one) !== ''))) {
    const { ns, tool, six, asks } = question
    const found = await answersOf(question, run)
    for (const [i, ask] of asks.entries()) answers.set(`${ns} ${tool} ${six}${ask}`, found[i] ?? [])
  }
  return want.map((resource) => {
    const { tool, ask, read } = handler(resource.kind)
    const look = LOOKS[resource.kind] as ((want: Resource) => boolean) | undefined
    if (look) return look(resource) ? resource : undefined
    // No tool shows this resource. The handler reads it without a tool.
    if (ask(resource) === '') return read(undefined, resource)
    const found = (answers.get(`${resource.ns} ${tool} ${ask(resource)}`) ?? []).flatMap(
      (row) => read(row, resource) ?? [],
    )
    // One link may have several routes to the same destination. A route without differences comes first.
    return found.find((have) => compare(resource, have).length === 0) ?? found[0]
  })
}

async function answersOf({ ns, tool, six, asks }: Question, run: Run): Promise<readonly (readonly unknown[])[]> {
  if (tool === 'file') return sysctls(ns, asks)
  if (tool === 'nft') return elements(ns, asks, run)
  if (tool === 'firewalld') return Promise.all(asks.map((ask) => sources(ask, run)))
  return show(six ? [tool, '-6', '-d'] : [tool, '-d'], asks, run, ns)
}

// Resources that no tool shows. The journal knows the claims, and the kernel knows the passages.
const LOOKS: { readonly [K in Kind]?: (want: Extract<Resource, { kind: K }>) => boolean } = {
  claim: holds,
  passage: isPassing,
}

interface Question {
  readonly ns: Netns
  readonly tool: Handler<Resource>['tool']
  /** `-6 ` when the question needs a separate process for IPv6. */
  readonly six: '' | '-6 '
  readonly asks: string[]
}

function questions(want: readonly Resource[]): Question[] {
  const found = new Map<string, Question>()
  for (const resource of want) {
    const { tool, ask } = handler(resource.kind)
    const six = ask(resource).startsWith('-6 ') ? '-6 ' : ''
    const id = `${resource.ns} ${tool} ${six}`
    const question = found.get(id) ?? { ns: resource.ns, tool, six, asks: [] }
    const text = ask(resource).slice(six.length)
    if (!question.asks.includes(text)) question.asks.push(text)
    found.set(id, question)
  }
  return [...found.values()]
}

// A missing element makes nft fail without an answer for the other elements. So the others are asked again. Each
// command prints its own `table` block. After any other message the element may exist.
async function elements(ns: Netns, asks: readonly string[], run: Run): Promise<readonly (readonly unknown[])[]> {
  const argv = ['nft', '-f', '-']
  const { status, stdout, stderr } = await whole(argv, `${asks.join('\n')}\n`, run, ns)
  const said = [...stderr.matchAll(/^\/dev\/stdin:(\d+):.*$/gm)]
  const missing = new Set(said.map(([, number]) => Number(number)))
  const [other] = said.filter(([line]) => !line.includes('No such file or directory'))
  if (other || (status !== 0 && missing.size === 0))
    throw new ExecError(
      argv,
      asks[Number(other?.[1]) - 1],
      other?.[0] ?? (stderr.trim() || `ended with status ${status}`),
    )
  const there = asks.filter((_, i) => !missing.has(i + 1))
  if (missing.size > 0 && there.length > 0) {
    const found = await elements(ns, there, run)
    return asks.map((ask) => found[there.indexOf(ask)] ?? [])
  }
  const shown = stdout.split(/^table /m).slice(1)
  return asks.map((_, i) => (missing.has(i + 1) ? [] : [shown[i] ?? '']))
}

function sysctls(ns: Netns, asks: readonly string[]): readonly (readonly unknown[])[] {
  return inside(ns, () =>
    asks.map((ask) => readSysctl(ask.slice('net/'.length))).map((value) => (value === undefined ? [] : [value])),
  )
}

async function sources(ask: string, run: Run): Promise<readonly unknown[]> {
  const [, zone = '', source = ''] = ask.split(' ')
  return (await isZoned({ zone, source: source as Cidr }, run)) ? [ask] : []
}

// Keys that only say how to make a resource. They say nothing about the finished resource, so `compare` skips them.
const MAKING = new Set([
  'kind',
  'ns',
  'shared',
  'peer',
  'optional',
  'owner',
  'absent',
  'dad',
  'rules',
  'noprefixroute',
  'onlink',
  'position',
  'exclusive',
  'moment',
  'before',
  'stays',
  'path',
  'text',
  'part',
  'kept',
  'born',
  'was',
  'through',
  'replaced',
  'lent',
  'move',
])

// They act when a link comes up, and no more. A pod that an earlier version attached lacks one of them.
const AT_START = /\/(arp|ndisc)_notify$/

function compare(want: Resource, have: Resource | undefined): string[] {
  if (want.kind === 'sysctl' && want.optional && (!have || AT_START.test(want.name))) return []
  const name = title(want)
  if (!have) return [`${name} is missing`]
  const [is, should] = [flat(have), flat(want)]
  const wrong = [...should].filter(([key, value]) => is.get(key) !== value)
  // A link without its bridge has no settings of a port. The cause alone is named.
  const isNoPort = should.has('port.master') && !is.get('port.master')
  const causes = isNoPort ? wrong.filter(([key]) => key === 'port.master' || !key.startsWith('port.')) : wrong
  return causes.map(([key, value]) => `${name} has ${key} ${is.get(key) || 'off'}, want ${value || 'off'}`)
}

function flat(resource: object, prefix = ''): Map<string, string> {
  const out = new Map<string, string>()
  for (const [key, value] of Object.entries(resource)) {
    if (prefix === '' && MAKING.has(key)) continue
    if (Array.isArray(value)) out.set(prefix + key, [...value].sort().join(' '))
    else if (typeof value === 'object' && value !== null)
      for (const [inner, text] of flat(value, `${prefix}${key}.`)) out.set(inner, text)
    else out.set(prefix + key, value === false ? '' : String(value))
  }
  return out
}
