import { isThere, type Note } from '../journal/journal.ts'
import type { Run } from '../os/run.ts'
import { occupy } from '../os/turns.ts'
import { handler } from '../state/kinds/index.ts'
import type { Setting } from '../state/kinds/setting.ts'
import type { Resource } from '../state/resource.ts'
import { isLastOf } from '../wiring/vrfs.ts'

/**
 * The noted resources that may still exist. Resources in a pod go with the pod. Routes and settings go with their link.
 * No process has to remove them. `isFailed` says that the ADD which made the resources fails. Then sysctls that
 * normally stay are restored, too.
 */
export function reachable(note: Note, run: Run, isFailed = false): Resource[] {
  const inPod = isThere(note)
  return note.own
    .filter((one) => one.kind !== 'vrf' || (inPod && occupy(podOf(note.inode)) && isLastOf(one, note.owner.ifname)))
    .filter(
      (one) =>
        (one.ns === 'host' || inPod) &&
        (!handler(one.kind).goesWithLink || run.link?.((one as Setting).dev, one.ns) !== false),
    )
    .map((one) => {
      if (one.kind !== 'sysctl' || !isFailed) return one
      const { stays: _, ...rest } = one
      return rest
    })
}

/**
 * The name of a pod's lock (lib/os/turns.ts), from the inode of the pod's namespace. With the lock, one call at a time
 * looks at the pod and changes it.
 */
export function podOf(inode: number | undefined): string {
  return `pod ${inode}`
}
