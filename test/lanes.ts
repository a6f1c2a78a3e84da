import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { parseArgs } from 'node:util'
import { Glob } from 'bun'

/**
 * The lanes: what a file of tests needs, and how long it takes. Each file names its lane in its first line, as in
 * `// lane: netns`.
 *
 * - `quick`: nothing but the packages of npm.
 * - `timed`: assertions on time; these files run alone, one after another, after the others.
 * - `netns`: root, for network namespaces. `long`: the same, for more than half a minute; `longer`: for minutes.
 * - `crash`: killed at every step. `fuzz`: random input. `peers`: real programs of others.
 * - `vm`, `vmlong`: the distribution's kernel in a virtual machine.
 * - `kubelet`, `kubernetes`, `soak`, `storm`: on request alone.
 */
const LANES = [
  'quick',
  'timed',
  'netns',
  'long',
  'longer',
  'crash',
  'fuzz',
  'peers',
  'vm',
  'vmlong',
  'kubelet',
  'kubernetes',
  'soak',
  'storm',
] as const
/** A lane by its name. */
export type Lane = (typeof LANES)[number]

/** Lanes that take long: they run only when --only names them, and what they print is shown as they print it. */
const ASKED: readonly Lane[] = ['kubelet', 'kubernetes', 'storm', 'soak', 'longer', 'vmlong']

/** A file of tests. */
export interface TestFile {
  /** Below the root of the repository, as `test/agent/policy/live.test.ts`. */
  readonly path: string
  readonly lane: Lane
  /** Lane, subject and name, as `long/agent/policy/live`: what the runner prints, and what its words are looked for in. */
  readonly name: string
}

/** What a run is asked for on its command line. */
export interface Wish {
  /** Words that name files (`isMeant`). */
  readonly words: readonly string[]
  /** Lanes that run alone, and lanes that do not run unless words name their files; undefined when not given. */
  readonly only: readonly string[] | undefined
  readonly without: readonly string[]
  /** Files at a time. */
  readonly jobs: number | undefined
  /** A part of the titles of the tests, for mocha. */
  readonly grep: string | undefined
  /** Whether it names lanes that take long. */
  readonly isLong: boolean
}

/** Reads a command line. Throws TypeError about an option that is not known. */
export function wishOf(argv: readonly string[]): Wish {
  const { values, positionals } = parseArgs({
    args: argv.filter((one) => one !== '--'),
    allowPositionals: true,
    options: {
      only: { type: 'string' },
      without: { type: 'string' },
      jobs: { type: 'string' },
      grep: { type: 'string' },
    },
  })
  const only = values.only?.split(',')
  return {
    words: positionals,
    only,
    without: values.without?.split(',') ?? [],
    jobs: values.jobs === undefined ? undefined : Number(values.jobs),
    grep: values.grep,
    isLong: ASKED.some((lane) => only?.includes(lane)),
  }
}

/** The files of a wish. Words name files of any lane but those that take long. */
export function chosen(files: readonly TestFile[], { words, only, without }: Wish): TestFile[] {
  return files.filter(
    (file) =>
      (only ? only.includes(file.lane) : !ASKED.includes(file.lane)) &&
      (words.length === 0 ? !without.includes(file.lane) : words.some((word) => isMeant(file, word))),
  )
}

/**
 * What these files need: the words of each line `// needs: WORD …` in them, and in the files of test/ that they import.
 * The tools that every lane but `quick` has are no such words.
 */
export function needsOf(root: string, files: readonly Pick<TestFile, 'path'>[]): Set<string> {
  const [found, seen] = [new Set<string>(), new Set<string>()]
  const left = files.map(({ path }) => path)
  for (let path = left.pop(); path !== undefined; path = left.pop()) {
    if (seen.has(path) || !path.startsWith('test/') || !existsSync(join(root, path))) continue
    seen.add(path)
    const text = readFileSync(join(root, path), 'utf8')
    for (const [, words = ''] of text.matchAll(/^\/\/ needs: (.+)$/gm))
      for (const word of words.split(' ')) found.add(word)
    for (const [, from = ''] of text.matchAll(/(?:from |import\()'(\.[^']+)'/g))
      left.push(normalize(join(dirname(path), from)))
  }
  return found
}

/** All files of tests below `root`, by their paths. Throws Error with each file that names no lane. */
export function testFiles(root: string): TestFile[] {
  const paths = [...new Glob('test/**/*.test.ts').scanSync({ cwd: root })].sort()
  const found = paths.map((path) => ({ path, lane: laneOf(readFileSync(join(root, path), 'utf8')) }))
  const wrong = found.filter(({ lane }) => lane === undefined)
  if (wrong.length > 0)
    throw new Error(
      `Cannot read the lane of ${wrong.map(({ path }) => path).join(', ')}: the first line must be \`// lane: LANE\`, one of ${LANES.join(', ')}`,
    )
  return found.map(({ path, lane }) => ({ path, lane: lane as Lane, name: `${lane}/${subjectOf(path)}` }))
}

/** The lane that the text of a test file names, undefined when its first line names none. */
export function laneOf(text: string): Lane | undefined {
  const [, word] = /^\/\/ lane: (\S+)\n/.exec(text) ?? []
  return LANES.find((lane) => lane === word)
}

/**
 * Whether a word means this file: a part of its path or of its name, where `-` and `/` are the same. A word that begins
 * with a lane, as `netns/bridge`, means the files of that lane that have the rest anywhere. `unit` is another word for
 * `quick`.
 */
export function isMeant({ path, lane, name }: TestFile, word: string): boolean {
  const asked = word.replace(/^\.\//, '').replace(/^unit(\/|$)/, 'quick$1')
  const [first, ...rest] = asked.split('/')
  return (
    path.includes(asked) ||
    plain(name).includes(plain(asked)) ||
    (first === lane && plain(path.slice('test/'.length)).includes(plain(rest.join('/'))))
  )
}

function subjectOf(path: string): string {
  return path.replace(/^test\//, '').replace(/\.test\.ts$/, '')
}

function plain(text: string): string {
  return text.replaceAll('/', '-')
}
