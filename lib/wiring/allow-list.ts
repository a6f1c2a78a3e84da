import { readText } from '../os/reading.ts'
import { CniError, CODE, shown } from '../text/errors.ts'

/**
 * The node's list of sysctls that `tuning` may set. The format is upstream's: one regular expression per line, which
 * matches anywhere in the name.
 */
export const ALLOW_LIST = '/etc/cni/tuning/allowlist.conf'

// Go's RE2 has these classes. JavaScript reads them as a set of letters.
const CLASSES: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  digit: '0-9',
  lower: 'a-z',
  upper: 'A-Z',
  space: '\\s',
  word: '\\w',
  xdigit: '0-9A-Fa-f',
}

/**
 * Returns the expressions of the list. Undefined when there is no list: then every sysctl is allowed. Throws CniError 7
 * that names a line with an invalid expression.
 */
export function readAllowList(): RegExp[] | undefined {
  return readText(ALLOW_LIST)
    ?.split('\n')
    .flatMap((line, i) => (line.trim() === '' ? [] : expression(line.trim(), i + 1)))
}

function expression(text: string, number: number): RegExp {
  const [, flag, rest = ''] = /^(\(\?i\))?(.*)$/.exec(text) ?? []
  const source = rest.replace(/\[:(\w+):\]/g, (all, name: string) =>
    Object.hasOwn(CLASSES, name) ? (CLASSES[name] as string) : all,
  )
  try {
    return new RegExp(source, flag ? 'i' : '')
  } catch (cause) {
    throw new CniError(
      CODE.config,
      `Cannot read line ${number} of ${ALLOW_LIST} ${shown(text)}: want a regular expression`,
      (cause as Error).message,
      { cause },
    )
  }
}
