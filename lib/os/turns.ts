import { CniError, CODE } from '../text/errors.ts'
import { remaining } from './deadline.ts'
import { fs } from './fs.ts'
import { lockByte } from './libc.ts'
import { log } from './log.ts'

// On a file system that a reboot empties. What somebody is at work on is one byte of it that is locked.
const FILE = '/run/cni/plumb/busy'
const LONGEST_STEP_MS = 20
let opened: number | undefined
const own = new Set<bigint>()

/** The file that says what this process is at work on, for the tools that it starts to keep open: a lock ends with the last of them, though the process itself be killed. -1 where there can be none. */
export function busyFile(): number {
  opened ??= open()
  return opened
}

/** Waits until no other process, nor a tool that a killed one has left behind, is at work on this (a path that stands for it), and makes others wait until this process and its tools have ended. False when `limitMs` went by first; true where /run cannot be written to or locked. */
export function occupy(what: string, limitMs = remaining()): boolean {
  const fd = busyFile()
  const byte = byteOf(what)
  for (let [until, step] = [performance.now() + limitMs, 1]; fd >= 0 && !locked(fd, byte); step = Math.min(step * 2, LONGEST_STEP_MS)) {
    if (performance.now() >= until) return false
    Bun.sleepSync(step)
  }
  own.add(byte)
  return true
}

/** As `occupy`, for an ADD: throws CniError 11 when an earlier call for the attachment does not end in the time that a call has (lib/os/deadline.ts). `who` is what is at work, and for whom. */
export function takeTurn(what: string, who: string): void {
  if (!occupy(what)) throw new CniError(CODE.tryLater, `Cannot begin: ${who} is still at work`, 'it, or a tool that it started, does not end')
}

// A kernel that gives out no locks must not keep a DEL from removing.
function locked(fd: number, byte: bigint): boolean {
  try {
    return lockByte(fd, byte)
  } catch (cause) {
    log(`plumb: Cannot tell whether an earlier call is still at work, going on as if none were: ${(cause as Error).message}`)
    return true
  }
}

/** Lets others work on it before this process ends. */
export function leave(what: string): void {
  const [fd, byte] = [busyFile(), byteOf(what)]
  own.delete(byte)
  if (fd >= 0) lockByte(fd, byte, false)
}

/** Whether this process has occupied it. */
export function isOccupying(what: string): boolean {
  return own.has(byteOf(what))
}

// Offsets have 63 bits.
function byteOf(what: string): bigint {
  return Bun.hash.xxHash64(what) >> 1n
}

function open(): number {
  try {
    return fs.openSync(FILE, 'a', 0o600)
  } catch {
    // Its folder is missing, the first time after a boot.
  }
  try {
    fs.mkdirSync('/run/cni/plumb', 0o755)
    return fs.openSync(FILE, 'a', 0o600)
  } catch {
    return -1
  }
}
