import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'

/**
 * The lanes: what a file of tests needs, and how long it takes. Each file names its lane in its first line, as in
 * `// lane: netns`.
 *
 * - `quick`: nothing but the packages of npm.
 * - `netns`: root, for network namespaces. `long`: the same, for more than half a minute; `longer`: for minutes.
 * - `crash`: killed at every step. `fuzz`: random input. `peers`: real programs of others.
 * - `vm`, `vmlong`: the distribution's kernel in a virtual machine.
 * - `kubelet`, `kubernetes`, `soak`, `storm`: on request alone.
 */
const LANES = [
  'quick',
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

/** A file of tests. */
export interface TestFile {
  /** Below the root of the repository, as `test/agent/policy/live.test.ts`. */
  readonly path: string
  readonly lane: Lane
  /** Lane, subject and name, as `long/agent/policy/live`: what the runner prints, and what its words are looked for in. */
  readonly name: string
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
