import { execa } from 'execa'

/** Commands of the administrator, whose pages are in section 8. All other pages are in section 1. */
const ADMIN = ['agent', 'dhcp', 'install', 'uninstall']

/** The version and the day that a manual page shows. */
export interface Edition {
  readonly version: string
  readonly epoch: number
}
/** A part of a help text. `rows` are pairs of a term and its meaning. */
interface Parts {
  readonly synopsis: readonly string[]
  readonly about: string
  readonly description: readonly (string | Rows)[]
  readonly options: Rows
  readonly status: readonly string[]
}
type Rows = readonly (readonly [string, string])[]

/** Makes the manual pages from what an executable prints for `--help`, by file name. */
export async function manual(plumb: string, edition: Edition): Promise<Record<string, string>> {
  const ask = async (...argv: string[]) => (await execa(plumb, argv)).stdout
  const words = async (...before: string[]) =>
    (await ask('__complete', ...before, '')).split('\n').flatMap((line) => /^[a-z]+(?=\t)/.exec(line)?.[0] ?? [])
  const commands = (await words()).filter((one) => one !== 'help')
  const names = ['plumb', ...commands.map((one) => `plumb-${one}`)]
  const pages = await Promise.all(
    names.map(async (name) => {
      const [, ...argv] = name.split('-')
      const verbs = name === 'plumb-cni' ? await words('cni') : []
      const parts = await Promise.all(
        [argv, ...verbs.map((verb) => ['cni', verb])].map(async (one) => partsOf(await ask(...one, '--help'))),
      )
      return [fileOf(name), page(name, parts, names, edition)] as const
    }),
  )
  return Object.fromEntries(pages)
}

/** Reads the text of a `--help`. */
export function partsOf(help: string): Parts {
  const [synopsis, status, options, description]: [string[], string[], [string, string][], (string | Rows)[]] = [
    [],
    [],
    [],
    [],
  ]
  let about = ''
  for (const block of help.split(/\n{2,}/)) {
    const lines = block.split('\n')
    if (block.startsWith('usage: ')) {
      for (const line of lines) {
        const [, call = '', told = ''] = /^(?:usage:)? *(.*?)(?:: (.*))?$/.exec(line) ?? []
        synopsis.push(call)
        about ||= told
        if (told && told !== about) description.push(`${call}: ${told}.`)
      }
    } else if (block.startsWith('exit status: '))
      status.push(...lines.map((line) => line.replace('exit status:', '').trim()))
    else if (lines.every((line) => line.startsWith('  '))) {
      const rows = rowsOf(lines)
      if (rows[0]?.[0].startsWith('-')) options.push(...rows)
      else description.push(rows)
    } else if (/^plumb \S+: /.test(block)) about = block.replace(/^.*?: /, '')
    else description.push(lines.join('\n'))
  }
  return { synopsis, about, description, options, status }
}

function rowsOf(lines: readonly string[]): [string, string][] {
  const rows: [string, string][] = []
  for (const line of lines) {
    const [, term = '', told = ''] = /^ {2,}(\S.*?) {2,}(\S.*)$/.exec(line) ?? []
    const last = rows.at(-1)
    if (term) rows.push([term, told])
    else if (last) last[1] += ` ${line.trim()}`
  }
  return rows
}

function page(
  name: string,
  [parts, ...verbs]: readonly Parts[],
  names: readonly string[],
  { version, epoch }: Edition,
): string {
  if (!parts) return ''
  const [file, day] = [fileOf(name), new Date(epoch * 1000).toISOString().slice(0, 10)]
  const others = names.filter((one) => one !== name).map((one) => `.BR ${roff(one)} (${fileOf(one).at(-1)})`)
  const sections: [string, readonly string[]][] = [
    ['NAME', [`${roff(name)} \\- ${roff(parts.about)}`]],
    ['SYNOPSIS', synopsis(parts)],
    ['DESCRIPTION', parts.description.flatMap(body)],
    ['OPTIONS', rows(parts.options)],
    [
      'COMMANDS',
      verbs.flatMap((one) => [
        `.SS ${quoted(one.synopsis[0]?.replace(/^((?:plumb|[a-z]+)(?: [a-z]+)*).*/, '$1') ?? '')}`,
        ...synopsis(one),
        '.PP',
        `${roff(one.about)}.`,
        ...one.description.flatMap(body),
        ...rows(one.options),
        '.PP',
        `Exit status: ${roff(one.status.join('; '))}.`,
      ]),
    ],
    ['EXIT STATUS', parts.status.flatMap((line, i) => [...(i > 0 ? ['.br'] : []), roff(line)])],
    [
      'SEE ALSO',
      [
        ...others.map((one, i) => (i < others.length - 1 ? `${one},` : one)),
        '.PP',
        'The pages in /usr/share/doc/plumb.',
      ],
    ],
  ]
  const text = sections
    .filter(([, lines]) => lines.length > 0)
    .flatMap(([title, lines]) => [`.SH ${quoted(title)}`, ...lines])
  return `${[`.TH ${roff(name.toUpperCase())} ${file.at(-1)} ${day} ${quoted(`plumb ${version}`)} plumb`, '.nh', ...text].join('\n')}\n`
}

function synopsis({ synopsis }: Parts): string[] {
  return synopsis.flatMap((line, i) => {
    const [, command = '', rest = ''] = /^(plumb(?: [a-z]+)*)(.*)$/.exec(line) ?? []
    return [...(i > 0 ? ['.br'] : []), `.B ${roff(command)}`, ...(rest ? [roff(rest.trim())] : [])]
  })
}

function body(part: string | Rows): string[] {
  return typeof part === 'string' ? ['.PP', ...part.split('\n').map(roff)] : rows(part)
}

function rows(all: Rows): string[] {
  return all.flatMap(([term, told]) => ['.TP', `.B ${roff(term)}`, roff(told)])
}

function fileOf(name: string): string {
  return `${name}.${ADMIN.includes(name.slice('plumb-'.length)) ? 8 : 1}`
}

function quoted(text: string): string {
  return `"${roff(text)}"`
}

// What roff would read as more than text, and characters that it may not know (groff_char(7)).
function roff(text: string): string {
  const named: Readonly<Record<string, string>> = {
    '\\': '\\e',
    '-': '\\-',
    '"': '\\(dq',
    "'": '\\(aq',
    '^': '\\(ha',
    '~': '\\(ti',
    '`': '\\(ga',
  }
  const escaped = text
    .replace(/[\\\-"'^~`]/g, (one) => named[one] as string)
    .replace(/[^ -~]/gu, (one) => `\\[u${(one.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, '0')}]`)
  return escaped.replace(/^\./, '\\&.')
}
