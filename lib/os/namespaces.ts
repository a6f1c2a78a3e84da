import type { Ip } from '../text/ip.ts'
import { split } from '../text/ip.ts'
import type { NetnsPath } from '../text/values.ts'
import { fs } from './fs.ts'
import { addressesNow } from './link-addresses.ts'
import { inodeOf, inside } from './netns.ts'
import { listFiles, readText } from './reading.ts'

const OWN = '/proc/self/ns/net' as NetnsPath

/**
 * The addresses of all links in all network namespaces of this node. Finds a namespace by its processes and by the file
 * that it is mounted on. Throws Error when a namespace cannot be entered, because an address in it would be missing.
 */
export function addressesOfNode(): ReadonlySet<Ip> {
  const seen = new Set<number>()
  const found = new Set<Ip>()
  for (const { path, inode } of places()) {
    if (seen.has(inode)) continue
    try {
      inside(path, () => {
        for (const { cidr } of addressesNow()) found.add(split(cidr).ip)
        // The path may have changed since `places` read it.
        seen.add(inodeOf(OWN) ?? inode)
      })
    } catch (cause) {
      // The last process has ended, and its namespace with it.
      if (isThere(path)) throw cause
    }
  }
  return found
}

function* places(): Generator<{ readonly path: NetnsPath; readonly inode: number }> {
  for (const pid of listFiles('/proc').filter((name) => /^\d+$/.test(name))) {
    const path = `/proc/${pid}/ns/net` as NetnsPath
    const inode = inodeOf(path)
    // A process that has ended, or a zombie.
    if (inode !== undefined) yield { path, inode }
  }
  // proc_pid_mountinfo(5). A process may run in another mount namespace than the runtime.
  for (const pid of ['self', '1']) {
    for (const line of (readText(`/proc/${pid}/mountinfo`) ?? '').split('\n')) {
      const [, , , root = '', target = ''] = line.split(' ')
      const [, inode] = /^net:\[(\d+)\]$/.exec(root) ?? []
      // The kernel writes blanks and other special characters as octal numbers.
      const plain = target.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))
      const path = `/proc/${pid}/root${plain}` as NetnsPath
      if (inode !== undefined && inodeOf(path) === Number(inode)) yield { path, inode: Number(inode) }
    }
  }
}

function isThere(path: NetnsPath): boolean {
  return fs.existsSync(path)
}
