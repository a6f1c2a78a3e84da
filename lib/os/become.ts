import { env, executable, libc } from './door.ts'
import { fs } from './fs.ts'
import { bytes, lastError, pointersTo } from './libc.ts'
import { log } from './log.ts'

const ELSEWHERE = ['/usr/local/bin', '/usr/bin', '/opt/plumb/bin']

/**
 * Goes on as the program `plumb` with these arguments (execve(2)): it lies beside this executable, or where packages
 * put it. Returns 1 when that fails, after a message.
 */
export function becomePlumb(args: readonly string[]): 1 {
  const dirs = [fs.dirname(executable()), ...ELSEWHERE]
  const path = dirs.map((dir) => `${dir}/plumb`).find((file) => fs.existsSync(file))
  if (path === undefined) {
    log(`Cannot start the DHCP daemon: the program plumb is not installed; looked in ${dirs.join(', ')}`)
    return 1
  }
  const argv = pointersTo([path, ...args])
  const vars = pointersTo(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : `${name}=${value}`)),
  )
  libc().execve(bytes(path), argv.pointers, vars.pointers)
  log(`Cannot start ${path}: ${lastError().code}`)
  // The texts must live until here: the arrays hold only their addresses.
  argv.texts.length = vars.texts.length = 0
  return 1
}
