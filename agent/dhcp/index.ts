// The DHCP daemon (`plumb dhcp`), a separate program. It gets and extends the leases of containers whose IPAM pool is
// `dhcp`. Begin here. `leases.ts` manages all leases and `lease.ts` manages one attachment. `four.ts` and `six.ts`
// implement the protocols. `lib/os/answers.ts` listens on the socket for questions, which `reading.ts` reads.

import { type AnswerSocket, listen } from '../../lib/os/answers.ts'
import { createMark, remove, writeAtomic } from '../../lib/os/files.ts'
import { log } from '../../lib/os/log.ts'
import { askDaemon, leasesOf } from '../../lib/pools/dhcp.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import { slim } from '../node/garbage.ts'
import { notify } from '../node/systemd.ts'
import type { Timing } from './conversation.ts'
import { Leases } from './leases.ts'
import { readQuestion } from './reading.ts'

/** The start parameters of the daemon. */
export interface Settings extends Timing {
  readonly socketPath: string
  readonly hostPrefix: string
  readonly pidFile?: string
}

// The first file descriptor that systemd passes to a service (sd_listen_fds(3)).
const FIRST_FD = 3
const ALIVE_MS = 2000

/**
 * Runs the daemon until SIGTERM or SIGINT. It does not release the leases at the end: the next daemon continues with
 * them. Throws CniError when another daemon listens on the socket, or when systemd passes more than one socket.
 */
export async function serve({ socketPath, hostPrefix, pidFile, ...timing }: Settings): Promise<void> {
  slim()
  const socket = `${hostPrefix}${socketPath}`
  const dir = leasesOf(socket)
  const inherited = handedOver()
  // Creates the folders. A file name that begins with a dot is not a lease.
  createMark(`${dir}/.daemon`)
  if (!inherited) await free(socket)
  const leases = new Leases({ ...timing, hostPrefix, dir })
  await leases.load()
  // Only the owner may use the socket. A process that can write to the socket can get and release leases in any
  // namespace.
  process.umask(0o077)
  const server = listen(inherited ?? { unix: socket }, 'dhcp', async (text, signal) =>
    leases.handle(readQuestion(text), signal),
  )
  if (pidFile) writeAtomic(pidFile, `${process.pid}`, { mode: 0o644, durable: false })
  log('dhcp: ready', { socket, leases: dir })
  notify('READY=1')
  const signal = await untilSignal()
  notify('STOPPING=1')
  log(`dhcp: ended by ${signal}; leases stay, and the next daemon goes on with them`)
  server.stop()
  leases.stop()
  if (!inherited) remove(socket)
  if (pidFile) remove(pidFile)
}

function handedOver(): AnswerSocket | undefined {
  const { LISTEN_FDS: count = '0', LISTEN_PID: pid } = process.env
  if (count === '0' || (pid !== undefined && pid !== String(process.pid))) return undefined
  if (count !== '1')
    throw new CniError(
      CODE.env,
      `Cannot listen on ${count} sockets of systemd: want one`,
      'LISTEN_FDS names how many; plumb-dhcp.socket has one ListenStream',
    )
  return { fd: FIRST_FD }
}

// Removes the socket file of a killed daemon. A running daemon keeps its socket.
async function free(socket: string): Promise<void> {
  const isAlive = await askDaemon(socket, { verb: 'status' }, ALIVE_MS).then(
    () => true,
    () => false,
  )
  if (isAlive)
    throw new CniError(
      CODE.env,
      `Cannot listen at ${socket}: another DHCP daemon does`,
      'end that one first, or use another -socketpath',
    )
  remove(socket)
}

function untilSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve(signal))
  })
}
