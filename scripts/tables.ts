import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dir, '..')

/** A file that lists the names in a folder. `is` is its current text, `want` the right text. */
export interface Table {
  readonly file: string
  readonly is: string
  readonly want: string
}

/**
 * The tables of resource kinds, backends, stores, chains of the rules, checks and facts of the doctor, commands, and
 * plugins that work within other plugins. Other plugins need no table, because each plugin is an entry of the executable
 * (scripts/build.ts).
 */
export function tables(): Table[] {
  return [
    table('lib/state/kinds/index.ts', kinds()),
    table('agent/backend/types/index.ts', backends()),
    table('agent/store/open.ts', stores()),
    table('lib/nft/chains.ts', chains()),
    table('lib/cni/fused-plugins.ts', fused()),
    table('agent/doctor/checks/index.ts', checks()),
    table('agent/doctor/facts/index.ts', facts()),
    table('cli/commands.ts', commands()),
  ]
}

// A file that exports `const NAME: Handler<TYPE>` is a kind. The other files are parts of a kind.
function kinds(): string {
  const found = files('lib/state/kinds').flatMap((name) => {
    const [, handler, type] = /^export const (\w+): Handler<(\w+)>/m.exec(read(`lib/state/kinds/${name}.ts`)) ?? []
    return handler && type ? [{ name, handler, type }] : []
  })
  return `import type { Handler } from '../handler.ts'
${found.map(({ name, handler, type }) => `import { ${[`type ${type}`, handler].join(', ')} } from './${name}.ts'`).join('\n')}

/** An object of the kernel, or a file, that plumb makes: plain data. */
export type Resource =${found.map(({ type }) => `\n  | ${type}`).join('')}

const HANDLERS = {
${found.map(({ handler }) => `  ${handler},`).join('\n')}
}

/** The handler of a resource's kind. */
export function handler(kind: Resource['kind']): Handler<Resource> {
  return HANDLERS[kind] as unknown as Handler<Resource>
}
`
}

// A backend is loaded only when a configuration names it.
function backends(): string {
  return `import type { Backend } from '../backend.ts'

/** What loads the backend of a \`Backend.Type\`. */
export const BACKENDS: Readonly<Record<string, () => Promise<Backend>>> = {
${files('agent/backend/types')
  .map(
    (name) =>
      `  ${/^\w+$/.test(name) ? name : `'${name}'`}: async () => (await import('./${name}.ts')).default as Backend,`,
  )
  .join('\n')}
}
`
}

// In the order of their codes, which is that of the lists that people read.
function checks(): string {
  const found = files('agent/doctor/checks')
    .map((name) => ({
      name,
      code: Number(/^ {2}code: 'DR(\d+)',$/m.exec(read(`agent/doctor/checks/${name}.ts`))?.[1]),
    }))
    .sort((one, other) => one.code - other.code)
  const imports = found
    .map(({ name, code }) => `import { check as dr${code} } from './${name}.ts'`)
    .sort((one, other) => ((one.split("'")[1] as string) < (other.split("'")[1] as string) ? -1 : 1))
  return `import type { Check } from '../check.ts'
${imports.join('\n')}

/** All checks of the doctor, by their codes. */
export const CHECKS: readonly Check[] = [
${found.map(({ code }) => `  dr${code},`).join('\n')}
]
`
}

// A file of cli/ with an `entry` is a command of its name. Its file is loaded only when the user runs it.
function commands(): string {
  const found = files('cli').flatMap((name) => {
    const [, entry] = /^export const entry: Entry = \{([\s\S]*?)\}$/m.exec(read(`cli/${name}.ts`)) ?? []
    const [, about] = /about:\s*('[^']*'|"[^"]*")/.exec(entry ?? '') ?? []
    return about ? [{ name, about, place: Number(/place: (\d+)/.exec(entry ?? '')?.[1]) }] : []
  })
  const rows = found
    .sort((one, other) => one.place - other.place)
    .map(({ name, about }) => `  ${name}: {\n    about: ${about},\n    load: () => import('./${name}.ts'),\n  },`)
  return `import type { Command } from './options.ts'

/** The commands by their names. */
export const commands: Readonly<Record<string, Command>> = {
${rows.join('\n')}
}
`
}

// A file exports a `const NAME: Fact<TYPE>` for each fact that it reads.
function facts(): string {
  const found = files('agent/doctor/facts').flatMap((file) => {
    const text = read(`agent/doctor/facts/${file}.ts`)
    const names = [...text.matchAll(/^export const (\w+): Fact</gm)].map(([, name = '']) => name).sort()
    return names.length > 0 ? [{ file, names }] : []
  })
  const all = found.flatMap(({ names }) => names).sort()
  const imports = [
    ...found.map(({ file, names }) => ({ file, text: `import { ${names.join(', ')} } from './${file}.ts'` })),
    { file: 'facts', text: "import type { Fact } from './facts.ts'" },
  ]
  return `${imports
    .sort((one, other) => (one.file < other.file ? -1 : 1))
    .map(({ text }) => text)
    .join('\n')}

/** All facts of the doctor by their names, and how each is got. */
export const FACTS = {
${all.map((name) => `  ${name},`).join('\n')}
}

/**
 * The facts of a node. A fact that could not be read throws NotRead when a check asks for it. That check then counts as
 * not made.
 */
export type Facts = { readonly [Name in keyof typeof FACTS]: (typeof FACTS)[Name] extends Fact<infer T> ? T : never }
`
}

function stores(): string {
  const found = folders('agent/store')
  return `${found.map((name) => `import type { Options as ${capital(name)}Options } from './${name}/index.ts'`).join('\n')}
import type { SubnetStore } from './store.ts'

/** Which store, and its options. */
export type StoreWish =${found.map((name) => `\n  | ({ readonly store: '${name}' } & ${capital(name)}Options)`).join('')}

/** Opens a store; its libraries are loaded with it. Throws ValueError for options that cannot be used. */
export async function openStore(wish: StoreWish): Promise<SubnetStore> {
  switch (wish.store) {
${found.map((name) => `    case '${name}':\n      return (await import('./${name}/index.ts')).open(wish)`).join('\n')}
  }
}
`
}

// Reads the line `fused` of each plugin's file.
function fused(): string {
  const found = files('plugins').flatMap((name) => {
    const [, given] = /^ {2}fused: \{ (.*) \},$/m.exec(read(`plugins/${name}.ts`)) ?? []
    return given ? [{ row: `  { type: '${name}', ${given} },`, place: Number(/place: (\d+)/.exec(given)?.[1]) }] : []
  })
  return `/** The chained plugins that work within the calls of an interface plugin, in their order. */
export const FUSED = [
${found
  .sort((one, other) => one.place - other.place)
  .map(({ row }) => row)
  .join('\n')}
] as const
`
}

// What the kernel must show for each chain: the number of its rules, and its use count. The use count is the number of
// its rules plus the number of jumps to the chain.
function chains(): string {
  const found = ['masquerade', 'host-ports', 'firewall', 'gateways'].map((name) => {
    const all = [...read(`lib/nft/${name}.nft`).matchAll(/^\tchain (\w+) \{\n([\s\S]*?)^\t\}/gm)].map(
      ([, chain = '', body = '']) => ({
        chain,
        rules: body.split('\n').filter((line) => /^\t\t(?!type |#)/.test(line)),
      }),
    )
    const jumps = all.flatMap(({ rules }) =>
      rules.flatMap((rule) => (/\b(?:jump|goto) /.test(rule) ? (/ (\S+)$/.exec(rule)?.[1] ?? []) : [])),
    )
    // The rules of an admin's chain can be any rules. Only the names of plumb's own chains are all small letters.
    const own = all.filter(({ chain }) => /^[a-z]+$/.test(chain))
    const rows = own.map(
      ({ chain, rules }) =>
        `    ${chain}: { rules: ${rules.length}, uses: ${rules.length + jumps.filter((to) => to === chain).length} },`,
    )
    return `  '${name}': {\n${rows.join('\n')}\n  },`.replace(/'(\w+)'/, '$1')
  })
  return `/**
 * The chains of each file of rules. 'rules' counts the rules of a chain. 'uses' is the kernel's use count, by rules and
 * by jumps to the chain.
 */
export const CHAINS = {
${found.join('\n')}
} as const
`
}

function files(folder: string): string[] {
  return readdirSync(join(ROOT, folder))
    .flatMap((file) => /^(?!index\.)(.+)\.ts$/.exec(file)?.[1] ?? [])
    .sort()
}

function folders(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true })
    .flatMap((one) => (one.isDirectory() ? one.name : []))
    .sort()
}

function capital(name: string): string {
  return `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`
}

function table(file: string, text: string): Table {
  return {
    file,
    is: read(file),
    want: `// Made by \`npm run tables\` from the files in this folder: do not edit.\n${text}`,
  }
}

function read(file: string): string {
  try {
    return readFileSync(join(ROOT, file), 'utf8')
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return ''
    throw cause
  }
}

if (import.meta.main)
  for (const { file, is, want } of tables())
    if (is !== want) {
      writeFileSync(join(ROOT, file), want)
      process.stderr.write(`tables: wrote ${file}\n`)
    }
