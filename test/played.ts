import type { Told, ToldLine, ToldPlugin } from '../cli/explain/told.ts'

/** What a test knows of the node and explain does not ask: which conditions hold. */
export type Node = (when: string) => boolean
/** One process as it should have been recorded. */
export interface Played {
  readonly namespace: string
  readonly argv: string
  readonly lines: readonly string[]
}

/** A node on which no network was ever used. */
export const FRESH: Node = (when) => /^only when (link \S+ is not there|table inet plumb is not there|it is not there yet)/.test(when)
/** One with another attachment to the same network. */
export const USED: Node = (when) => /^only when link \S+( in the pod)? is there(, with the alias \S+)?$/.test(when)

/** The processes that a told plugin comes to on such a node: conditions judged, and a batch that stops at a line goes on behind it in a further process, as the tool file's own rule is. */
export function played({ runs }: ToldPlugin, node: Node): Played[] {
  return runs
    .filter(({ tool, when }) => tool !== 'file' && (when === undefined || node(when)))
    .flatMap(({ namespace, argv, tool, lines }) => {
      const inputs = tool === 'nft' ? [lines.map(({ text }) => text)] : split(lines, node)
      return (lines.length === 0 ? [[]] : inputs).map((texts) => ({ namespace, argv: argv.join(' '), lines: texts.flatMap((text) => text.split('\n')) }))
    })
}

/** The settings that a told plugin would write, as `NAMESPACE TEXT`; `sure` are those without a condition. */
export function settings({ runs }: ToldPlugin): { text: string; sure: boolean }[] {
  return runs.filter(({ tool }) => tool === 'file').flatMap(({ namespace, lines }) => lines.filter(({ text }) => text.startsWith('net/')).map(({ text, when }) => ({ text: `${namespace} ${text}`, sure: when === undefined })))
}

/** Every line of every run. */
export function linesOf({ plugins }: Told): ToldLine[] {
  return plugins.flatMap(({ runs }) => runs.flatMap(({ lines }) => [...lines]))
}

// lib/apply.ts: a tool gets every line; behind one that met nothing a further process goes on, with what is done instead first.
function split(lines: readonly ToldLine[], node: Node): string[][] {
  const kept = lines.filter(({ when }) => when === undefined || node(when))
  const usual = kept.filter((line) => !isInstead(line))
  const at = kept.findIndex(isInstead)
  return [usual, ...(at < 0 ? [] : [kept.slice(at)])].filter((some) => some.length > 0).map((some) => some.map(({ text }) => text))
}

function isInstead({ when }: ToldLine): boolean {
  return when !== undefined && /^only when link \S+ is not there$/.test(when)
}
