import { CniError, CODE } from './errors.ts'
import { rows } from './iproute.ts'
import type { LinkRow } from './kinds/link.ts'
import type { Run } from './plugin.ts'
import type { Addr, Resource } from './state.ts'

const LIMIT_MS = 5000
const STEP_MS = 50

/** Waits until the kernel has made sure that nobody else has the addresses that asked for it (RFC 4862 section 5.4), up to 5 s as upstream. Throws CniError 11 naming an address that is taken or still undecided. */
export async function untilUnique(resources: readonly Resource[], run: Run): Promise<void> {
  const asked = resources.filter((one): one is Addr => one.kind === 'addr' && one.dad === true)
  const [first] = asked
  if (!first) return
  const until = performance.now() + LIMIT_MS
  for (;;) {
    const { stdout } = await run(['ip', '-j', 'addr', 'show', 'dev', first.dev], '', first.ns)
    const held = (rows(stdout)[0]?.[0] as LinkRow | undefined)?.addr_info ?? []
    const open = asked.filter(({ cidr }) => held.some(({ local, prefixlen, tentative }) => tentative && `${local}/${prefixlen}` === cidr))
    const failed = asked.find(({ cidr }) => held.some(({ local, prefixlen, dadfailed }) => dadfailed && `${local}/${prefixlen}` === cidr))
    if (failed) throw new CniError(CODE.tryLater, `Cannot use ${failed.cidr}: another host on the link has this address`, 'duplicate address detection failed ("enabledad")')
    if (open.length === 0) return
    if (performance.now() > until) throw new CniError(CODE.tryLater, `Cannot tell within ${LIMIT_MS / 1000} s whether ${open[0]?.cidr} is free on the link`, 'duplicate address detection has not ended ("enabledad")')
    await Bun.sleep(STEP_MS)
  }
}
