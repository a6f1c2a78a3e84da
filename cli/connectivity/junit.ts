import type { Result } from './connectivity.ts'
import { titleOf } from './connectivity.ts'

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
}
// XML 1.0, 2.2: other control characters may not stand in a document, not even escaped.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
const FORBIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g

/**
 * The results as JUnit XML, as CI systems read it: a suite, and a test case for each case. `details` are lines that say
 * more of a failed case.
 */
export function junitText(
  results: readonly Result[],
  details: (failed: Result) => readonly string[] = () => [],
): string {
  const count = (state: Result['state']) => results.filter((one) => one.state === state).length
  const seconds = results.reduce((sum, one) => sum + one.seconds, 0)
  const totals = `tests="${results.length}" failures="${count('failed')}" skipped="${count('not made')}"`
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="plumb connectivity" ${totals} errors="0" time="${seconds.toFixed(3)}">`,
    ...results.map((one) => caseText(one, one.state === 'failed' ? details(one) : [])),
    '</testsuite>',
    '',
  ].join('\n')
}

function caseText(result: Result, details: readonly string[]): string {
  const { route, state, says, seconds } = result
  const head = `  <testcase classname="${escaped(route.way)}" name="${escaped(titleOf(result))}" time="${seconds.toFixed(3)}"`
  if (state === 'ok') return `${head}/>`
  const tag = state === 'failed' ? 'failure' : 'skipped'
  const open = `${head}><${tag} message="${escaped(says)}"`
  if (details.length === 0) return `${open}/></testcase>`
  return `${open}>${details.map(escaped).join('\n')}</${tag}></testcase>`
}

function escaped(text: string): string {
  return text
    .replace(FORBIDDEN, '')
    .replace(/[&<>"']/g, (one) => ENTITIES[one] as string)
    .replace(/[\n\r\t]/g, ' ')
}
