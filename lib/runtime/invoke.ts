import { statSync, writeSync } from 'node:fs'
import { CniError, CODE, shown } from '../text/errors.ts'

/** The places of plugins, and the time limit of one call. */
export interface Host {
  /** CNI_PATH, split at the colons. */
  readonly path: readonly string[]
  /** The folder of `results/`, libcni's cache. Default: /var/lib/cni. */
  readonly cacheDir?: string
  /** The time limit of each plugin call. Default: two minutes, half of the kubelet's limit for a pod sandbox. */
  readonly timeoutMs?: number
  /** Receives the stderr of plugins and the messages of the runtime. Default: stderr. */
  readonly warn?: (text: string) => void
}
/** CNI_COMMAND, CNI_CONTAINERID and the other variables, by name. */
export type CallEnv = Readonly<Record<`CNI_${string}`, string>>

/** The default limit of one plugin call, in milliseconds. */
export const TIMEOUT_MS = 120_000
const BUSY_MS = [50, 100, 200, 400, 800, 1600, 3200]

/**
 * Starts a plugin with this process's environment and the CNI variables, with the configuration on stdin, and returns
 * its stdout. Throws CniError with the plugin's own code, else 999. The message is libcni's: `plugin type="x" failed
 * (add): …`.
 */
export async function invoke(type: string, env: CallEnv, config: string, host: Host): Promise<string> {
  const title = titleOf(type, env['CNI_COMMAND'] ?? '')
  const file = findPlugin(type, host.path)
  const { timeoutMs = TIMEOUT_MS } = host
  const child = await start(file, { ...process.env, ...env, CNI_PATH: host.path.join(':') }, config, host)
  const pipes = [child.stdout.getReader(), child.stderr.getReader()]
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      killGroup(child.pid)
      reject(new CniError(CODE.tryLater, `${title}: timed out after ${timeoutMs / 1000} s and was killed`))
    }, timeoutMs)
  })
  try {
    const [, stdout = '', stderr = ''] = await Promise.race([late, Promise.all([child.exited, ...pipes.map(textOf)])])
    // When a plugin prints nothing on stdout, its stderr is the error message.
    if (stderr !== '' && (child.exitCode === 0 || stdout.trim() !== '')) warn(host, stderr)
    if (child.exitCode !== 0) throw failure(title, child, stdout, stderr)
    return stdout
  } finally {
    clearTimeout(timer)
    // A daemon that outlives the plugin may keep the other end open. This process must not wait for it.
    for (const pipe of pipes) void pipe.cancel().catch(() => undefined)
  }
}

/** Reports a message to the caller, through the host's `warn`, else on stderr. Never throws. */
export function warn(host: Host, text: string): void {
  try {
    if (host.warn) host.warn(text)
    else writeSync(2, text.endsWith('\n') ? text : `${text}\n`)
  } catch {
    // A closed stderr must not fail the call.
  }
}

/** The beginning of the message about a plugin's failure (libcni's words). */
export function titleOf(type: string, command: string): string {
  return `plugin type=${shown(type)} failed (${command.toLowerCase()})`
}

/**
 * The file of a plugin: the first file of its name along CNI_PATH. Throws CniError 7 that names the searched folders.
 */
export function findPlugin(type: string, path: readonly string[]): string {
  const file = path
    .map((dir) => `${dir}/${type}`)
    .find((one) => !type.includes('/') && statSync(one, { throwIfNoEntry: false })?.isFile())
  if (!file)
    throw new CniError(
      CODE.config,
      `Cannot find the plugin ${shown(type)}`,
      path.length === 0 ? 'CNI_PATH is empty' : `looked in ${path.join(', ')} (CNI_PATH)`,
    )
  return file
}

type Child = Bun.Subprocess<Buffer, 'pipe', 'pipe'>

// A process group of its own lets a kill reach the IPAM plugin that it started, too. An executable that is being
// replaced is "busy" for a moment.
async function start(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
  config: string,
  host: Host,
  [pause, ...later] = BUSY_MS,
): Promise<Child> {
  try {
    return Bun.spawn([file], { env, stdin: Buffer.from(config), stdout: 'pipe', stderr: 'pipe', detached: true })
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== 'ETXTBSY' || pause === undefined)
      throw new CniError(
        CODE.io,
        `Cannot start ${file}`,
        code === 'ETXTBSY' ? 'text file busy: somebody keeps writing to it' : message,
        { cause },
      )
    if (pause === BUSY_MS[0]) warn(host, `${file} is being written (text file busy), trying again`)
    await Bun.sleep(pause)
    return start(file, env, config, host, later)
  }
}

async function textOf(pipe: {
  read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array | undefined }>
}): Promise<string> {
  const chunks: Uint8Array[] = []
  for (let next = await pipe.read(); !next.done; next = await pipe.read()) chunks.push(next.value as Uint8Array)
  return Buffer.concat(chunks).toString()
}

/** Ends the process group that a process leads. It may have ended meanwhile. */
export function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The process ended in the meantime.
  }
}

// libcni's order: the error object on stdout, else stderr, else a message that the plugin printed nothing.
function failure(title: string, child: Child, stdout: string, stderr: string): CniError {
  const status = child.signalCode ? `signal ${child.signalCode}` : `exit status ${child.exitCode}`
  if (stdout.trim() === '')
    return new CniError(
      CODE.internal,
      `${title}: netplugin failed${stderr.trim() ? `: ${status}` : ` with no error message: ${status}`}`,
      stderr.trim(),
    )
  try {
    const { code, msg = '', details = '' } = JSON.parse(stdout)
    if (!Number.isInteger(code)) throw new Error('it has no code')
    return new CniError(code, `${title}: ${msg}`, String(details))
  } catch (cause) {
    return new CniError(
      CODE.internal,
      `${title}: netplugin failed but its answer is no error object`,
      `${(cause as Error).message}: ${shown(stdout)}`,
      { cause },
    )
  }
}
