import { existsSync, readdirSync, readlinkSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { has, locate } from '../../lib/os/exec.ts'
import { draftOf, remove, writeAtomic } from '../../lib/os/files.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { printable } from '../../lib/text/printable.ts'
import { askBird, BirdError, type SessionState, sessionsOf } from './birdc.ts'

// BIRD as a process of the agent's. It outlives the agent, so that no route is lost, and the next agent finds it by its
// process id, or by its command line before BIRD has written that. BIRD writes to files only: a pipe would end with the
// agent.

/** The port of BGP (RFC 4271). */
const PORT = 179
/** How long BIRD may take to answer after its start, in milliseconds. */
const START_MS = 10_000
const STOP_MS = 5000
const LOOK_MS = 20
/** BIRD tells times in the zone of its process. */
const ENV = { PATH: '/usr/sbin:/sbin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

/** The files of BIRD in its folder. */
export interface BirdFiles {
  readonly conf: string
  readonly socket: string
  readonly pid: string
  readonly log: string
  /** The configuration of BGP that counts, for the next start of the agent. */
  readonly accepted: string
}

/** The files of the BIRD in a folder. */
export function birdFiles(dir: string): BirdFiles {
  return {
    conf: `${dir}/bird.conf`,
    socket: `${dir}/bird.ctl`,
    pid: `${dir}/bird.pid`,
    log: `${dir}/bird.log`,
    accepted: `${dir}/accepted.json`,
  }
}

/** The BIRD of this agent. */
export class Bird {
  readonly files: BirdFiles
  readonly #run: Run
  readonly #ended: () => void
  #pid: number | undefined
  /** The process that this object has killed last. It may take a moment to end. */
  #killed: number | undefined
  /** The text that BIRD has. Undefined when it is not known. */
  #applied: string | undefined

  /** `ended` is called when a BIRD ends that this object has started. */
  constructor(dir: string, run: Run, ended: () => void) {
    this.files = birdFiles(dir)
    this.#run = run
    this.#ended = ended
  }

  /** The process id, as long as BIRD runs. */
  get pid(): number | undefined {
    if (this.#pid !== undefined && !isOurs(this.#pid, this.files)) this.#pid = undefined
    return this.#pid
  }

  /** The configuration that BIRD has been given last, and has taken. */
  get applied(): string | undefined {
    return this.#applied
  }

  /** Takes over the BIRD that an earlier agent has left. False when there is none. */
  adopt(): boolean {
    const found = runningBird(this.files)
    this.#pid = found === this.#killed ? undefined : found
    this.#applied = undefined
    return this.#pid !== undefined
  }

  /** A clause about a BIRD of another program that runs beside this one. Undefined when there is none. */
  get rival(): string | undefined {
    return otherBird(this.pid)
  }

  /** Whether a BIRD of an earlier start may have left routes, which its peers and the kernel still have. */
  get hasRun(): boolean {
    return readText(this.files.pid) !== undefined
  }

  /**
   * Starts BIRD with a configuration, and waits for its first answer. Throws Error when BIRD is not installed, when
   * another one runs in this network namespace, when the port is taken, and when BIRD refuses the configuration.
   */
  async start(text: string): Promise<void> {
    const { conf, socket, pid } = this.files
    if (!has('bird')) throw new Error('bird is not installed; install the package bird2')
    refuseOthers()
    const isRecovery = this.hasRun
    this.#write(text)
    const { status, stderr } = await this.#run(['bird', '-p', '-c', conf], '')
    if (status !== 0) throw new BirdError(`BIRD refuses the configuration: ${lastLine(stderr)}`)
    remove(socket)
    const words = [...locate('bird'), '-f', '-c', conf, '-s', socket, '-P', pid, ...(isRecovery ? ['-R'] : [])]
    const child = Bun.spawn(words, { env: ENV, stdin: 'ignore', stdout: 'ignore', stderr: 'ignore', detached: true })
    child.unref()
    void child.exited.then(() => this.#ended())
    for (const until = performance.now() + START_MS; ; await sleep(LOOK_MS)) {
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(`BIRD ended at its start: ${lastLine(readText(this.files.log) ?? '')}`)
      try {
        await askBird(socket, 'show status', START_MS)
        break
      } catch (cause) {
        if (performance.now() < until) continue
        this.#kill(child.pid)
        throw cause
      }
    }
    this.#pid = child.pid
    this.#applied = text
  }

  /**
   * Gives BIRD another configuration. What did not change goes on. With `seconds`, BIRD goes back to the one before
   * unless `confirm` follows in this time, also when the agent is gone. Throws BirdError when BIRD refuses it, and keeps
   * the one before.
   */
  async configure(text: string, seconds?: number): Promise<void> {
    const before = readText(this.files.conf)
    this.#write(text)
    try {
      await askBird(this.files.socket, seconds === undefined ? 'configure' : `configure timeout ${seconds}`)
    } catch (cause) {
      if (cause instanceof BirdError && before !== undefined) this.#write(before)
      throw cause instanceof BirdError ? new BirdError(`BIRD refuses the configuration: ${cause.message}`) : cause
    }
    this.#applied = text
  }

  /** Ends the time limit of `configure`. */
  async confirm(): Promise<void> {
    await askBird(this.files.socket, 'configure confirm')
  }

  /** The sessions of BGP as BIRD has them now. Throws as `askBird`. */
  async sessions(limitMs?: number): Promise<readonly SessionState[]> {
    return sessionsOf(await askBird(this.files.socket, 'show protocols all', limitMs))
  }

  /** Ends a BIRD that no longer answers. Its peers keep the routes for the time of the graceful restart. */
  kill(): void {
    const { pid } = this
    if (pid !== undefined) this.#kill(pid)
    this.#pid = undefined
  }

  #kill(pid: number): void {
    this.#killed = pid
    signal(pid, 'SIGKILL')
  }

  // The passwords of the peers are in the file.
  #write(text: string): void {
    const { conf } = this.files
    writeAtomic(conf, text, { mode: 0o640, durable: false, by: draftOf(conf) })
  }
}

/**
 * Ends the BIRD in a folder, which withdraws its routes, and removes its files. Gives a line for each action, none when
 * there was nothing. With `dryRun` changes nothing.
 */
export async function removeBird(dir: string, { dryRun = false } = {}): Promise<string[]> {
  const files = birdFiles(dir)
  const pid = runningBird(files)
  const there = [...Object.values(files), `${files.log}.1`].filter(existsSync)
  const lines = pid === undefined ? [] : [`${dryRun ? 'would end' : 'ended'} BIRD, process ${pid}`]
  if (!dryRun && pid !== undefined) {
    signal(pid, 'SIGTERM')
    for (const until = performance.now() + STOP_MS; isOurs(pid, files); await sleep(LOOK_MS))
      if (performance.now() > until) signal(pid, 'SIGKILL')
  }
  if (!dryRun) for (const path of [...there, draftOf(files.conf), draftOf(files.accepted)]) remove(path)
  return [...lines, ...there.map((path) => `${dryRun ? 'would remove' : 'removed'} ${path}`)]
}

function runningBird(files: BirdFiles): number | undefined {
  const pid = Number(readText(files.pid)?.trim())
  if (Number.isInteger(pid) && pid > 1 && isOurs(pid, files)) return pid
  return processes().find((one) => isOurs(one, files))
}

// A process id may meanwhile be that of another program. A BIRD that has ended and that nobody has waited for has no
// command line.
function isOurs(pid: number, { socket }: BirdFiles): boolean {
  const words = fileOf(pid, 'cmdline').split('\0')
  return words[0]?.endsWith('bird') === true && words.includes(socket)
}

// Two BIRDs in one namespace delete each other's routes, and only one of them can listen.
function refuseOthers(): void {
  const other = otherBird()
  if (other !== undefined) throw new Error(other)
  const inodes = listeners(PORT)
  if (inodes.length === 0) return
  const holder = processes().find((pid) => inodes.some((inode) => openFiles(pid).includes(`socket:[${inode}]`)))
  const who = holder === undefined ? 'a process out of sight' : `process ${holder} (${fileOf(holder, 'comm').trim()})`
  throw new Error(`TCP port ${PORT} is taken by ${who}; stop it`)
}

// A clause about a BIRD of this namespace that is not the process `own`.
function otherBird(own?: number): string | undefined {
  const namespace = linkOf('self', 'ns/net')
  const isBird = (pid: number) => pid !== own && fileOf(pid, 'comm').trim() === 'bird' && fileOf(pid, 'cmdline') !== ''
  const other = processes().find((pid) => isBird(pid) && linkOf(pid, 'ns/net') === namespace)
  if (other === undefined) return undefined
  const line = printable(fileOf(other, 'cmdline').replaceAll('\0', ' ').trim().slice(0, 120))
  const why = 'two BIRDs delete each other’s routes'
  return `another BIRD runs on this node, process ${other} (${line}): ${why}; stop that one`
}

// The inodes of the sockets that listen on a TCP port (proc(5), state 0A).
function listeners(port: number): string[] {
  const hex = port.toString(16).toUpperCase().padStart(4, '0')
  return ['tcp', 'tcp6'].flatMap((table) =>
    fileOf('self', `net/${table}`)
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .flatMap((words) => (words[1]?.endsWith(`:${hex}`) && words[3] === '0A' && words[9] ? [words[9]] : [])),
  )
}

function processes(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
}

function openFiles(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => linkOf(pid, `fd/${fd}`))
  } catch {
    // The process has ended.
    return []
  }
}

function fileOf(pid: number | 'self', file: string): string {
  try {
    return readText(`/proc/${pid}/${file}`) ?? ''
  } catch {
    // The process ended between the open and the read.
    return ''
  }
}

function linkOf(pid: number | 'self', file: string): string {
  try {
    return readlinkSync(`/proc/${pid}/${file}`)
  } catch {
    // The same, or the file was closed.
    return ''
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // The process has ended.
  }
}

function lastLine(text: string): string {
  const last = text.trim().split('\n').at(-1) ?? ''
  return printable(last.slice(0, 300)) || 'it said nothing'
}
