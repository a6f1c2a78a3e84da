import { statSync } from 'node:fs'
import type { Call } from './cni.ts'
import { CniError, CODE, shown, ValueError } from './errors.ts'
import { runPlugin } from './exec.ts'
import type { Pool } from './plugin.ts'
import type { Result } from './result.ts'
import { ipam, openPool } from './verbs/ipam.ts'
import { decode, encode } from './versions.ts'

/** A pool that an interface plugin delegates to, in this process or as another program (CNI spec 1.1.0 section 4). */
export interface Delegate {
  /** Whether a failed `add` may have left something behind that only `del` frees. */
  readonly foreign: boolean
  /** Throws for what no state of the pool could satisfy, before anything is made; another program says that only when it is asked for an address. */
  valid(): void
  add(): Promise<Result>
  check(): Promise<void>
  del(): Promise<void>
  gc(): Promise<void>
  status(): Promise<void>
}

/** Finds the pool that `ipam.type` names along CNI_PATH. When that file is our own executable it works in this process, and saves a start; so it does when no CNI_PATH was given. Throws CniError 7 naming the type and where it was looked for. */
export async function delegate(type: string, call: Call): Promise<Delegate> {
  if (!/^[A-Za-z0-9][\w.-]{0,254}$/.test(type)) throw new ValueError(`Cannot read ipam.type ${shown(type)}: want the name of a plugin, such as host-local`)
  const { path } = call.at
  const file = path.map((dir) => `${dir}/${type}`).find(isFile)
  if (file !== undefined && !isOurs(file)) return program(file, call)
  const plugin = file !== undefined || path.length === 0 ? await call.io.plugin(type) : undefined
  if (plugin?.role !== 'ipam') throw new CniError(CODE.config, `Cannot find the IPAM plugin ${shown(type)}`, path.length === 0 ? 'CNI_PATH is empty' : `looked in ${path.join(', ')} (CNI_PATH)`)
  const verbs = ipam(plugin)
  let opened: Pool | undefined
  const pool = () => (opened ??= openPool(plugin, call))
  return { foreign: false, valid: () => pool().valid(), add: async () => inVersion(pool().take(call.at), call.version), check: () => verbs.check(call), del: () => verbs.del(call), gc: () => verbs.gc(call), status: () => verbs.status(call) }
}

// CNI 0.1.0 and 0.2.0 keep of routes what leads where, and of each family only what has an address: another program's result would not hold more.
function inVersion(result: Result, version: string): Result {
  return /^0\.[12]\./.test(version) ? decode(JSON.parse(encode(result, version)), version, 'the IPAM result') : result
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile()
  } catch {
    // Missing, or no path at all: too long, below a file.
    return false
  }
}

function isOurs(file: string): boolean {
  const [one, own] = [statSync(file), statSync('/proc/self/exe')]
  return one.ino === own.ino && one.dev === own.dev
}

// The delegate gets our whole environment, our stdin, and CNI_COMMAND as the verb; what it says on stderr goes to ours.
function program(file: string, call: Call): Delegate {
  const start = async (command: string): Promise<string> => {
    const env = Object.fromEntries(Object.entries(call.io.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])))
    const { status, stdout } = await runPlugin(file, { ...env, CNI_COMMAND: command }, call.text)
    if (status !== 0) throw failure(file, status, stdout)
    return stdout
  }
  const verb = (command: string) => async () => void (await start(command))
  return {
    foreign: true,
    valid() {},
    async add() {
      const stdout = await start('ADD')
      try {
        // CNI spec 1.1.0 section 4: a pool has no interfaces; one that names some must not name ours.
        const { interfaces: _, ...result } = decode(JSON.parse(stdout), call.version, 'the IPAM result')
        return result
      } catch (cause) {
        throw new CniError(CODE.internal, `Cannot read what the IPAM plugin ${file} answered`, `${(cause as Error).message}: ${shown(stdout)}`, { cause })
      }
    },
    check: verb('CHECK'),
    del: verb('DEL'),
    gc: verb('GC'),
    status: verb('STATUS'),
  }
}

// A delegate's own code and words are kept: they say more than ours could.
function failure(file: string, status: number, stdout: string): CniError {
  try {
    const { code, msg, details } = JSON.parse(stdout) as { code?: number; msg?: string; details?: string }
    if (typeof code === 'number' && typeof msg === 'string') return new CniError(code, msg, details ?? '')
  } catch {
    // Not an error object: its text is shown below.
  }
  return new CniError(CODE.internal, `The IPAM plugin ${file} failed with status ${status}`, stdout.slice(0, 1000))
}
