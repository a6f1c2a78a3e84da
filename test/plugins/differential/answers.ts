import type { Row } from '../../support/harness.ts'
import type { Said } from './list.ts'
import type { Names } from './names.ts'
import { type Facts, flat } from './view.ts'

/** What plugins answered: success and the result field by field and its form, or a refusal and its code and words. */
export function factsOfAnswers(said: readonly Said[], pod: string, names: Names): Facts {
  const facts = new Map<string, string>()
  for (const { type, status, stdout, result, error } of said) {
    facts.set(
      type,
      status === 0 ? 'works' : `refuses with ${error.code}: ${error.msg}${error.details ? ` (${error.details})` : ''}`,
    )
    if (status === 0 && stdout !== '')
      for (const [path, value] of Object.entries(about(stdout, result, pod, names))) facts.set(`${type}/${path}`, value)
  }
  return facts
}

function about(text: string, result: Row, pod: string, names: Names): Record<string, string> {
  const mac = (one: Row) => names.mac(one['mac'], one['sandbox'] ? `${pod}:${one['name']}` : names.plain(one['name']))
  const named = {
    ...result,
    ...(result['interfaces'] && {
      interfaces: result['interfaces'].map((one: Row) => (one['mac'] === undefined ? one : { ...one, mac: mac(one) })),
    }),
  }
  const fields = Object.fromEntries(flat(named, 'result').map(([path, value]) => [path, names.plain(value)]))
  return {
    ...fields,
    ...orders(result, 'order'),
    form:
      JSON.stringify(JSON.parse(text), null, 4).replace(/[<>&]/g, escaped) === text
        ? 'indent of 4, no newline at the end'
        : text,
  }
}

/** The order of the keys in each object. */
function orders(value: unknown, path: string): Record<string, string> {
  if (typeof value !== 'object' || value === null) return {}
  const inner = Object.assign({}, ...Object.entries(value).map(([key, one]) => orders(one, `${path}/${key}`)))
  return Array.isArray(value) ? inner : { [path]: Object.keys(value).join(' '), ...inner }
}

// As Go's encoder writes them.
function escaped(char: string): string {
  return `\\u00${char.charCodeAt(0).toString(16)}`
}
