import { readFileSync } from 'node:fs'
import { ValueError } from '../../lib/text/errors.ts'

/** The fewest characters of a token. */
const LENGTH = 16

/** Reads the token for the status server from a file: one word. Throws ValueError, which does not show it. */
export function readToken(file: string): string {
  const token = textOf(file).trim()
  if (token.length >= LENGTH && /^[!-~]+$/.test(token)) return token
  throw new ValueError(`Cannot use the token in ${file}: want one word of at least ${LENGTH} characters`)
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new ValueError(`Cannot read the token: ${(cause as Error).message}`)
  }
}
