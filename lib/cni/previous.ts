import { ValueError } from '../text/errors.ts'

/** A value of prevResult.interfaces through a parser: a result's names are anybody's text, and what they are compared with goes into batch lines. Throws ValueError. */
export function previous<T>(parser: (value: unknown) => T, value: unknown): T {
  try {
    return parser(value)
  } catch (cause) {
    throw new ValueError(`Cannot read prevResult.interfaces: ${(cause as Error).message}`, { cause })
  }
}
