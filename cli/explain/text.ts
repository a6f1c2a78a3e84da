import type { Json } from '../../lib/runtime/network-list.ts'
import { addressesOf } from '../result.ts'
import type { ExplainedLine, ExplainedPlugin, ExplainedRun, Explanation } from './explanation.ts'

// Comments begin after this column. After a longer line they follow directly.
const COLUMN = 64

/**
 * Formats an explanation for people. Each command is followed by its lines of input, with comments. `rules` shows the
 * rule files of lib/nft in full.
 */
export function textOf(
  { command, network, containerId, ifname, netns, notes, plugins, result }: Explanation,
  rules: boolean,
): string {
  const where = netns === '' ? '' : ` in ${netns}`
  const head = [
    `${command} of ${ifname}${where} ${command === 'ADD' ? 'to' : 'from'} ${network} (container ${containerId}); nothing of this was run`,
    ...notes,
  ]
  const parts = plugins.flatMap((one, i) => ['', ...pluginText(one, i + 1, plugins[i - 1]?.result, rules)])
  const last = `${plugins.length}. ${plugins.at(-1)?.type}`
  const end =
    command === 'DEL'
      ? []
      : ['', `# ADD answers ${result ? `what ${last} answers` : `what ${last} answers, which is not known`}`]
  return [...head.map(comment), ...parts, ...end].join('\n')
}

function pluginText(
  { type, isPlumb, pool, runs, isWhole, result, notes }: ExplainedPlugin,
  number: number,
  before: Json | undefined,
  rules: boolean,
): string[] {
  const head = `${number}. ${isPlumb ? 'plugin ' : ''}${type}${pool ? `, pool ${pool.type}: ${[addressesOf(pool.result).join(', '), `(${pool.about})`].filter(Boolean).join(' ')}` : ''}`
  const program = pool?.program
    ? [`${pool.program} is not plumb's: it is run as a program with CNI_COMMAND=ADD, and what it runs is its own`]
    : []
  const nothing = isWhole && runs.length === 0 ? ['it runs nothing'] : []
  const same = result !== undefined && JSON.stringify(result) === JSON.stringify(before)
  const answer =
    result === undefined
      ? []
      : same
        ? [comment('answers what it was given')]
        : [comment('answers'), JSON.stringify(result, null, 4)]
  return [
    ...[head, ...program, ...notes, ...nothing].map(comment),
    ...runs.flatMap((run) => runText(run, rules)),
    ...answer,
  ]
}

function runText(
  { namespace, argv, lines, when, about, inBackground: isInBackground }: ExplainedRun,
  rules: boolean,
): string[] {
  const where = namespace === 'host' ? 'on the node' : `in ${namespace}`
  const head = withNote(
    argv.join(' '),
    [where, isInBackground ? 'goes on while the next ones run' : '', when, about].filter(Boolean).join('; '),
  )
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
