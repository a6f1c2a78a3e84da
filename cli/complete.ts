import { readdirSync, readFileSync } from 'node:fs'
import { pages } from './help/pages.ts'
import type { Choice, Command, Grammar } from './options.ts'

/** A candidate: the word, and what it is. */
type Candidate = readonly [word: string, about: string]

/**
 * Names the candidates for the last of these words, the words after `plumb`. A candidate and its meaning have a tab
 * between them. Without a candidate the shell offers files. bash makes `=` a word of its own, and its candidates do not
 * repeat the option. Never throws.
 */
export async function complete(
  words: readonly string[],
  commands: Readonly<Record<string, Command>>,
): Promise<string[]> {
  const isCut = words.at(-1) === '=' || words.at(-2) === '='
  const joined = joinedBy(words)
  const [before, current] = [joined.slice(0, -1), joined.at(-1) ?? '']
  const [, option = '', part = ''] = /^(--?[^=]+)=(.*)$/s.exec(current) ?? []
  const found = await candidates(option ? [...before, option] : before, option ? part : current, commands)
  return found
    .filter(([word]) => word.startsWith(option ? part : current))
    .map(([word, about]) => `${option && !isCut ? `${option}=` : ''}${word}\t${about}`)
}

// `--store`, `=` and `file` of bash are one word.
function joinedBy(words: readonly string[]): string[] {
  const joined: string[] = []
  for (const [i, word] of words.entries()) {
    if (i > 0 && (word === '=' || (words[i - 1] === '=' && i > 1))) joined.push(`${joined.pop()}${word}`)
    else joined.push(word)
  }
  return joined
}

async function candidates(
  before: readonly string[],
  current: string,
  commands: Readonly<Record<string, Command>>,
): Promise<readonly Candidate[]> {
  const [name, ...rest] = before
  const abouts = Object.entries(commands).map(([one, { about }]): Candidate => [one, about])
  if (name === undefined && current.startsWith('-'))
    return [
      ['--help', 'what plumb can do'],
      ['--version', 'the version'],
    ]
  if (name === undefined) return [...abouts, ['help', 'the page of a plugin or the help of a command']]
  if (name === 'help') {
    if (rest.length > 0) return []
    const about = (page: string) => (page === 'plugins' ? 'what is the same for all plugins' : 'plugin')
    return [...abouts, ...Object.keys(pages).map((one): Candidate => [one, about(one)])]
  }
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  return command ? following((await command.load()).grammar, rest, current) : []
}

function following(grammar: Grammar, before: readonly string[], current: string): readonly Candidate[] {
  const { options, words = [], commands = {} } = grammar
  const [first, ...rest] = before
  if (first !== undefined && Object.hasOwn(commands, first))
    return following((commands[first] as { grammar: Grammar }).grammar, rest, current)
  const isNamed = (word: string) => (one: Choice) => one.word.replace(/^--?/, '') === word.replace(/^--?/, '')
  const given = new Map<string, string>()
  let [place, open] = [0, undefined as Choice | undefined]
  for (const word of before) {
    const [, name = '', value] = /^(--?[^=]+)(?:=(.*))?$/s.exec(word) ?? []
    if (open) {
      given.set(open.word, word)
      open = undefined
    } else if (!name) place++
    else if (value !== undefined) given.set(name, value)
    else open = options.find((one) => one.value !== undefined && isNamed(name)(one))
  }
  if (open) return meant(open.value as string, given)
  const offered = options.map(({ word, about }): Candidate => [word, about])
  if (current.startsWith('-')) return offered
  if (Object.keys(commands).length > 0) return Object.entries(commands).map(([one, { about }]) => [one, about])
  const wanted = words[place]
  return wanted === undefined ? (place === 0 ? offered : []) : meant(wanted, given)
}

/** What a placeholder stands for on this machine. No candidate for what only the user knows. */
function meant(placeholder: string, given: ReadonlyMap<string, string>): readonly Candidate[] {
  if (/^[a-z]+(\|[a-z]+)*$/.test(placeholder)) return placeholder.split('|').map((one) => [one, ''])
  if (placeholder === 'NETWORK')
    return networks(given.get('--conf-dir') ?? (process.env['NETCONFPATH'] || '/etc/cni/net.d'))
  if (placeholder === 'NETNS') return names('/run/netns').map((one) => [one, 'network namespace'])
  return placeholder === 'NAME|IP' ? names('/sys/class/net').map((one) => [one, 'link']) : []
}

function networks(dir: string): readonly Candidate[] {
  const files = names(dir).filter((file) => /\.(conflist|conf|json)$/.test(file))
  const found = files.flatMap((file): Candidate[] => {
    try {
      const { name, plugins, type } = JSON.parse(readFileSync(`${dir}/${file}`, 'utf8'))
      const types = Array.isArray(plugins) ? plugins.map((one) => one.type) : [type]
      return typeof name === 'string' && isPlain(name)
        ? [[name, types.filter((one) => typeof one === 'string' && isPlain(one)).join(', ')]]
        : []
    } catch {
      // plumb cni itself says what is wrong with the file.
      return []
    }
  })
  return found.filter(([name], i) => found.findIndex(([other]) => other === name) === i)
}

function names(dir: string): string[] {
  try {
    return readdirSync(dir).filter(isPlain).sort()
  } catch {
    return []
  }
}

// A name with other characters needs quotes in a shell.
function isPlain(name: string): boolean {
  return /^[\w.@%+-]+$/.test(name)
}
