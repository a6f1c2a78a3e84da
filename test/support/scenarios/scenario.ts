/** A part of a scenario below a line `-- name --`. */
export interface Section {
  readonly name: string
  /** The line of its first line of text in the file. */
  readonly line: number
  readonly text: string
}
/** A file of test/scenarios: what behaviour it holds, and its sections in their order. */
export interface Scenario {
  readonly file: string
  /** The first paragraph, in one line. */
  readonly title: string
  readonly sections: readonly Section[]
}

/** What is wrong with a scenario, at a line of its file. */
export class ScenarioError extends Error {
  constructor(file: string, line: number, what: string) {
    super(`${file}:${line}: ${what}`)
    this.name = 'ScenarioError'
  }
}

const HEAD = /^-- (.*) --$/
/** What looks like the name of a section and is none. It would be text of the section before. */
const NEARLY = /^\s*--\s*\S.*--\s*$/

/** Reads the text of a scenario, in the form of Go's txtar. Throws ScenarioError. */
export function parseScenario(file: string, text: string): Scenario {
  const wrong = (index: number, what: string) => new ScenarioError(file, index + 1, what)
  if (text.trim() === '') throw wrong(0, 'the scenario is empty; want a first paragraph, and sections')
  const lines = text.replace(/\n$/, '').split('\n')
  const heads = lines.flatMap((line, index) => {
    if (HEAD.test(line)) return [index]
    if (NEARLY.test(line)) throw wrong(index, `cannot read ${JSON.stringify(line)}: want a line "-- name --"`)
    return []
  })
  const first = heads[0]
  if (first === undefined) throw wrong(0, 'there is no section; want a line such as "-- objects.yaml --"')
  const [title = ''] = lines
    .slice(0, first)
    .join('\n')
    .trim()
    .split(/\n\s*\n/)
  if (title === '') throw wrong(0, 'there is no first paragraph; want one that says what behaviour the scenario holds')
  const sections = heads.map((head, i): Section => {
    const body = lines.slice(head + 1, heads[i + 1])
    const name = HEAD.exec(lines[head] as string)?.[1] as string
    while (body.at(-1)?.trim() === '') body.pop()
    if (body.length === 0) throw wrong(head, `the section "${name}" is empty; want text below it`)
    return { name, line: head + 2, text: `${body.join('\n')}\n` }
  })
  return { file, title: title.replace(/\s+/g, ' '), sections }
}

/** The text of a file with other texts for some of its sections, by the line of the section. The rest stays. */
export function withTexts(text: string, { sections }: Scenario, texts: ReadonlyMap<number, string>): string {
  const lines = text.split('\n')
  for (const { line, text: before } of sections.toReversed()) {
    const now = texts.get(line)
    if (now === undefined) continue
    lines.splice(line - 1, before.split('\n').length - 1, ...now.replace(/\n$/, '').split('\n'))
  }
  return lines.join('\n')
}
