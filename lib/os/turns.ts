import { digest } from '../text/digest.ts'
import { CniError, CODE } from '../text/errors.ts'
import { remaining } from './deadline.ts'
import { sleep } from './door.ts'
import { fs } from './fs.ts'
import { lockByte } from './libc.ts'
import { log } from './log.ts'

// Each piece of work is one byte of this file. A process locks the byte while it works. A reboot removes the file.
const FILE = '/run/cni/plumb/busy'
const LONGEST_STEP_MS = 20
let opened: number | undefined
const own = new Set<bigint>()

/**
 * The descriptor of the file whose locked bytes tell what this process works on. Child processes inherit it and keep
 * the lock until the last of them ends, also when this process is killed. -1 when the file cannot be opened.
 */
export function busyFile(): number {
  opened ??= open()
  return opened
}

/**
 * Takes the lock of a piece of work, which `what` names. Waits for other processes and for the tools that a killed
 * process left. Other processes then wait until this process and its tools have ended. Returns false when `limitMs`
 * passes first. Returns true when /run cannot be written or locked.
 */
export function occupy(what: string, limitMs = remaining()): boolean {
  const fd = busyFile()
  const byte = byteOf(what)
  const until = performance.now() + limitMs
  for (let step = 1; fd >= 0 && !locked(fd, byte); step = Math.min(step * 2, LONGEST_STEP_MS)) {
    if (performance.now() >= until) return false
    sleep(step)
  }
  own.add(byte)
  return true
}

/**
 * Like `occupy`, for an ADD. Throws CniError 11 when an earlier call for the attachment does not end within the time of
 * a call (lib/os/deadline.ts). `who` describes the earlier call for the error message.
 */
export function takeTurn(what: string, who: string): void {
  if (!occupy(what))
    throw new CniError(
      CODE.tryLater,
      `Cannot begin: ${who} is still at work`,
      'it, or a tool that it started, does not end',
    )
}

// Without locks in the kernel, a DEL must still be able to remove.
function locked(fd: number, byte: bigint): boolean {
  try {
    return lockByte(fd, byte)
  } catch (cause) {
    log(`plumb: Cannot tell whether an earlier call still runs; continuing without it: ${(cause as Error).message}`)
    return true
  }
}

/** Releases the lock of `occupy` before this process ends. */
export function leave(what: string): void {
  const [fd, byte] = [busyFile(), byteOf(what)]
  own.delete(byte)
  if (fd >= 0) lockByte(fd, byte, false)
}

/** Whether this process has called `occupy` for this work. */
export function isOccupying(what: string): boolean {
  return own.has(byteOf(what))
}

// File offsets have 63 bits.
function byteOf(what: string): bigint {
  return BigInt(`0x${digest(what).slice(0, 16)}`) >> 1n
}

function open(): number {
  try {
    return fs.openSync(FILE, 'a', 0o600)
  } catch {
    // The folder is missing at the first call after a boot.
  }
  try {
    fs.mkdirSync('/run/cni/plumb', 0o755)
    return fs.openSync(FILE, 'a', 0o600)
  } catch {
    return -1
  }
}
