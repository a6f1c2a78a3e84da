import { isArm, libc, pointerTo } from './door.ts'
import { fs } from './fs.ts'
import { bytes, lastError } from './libc.ts'
import { listFiles } from './reading.ts'

// The tracepoint skb:kfree_skb says why the kernel drops a packet (Linux 5.17). It works without BPF. plumb makes an
// instance of tracefs of its own, so that other users of tracing notice nothing.
const ROOT = '/sys/kernel/tracing'
const INSTANCES = `${ROOT}/instances`
const PREFIX = 'plumb-trace-'
// asm/unistd_64.h and asm-generic/unistd.h; linux/sched.h and linux/mount.h
const [SYS_UNSHARE, SYS_MOUNT] = isArm ? [97n, 40n] : [272n, 165n]
const [CLONE_NEWNS, MS_REC, MS_SLAVE] = [0x20000n, 0x4000n, 0x80000n]
/** The size of the buffer of each processor: for a few packets, and for those of all. */
const [SMALL_KB, LARGE_KB] = ['16', '256']
/** A packet that the kernel handles is dropped within this time of its arrival, in seconds. */
const HANDLED_S = 0.1

/** The most links that a filter names, and the letters that count where there are more. */
const [MOST_LINKS, BEGINNING] = [60, 3]

/** A drop of a packet: the kernel's reason, such as `NETFILTER_DROP`, and the function that dropped it. */
export interface Drop {
  readonly reason: string
  readonly where: string
}
/** A packet of a size in bytes, from its IP header on, that comes in by a link. */
export interface Arrival {
  readonly link: string
  readonly bytes: number
}
/**
 * Whose packets are listened to. `own`: those of this thread. The kernel handles a packet that a thread sends over a
 * pair of veth links in that thread. Otherwise those that come in by one of some links.
 */
export type Whose = 'own' | readonly string[]
/** Listens to drops. */
export interface DropWatch {
  /** The drops of this thread's packets, or of packets that came in like these. */
  drops(arrivals?: readonly Arrival[]): Drop[]
  close(): void
}

/**
 * Begins to listen to drops. Removes the instances of processes that have ended. Undefined when the kernel has no such
 * tracepoint, or refuses.
 */
export function watchDrops(whose: Whose): DropWatch | undefined {
  const dir = `${INSTANCES}/${PREFIX}${Math.random().toString(16).slice(2, 10)}`
  let marker: number | undefined
  const close = () => {
    if (marker !== undefined) fs.closeSync(marker)
    remove(dir)
  }
  try {
    if (!fs.existsSync(INSTANCES)) mountInPrivate()
    // The kernel removes no instance of a process that lives, because the process has one of its files open.
    for (const name of listFiles(INSTANCES)) if (name.startsWith(PREFIX)) remove(`${INSTANCES}/${name}`)
    fs.mkdirSync(dir, 0o700)
    marker = fs.openSync(`${dir}/trace_marker`, 'r+')
    const events = `${dir}/events`
    write(`${dir}/buffer_size_kb`, whose === 'own' ? SMALL_KB : LARGE_KB)
    if (whose === 'own') write(`${events}/skb/kfree_skb/filter`, `common_pid == ${threadOf(dir, marker)}`)
    else {
      // Otherwise some kernels print a digest of the address in one event, and the address in the other.
      if (fs.existsSync(`${dir}/options/hash-ptr`)) write(`${dir}/options/hash-ptr`, '0')
      write(`${events}/net/netif_receive_skb/filter`, filterOf(whose))
      write(`${events}/net/netif_receive_skb/enable`, '1')
    }
    write(`${events}/skb/kfree_skb/enable`, '1')
  } catch {
    close()
    return undefined
  }
  const text = () => fs.readFileSync(`${dir}/trace`)
  return { drops: (arrivals) => (arrivals ? dropsOf(text(), arrivals) : dropsIn(text())), close }
}

// A filter has at most 4,096 letters. Of many links, those count that begin like them. Throws Error without a link.
function filterOf(links: readonly string[]): string {
  const names = links.filter((name) => /^[\w.@:+-]+$/.test(name))
  if (names.length === 0) throw new Error('no link')
  const each = names.map((name) => `name == "${name}"`)
  if (names.length <= MOST_LINKS) return each.join(' || ')
  const beginnings = new Set(names.map((name) => name.slice(0, BEGINNING)))
  return [...beginnings]
    .slice(0, MOST_LINKS)
    .map((name) => `name ~ "${name}*"`)
    .join(' || ')
}

// The number of this thread outside of all containers. The kernel writes it before each line: `plumb-1234  [001] …`.
function threadOf(dir: string, marker: number): number {
  fs.writeAllSync(marker, PREFIX)
  const [, thread] = /-(\d+) +\[\d+\].*tracing_mark_write/.exec(fs.readFileSync(`${dir}/trace`)) ?? []
  return Number(thread)
}

/** Reads the lines of the tracepoint. Pure. */
export function dropsIn(text: string): Drop[] {
  return [...text.matchAll(/ kfree_skb: .*\blocation=(\S+?)(?:\+0x\S+)? reason: (\w+)/g)].map(
    ([, where = '', reason = '']) => ({ where, reason }),
  )
}

/**
 * Reads the drops of packets that came in like `arrivals`. Both events name a packet by its address in memory, which the
 * kernel uses again. Pure.
 */
export function dropsOf(text: string, arrivals: readonly Arrival[]): Drop[] {
  const came = new Map<string, { readonly at: number; readonly bytes: number }>()
  const found: Drop[] = []
  for (const line of text.split('\n')) {
    const [, at, link, packet = '', bytes] =
      /(\d+\.\d+): netif_receive_skb: dev=(\S+) skbaddr=(\S+) len=(\d+)/.exec(line) ?? []
    if (at !== undefined) {
      const isOne = arrivals.some((one) => one.link === link && one.bytes === Number(bytes))
      // A packet of the same size is the same one, which goes on by the next link, such as the bridge.
      if (isOne) came.set(packet, { at: Number(at), bytes: Number(bytes) })
      else if (came.get(packet)?.bytes !== Number(bytes)) came.delete(packet)
      continue
    }
    const [, when, freed = ''] = /(\d+\.\d+): kfree_skb: skbaddr=(\S+)/.exec(line) ?? []
    const since = came.get(freed)
    came.delete(freed)
    if (since !== undefined && Number(when) - since.at <= HANDLED_S) found.push(...dropsIn(` ${line}`))
  }
  return found
}

// The mount is in a mount namespace of this thread, so that it ends with the process.
function mountInPrivate(): void {
  if (Number(libc().syscall(SYS_UNSHARE, CLONE_NEWNS, 0n, 0n, 0n, 0n)) !== 0)
    throw new Error(`unshare: ${lastError().code}`)
  const [root, target, type] = [bytes('/'), bytes(ROOT), bytes('tracefs')]
  const at = (text: Uint8Array) => BigInt(pointerTo(text))
  const none = at(type)
  const isSlave = Number(libc().syscall(SYS_MOUNT, none, at(root), 0n, MS_REC | MS_SLAVE, 0n)) === 0
  const isMounted = isSlave && Number(libc().syscall(SYS_MOUNT, none, at(target), at(type), 0n, 0n)) === 0
  const { code } = lastError()
  // These writes keep the garbage collector from freeing the texts before this line.
  for (const text of [root, target, type]) text.fill(0)
  if (!isMounted) throw new Error(`mount: ${code}`)
}

function remove(dir: string): void {
  try {
    fs.rmdirSync(dir)
  } catch {
    // It was never made, another process has removed it, or its owner lives.
  }
}

function write(path: string, text: string): void {
  const fd = fs.openSync(path, 'r+')
  try {
    fs.writeAllSync(fd, text)
  } finally {
    fs.closeSync(fd)
  }
}
