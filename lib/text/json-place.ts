import { type Node, type ParseError, parse, parseTree, printParseErrorCode } from 'jsonc-parser'
import { isDeepText } from './json.ts'

/** The parser calls itself for each level. */
const DEEPEST = 1000

/**
 * The place and the reason of the first JSON error in a text, as a phrase: `line 3, column 12: comma expected`. For a
 * text that JSON.parse has refused. Empty when this parser finds no error, and for a text that is nested too deep to look.
 */
export function jsonPlace(text: string): string {
  if (isDeepText(text, DEEPEST)) return ''
  const errors: ParseError[] = []
  parse(text, errors, { disallowComments: true, allowTrailingComma: false, allowEmptyContent: false })
  const [first] = errors
  if (!first) return ''
  const before = text.slice(0, first.offset).split('\n')
  const words = printParseErrorCode(first.error)
    .replace(/(?<=[a-z])(?=[A-Z])/g, ' ')
    .toLowerCase()
  return `line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${words}`
}

/**
 * The line of a key in a JSON text, from 1 on: `Backend.VNI` is the key VNI within Backend. Upper and lower case do not
 * matter. The line of the nearest key above it when it is missing. Undefined when there is none of them.
 */
export function jsonLine(text: string, key: string): number | undefined {
  if (isDeepText(text, DEEPEST)) return undefined
  let [node, at]: [Node | undefined, number | undefined] = [parseTree(text), undefined]
  for (const name of key.split('.')) {
    const found = node?.children?.find(({ children }) => children?.[0]?.value?.toLowerCase?.() === name.toLowerCase())
    if (!found) break
    ;[node, at] = [found.children?.[1], found.offset]
  }
  return at === undefined ? undefined : text.slice(0, at).split('\n').length
}
