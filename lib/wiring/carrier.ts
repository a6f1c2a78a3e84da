import { log } from '../os/log.ts'
import type { Run } from '../os/run.ts'
import type { Resource } from '../state/resource.ts'

// A kernel that removes many namespaces at once was seen to need 4.5 s.
const LIMIT_MS = 15_000

/**
 * Waits until a pod's link carries packets. After both ends of a veth are up, the kernel needs a moment to detect the
 * carrier and to let a bridge port forward. On a busy node this takes many milliseconds. Packets sent earlier are lost
 * and sent again a second later. Upstream waits too. After 15 s it logs this on stderr and returns: all objects exist.
 */
export function untilRunning(own: readonly Resource[], run: Run): void {
  const links = own.filter((one) => one.kind === 'link')
  if (!links.some(({ type, ns, up }) => type === 'peer' && ns !== 'host' && up)) return
  for (const { name, port } of links.filter(({ type, ns }) => type === 'veth' && ns === 'host')) {
    // A port forwards only with a carrier, so one question is enough.
    if ((port ? run.forwards?.(name, LIMIT_MS) : run.running?.(name, LIMIT_MS)) === false)
      log(`plumb: ${name} has no carrier yet after ${LIMIT_MS / 1000} s: the pod's first packets may be lost`)
  }
}
