import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'

const ROOT = join(import.meta.dir, '..')
/** The longest sentence, in words. A name, a path, a command or a piece of code in backticks is one word. */
export const LONGEST = 30
/** Words and phrases to avoid, each with a replacement. They are English, but no newcomer looks for them. */
const AVOIDED: readonly (readonly [RegExp, string])[] = [
  [/\bwho(so)?ever\b/, 'name the person or the program'],
  [/\bof (which|whom)\b/, 'start a new sentence'],
  [/\b(there|here|where)(of|in|upon|by|to|fore|with|from|after)\b(?<!therefore|whereby)/, 'name the thing, or "so"'],
  [/\b(whereby|wherever|whence|thence|hence|whither|thus)\b/, '"so", "from there", or a new sentence'],
  [/\bwhat of\b/, 'name the thing'],
  [/\bas well as not\b/, 'two sentences'],
  [/\b(is|are|was|were) to be had\b/, '"exists" or "is available"'],
  [/\blest\b/, '"so that … not"'],
  [/\bin (the place of|place of|another's place|the stead of)\b/, '"instead of"'],
  [/\bbut for\b/, '"except"'],
  [/\bsave (for|that)\b/, '"except"'],
  [/\b(sees?|saw) to (it|that)\b/, 'the verb itself: "checks", "makes", "publishes"'],
  [/\bof (its|their) own accord\b/, '"by itself"'],
  [
    /\b(naught|nought|aught|hitherto|henceforth|heretofore|whilst|amongst|albeit|betwixt|forthwith|ere)\b/,
    'the everyday word',
  ],
  [/\bneeds not\b/, '"does not need"'],
  [/\b(is|are) not to be\b/, '"must not be" or "cannot be"'],
  [/\b(has|have) no (say|business)\b/, 'say what happens'],
  [/\bnor (is|are|does|do|has|have|can|will) \w+/, 'a new sentence that begins with its subject'],
  [
    /\b(so|neither) (is|are|does|do|has|have|will|can) (a|an|the|it|its|what|that)\b(?! (same|not))/,
    'a new sentence that begins with its subject',
  ],
  [/\banew\b/, '"again"'],
  [/\bthe like\b/, 'name the things'],
  [/\bfor want of\b/, '"without" or "because there is no"'],
  [/\bbe it\b/, '"whether"'],
  [/\bcome what may\b/, '"always"'],
  [/\b(bears?|bore)\b/, '"has"'],
]

/** A sentence of a page that breaks a rule. */
export interface Finding {
  readonly file: string
  readonly line: number
  readonly text: string
  readonly rule: string
}
/** A page: its number of sentences and words, and its findings. */
export interface Checked {
  readonly file: string
  readonly sentences: number
  readonly words: number
  readonly findings: readonly Finding[]
}

/** The pages to check: README, CONTRIBUTING, CHANGELOG and docs/. */
export function pageFiles(): string[] {
  return ['*.md', 'docs/**/*.md'].flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })]).sort()
}

/** Checks one text: Markdown, or plain text such as a `--help`. Code blocks and generated regions are left out. */
export function check(file: string, text: string): Checked {
  const all = blocks(text).flatMap(({ line, prose }) =>
    sentences(prose).map((sentence) => ({ line, sentence, words: count(sentence) })),
  )
  const findings = all.flatMap(({ line, sentence, words }) => [
    ...(words > LONGEST ? [{ file, line, text: sentence, rule: `${words} words; at most ${LONGEST}` }] : []),
    ...turns(sentence).map((rule) => ({ file, line, text: sentence, rule })),
  ])
  return { file, sentences: all.length, words: all.reduce((sum, { words }) => sum + words, 0), findings }
}

/**
 * The findings in a source file: long sentences in its comments, and turns to avoid in comments and in titles of tests.
 * Code in backticks does not count.
 */
export function checkComments(file: string, text: string): Finding[] {
  const found = text.split('\n').flatMap((row, i): Finding[] => {
    const said = COMMENT.exec(row)?.[1] ?? /\b(?:it|describe)\(\s*[`'"](.*)$/.exec(row)?.[1]
    return said === undefined
      ? []
      : turns(said.replace(/`[^`]*`/g, '·')).map((rule) => ({ file, line: i + 1, text: said, rule }))
  })
  return [
    ...found,
    ...comments(text).flatMap(({ line, prose }) =>
      check(file, prose).findings.flatMap((one) =>
        one.rule.endsWith(`at most ${LONGEST}`) ? [{ ...one, line: line + one.line - 1 }] : [],
      ),
    ),
  ]
}

// A line of a comment. The end of a block comment is not part of the text.
const COMMENT = /^\s*(?:\/\/|\/\*\*|\*(?!\/)) ?(.*?)(?: ?\*\/)?$/

// The comments of a source file: lines of comment that follow each other, as one text.
function comments(text: string): Block[] {
  const found: { line: number; prose: string }[] = []
  let isOpen = false
  for (const [i, row] of text.split('\n').entries()) {
    const said = COMMENT.exec(row)?.[1]
    if (said !== undefined && isOpen) (found.at(-1) as { prose: string }).prose += `\n${said}`
    else if (said !== undefined) found.push({ line: i + 1, prose: said })
    isOpen = said !== undefined
  }
  return found
}

function turns(sentence: string): string[] {
  return AVOIDED.flatMap(([turn, instead]) => {
    const found = turn.exec(sentence.replace(/^\w/, (first) => first.toLowerCase()))
    return found ? [`not "${found[0]}", but ${instead}`] : []
  })
}

/**
 * Converts the text of a `--help` to Markdown. Each option or command becomes an item of a list. Usage lines are left
 * out.
 */
export function helpText(text: string): string {
  return text.replace(/^usage: .*\n( +plumb .*\n)*/m, '').replace(/^ {1,8}\S.*? {2,}(?=\S)/gm, '- ')
}

/** Formats the average sentence length of a page, and its findings, as lines. */
export function report({ file, sentences, words, findings }: Checked): string {
  const average = sentences === 0 ? 0 : words / sentences
  return [
    `${file}: ${sentences} sentences, ${average.toFixed(1)} words on average`,
    ...findings.map(({ line, rule, text }) => `  ${file}:${line}: ${rule}: ${text}`),
  ].join('\n')
}

/** A paragraph, a heading, an item of a list or a cell of a table. */
interface Block {
  readonly line: number
  readonly prose: string
}

// Text that is not prose becomes blank lines, so that the line numbers stay right.
function blocks(text: string): Block[] {
  const blank = (part: string) => part.replace(/[^\n]/g, '')
  const prose = text
    .replace(/^---\n[\s\S]*?^---$/m, (part, at) => (at === 0 ? blank(part) : part))
    .replace(/^( *)```[\s\S]*?^ *```$/gm, blank)
    .replace(/<!-- \w+[^>]*? -->\n[\s\S]*?<!-- end -->/g, blank)
    .replace(/<!--[\s\S]*?-->/g, blank)
    .replace(/<picture>[\s\S]*?<\/picture>/g, blank)
  const found: { line: number; prose: string }[] = []
  let isOpen = false
  for (const [i, line] of prose.split('\n').entries()) {
    const isTable = /^\s*\|/.test(line)
    if (isTable && !/^[\s|:-]+$/.test(line))
      for (const cell of line.split(/(?<!\\)\|/)) found.push({ line: i + 1, prose: cell.trim() })
    else if (/^\s*([-*]|\d+\.|#+|>)\s/.test(line) || (!isTable && line.trim() !== '' && !isOpen))
      found.push({ line: i + 1, prose: line.trim().replace(/^([-*]|\d+\.|#+|>)\s+/, '') })
    else if (!isTable && line.trim() !== '') (found.at(-1) as { prose: string }).prose += ` ${line.trim()}`
    isOpen = !isTable && line.trim() !== '' && !/^#/.test(line)
  }
  return found.filter((block) => block.prose !== '')
}

// Code counts as one word without a full stop. A link counts as its text. A title after a link to a test file is a
// quotation, and is left out.
function sentences(prose: string): string[] {
  return prose
    .replace(/\[test\/[^\]]*\]\([^)]*\): .*$/, '')
    .replace(/`[^`]*`/g, (code) => code.replace(/[.!?:;]/g, '·').replaceAll(' ', '_'))
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/\b(e\.g|i\.e|etc|vs|no)\./gi, '$1')
    .split(/(?<=[.!?][)"'*]*)\s+/)
    .map((one) => one.trim())
    .filter((one) => /\w/.test(one))
}

function count(sentence: string): number {
  return sentence.split(/\s+/).filter((word) => /\w/.test(word)).length
}

if (import.meta.main) {
  const wanted = process.argv.slice(2)
  const all = pageFiles()
    .filter((file) => wanted.length === 0 || wanted.some((word) => file.includes(word)))
    .map((file) => check(file, readFileSync(join(ROOT, file), 'utf8')))
  for (const one of all) process.stdout.write(`${report(one)}\n`)
  process.exitCode = all.some(({ findings }) => findings.length > 0) ? 1 : 0
}
