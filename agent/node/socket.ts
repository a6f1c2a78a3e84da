import { existsSync } from 'node:fs'
import { remove, withLock } from '../../lib/os/files.ts'
import { log, warn } from '../../lib/os/log.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'

/** The longest time that the socket of a killed agent can seem to be in use. */
const DYING_MS = 2000

/**
 * Opens a unix socket of the agent, which only root may use. Removes the socket file of a killed agent first. `open`
 * listens at the path. Throws CniError 5 when it cannot listen, and 11 when another agent answers there.
 */
async function openSocket<T>(path: string, open: () => T): Promise<T> {
  if (await isTaken(path))
    throw new CniError(
      CODE.tryLater,
      `Cannot listen on ${path}: an agent answers there already`,
      'a node has one agent; stop the other one, or give this one a socket of its own',
    )
  try {
    // The lock creates the folder. It also stops two agents that start together from removing each other's socket.
    return withLock(`${path}.lock`, () => {
      remove(path)
      const before = process.umask(0o177)
      try {
        return open()
      } finally {
        process.umask(before)
      }
    })
  } catch (cause) {
    throw refused(path, cause)
  }
}

/** How often a socket of the agent is looked for, in milliseconds. */
const LOOK_MS = 2000

/**
 * As `openSocket`, and listens again when somebody removes the file of the socket: nobody reaches the old one any more.
 */
export async function keepSocket(path: string, open: () => { stop(): void }): Promise<{ stop(): void }> {
  let listener: { stop(): void } | undefined = await openSocket(path, open)
  let said = ''
  let [isStopped, isBusy] = [false, false]
  const look = async () => {
    if (isBusy || existsSync(path)) return
    isBusy = true
    try {
      // First, because the end of a listener removes the file at its path.
      listener?.stop()
      listener = undefined
      const next = await openSocket(path, open)
      if (isStopped) next.stop()
      else listener = next
      log(`agent: listening again at ${path}, which somebody removed`)
      said = ''
    } catch (cause) {
      const { message } = cause as Error
      if (message !== said) warn(`agent: ${message}; trying again`)
      said = message
    } finally {
      isBusy = false
    }
  }
  const timer = setInterval(() => void look(), LOOK_MS)
  return {
    stop() {
      isStopped = true
      clearInterval(timer)
      listener?.stop()
    },
  }
}

/** The error for a place where the agent cannot listen, with the reason in words. */
export function refused(place: string, cause: unknown): CniError {
  const { code, message } = cause as NodeJS.ErrnoException
  const why: Readonly<Record<string, string>> = {
    EADDRINUSE: 'another program listens there',
    EADDRNOTAVAIL: 'the node does not have this address',
    EACCES: 'it needs root',
  }
  return new CniError(CODE.io, `Cannot listen on ${place}: ${why[code ?? ''] ?? code ?? message}`, '', { cause })
}

/**
 * Whether an agent answers on a socket. Asks again for up to 2 s, because the socket of a killed agent can stay open
 * for a moment. The reason is a child process between fork and exec, which still has the agent's file descriptors.
 */
export async function isTaken(path: string): Promise<boolean> {
  for (const end = performance.now() + DYING_MS; await answers(path); await Bun.sleep(20))
    if (performance.now() > end) return true
  return false
}

// An accepted connection proves that an agent listens. A busy agent may not reply in time.
async function answers(path: string): Promise<boolean> {
  try {
    const socket = await Bun.connect({ unix: path, socket: { data() {} } })
    socket.terminate()
    return true
  } catch {
    return false
  }
}
