import { type DropWatch, type Whose, watchDrops } from '../../lib/os/drop-reasons.ts'
import { run } from '../../lib/os/exec.ts'
import { remove, removeEmpty, takeLock, writeAtomic } from '../../lib/os/files.ts'
import { linkFacts } from '../../lib/os/links.ts'
import { inodeOf, inside } from '../../lib/os/netns.ts'
import { tracedIn } from '../../lib/os/nft-trace.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { type Listener, listen } from '../../lib/os/sockets.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { type Netns, type NetnsPath, parse } from '../../lib/text/values.ts'
import type { PlaceName, TraceMessage } from './sights.ts'
import { removalOf, tableName, tableOf } from './table.ts'

/** A namespace in which the packet is followed. */
export interface TracedNamespace {
  readonly name: PlaceName
  readonly ns: Netns
}
/** Follows packets. */
export interface Watch {
  /** The name of the nft tables. */
  readonly table: string
  /** What the kernel told since the last call. Does not wait. Throws Error when messages were lost, without `lost`. */
  messages(lost?: () => void): TraceMessage[]
  /** Why the kernel dropped packets. Undefined where it does not say. */
  readonly drops: DropWatch | undefined
  /** Removes all that the watch made. */
  close(): Promise<void>
}

// Who is at work, and where: a trace that was killed is removed by the next one. The lock ends with the process.
const DIR = '/run/plumb/traces'
const OWN = '/proc/self/ns/net' as NetnsPath
const ROOM_BYTES = 1 << 24
const NFT = ['nft', '-f', '-']
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** What is followed: the conditions of nft that select the packets in a namespace, and whose drops count. */
export interface Marks {
  conditions(place: TracedNamespace, family: 'inet' | 'bridge'): readonly string[]
  readonly drops: Whose
}

/**
 * Begins to follow packets: an nft table of its own in each namespace, and a listener to the kernel's messages. Removes
 * first what a killed trace left. Throws ExecError when nft refuses.
 */
export async function watch(places: readonly TracedNamespace[], marks: Marks): Promise<Watch> {
  await removeLeft()
  // A process id would not do: programs in containers may have the same one.
  const id = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0')
  const name = tableName(id)
  const release = takeLock(`${DIR}/${id}.lock`)
  writeAtomic(`${DIR}/${id}`, placesText(places), { durable: false, by: `${DIR}/${id}.draft` })
  const listeners: (Omit<TraceMessage, 'traced'> & { readonly listener: Listener })[] = []
  let drops: DropWatch | undefined
  let closing: Promise<void> | undefined
  const removeAll = async () => {
    drops?.close()
    for (const { listener } of listeners) listener.close()
    await removeTables(
      places.map(({ ns }) => ns),
      name,
    )
    remove(`${DIR}/${id}`)
    release?.()
    remove(`${DIR}/${id}.lock`)
    removeEmpty(DIR)
    // A signal during the removal waits for its end.
    for (const signal of SIGNALS) process.off(signal, end)
  }
  const close = () => {
    closing ??= removeAll()
    return closing
  }
  const end = (signal: NodeJS.Signals) => void close().finally(() => process.kill(process.pid, signal))
  for (const signal of SIGNALS) process.once(signal, end)
  try {
    for (const { name: place, ns } of places) {
      const names = new Map<number, string>()
      const nameOf = (index: number) => {
        const found = names.get(index) ?? inside(ns, () => linkFacts(index))?.name ?? `link ${index}`
        names.set(index, found)
        return found
      }
      const listener = inside(ns, () => listen('traces', ROOM_BYTES))
      listeners.push({ listener, place, nameOf })
    }
    for (const [i, text] of textsOf(places, name, marks).entries()) {
      const { ns, lines, isNeeded } = text
      const { status, stderr } = await run(NFT, lines, ns)
      // A kernel without nf_tables for bridges bridges all packets by the rules of inet.
      if (status !== 0 && isNeeded)
        throw new ExecError(NFT, `table ${i}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
    }
    drops = watchDrops(marks.drops)
    return {
      table: name,
      drops,
      messages: (lost = unknown) =>
        (closing ? [] : listeners).flatMap(({ listener, place, nameOf }) =>
          listener.messages(lost).flatMap((message) => {
            const traced = tracedIn(message)
            return traced ? [{ place, traced, nameOf }] : []
          }),
        ),
      close,
    }
  } catch (cause) {
    await close()
    throw cause
  }
}

// What a packet did is not known then. A trace without these messages would name the wrong place.
function unknown(): never {
  throw new Error('Cannot follow the packet: the kernel had no room for its messages about packets; trace again')
}

function textsOf(places: readonly TracedNamespace[], name: string, { conditions }: Marks) {
  return places.flatMap((place) => {
    const text = (family: 'inet' | 'bridge') => tableOf(name, family, conditions(place, family))
    const bridge = { ns: place.ns, lines: text('bridge'), isNeeded: false }
    return [{ ns: place.ns, lines: text('inet'), isNeeded: true }, ...(place.name === 'node' ? [bridge] : [])]
  })
}

// All nft run beside each other: a removal waits for the kernel.
async function removeTables(spaces: readonly Netns[], name: string): Promise<void> {
  for (const ns of spaces) for (const lines of removalOf(name)) run.feed?.(NFT, lines, ns)
  for (const ns of spaces) for (const lines of removalOf(name)) await run(NFT, lines, ns)
}

// One line each: the namespace's inode, then its path or `host`.
function placesText(places: readonly TracedNamespace[]): string {
  return places.map(({ ns }) => `${inodeOf(ns === 'host' ? OWN : ns)} ${ns}\n`).join('')
}

/** Removes what traces left that were killed, in the namespaces that are still there. Throws ExecError. */
export async function removeLeft(): Promise<void> {
  // A trace that was killed at once has a lock alone.
  const ids = new Set(listFiles(DIR).flatMap((file) => /^([\da-f]{8})(?:\.lock|\.draft)?$/.exec(file)?.[1] ?? []))
  for (const file of ids) {
    const release = takeLock(`${DIR}/${file}.lock`)
    if (!release) continue
    const left: string[] = []
    for (const line of (readText(`${DIR}/${file}`) ?? '').split('\n')) {
      const [, inode, where = ''] = /^(\d+) (\S+)$/.exec(line) ?? []
      if (inode === undefined) continue
      const ns: Netns = where === 'host' ? 'host' : parse.netns(where)
      const isThere = inodeOf(ns === 'host' ? OWN : ns) === Number(inode)
      if (isThere) await removeTables([ns], tableName(file))
      // Another namespace stands for its node there: a trace there removes it.
      else if (ns === 'host') left.push(line)
    }
    if (left.length > 0) writeAtomic(`${DIR}/${file}`, `${left.join('\n')}\n`, { durable: false })
    else remove(`${DIR}/${file}`)
    remove(`${DIR}/${file}.draft`)
    release()
    if (left.length === 0) remove(`${DIR}/${file}.lock`)
  }
}
