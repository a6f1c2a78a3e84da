import { fileName } from './alias.ts'
import { occupy, takeTurn } from './busy.ts'
import { createMark, remove } from './files.ts'
import { fs } from './fs.ts'
import { listFiles } from './reading.ts'
import type { Owner } from './state.ts'
import { brief, type NetworkName } from './values.ts'

// On a file system that a reboot empties, as it empties the kernel of links.
const DIR = '/run/cni/plumb/pending'
const LIMIT_MS = 30_000

/** Notes that an ADD is under way, once whatever is still at work on the attachment has ended. True when one for the same attachment was left without an end: killed, so that what it made has to go first. Throws CniError 11 when an earlier call does not end within 30 s. */
export function begin(owner: Owner): boolean {
  const path = `${DIR}/${fileName(owner)}`
  takeTurn(path, `an earlier call for ${owner.ifname} of container ${owner.containerId}`)
  return !createMark(path)
}

/** Whether one was left without an end, as `begin` would find out. */
export function isUnfinished(owner: Owner): boolean {
  return fs.existsSync(`${DIR}/${fileName(owner)}`)
}

/** Notes that a removal is under way, so that an ADD which finds it unfinished finishes it first. Cannot fail: nothing must keep a DEL from removing. */
export function beginRemoval(owner: Owner): void {
  try {
    begin(owner)
  } catch {
    // A full or read-only /run, or a tool that hangs: then an ADD after a killed DEL is refused, and another DEL helps.
  }
}

/** Notes that it ended: done, or undone to the last piece. */
export function end(owner: Owner): void {
  remove(`${DIR}/${fileName(owner)}`)
}

/** What is at work, or was left without an end, for attachments of a network but these, when GC comes. `wait` until it has ended, 30 s at most: what a tool of a killed ADD is about to make can be found then. `forget` what was left, when what it made is gone. */
export function besides(network: NetworkName, owners: readonly Owner[]): { wait(): void; forget(): void } {
  const keep = new Set(owners.map(fileName))
  const others = () => listFiles(DIR).flatMap((name) => (name.startsWith(`${brief(network)}:`) && !keep.has(name) ? [`${DIR}/${name}`] : []))
  return {
    wait() {
      const until = performance.now() + LIMIT_MS
      for (const path of others()) occupy(path, Math.max(0, until - performance.now()))
    },
    forget() {
      for (const path of others()) if (occupy(path, 0)) remove(path)
    },
  }
}
