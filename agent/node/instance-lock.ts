import { readdirSync, readlinkSync } from 'node:fs'
import { takeLock } from '../../lib/os/files.ts'
import { readText } from '../../lib/os/reading.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import type { NetworkName } from '../../lib/text/values.ts'

/** The lock file beside a subnet file. */
export function lockPath(subnetFile: string): string {
  return `${subnetFile}.lock`
}

/**
 * Makes this process the only agent of its name on the node, until the returned function is called or the process ends.
 * Takes two locks. The first is an abstract socket of the node's network namespace, because no mount namespace hides
 * it. The second is a file beside the subnet file. It separates two agents that share the node's files but have
 * different network namespaces. Throws CniError 11 with the other process.
 */
export function lockInstance(instance: NetworkName, subnetFile: string): () => void {
  const name = socketOf(instance)
  const socket = listen(name, subnetFile)
  try {
    const unlock = lockFile(subnetFile)
    return () => {
      socket.stop(true)
      unlock()
    }
  } catch (cause) {
    socket.stop(true)
    throw cause
  }
}

/** Whether an agent of this name runs in this network namespace. */
export function isRunning(instance: NetworkName): boolean {
  return sockets(`@${socketOf(instance)}`).length > 0
}

/** Whether an agent of another name runs in this network namespace. */
export function areOthersRunning(instance: NetworkName): boolean {
  const [own, any] = [`@${socketOf(instance)}`, `@${SOCKETS}`]
  return boundSockets().some(({ name }) => name.startsWith(any) && name !== own)
}

/**
 * The process id that has a socket of this network namespace. `path` is the socket's path, or its abstract name after
 * an @. Undefined when no process is found. From inside a container, the process may be out of sight.
 */
export function listenerOf(path: string): number | undefined {
  const files = sockets(path).map((inode) => `socket:[${inode}]`)
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.map(Number).find((pid) => openFiles(pid).some((file) => files.includes(file)))
}

/** The process id of a flanneld in this network namespace. Undefined when there is none in sight. */
export function runningFlanneld(): number | undefined {
  const own = readlinkSync('/proc/self/ns/net')
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.map(Number).find((pid) => {
    try {
      return readText(`/proc/${pid}/comm`)?.trim() === 'flanneld' && readlinkSync(`/proc/${pid}/ns/net`) === own
    } catch {
      return false
    }
  })
}

// A killed agent may leave a process that it was just starting. That process has the socket until it becomes the tool.
const LEFTOVER_MS = 2000
const AGAIN_MS = 20

function listen(name: string, subnetFile: string): { stop(closeActive: boolean): void } {
  for (const end = performance.now() + LEFTOVER_MS; ; Bun.sleepSync(AGAIN_MS)) {
    try {
      return Bun.listen({ unix: `\0${name}`, socket: { data() {} } })
    } catch (cause) {
      const pid = listenerOf(`@${name}`)
      if (pid !== undefined)
        throw refused(subnetFile, `process ${pid}${pid === process.pid ? '' : ', another agent of this node,'}`, cause)
      if (performance.now() >= end) throw refused(subnetFile, 'another agent of this node', cause)
    }
  }
}

function lockFile(subnetFile: string): () => void {
  let unlock: (() => void) | undefined
  try {
    unlock = takeLock(lockPath(subnetFile))
  } catch {
    // When no lock file can be made, the socket is the only lock. Writing the subnet file reports the error later.
    return () => {}
  }
  if (!unlock) throw refused(subnetFile, 'another agent, of another network namespace,')
  return unlock
}

function refused(subnetFile: string, who: string, cause?: unknown): CniError {
  return new CniError(
    CODE.tryLater,
    `Cannot run an agent for ${subnetFile}: ${who} runs for it already`,
    'stop that one, or give this one a subnet file, a socket and a network of its own (--subnet-file, --socket)',
    { cause },
  )
}

const SOCKETS = 'plumb-agent/'

function socketOf(instance: NetworkName): string {
  return `${SOCKETS}${instance}`
}

// The inodes of the sockets that are bound to a name.
function sockets(name: string): string[] {
  return boundSockets().flatMap((one) => (one.name === name ? [one.inode] : []))
}

function boundSockets(): { readonly name: string; readonly inode: string }[] {
  const rows = (readText('/proc/net/unix') ?? '').split('\n').map((row) => row.trim().split(/\s+/))
  return rows.flatMap(([, , , , , , inode, name]) =>
    inode !== undefined && name !== undefined ? [{ name, inode }] : [],
  )
}

function openFiles(pid: number): string[] {
  try {
    const folder = `/proc/${pid}/fd`
    return readdirSync(folder).map((fd) => readlinkSync(`${folder}/${fd}`))
  } catch {
    // The process has ended, or closed a file meanwhile.
    return []
  }
}
