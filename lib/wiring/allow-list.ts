import { readText } from '../os/reading.ts'
import { CniError, CODE, shown } from '../text/errors.ts'

/** The node's list of sysctls that tuning may set, as upstream has it: a regular expression per line, found anywhere in the name. */
export const ALLOW_LIST = '/etc/cni/tuning/allowlist.conf'

// Go's RE2 knows these, and JavaScript takes them for a set of letters.
const CLASSES: Readonly<Record<string, string>> = { alnum: '0-9A-Za-z', alpha: 'A-Za-z', digit: '0-9', lower: 'a-z', upper: 'A-Z', space: '\\s', word: '\\w', xdigit: '0-9A-Fa-f' }

/** The expressions of the list; undefined where there is no list, and everything is allowed. Throws CniError 7 naming a line that is no expression. */
export function readAllowList(): RegExp[] | undefined {
  return readText(ALLOW_LIST)
    ?.split('\n')
    .flatMap((line, i) => (line.trim() === '' ? [] : expression(line.trim(), i + 1)))
}

function expression(text: string, number: number): RegExp {
  const [, flag, rest = ''] = /^(\(\?i\))?(.*)$/.exec(text) ?? []
  const source = rest.replace(/\[:(\w+):\]/g, (all, name: string) => (Object.hasOwn(CLASSES, name) ? (CLASSES[name] as string) : all))
  try {
    return new RegExp(source, flag ? 'i' : '')
  } catch (cause) {
    throw new CniError(CODE.config, `Cannot read line ${number} of ${ALLOW_LIST} ${shown(text)}: want a regular expression`, (cause as Error).message, { cause })
  }
}
