import type { ExplainedLine, ExplainedPlugin, Explanation } from '../../cli/explain/explanation.ts'

/** What a test knows of the node and explain does not ask: which conditions hold. */
export type Node = (when: string) => boolean
/** One process as it should have been recorded. */
export interface Played {
  readonly namespace: string
  readonly argv: string
  readonly lines: readonly string[]
}

/** A node on which no network was ever used. */
export const FRESH: Node = (when) =>
  /^only when (link \S+ is not there|table inet plumb has not got these rules|it is not there yet)/.test(when)
/** One with another attachment to the same network. */
export const USED: Node = (when) => /^only when link \S+( in the pod)? is there(, with the alias \S+)?$/.test(when)

/** The processes that a told plugin comes to on such a node: conditions judged. */
export function played({ runs }: ExplainedPlugin, node: Node): Played[] {
  return runs
    .filter(({ tool, when }) => !['file', 'kernel'].includes(tool) && (when === undefined || node(when)))
    .map(({ namespace, argv, lines }) => ({
      namespace,
      argv: argv.join(' '),
      lines: kept(lines, node),
      isBare: lines.length === 0,
    }))
    .flatMap(({ isBare, ...one }) => (isBare || one.lines.length > 0 ? [one] : []))
}

/** The settings that a told plugin would write, as `NAMESPACE TEXT`; `sure` are those without a condition. */
export function settings({ runs }: ExplainedPlugin): { text: string; sure: boolean }[] {
  return runs
    .filter(({ tool }) => tool === 'file')
    .flatMap(({ namespace, lines }) =>
      lines
        .filter(({ text }) => text.startsWith('net/'))
        .map(({ text, when }) => ({ text: `${namespace} ${text}`, sure: when === undefined })),
    )
}

/** Every line of every run. */
export function linesOf({ plugins }: Explanation): ExplainedLine[] {
  return plugins.flatMap(({ runs }) => runs.flatMap(({ lines }) => [...lines]))
}

function kept(lines: readonly ExplainedLine[], node: Node): string[] {
  return lines.flatMap(({ text, when }) => (when === undefined || node(when) ? text.split('\n') : []))
}
