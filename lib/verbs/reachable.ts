import { isThere, type Note } from '../journal/journal.ts'
import type { Run } from '../os/run.ts'
import { occupy } from '../os/turns.ts'
import { handler } from '../state/kinds/index.ts'
import type { Setting } from '../state/kinds/setting.ts'
import type { Resource } from '../state/resource.ts'
import { isLastOf } from '../wiring/vrfs.ts'

/** Of what was noted what can still be there: what was in a pod has gone with it, and settings with their link; no process is started for those. `isFailed`: the ADD that made it fails. */
export function reachable(note: Note, run: Run, isFailed = false): Resource[] {
  const inPod = isThere(note)
  return note.own
    .filter((one) => one.kind !== 'vrf' || (inPod && occupy(podOf(note.inode)) && isLastOf(one, note.owner.ifname)))
    .filter((one) => (one.ns === 'host' || inPod) && (!handler(one.kind).goesWithLink || run.link?.((one as Setting).dev, one.ns) !== false))
    .map((one) => {
      if (one.kind !== 'sysctl' || !isFailed) return one
      const { stays: _, ...rest } = one
      return rest
    })
}

/** What stands for a pod where one call at a time may look at it and change it (lib/os/turns.ts), by the inode of its namespace. */
export function podOf(inode: number | undefined): string {
  return `pod ${inode}`
}
