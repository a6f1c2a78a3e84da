// Runs a scenario: gives the sections to a subject from top to bottom, and compares each wanted section with what the
// subject says then. Begin with `runScenario`.
import { ValueError } from '../../../lib/text/errors.ts'
import { differenceOf, firstMiss, isPartial, isSame, linesOf } from './comparison.ts'
import { parseScenario, type Scenario, ScenarioError, type Section, withTexts } from './scenario.ts'

/** What scenarios of one folder are about. */
export interface Subject {
  /** The names of the sections that are given. A name that ends in `/` is a folder, whose files are given. */
  readonly given: readonly string[]
  /** The names of the sections that are wanted. A name that ends in a blank goes on with words. */
  readonly wanted: readonly string[]
  start(): Run
}
/** One scenario of a subject. */
export interface Run {
  /** Takes a given section. Throws Wrong for what nobody can read. */
  take(section: Section): Promise<void>
  /** The lines of a wanted section, as they are now. `wanted` is what the file has. Throws Wrong for a wrong question. */
  tell(name: string, wanted: readonly string[]): readonly string[]
  /** What the agent says is wrong. A scenario that does not want it as `problems` fails. */
  problems(): readonly string[]
  end(): void
}

/** What is wrong with a section, at one of its lines, from 0. -1 is the line of its name. */
export class Wrong extends Error {
  readonly line: number

  constructor(line: number, what: string) {
    super(what)
    this.name = 'Wrong'
    this.line = line
  }
}

/**
 * What `read` gives. A ValueError becomes Wrong, at the line of the settings that it names, else at `line` of the section.
 */
export function readable<T>(read: () => T, line = 0): T {
  try {
    return read()
  } catch (cause) {
    if (!(cause instanceof ValueError)) throw cause
    const [, named] = /settings\.yaml:(\d+):/.exec(cause.message) ?? []
    throw new Wrong(named === undefined ? line : Number(named) - 1, cause.message)
  }
}

/** Problems are wanted as any other text. */
const PROBLEMS = 'problems'
/** No line of the section is in the text of this name. */
const LACKS = 'lacks: '

/**
 * Runs the scenario in a text. Throws ScenarioError for what is wrong, with file and line, and the difference. Gives the
 * text with the wanted sections as they are now. With `write`, differences are no errors.
 */
export async function runScenario(file: string, text: string, subject: Subject, write = false): Promise<string> {
  const scenario = parseScenario(file, text)
  const steps = stepsOf(scenario, subject)
  const written = new Map<number, string>()
  const run = subject.start()
  try {
    for (const { given, wanted } of steps) {
      for (const section of given) await placed(scenario, section, () => run.take(section))
      const last = given.at(-1) as Section
      if (!wanted.some(({ name }) => name === PROBLEMS)) await placed(scenario, last, () => expectNone(run.problems()))
      for (const section of wanted) {
        const now = await placed(scenario, section, () => textOf(run, section))
        if (now === undefined) continue
        if (!write || now.text === undefined) throw new ScenarioError(file, section.line + now.line, now.what)
        written.set(section.line, now.text)
      }
    }
  } finally {
    run.end()
  }
  return withTexts(text, scenario, written)
}

interface Step {
  readonly given: Section[]
  readonly wanted: Section[]
}

// What is given, and what is wanted after it, again and again.
function stepsOf({ file, sections }: Scenario, { given, wanted }: Subject): Step[] {
  const steps: Step[] = []
  const isOne = (name: string, names: readonly string[]) =>
    names.some((one) => (/[ /]$/.test(one) ? name.startsWith(one) && name !== one : name === one))
  for (const section of sections) {
    const { name, line } = section
    const wrong = (what: string) => new ScenarioError(file, line - 1, what)
    const isWanted = isOne(name.startsWith(LACKS) ? name.slice(LACKS.length) : name, [...wanted, PROBLEMS])
    if (!isWanted && !isOne(name, given))
      throw wrong(`there is no section "${name}" here; want ${[...given, ...wanted, PROBLEMS].join(', ')}`)
    const last = steps.at(-1)
    if (isWanted && last === undefined) throw wrong(`"${name}" is wanted before anything is given`)
    if (isWanted) last?.wanted.push(section)
    else if (last === undefined || last.wanted.length > 0) steps.push({ given: [section], wanted: [] })
    else last.given.push(section)
  }
  const end = steps.at(-1)
  if (end?.wanted.length === 0)
    throw new ScenarioError(file, end.given[0]?.line ?? 1, `nothing is wanted here; want one of ${wanted.join(', ')}`)
  return steps
}

// Gives an error of a section its place in the file.
async function placed<T>({ file }: Scenario, { line }: Section, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    if (cause instanceof Wrong) throw new ScenarioError(file, line + cause.line, cause.message)
    if (cause instanceof ValueError || cause instanceof RangeError) throw new ScenarioError(file, line, cause.message)
    throw cause
  }
}

function expectNone(problems: readonly string[]): void {
  if (problems.length === 0) return
  throw new Wrong(-1, `the agent has problems here that no section "${PROBLEMS}" names:\n${problems.join('\n')}`)
}

interface Difference {
  /** The line of the section, from 0. */
  readonly line: number
  readonly what: string
  /** What would be right. Absent when nobody can say it. */
  readonly text?: string
}

function textOf(run: Run, { name, text: wanted }: Section): Difference | undefined {
  const isLacking = name.startsWith(LACKS)
  const subject = isLacking ? name.slice(LACKS.length) : name
  const now = whole(subject === PROBLEMS ? run.problems() : run.tell(subject, linesOf(wanted)))
  if (isLacking) {
    const there = linesOf(wanted).findIndex((line) => linesOf(now).some((one) => isSame(line, one)))
    return there < 0 ? undefined : { line: there, what: `"${subject}" has this line, and it must not:\n${now}` }
  }
  const miss = firstMiss(wanted, now)
  if (miss === undefined) return undefined
  const missed = linesOf(wanted)[miss] ?? 'the end of the text'
  const what = isPartial(wanted)
    ? `"${name}" has no such line there ("..." stands for any lines):\n  - ${missed}\nThe whole text is:\n${indented(now)}`
    : `"${name}" differs (- is wanted, + is what there is):\n${differenceOf(wanted, now)}`
  return { line: miss, what, text: now }
}

function indented(text: string): string {
  return text.trimEnd().replace(/^/gm, '    ')
}

// No section is empty.
function whole(lines: readonly string[]): string {
  return lines.length === 0 ? 'none\n' : `${lines.join('\n')}\n`
}
