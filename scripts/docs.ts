import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, extname, join } from 'node:path'
import { Glob } from 'bun'
import { CHECKS } from '../agent/doctor/checks/index.ts'
import type { Metric } from '../agent/telemetry/metric.ts'
import { METRICS } from '../agent/telemetry/table.ts'
import type { Plugin } from '../lib/cni/plugin.ts'
import { CODE } from '../lib/text/errors.ts'
import type { Shape } from '../lib/text/shape.ts'
import { codesOf, commonCodes } from './docs/codes.ts'
import { differencesText, readDifferences, type Subject, share } from './docs/differences.ts'
import { capabilitiesOf, commonKeys, type Key, keysOf } from './docs/keys.ts'
import { table, tables } from './docs/table.ts'
import { roomsDrawn } from './rooms.ts'

const ROOT = join(import.meta.dir, '..')
const PAGES = join(ROOT, 'docs/plugins')
const REGION = /<!-- (\w+)([^>]*?) -->\n([\s\S]*?)<!-- end -->/g

/**
 * A page of docs/plugins. `is` is the text of the file, undefined without a file. `want` is the right text. `lacks`
 * lists what only a person can add.
 */
export interface Page {
  readonly file: string
  readonly is: string | undefined
  readonly want: string
  readonly lacks: readonly string[]
}

/**
 * Makes the page of every plugin, and the page about all plugins. The text between markers comes from the code, from
 * conf/ and from docs/differences.md. People write the rest by hand, and the last column of keys and codes. Both are
 * kept.
 */
export async function pages(): Promise<Page[]> {
  const plugins = await load()
  const texts = new Map(
    ['README', ...plugins.map(({ type }) => type)].map((type) => [type, read(join(PAGES, `${type}.md`))]),
  )
  const parts = readDifferences(read(join(ROOT, 'docs/differences.md')) ?? '')
  const subjects = plugins.map(
    ({ type, plugin }): Subject => ({
      type,
      keys: keysOf(shapeOf(plugin)).map(({ path }) => path),
      marked: marked(texts.get(type)),
    }),
  )
  const shared = share(parts, subjects, marked(texts.get('README')))
  const rows = (type: string) => differencesText(parts, shared.get(type) ?? []) || 'None of its own.'
  const all: Regions = {
    plugins: () => listOf(plugins),
    keys: (kept) => keyTable(commonKeys(), kept),
    codes: (kept) => codeTable(commonCodes(), kept),
    differences: () => rows(''),
  }
  return [
    page('README', texts.get('README'), all),
    ...plugins.map(({ type, plugin }) =>
      page(type, texts.get(type), {
        sample: () => sampleOf(type),
        keys: (kept) => keyTable(keysOf(shapeOf(plugin)), kept),
        runtime: () => runtimeOf(plugin),
        codes: (kept) => codeTable(codesOf(type).filter(answered(plugin)), kept),
        differences: () => rows(type),
      }),
    ),
  ]
}

/**
 * Makes the text of each region. `kept` is what people wrote into the last column of its table. Returns undefined when
 * there is no source for the text.
 */
type Regions = Readonly<Record<string, (kept: ReadonlyMap<string, string>) => string | undefined>>
interface Loaded {
  readonly type: string
  readonly plugin: Plugin
}

async function load(): Promise<Loaded[]> {
  const types = readdirSync(join(ROOT, 'plugins')).flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
  return Promise.all(
    types.sort().map(async (type) => ({ type, plugin: (await import(join(ROOT, `plugins/${type}.ts`))).default })),
  )
}

function page(type: string, is: string | undefined, regions: Regions): Page {
  const file = `docs/plugins/${type}.md`
  const text =
    is ??
    `# ${type}\n\n${Object.keys(regions)
      .map((name) => `<!-- ${name} -->\n<!-- end -->\n`)
      .join('\n')}`
  const want = text.replace(REGION, (region, name: string, words: string, old: string) => {
    const made = regions[name]?.(keptIn(old))
    return made === undefined ? region : `<!-- ${name}${words} -->\n\n${made}\n\n<!-- end -->`
  })
  const found = [...want.matchAll(REGION)]
  const absent = Object.keys(regions).filter((name) => !found.some(([, one]) => one === name))
  const strange = found
    .filter(([, name = '']) => !Object.hasOwn(regions, name))
    .map(([, name]) => `${file}: no region is called ${name}`)
  const empty = found.flatMap(([, name, , inner = '']) =>
    name === 'keys' || name === 'codes'
      ? tables(inner).flatMap(([, ...rows]) =>
          rows.filter((row) => row.at(-1) === '').map(([key]) => `${file}: ${name} lacks a description of ${key}`),
        )
      : [],
  )
  const unmade = found
    .filter(([, name = '', , inner = '']) => regions[name] && inner.trim() === '')
    .map(([, name]) => `${file}: there is nothing for the region ${name}`)
  return {
    file,
    is,
    want,
    lacks: [...unmade, ...absent.map((name) => `${file}: the region ${name} is not there`), ...strange, ...empty],
  }
}

// Maps the first cell of each row to its last cell.
function keptIn(region: string): ReadonlyMap<string, string> {
  return new Map(
    tables(region).flatMap(([, ...rows]) => rows.map((row): [string, string] => [row[0] ?? '', row.at(-1) ?? ''])),
  )
}

function keyTable(keys: readonly Key[], kept: ReadonlyMap<string, string>): string {
  if (keys.length === 0) return 'None of its own.'
  return table(
    ['key', 'value', 'default', 'what it does'],
    keys.map(({ path, value, fallback }) => [`\`${path}\``, value, fallback, kept.get(`\`${path}\``) ?? '']),
  )
}

function codeTable(codes: readonly number[], kept: ReadonlyMap<string, string>): string {
  if (codes.length === 0) return 'None of its own.'
  return table(
    ['code', 'when'],
    codes.map((code) => [`${code}`, kept.get(`${code}`) ?? '']),
  )
}

// Only STATUS answers with notReady and limited. An interface plugin or a chained plugin without `status` never does.
function answered(plugin: Plugin): (code: number) => boolean {
  const isMute = (plugin.role === 'interface' || plugin.role === 'chained') && !plugin.status
  return (code) => !isMute || (code !== CODE.notReady && code !== CODE.limited)
}

function listOf(plugins: readonly Loaded[]): string {
  return table(
    ['plugin', 'is'],
    plugins.map(({ type, plugin }) => [`[\`${type}\`](${type}.md)`, plugin.about.replace(/^.*?: /, '')]),
  )
}

function runtimeOf(plugin: Plugin): string {
  const { args } = plugin
  const capabilities = capabilitiesOf(shapeOf(plugin))
  const list = (words: readonly string[]) => words.map((word) => `\`${word}\``).join(', ')
  // With such a key the configuration itself names the CNI_ARGS that are read (dhcp).
  const naming = keysOf(shapeOf(plugin)).find(({ path }) => path.endsWith('.fromArg'))
  const known = args
    ? `- CNI_ARGS: ${list(args)}. Others are refused, unless there is \`IgnoreUnknown=1\`.`
    : `- CNI_ARGS: ${naming ? `what \`${naming.path}\` names` : 'not looked at'}.`
  return `${known}\n- Capabilities: ${capabilities.length > 0 ? list(capabilities) : 'none of its own'}.`
}

// Takes the sample with the plugin's name, else a sample that names the plugin. test/conf/samples.test.ts runs all
// samples of conf/. So the block does not need to run in the page.
function sampleOf(type: string): string | undefined {
  const files = [...new Glob('**/*.{conflist,conf}').scanSync({ cwd: join(ROOT, 'conf') })].sort()
  const text = (file: string) => readFileSync(join(ROOT, 'conf', file), 'utf8').trimEnd()
  const file =
    files.find((one) => basename(one, extname(one)) === type) ??
    files.find((one) => text(one).includes(`"type": "${type}"`))
  return file && `\`conf/${file}\`:\n\n\`\`\`jsonc\n${text(file)}\n\`\`\``
}

/** Makes the text of a region from the text that is there. */
type Make = (old: string) => string

/** The other pages with regions, by their files, and what makes each region. */
const MADE: Readonly<Record<string, Readonly<Record<string, Make>>>> = {
  'docs/architecture.md': { rooms: roomsDrawn },
  'docs/doctor.md': { checks: checksTable },
  'docs/status.md': { metrics: metricsTable('status'), views: viewsTable(await viewsOfPage()) },
  'docs/services.md': { metrics: metricsTable('services') },
  'docs/policy.md': { metrics: metricsTable('policy') },
  'docs/bgp.md': { metrics: metricsTable('bgp') },
}

/** The pages outside of docs/plugins that have regions. Throws Error for a region that a page does not have. */
export function otherPages(): Page[] {
  return Object.entries(MADE).map(([file, regions]) => {
    const is = readFileSync(join(ROOT, file), 'utf8')
    const want = Object.entries(regions).reduce((text, [name, make]) => withRegion(file, text, name, make), is)
    const rows = tables(want).flatMap(([, ...found]) => found)
    const empty = rows.filter((row) => row.length === 2 && row[1] === '').map(([first]) => first)
    return { file, is, want, lacks: empty.map((one) => `${file}: views lacks a description of ${one}`) }
  })
}

function withRegion(file: string, text: string, name: string, make: Make): string {
  const head = `<!-- ${name} -->\n`
  const from = text.indexOf(head) + head.length
  const to = text.indexOf('\n<!-- end -->', from)
  if (from < head.length || to < 0) throw new Error(`${file}: the region ${name} is not there`)
  return `${text.slice(0, from)}\n${make(text.slice(from, to))}\n${text.slice(to)}`
}

/** The views of the page of a node. Their files have JSX and types of browsers, so TypeScript sees them elsewhere. */
export async function viewsOfPage(): Promise<readonly PageView[]> {
  return (await import(join(ROOT, 'agent/page/views.ts'))).VIEWS
}

/** What docs and tests ask of a view (agent/page/view.ts). */
export interface PageView {
  readonly key: string
  readonly title: string
  readonly asks?: readonly string[]
}

function viewsTable(views: readonly PageView[]): Make {
  return (old) => {
    const kept = keptIn(old)
    return table(
      ['view', 'shows'],
      views.map(({ title }) => [title, kept.get(title) ?? '']),
    )
  }
}

function checksTable(): string {
  const places = { node: 'not ready', part: 'degraded' } as const
  return table(
    ['code', 'finds', 'severity', 'in the agent'],
    CHECKS.map(({ code, title, severity, inAgent }) => [code, title, severity, inAgent ? places[inAgent] : '']),
  )
}

function metricsTable(page: Metric['docs']['page']): Make {
  return () =>
    table(
      ['name', 'type', 'labels', 'tells'],
      METRICS.filter(({ docs }) => docs.page === page).map(({ name, type, labels = [], docs }) => [
        `\`${name}\``,
        type,
        labels.map((label) => `\`${label}\``).join(', '),
        docs.tells,
      ]),
    )
}

function marked(text = ''): string[] {
  return (/<!-- differences(.*?) -->/.exec(text)?.[1] ?? '').split(' ').filter(Boolean)
}

function shapeOf({ conf }: Plugin): Shape<never> {
  return conf as unknown as Shape<never>
}

function read(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined
}

if (import.meta.main) {
  const all = [...(await pages()), ...otherPages()]
  for (const { file, is, want } of all)
    if (is !== want) {
      writeFileSync(join(ROOT, file), want)
      process.stderr.write(`docs: wrote ${file}\n`)
    }
  for (const one of all.flatMap(({ lacks }) => lacks)) process.stderr.write(`docs: ${one}\n`)
  process.exitCode = all.some(({ lacks }) => lacks.length > 0) ? 1 : 0
}
