import type { Call } from '../cni/call.ts'
import type { Plugin } from '../cni/plugin.ts'
import { runPlugin } from '../os/exec.ts'
import { fs } from '../os/fs.ts'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { isName } from '../text/values.ts'

/** The roles of the plugin to find, and the key of the configuration that names its type. */
export interface Wanted<R extends Plugin['role']> {
  readonly roles: readonly R[]
  /** The name of the role in messages, such as `IPAM plugin`. */
  readonly what: string
  readonly key: string
  /** A valid type, for messages. */
  readonly example: string
}

/**
 * Finds the plugin of a type along CNI_PATH. Returns the path of another program. Returns the plugin itself when the
 * file is this executable, or when CNI_PATH is empty. The plugin then works in this process, which saves the start of a
 * process. Throws ValueError when `type` is not a valid name. Throws CniError 7 (50 for STATUS) with the type and the
 * searched folders when there is no such plugin.
 */
export async function findPlugin<R extends Plugin['role']>(
  type: string,
  { roles, what, key, example }: Wanted<R>,
  { command, at: { path }, io }: Call,
): Promise<string | Extract<Plugin, { role: R }>> {
  if (!isName(type) || type.length > 255)
    throw new ValueError(`Cannot read ${key} ${shown(type)}: want the name of a plugin, such as ${example}`)
  const file = path.map((dir) => `${dir}/${type}`).find(isFile)
  if (file !== undefined && !(io.isOurs ?? isOurs)(file)) return file
  const plugin = file !== undefined || path.length === 0 ? await io.plugin(type) : undefined
  // This executable under a name of its own finds out itself which plugin it is.
  if (file !== undefined && plugin === undefined) return file
  if (!roles.some((role) => role === plugin?.role))
    throw new CniError(
      command === 'STATUS' ? CODE.notReady : CODE.config,
      `Cannot find the ${what} ${shown(type)}`,
      path.length === 0 ? 'CNI_PATH is empty' : `looked in ${path.join(', ')} (CNI_PATH)`,
    )
  return plugin as Extract<Plugin, { role: R }>
}

/**
 * Runs a plugin that is another program. The program gets the configuration, and the call's environment with `command`
 * as CNI_COMMAND. Its stderr goes to the stderr of this process. Returns its stdout. Throws CniError with the program's
 * code and message when it fails (CNI spec 1.1.0 section 4).
 */
export async function runDelegate(file: string, command: string, { text, io }: Call, what: string): Promise<string> {
  const env = Object.fromEntries(
    Object.entries(io.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  )
  const { status, stdout } = await runPlugin(file, { ...env, CNI_COMMAND: command }, text)
  if (status !== 0) throw failure(`The ${what} ${file}`, status, stdout)
  return stdout
}

function isFile(path: string): boolean {
  try {
    return fs.statSync(path)?.kind === 'file'
  } catch (cause) {
    // The path cannot exist: a parent is a file, it is too long, or it holds a null byte.
    if (!['ENOTDIR', 'ENAMETOOLONG', 'ERR_INVALID_ARG_VALUE'].includes((cause as NodeJS.ErrnoException).code ?? ''))
      throw cause
    return false
  }
}

// The executable of this process, also under another name. `plumb install` makes one copy of it, with the same time
// (agent/node/install.ts).
function isOurs(file: string): boolean {
  const [one, own] = [fs.statSync(file), fs.statSync('/proc/self/exe')]
  if (one === undefined || own === undefined || one.dev !== own.dev) return false
  return one.ino === own.ino || (one.size === own.size && one.mtimeNs === own.mtimeNs)
}

// The code and message of the delegate say more about the fault than a message of plumb.
function failure(title: string, status: number, stdout: string): CniError {
  try {
    const { code, msg, details } = JSON.parse(stdout) as { code?: number; msg?: string; details?: string }
    if (typeof code === 'number' && typeof msg === 'string') return new CniError(code, msg, details ?? '')
  } catch {
    // The output is not an error object. The error below shows it.
  }
  return new CniError(CODE.internal, `${title} failed with status ${status}`, stdout.slice(0, 1000))
}
