import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'

// A kernel that takes many namespaces down at once was seen to need 4.5 s.
const LIMIT_MS = 15_000

/** Waits until a pod's link carries packets. The kernel notices a veth's carrier, and lets a bridge port forward, a moment after both ends are up, on a busy node many milliseconds; what is sent before is lost, and tried again a second later (upstream waits too). After 15 s it is said on stderr, and no more: everything is made. */
export function untilRunning(own: readonly Resource[], run: Run): void {
  const links = own.filter((one) => one.kind === 'link')
  if (!links.some(({ type, ns, up }) => type === 'peer' && ns !== 'host' && up)) return
  for (const { name } of links.filter(({ type, ns }) => type === 'veth' && ns === 'host')) {
    if (run.running?.(name, LIMIT_MS) === false) log(`plumb: ${name} has no carrier yet after ${LIMIT_MS / 1000} s: the pod's first packets may be lost`)
  }
}
