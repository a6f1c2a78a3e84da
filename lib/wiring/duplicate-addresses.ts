import { sleep } from '../os/door.ts'
import { rows } from '../os/iproute2.ts'
import type { Run } from '../os/run.ts'
import { listed } from '../os/show.ts'
import type { Addr } from '../state/kinds/addr.ts'
import type { LinkRow } from '../state/kinds/link.ts'
import type { Resource } from '../state/resource.ts'
import { CniError, CODE } from '../text/errors.ts'
import type { Netns } from '../text/values.ts'

const LIMIT_MS = 5000
const STEP_MS = 50

/**
 * Waits until the kernel has finished duplicate address detection for the addresses that asked for it (RFC 4862 section
 * 5.4). The limit is 5 s, as upstream. Throws CniError 11 that names an address which another host has, or which is
 * still tentative.
 */
export async function untilUnique(resources: readonly Resource[], run: Run): Promise<void> {
  const asked = resources.filter(isAsked)
  const question = questionOf(resources)
  if (!question) return
  const until = performance.now() + LIMIT_MS
  for (;;) {
    const held = (rows(await listed(question.argv, run, question.ns))[0]?.[0] as LinkRow | undefined)?.addr_info ?? []
    const open = asked.filter(({ cidr }) =>
      held.some(({ local, prefixlen, tentative }) => tentative && `${local}/${prefixlen}` === cidr),
    )
    const failed = asked.find(({ cidr }) =>
      held.some(({ local, prefixlen, dadfailed }) => dadfailed && `${local}/${prefixlen}` === cidr),
    )
    if (failed)
      throw new CniError(
        CODE.tryLater,
        `Cannot use ${failed.cidr}: another host on the link has this address`,
        'duplicate address detection failed ("enabledad")',
      )
    if (open.length === 0) return
    if (performance.now() > until)
      throw new CniError(
        CODE.tryLater,
        `Cannot tell within ${LIMIT_MS / 1000} s whether ${open[0]?.cidr} is free on the link`,
        'duplicate address detection has not ended ("enabledad")',
      )
    sleep(STEP_MS)
  }
}

/** The command that shows the state of the addresses. It is repeated. Undefined when no address asks for detection. */
export function questionOf(
  resources: readonly Resource[],
): { readonly argv: readonly string[]; readonly ns: Netns } | undefined {
  const first = resources.find(isAsked)
  return first && { argv: ['ip', '-j', 'addr', 'show', 'dev', first.dev], ns: first.ns }
}

function isAsked(one: Resource): one is Addr {
  return one.kind === 'addr' && one.dad === true
}
