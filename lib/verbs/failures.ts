import type { Call } from '../cni/call.ts'
import { CniError, CODE } from '../text/errors.ts'

/** Throws what went wrong in a GC that goes on after a failure: the one thing, or all of them in one CniError; nothing when nothing did. */
export function throwAll(failures: readonly Error[], { at }: Call): void {
  const [first, ...more] = failures
  if (more.length > 0) throw new CniError(CODE.internal, `GC of network ${at.network} failed in ${failures.length} places`, failures.map(({ message }) => message).join('; '))
  if (first) throw first
}
