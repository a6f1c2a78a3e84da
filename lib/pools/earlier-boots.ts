import { entries } from '../journal/journal.ts'
import { thingsOf } from '../journal/shared.ts'
import { fs } from '../os/fs.ts'
import { addressesOfNode } from '../os/namespaces.ts'
import { parseIp } from '../text/ip.ts'
import { type Holder, holderOf, names, type PoolFolders } from './reservations.ts'

// linux/magic.h: file systems that other nodes may share. A reservation there may belong to a pod of another node.
const SHARED: readonly number[] = [0x6969, 0x517b, 0xfe534d42, 0xff534d42, 0x00c36400, 0x65735546, 0x01021997]

/**
 * The reservations that an earlier boot of the node left. No network namespace survives a boot, but host-local's files
 * do. A runtime that forgets its containers never calls DEL for them.
 *
 * A reservation is left over when all of this is true:
 * - its file is older than the boot. Alone this is not enough: the clock may have been set after the file was written;
 * - no entry of the journal has the address. The journal does not survive a boot;
 * - no link in any network namespace of the node has the address. This covers the pods of other plugins, too.
 *
 * Changes nothing. Throws when one of these cannot be found out.
 */
export function leftByEarlierBoot(place: PoolFolders): ReadonlyMap<string, Holder> {
  const boot = bootTimeNs()
  const old = names(place).filter((name) => (fs.statSync(`${place.dir}/${name}`)?.mtimeNs ?? boot) < boot)
  if (old.length === 0 || SHARED.includes(fs.statfsSync(place.dir))) return new Map()
  // The index still has the addresses of an entry that cannot be read.
  const noted = [...entries().flatMap(({ ips }) => ips), ...thingsOf('addresses')]
  const used = new Set([...noted, ...addressesOfNode()])
  const left = new Map<string, Holder>()
  for (const name of old) {
    const holder = used.has(parseIp(name)) ? undefined : holderOf(place, name)
    if (holder) left.set(name, holder)
  }
  return left
}

// The time of the node's boot in nanoseconds since 1970, by today's clock (proc_stat(5)). When somebody sets the clock,
// this time changes with it. A file that is older can still be from this boot: it was written before the clock was set.
function bootTimeNs(): bigint {
  const [, seconds] = /^btime (\d+)$/m.exec(fs.readFileSync('/proc/stat')) ?? []
  if (seconds === undefined) throw new Error('Cannot read the time of the boot: /proc/stat has no line btime')
  return BigInt(seconds) * 1_000_000_000n
}
