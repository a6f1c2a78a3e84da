import type { Code } from '../agent/doctor/check.ts'
import { CHECKS } from '../agent/doctor/checks/index.ts'
import { examine, type Report } from '../agent/doctor/doctor.ts'
import { readFacts } from '../agent/doctor/facts/read.ts'
import type { Finding } from '../agent/state/status.ts'
import { ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'
import { suggestion } from '../lib/text/shape.ts'
import { causeOf, lossText } from './doctor/explain.ts'
import { measurePromise, type Promised } from './doctor/promise.ts'
import {
  choicesOf,
  describeOptions,
  type Entry,
  type Grammar,
  type OptionName,
  readOptions,
  wantsJson,
} from './options.ts'
import { fail, needsRoot, print, printText } from './output.ts'
import { placesOf } from './places.ts'

const names: readonly OptionName[] = [
  'socket',
  'policy-socket',
  'subnet-file',
  'cache-dir',
  'conf-dir',
  'bin-dir',
  'json',
  'help',
]
/** Why a check was not made, for a user who is not root. */
const ROOT = 'they need root; run it with sudo'

/** The code of what the packets say. */
const LOST_PACKETS: Code = 'DR58'
const LOSS_TITLE = 'packets do not arrive'
/** The exit statuses, as plugins of Nagios and Icinga have them. */
const STATUS = { well: 0, warnings: 1, faults: 2, unknown: 3 }
/** Checks that tell from a silence what its cause may be. */
const GUESSES: ReadonlySet<string> = new Set(['DR17'])

/** Its row in the list of commands. */
export const entry: Entry = {
  place: 6,
  about: 'say what is wrong with this node’s network, and which command mends it',
}

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names), words: ['CODE'] }

/**
 * Runs `plumb doctor ARGV` and ends this process, or returns the exit status: 0 when nothing is wrong, 1 with warnings
 * only, 2 with faults, 3 when something was not measured. Never throws.
 */
export async function run(argv: readonly string[]): Promise<number> {
  try {
    return await examineNode(argv)
  } catch (cause) {
    fail(cause, wantsJson(argv))
    return STATUS.unknown
  }
}

async function examineNode(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb doctor')
  if (values.help) {
    print(help())
    return 0
  }
  const wanted = codesOf(words)
  const facts = await readFacts(placesOf(values))
  const isMeasured = wanted.size === 0 || wanted.has(LOST_PACKETS)
  const examined = examine(facts)
  const report = chosen(isMeasured ? withPromise(examined, await measurePromise(facts, values)) : examined, wanted)
  if (values.json) print(JSON.stringify(report, null, 4))
  else printText(reportText(report))
  // A connection that gets no answer would keep this process for two minutes.
  process.exit(statusOf(report))
}

function codesOf(words: readonly string[]): ReadonlySet<string> {
  const all = new Map([...CHECKS.map(({ code }) => code), LOST_PACKETS].map((code) => [code.toLowerCase(), code]))
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
function chosen(report: Measured, wanted: ReadonlySet<string>): Measured {
  if (wanted.size === 0) return report
  const isWanted = ({ code }: { readonly code: string }) => wanted.has(code)
  const hidden = report.hidden.filter(isWanted)
  const causes = new Set(hidden.map(({ because }) => because))
  return {
    ...report,
    findings: report.findings.filter((one) => isWanted(one) || causes.has(one.code)),
    hidden,
    made: report.made.filter((code) => wanted.has(code)),
    notMade: report.notMade.filter(isWanted),
  }
}

/** A report with what was measured. */
export interface Measured extends Report {
  /** The packets that arrived, and on which kinds of path. Absent when none was sent. */
  readonly packets?: Pick<Promised, 'arrived' | 'pods' | 'kinds'>
}

// The first difference on the way of a packet says more than what guesses at it, and less than what is known of it.
function withPromise(report: Report, { arrived, pods, kinds, losses, notMade }: Promised): Measured {
  const all = losses.map((loss) => {
    const { what, commands } = lossText(loss)
    const finding: Finding = { code: LOST_PACKETS, title: LOSS_TITLE, severity: 'error', text: what, commands }
    return { finding, because: causeOf(loss, report.findings) }
  })
  const isNamed = losses.some(({ suspects }) => suspects.length > 0)
  const isGuess = ({ code }: Finding) => isNamed && GUESSES.has(code)
  const guesses = report.findings.filter(isGuess).map((one) => ({ ...one, because: LOST_PACKETS }))
  const explained = all.flatMap(({ finding, because }) => (because === undefined ? [] : [{ ...finding, because }]))
  const unexplained = all.flatMap(({ finding, because }) => (because === undefined ? [finding] : []))
  return {
    ...report,
    findings: [...unexplained, ...report.findings.filter((one) => !isGuess(one))],
    hidden: [...report.hidden, ...explained, ...guesses],
    notMade: [...report.notMade, ...notMade.map(notMadeOf)],
    ...(arrived > 0 && { packets: { arrived, pods, kinds } }),
  }
}

function notMadeOf({ what, why }: Promised['notMade'][number]): Report['notMade'][number] {
  return { code: LOST_PACKETS, why: what === 'packets' ? why : `${what}: ${why}` }
}

/** Formats a report for people: the findings, each with its commands, then what was not looked at. */
export function reportText({ findings, hidden, made, notMade, packets }: Measured): string {
  const head = findings.length === 0 ? [calmText(made.length, notMade.length, packets)] : findings.map(findingText)
  const after = hidden.map(({ code, title, because }) => `${code} ${title}: follows from ${because}`)
  return [...head, ...(after.length > 0 ? [after.join('\n')] : []), ...notMadeText(notMade)].join('\n\n')
}

function calmText(made: number, notMade: number, packets: Measured['packets']): string {
  if (made === 0) return 'No check was made'
  const sent = packets ? `${packetsText(packets)}, ` : ''
  if (notMade > 0) return `Nothing is wrong as far as could be checked: ${sent}${made} of ${made + notMade} checks made`
  return `Nothing is wrong: ${sent}${made === 1 ? '1 check' : `${made} checks`} made`
}

function packetsText({ arrived, pods, kinds }: NonNullable<Measured['packets']>): string {
  const paths = kinds.length === 1 ? '1 kind of path' : `${kinds.length} kinds of path`
  return `${arrived} packets on ${paths} arrived${pods === 0 ? ' (no pod is here to send any)' : ''}`
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

// What was not measured may be wrong: that is no healthy node, and more than a warning.
function statusOf({ findings, made, notMade }: Report): number {
  if (findings.some(({ severity }) => severity === 'error')) return STATUS.faults
  if (notMade.length > 0 || made.length === 0) return STATUS.unknown
  return findings.length > 0 ? STATUS.warnings : STATUS.well
}

function help(): string {
  const all = [{ code: LOST_PACKETS, title: LOSS_TITLE }, ...CHECKS]
  const rows = all.map(({ code, title }) => `  ${code.padEnd(6)}${title}`)
  return `usage: plumb doctor [options] [CODE…]: say what is wrong with this node's network, and which command mends it

${describeOptions(names)}

checks:
${rows.join('\n')}

It changes nothing. It sends packets between pods, nodes and Services first, and follows those that are lost. With a
CODE it makes only that check: ${LOST_PACKETS} is the packets.

exit status, as Nagios has it: 0 nothing is wrong, 1 only warnings, 2 faults, 3 something could not be measured or the
command line is wrong`
}
