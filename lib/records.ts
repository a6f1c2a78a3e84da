import { fileName } from './alias.ts'
import { occupy } from './busy.ts'
import { digest } from './digest.ts'
import { remove, withLock, writeAtomic } from './files.ts'
import { fs } from './fs.ts'
import { log } from './log.ts'
import { type Identity, identityOf } from './netns.ts'
import type { Attachment } from './plugin.ts'
import { listFiles, readText } from './reading.ts'
import type { Owner, Resource } from './state.ts'
import { brief, type NetnsPath, type NetworkName } from './values.ts'

/** What a chained plugin made for an attachment. */
export interface Note extends Partial<Identity> {
  readonly owner: Owner
  /** It may be another's by now: `inode` and `cookie` tell. */
  readonly netns?: NetnsPath
  readonly own: readonly Resource[]
}

// As volatile as the kernel state that they tell of.
const DIR = '/run/cni/plumb'

/** Notes what chained plugins make for an attachment, each at its path, before it is made: DEL then needs neither configuration nor result. */
export function record(parts: readonly { readonly path: string; readonly own: readonly Resource[] }[], { network, containerId, ifname, netns }: Attachment): void {
  const whose = { owner: { network, containerId, ifname }, ...(netns === undefined ? {} : { netns, ...identityOf(netns) }) }
  // One draft for all: a call that is killed there leaves that one, which the next takes the place of.
  withLock(`${DIR}/records.lock`, () => {
    for (const { path, own } of parts) writeAtomic(path, signed({ ...whose, own }), { durable: false, by: `${DIR}/records.draft` })
  })
}

// As JSON, with the sum of it as one more key.
function signed(note: Note): string {
  const text = JSON.stringify(note)
  return `${text.slice(0, -1)},"sum":"${digest(text)}"}`
}

/** What was noted, undefined when nothing was, and for a text that is not as it was written: lines are made of what stands in it. */
export function readRecord(path: string): Note | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { sum, ...note } = JSON.parse(text)
    if (sum === digest(JSON.stringify(note))) return note as Note
  } catch {
    // Said below, as for any other text.
  }
  log(`plumb: Cannot read ${path}, which somebody else wrote: what it told of is left as it is`)
  return undefined
}

/** Undoes what was noted and forgets it, one process at a time, and after the tools of one that was killed: a second one, which waited, finds nothing and touches nothing that is somebody else's by then. False when nothing was noted. */
export async function unrecord(path: string, undo: (note: Note | undefined) => Promise<void>): Promise<boolean> {
  if (!fs.existsSync(path)) return false
  if (!occupy(path)) log(`plumb: Cannot wait any longer for an earlier call that is at work on ${path}: what it made is removed meanwhile`)
  if (!fs.existsSync(path)) return false
  await undo(readRecord(path))
  remove(path)
  return true
}

/** The records of a network's attachments, but of these. */
export function recordsOf(type: string, network: NetworkName, but: readonly Owner[] = []): string[] {
  const [dir, keep] = [`${DIR}/${type}`, new Set(but.map(fileName))]
  return listFiles(dir).flatMap((name) => (name.startsWith(`${brief(network)}:`) && !keep.has(name) ? [`${dir}/${name}`] : []))
}

/** Where the record of an attachment lies. */
export function recordPath(type: string, owner: Owner): string {
  return `${DIR}/${type}/${fileName(owner)}`
}
