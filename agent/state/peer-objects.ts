import { handler } from '../../lib/state/kinds/index.ts'
import type { Resource } from '../../lib/state/resource.ts'
import type { Looked } from '../kernel/converge.ts'
import type { PeerObjects } from './details.ts'

/** Lines about these kinds have secrets, or come from a file. */
const UNSPOKEN: ReadonlySet<string> = new Set(['wgdevice', 'wgpeer'])

/**
 * Describes an object, wanted and found. The line that makes it, without the word that makes it, is how `ip` and
 * `bridge` show it. Pure.
 */
export function wordsOf({ want, have, isRight }: Looked): PeerObjects['objects'][number] {
  const words = (one: Resource) => {
    const { put, title } = handler(one.kind)
    const text = UNSPOKEN.has(one.kind) ? undefined : put(one)[0]?.text
    return text?.replace(/^(\S+) (replace|append|add) /, '$1 ') ?? title(one)
  }
  const wanted = words(want)
  if (have === undefined) return { wanted }
  const found = words(have)
  return { wanted, found: isRight || found !== wanted ? (isRight ? wanted : found) : `${found}, with other attributes` }
}
