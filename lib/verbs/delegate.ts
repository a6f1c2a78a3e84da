import type { Call } from '../cni/call.ts'
import type { Plugin } from '../cni/plugin.ts'
import { runPlugin } from '../os/exec.ts'
import { fs } from '../os/fs.ts'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { isName } from '../text/values.ts'

/** What kind of plugin is looked for, and the key of the configuration that names it. */
export interface Wanted<R extends Plugin['role']> {
  readonly roles: readonly R[]
  /** In messages: `IPAM plugin`. */
  readonly what: string
  readonly key: string
  /** A type that would be right. */
  readonly example: string
}

/** Finds the plugin of a type along CNI_PATH: another program's file, or, when that file is our own executable or no CNI_PATH was given, the plugin, which then works in this process and saves a start. Throws ValueError for what is no type, CniError 7, or 50 for STATUS, naming the type and where it was looked for. */
export async function findPlugin<R extends Plugin['role']>(type: string, { roles, what, key, example }: Wanted<R>, { command, at: { path }, io }: Call): Promise<string | Extract<Plugin, { role: R }>> {
  if (!isName(type) || type.length > 255) throw new ValueError(`Cannot read ${key} ${shown(type)}: want the name of a plugin, such as ${example}`)
  const file = path.map((dir) => `${dir}/${type}`).find(isFile)
  if (file !== undefined && !(io.isOurs ?? isOurs)(file)) return file
  const plugin = file !== undefined || path.length === 0 ? await io.plugin(type) : undefined
  if (!roles.some((role) => role === plugin?.role)) throw new CniError(command === 'STATUS' ? CODE.notReady : CODE.config, `Cannot find the ${what} ${shown(type)}`, path.length === 0 ? 'CNI_PATH is empty' : `looked in ${path.join(', ')} (CNI_PATH)`)
  return plugin as Extract<Plugin, { role: R }>
}

/** Runs a plugin that is another program: it gets the call's whole environment with CNI_COMMAND as the verb, and its configuration; what it says on stderr goes to ours. Its stdout; a failure is a CniError with its own code and words (CNI spec 1.1.0 section 4). */
export async function runDelegate(file: string, command: string, { text, io }: Call, what: string): Promise<string> {
  const env = Object.fromEntries(Object.entries(io.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])))
  const { status, stdout } = await runPlugin(file, { ...env, CNI_COMMAND: command }, text)
  if (status !== 0) throw failure(`The ${what} ${file}`, status, stdout)
  return stdout
}

function isFile(path: string): boolean {
  try {
    return fs.statSync(path)?.kind === 'file'
  } catch {
    // No path at all: too long, below a file.
    return false
  }
}

// This very executable, under whichever name.
function isOurs(file: string): boolean {
  const [one, own] = [fs.statSync(file), fs.statSync('/proc/self/exe')]
  return one !== undefined && one.ino === own?.ino && one.dev === own.dev
}

// A delegate's own code and words are kept: they say more than ours could.
function failure(title: string, status: number, stdout: string): CniError {
  try {
    const { code, msg, details } = JSON.parse(stdout) as { code?: number; msg?: string; details?: string }
    if (typeof code === 'number' && typeof msg === 'string') return new CniError(code, msg, details ?? '')
  } catch {
    // Not an error object: its text is shown below.
  }
  return new CniError(CODE.internal, `${title} failed with status ${status}`, stdout.slice(0, 1000))
}
