import type { Json } from '../../lib/runtime/network-list.ts'
import { addressesOf } from '../result.ts'
import type { ExplainedLine, ExplainedPlugin, ExplainedRun, Explanation } from './explanation.ts'

// Comments begin after this column. After a longer line they follow directly.
const COLUMN = 64

/**
 * Formats an explanation for people. Each command is followed by its lines of input, with comments. `rules` shows the
 * rule files of lib/nft in full.
 */
export function explainedText(
  { command, network, containerId, ifname, netns, notes, plugins, result }: Explanation,
  rules: boolean,
): string {
  const where = netns === '' ? '' : ` in ${netns}`
  const what = `${command} of ${ifname}${where} ${command === 'ADD' ? 'to' : 'from'} ${network}`
  const head = [`${what} (container ${containerId}); nothing of this was run`, ...notes]
  const parts = plugins.flatMap((one, i) => ['', ...pluginText(one, i + 1, plugins[i - 1]?.result, rules)])
  const last = `${plugins.length}. ${plugins.at(-1)?.type}`
  const answer = `# ADD answers what ${last} answers${result ? '' : ', which is not known'}`
  const end = command === 'DEL' ? [] : ['', answer]
  return [...head.map(comment), ...parts, ...end].join('\n')
}

function pluginText(
  { type, isPlumb, pool, runs, isWhole, result, notes }: ExplainedPlugin,
  number: number,
  before: Json | undefined,
  rules: boolean,
): string[] {
  const given = pool && [addressesOf(pool.result).join(', '), `(${pool.about})`].filter(Boolean).join(' ')
  const head = `${number}. ${isPlumb ? 'plugin ' : ''}${type}${pool ? `, pool ${pool.type}: ${given}` : ''}`
  const program = pool?.program
    ? [`${pool.program} is not plumb's: it is run as a program with CNI_COMMAND=ADD, and what it runs is its own`]
    : []
  const nothing = isWhole && runs.length === 0 ? ['it runs nothing'] : []
  return [
    ...[head, ...program, ...notes, ...nothing].map(comment),
    ...runs.flatMap((run) => runText(run, rules)),
    ...(result === undefined ? [] : answerText(result, before)),
  ]
}

function answerText(result: Json, before: Json | undefined): string[] {
  if (JSON.stringify(result) === JSON.stringify(before)) return [comment('answers what it was given')]
  return [comment('answers'), JSON.stringify(result, null, 4)]
}

function runText(
  { namespace, argv, lines, when, about, inBackground: isInBackground }: ExplainedRun,
  rules: boolean,
): string[] {
  const where = namespace === 'host' ? 'on the node' : `in ${namespace}`
  const facts = [where, isInBackground ? 'goes on while the next ones run' : '', when, about].filter(Boolean)
  const head = withNote(argv.join(' '), facts.join('; '))
  return [head, ...lines.map((line) => lineText(line, rules))]
}

function lineText({ text, about, when }: ExplainedLine, rules: boolean): string {
  const fact = when === undefined ? about : `${when}: ${about}`
  if (!text.includes('\n')) return withNote(`  ${text}`, fact)
  return rules
    ? `${comment(fact)}\n${text.trimEnd()}`
    : withNote('  ', `${fact}: ${text.trimEnd().split('\n').length} lines, which --rules shows`)
}

function withNote(text: string, about: string): string {
  return text === '' ? comment(about) : `${text.padEnd(COLUMN)}  # ${about}`
}

function comment(text: string): string {
  return `# ${text}`
}
