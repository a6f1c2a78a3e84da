import { existsSync, readdirSync, readlinkSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { has, locate } from '../../lib/os/exec.ts'
import { draftOf, remove, removeEmpty, writeAtomic } from '../../lib/os/files.ts'
import { warn } from '../../lib/os/log.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { hostCidr } from '../../lib/text/cidr.ts'
import { type Cidr, parseCidr, parseIp } from '../../lib/text/ip.ts'
import { printable } from '../../lib/text/printable.ts'
import { askBird, BirdError, type SessionState, sessionsOf } from './birdc.ts'
import { BIRD_PROTO } from './handover.ts'

// BIRD as a process of the agent's. It outlives the agent, so that no route is lost, and the next agent finds it by its
// process id, or by its command line before BIRD has written that. BIRD writes to files only: a pipe would end with the
// agent.

/** The port of BGP (RFC 4271). */
const PORT = 179
/** How long BIRD may take to answer after its start, in milliseconds. */
const START_MS = 10_000
const STOP_MS = 5000
const LOOK_MS = 20
/** The metric that BIRD gives its routes in the kernel (krt_metric). */
const BIRD_METRIC = 32
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
    const argv = [...(await scope(this.#run)), ...words]
    const child = Bun.spawn(argv, { env: ENV, stdin: 'ignore', stdout: 'ignore', stderr: 'ignore', detached: true })
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

// systemd ends all processes of a unit together. So BIRD gets a scope of its own (systemd.scope(5)), which outlives the
// unit of the agent. systemd-run becomes BIRD. When systemd refuses a scope, BIRD starts without one.
async function scope(run: Run): Promise<string[]> {
  if (!process.env['INVOCATION_ID'] || !existsSync('/run/systemd/system') || !has('systemd-run')) return []
  const options = ['--scope', '--quiet', '--collect', '--description=BIRD of the plumb agent']
  try {
    const { status, stderr } = await run(['systemd-run', ...options, '--', 'true'], '')
    if (status !== 0) throw new Error(lastLine(stderr))
  } catch (cause) {
    warn(`agent: BIRD has no scope of its own, and ends with the unit of the agent: ${(cause as Error).message}`)
    return []
  }
  return [...locate('systemd-run'), ...options, `--unit=plumb-bird-${Date.now().toString(36)}`, '--']
}

/**
 * Ends the BIRD in a folder, which withdraws its routes, and removes its files. Also removes the routes that a killed
 * BIRD has left in the kernel, unless another BIRD runs, because these may be its own. Gives a line for each action,
 * none when there was nothing. With `dryRun` changes nothing. Throws Error when `ip` cannot be started.
 */
export async function removeBird(dir: string, run: Run, { dryRun = false } = {}): Promise<string[]> {
  const files = birdFiles(dir)
  const pid = runningBird(files)
  const there = [...Object.values(files), `${files.log}.1`].filter(existsSync)
  if (there.length === 0) return []
  const lines = pid === undefined ? [] : [`${dryRun ? 'would end' : 'ended'} BIRD, process ${pid}`]
  if (!dryRun && pid !== undefined) {
    signal(pid, 'SIGTERM')
    for (const until = performance.now() + STOP_MS; isOurs(pid, files); await sleep(LOOK_MS))
      if (performance.now() > until) signal(pid, 'SIGKILL')
  }
  // Those of another BIRD are its own business.
  if (there.length > 0 && otherBird() === undefined) lines.push(...(await removeRoutes(run, dryRun)))
  if (!dryRun) {
    for (const path of [...there, draftOf(files.conf), draftOf(files.accepted)]) remove(path)
    removeEmpty(dir)
  }
  return [...lines, ...there.map((path) => `${dryRun ? 'would remove' : 'removed'} ${path}`)]
}

async function removeRoutes(run: Run, dryRun: boolean): Promise<string[]> {
  let count = 0
  for (const family of ['-4', '-6'] as const) {
    // Without this family in the kernel there is no route of it.
    const shown = await listed(['ip', family, '-j', 'route', 'show', 'proto', BIRD_PROTO], run)
    const rows = JSON.parse(shown.trim() || '[]') as { dst: string; metric?: number }[]
    const left = rows.filter(({ metric }) => metric === BIRD_METRIC).map(({ dst }) => networkAt(dst, family))
    const text = left.map((to) => `route del ${to} proto ${BIRD_PROTO} metric ${BIRD_METRIC}\n`).join('')
    if (!dryRun && text !== '') await run(['ip', family, '-force', '-batch', '-'], text)
    count += left.length
  }
  if (count === 0) return []
  return [`${dryRun ? 'would remove' : 'removed'} ${count} ${count > 1 ? 'routes' : 'route'} of a BIRD that was killed`]
}

function networkAt(dst: string, family: '-4' | '-6'): Cidr {
  if (dst === 'default') return parseCidr(family === '-4' ? '0.0.0.0/0' : '::/0')
  return dst.includes('/') ? parseCidr(dst) : hostCidr(parseIp(dst))
}

function runningBird(files: BirdFiles): number | undefined {
  const pid = Number(readText(files.pid)?.trim())
  if (Number.isInteger(pid) && pid > 1 && isOurs(pid, files)) return pid
  return processes().find((one) => isOurs(one, files))
}

// A process id may meanwhile be that of another program. A BIRD that has ended and that nobody has waited for has no
// command line. A node in a container sees no BIRD of another one, but the node around it sees both with one path.
function isOurs(pid: number, { socket }: BirdFiles): boolean {
  const words = fileOf(pid, 'cmdline').split('\0')
  return words[0]?.endsWith('bird') === true && words.includes(socket) && isHere(pid)
}

function isHere(pid: number): boolean {
  return linkOf(pid, 'ns/net') === linkOf('self', 'ns/net')
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
  const isBird = (pid: number) => pid !== own && fileOf(pid, 'comm').trim() === 'bird' && fileOf(pid, 'cmdline') !== ''
  const other = processes().find((pid) => isBird(pid) && isHere(pid))
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
