import { CHECKS } from '../agent/doctor/checks/index.ts'
import { examine, type Report } from '../agent/doctor/doctor.ts'
import { readFacts } from '../agent/doctor/facts/read.ts'
import type { Finding } from '../agent/state/status.ts'
import { ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'
import { suggestion } from '../lib/text/shape.ts'
import { choicesOf, describeOptions, type Entry, type Grammar, type OptionName, readOptions } from './options.ts'
import { needsRoot, print, printText } from './output.ts'
import { placesOf } from './places.ts'

const names: readonly OptionName[] = ['socket', 'policy-socket', 'subnet-file', 'conf-dir', 'bin-dir', 'json', 'help']
/** Why a check was not made, for a user who is not root. */
const ROOT = 'they need root; run it with sudo'

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 6,
  about: 'say what is wrong with this node’s network, and which command mends it',
}

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names), words: ['CODE'] }

/**
 * Runs `plumb doctor ARGV` and returns the exit status. The status is 0 when nothing is wrong, 1 with an error, 2 when no
 * check was made, 3 with warnings only. Throws ValueError for a wrong command line.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb doctor')
  if (values.help) {
    print(help())
    return 0
  }
  const wanted = codesOf(words)
  const facts = await readFacts(placesOf(values))
  const report = chosen(examine(facts), wanted)
  if (values.json) print(JSON.stringify(report, null, 4))
  else printText(reportText(report))
  return statusOf(report)
}

function codesOf(words: readonly string[]): ReadonlySet<string> {
  const all = new Map(CHECKS.map(({ code }) => [code.toLowerCase(), code]))
  return new Set(
    words.map((word) => {
      const code = all.get(word.toLowerCase())
      if (code !== undefined) return code
      throw new ValueError(
        `plumb doctor has no check ${JSON.stringify(word)}${suggestion(word, all)}; see plumb doctor --help`,
      )
    }),
  )
}

// A check that is asked for alone also tells what hides it.
function chosen(report: Report, wanted: ReadonlySet<string>): Report {
  if (wanted.size === 0) return report
  const isWanted = ({ code }: { readonly code: string }) => wanted.has(code)
  const hidden = report.hidden.filter(isWanted)
  const causes = new Set(hidden.map(({ because }) => because))
  return {
    findings: report.findings.filter((one) => isWanted(one) || causes.has(one.code)),
    hidden,
    made: report.made.filter((code) => wanted.has(code)),
    notMade: report.notMade.filter(isWanted),
  }
}

/** Formats a report for people: the findings, each with its commands, then what was not looked at. */
export function reportText({ findings, hidden, made, notMade }: Report): string {
  const head = findings.length === 0 ? [calmText(made.length, notMade.length)] : findings.map(findingText)
  const after = hidden.map(({ code, title, because }) => `${code} ${title}: follows from ${because}`)
  return [...head, ...(after.length > 0 ? [after.join('\n')] : []), ...notMadeText(notMade)].join('\n\n')
}

function calmText(made: number, notMade: number): string {
  if (made === 0) return 'No check was made'
  if (notMade > 0) return `Nothing is wrong as far as could be checked: ${made} of ${made + notMade} checks made`
  return `Nothing is wrong: ${made === 1 ? '1 check' : `${made} checks`} made`
}

function findingText({ code, severity, text, commands }: Finding): string {
  // A line break in a name must not begin a line that looks like a command.
  return [`${severity} ${code}: ${printable(text)}`, ...commands.map((one) => `  ${printable(one)}`)].join('\n')
}

// One reason, such as a missing right, often concerns many checks.
function notMadeText(notMade: Report['notMade']): string[] {
  const reasons = new Map<string, string[]>()
  for (const { code, why: said } of notMade) {
    const why = needsRoot(said) ? ROOT : said
    reasons.set(why, [...(reasons.get(why) ?? []), code])
  }
  return [...reasons].map(([why, codes]) => `not checked: ${codes.join(' ')}: ${printable(why)}`)
}

// Nobody is to take a report without root for a healthy node.
function statusOf({ findings, made, notMade }: Report): number {
  if (findings.length === 0) return made.length === 0 || notMade.some(({ why }) => needsRoot(why)) ? 2 : 0
  return findings.some(({ severity }) => severity === 'error') ? 1 : 3
}

function help(): string {
  const rows = CHECKS.map(({ code, title }) => `  ${code.padEnd(6)}${title}`)
  return `usage: plumb doctor [options] [CODE…]: say what is wrong with this node's network, and which command mends it

${describeOptions(names)}

checks:
${rows.join('\n')}

It changes nothing. It works without the agent, and knows more with it. Without root, some checks are not made.

exit status: 0 nothing is wrong, 1 an error, 2 the command line is wrong, no check was made or checks need root,
3 only warnings`
}
