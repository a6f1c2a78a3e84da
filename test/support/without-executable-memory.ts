import { existsSync, globSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { until } from './harness.ts'

// It serves one user here, because a test is not process 1 of a machine.
const SYSTEMD = '/lib/systemd/systemd'

// prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), then execv(3). What it starts inherits it.
const SCRIPT = `
const { dlopen, ptr } = require('bun:ffi')
const { prctl, execv } = dlopen('libc.so.6', { prctl: { args: ['i32', 'u64', 'u64', 'u64', 'u64'], returns: 'i32' }, execv: { args: ['ptr', 'ptr'], returns: 'i32' } }).symbols
const words = process.argv.slice(1).map((word) => Buffer.from(word + '\\0'))
const argv = new BigUint64Array([...words.map((word) => BigInt(ptr(word))), 0n])
if (prctl(65, 1, 0, 0, 0) !== 0) process.exit(77)
execv(words[0], argv)
`

/**
 * Goes before a command line, with the whole path of the program: no process of it may make memory executable. Ends
 * with status 77 before Linux 6.3.
 */
export const BY_KERNEL: readonly string[] = [process.execPath, '-e', SCRIPT]

/**
 * The command line of a systemd that runs one unit with MemoryDenyWriteExecute=yes. KillMode=process is as in Debian's
 * unit of containerd. Its own files are below `dir`, and its cgroup is `cgroup`. systemd 252 denies by a seccomp
 * filter, 254 by the kernel's PR_SET_MDWE.
 */
export function inUnit(
  argv: readonly string[],
  { dir, cgroup, log }: { readonly dir: string; readonly cgroup: string; readonly log: string },
): string[] {
  const units = join(dir, 'systemd/user')
  mkdirSync(units, { recursive: true })
  // A systemd of a user starts only where this folder is.
  mkdirSync('/run/systemd/system', { recursive: true })
  const unit = `[Unit]
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target
[Service]
MemoryDenyWriteExecute=yes
KillMode=process
KillSignal=SIGKILL
ExecStart=${argv.join(' ')}
WorkingDirectory=${dir}
StandardOutput=append:${log}
StandardError=append:${log}
`
  writeFileSync(join(units, 'tested.service'), unit)
  const groups = globSync('/sys/fs/cgroup/{,systemd/,unified/}cgroup.procs').map((file) => join(file, '..', cgroup))
  const joins = groups.map((group) => `mkdir -p ${group} && echo $$ >${group}/cgroup.procs`)
  return [
    'env',
    `XDG_RUNTIME_DIR=${dir}`,
    'HOME=/root',
    'sh',
    '-ec',
    [...joins, `exec ${SYSTEMD} --user --unit=tested.service`].join('\n'),
  ]
}

/** Removes the cgroup that a systemd of `inUnit` made for itself. That systemd has ended. */
export async function leaveUnit(cgroup: string): Promise<void> {
  for (const group of globSync([`/sys/fs/cgroup/${cgroup}/init.scope`, `/sys/fs/cgroup/*/${cgroup}/init.scope`]))
    await until(() => {
      rmdirSync(group)
      return true
    })
}

/** Why there is no systemd to run a unit here; undefined when there is one. */
export function noSystemd(): string | undefined {
  return existsSync(SYSTEMD) ? undefined : 'no systemd (a package of that name)'
}
