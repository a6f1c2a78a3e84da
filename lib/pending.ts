import { existsSync } from 'node:fs'
import { createMark, remove } from './files.ts'
import { listFiles } from './reading.ts'
import type { Owner } from './state.ts'
import { brief, type NetworkName } from './values.ts'

// On a file system that a reboot empties, as it empties the kernel of links.
const DIR = '/run/cni/plumb/pending'

/** Notes that an ADD is under way. True when one for the same attachment was left without an end: killed, so that what it made has to go first. */
export function begin(owner: Owner): boolean {
  return !createMark(`${DIR}/${mark(owner)}`)
}

/** Whether one was left without an end, as `begin` would find out. */
export function isUnfinished(owner: Owner): boolean {
  return existsSync(`${DIR}/${mark(owner)}`)
}

/** Notes that a removal is under way, so that an ADD which finds it unfinished finishes it first. Cannot fail: nothing must keep a DEL from removing. */
export function beginRemoval(owner: Owner): void {
  try {
    begin(owner)
  } catch {
    // A full or read-only /run: then an ADD after a killed DEL is refused, and another DEL helps.
  }
}

/** Notes that it ended: done, or undone to the last piece. */
export function end(owner: Owner): void {
  remove(`${DIR}/${mark(owner)}`)
}

/** Forgets what is unfinished of a network but for these attachments (GC, when what they made is gone). */
export function keepOnly(network: NetworkName, owners: readonly Owner[]): void {
  const keep = new Set(owners.map(mark))
  for (const name of listFiles(DIR)) if (name.startsWith(`${brief(network)}:`) && !keep.has(name)) remove(`${DIR}/${name}`)
}

function mark({ network, containerId, ifname }: Owner): string {
  return `${brief(network)}:${brief(containerId)}:${ifname}`
}
