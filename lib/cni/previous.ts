import { ValueError } from '../text/errors.ts'

/**
 * Reads a value of prevResult.interfaces with a parser. Names in a result can be any text. They are compared with
 * values that go into batch lines. Throws ValueError.
 */
export function previous<T>(parser: (value: unknown) => T, value: unknown): T {
  try {
    return parser(value)
  } catch (cause) {
    throw new ValueError(`Cannot read prevResult.interfaces: ${(cause as Error).message}`, { cause })
  }
}
