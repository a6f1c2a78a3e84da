import { existsSync, globSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { until } from './harness.ts'

const CGROUP = 'plumb-test-'
let serial = 0

/** A name for the cgroup that a runtime's pods are below, which says when it was made. */
export function cgroupName(): string {
  return `${CGROUP}${process.pid}-${Date.now()}-${++serial}`
}

/**
 * What is left of a runtime itself whose things are below `dir` and its pods' cgroups below `cgroup`: mounts,
 * processes, cgroups of pods, namespaces.
 */
export function remainder(dir: string, cgroup: string): string[] {
  return [
    ...mounts(dir),
    ...processes(dir).map((pid) => `process ${pid} ${commandOf(pid)}`),
    ...cgroups(cgroup).flatMap((one) => children(one)),
    ...podNamespaces(),
  ]
}

/** Removes all of that, and the runtime's folder. */
export async function sweep(dir: string, cgroup: string): Promise<void> {
  const all = [...cgroups(cgroup), ...stale()].flatMap((one) => [...children(one), one])
  for (const pid of [...processes(dir), ...all.flatMap(members)]) kill(pid)
  for (const mount of mounts(dir).reverse()) await execa('umount', ['--lazy', mount], { reject: false })
  for (const name of podNamespaces()) await execa('ip', ['netns', 'delete', name], { reject: false })
  for (const one of all) await removed(one)
  rmSync(dir, { recursive: true, force: true })
}

function mounts(dir: string): string[] {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .flatMap((line) => line.split(' ')[1] ?? [])
    .filter((path) => path.startsWith(`${dir}/`))
}

// In the test's own process namespace: whatever names the folder was started for it. A process that has ended, and that
// nobody waited for, has no command line.
function processes(dir: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid && commandOf(pid).includes(dir))
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

function podNamespaces(): string[] {
  return readdirSync('/run/netns').filter((name) => name.startsWith('cni-'))
}

// One hierarchy, or one per controller.
function cgroups(name: string): string[] {
  return globSync([`/sys/fs/cgroup/${name}`, `/sys/fs/cgroup/*/${name}`])
}

// Of a run that was killed: no test takes so long.
function stale(): string[] {
  return cgroups(`${CGROUP}*`).filter((path) => Date.now() - Number(path.split('-').at(-2)) > 15 * 60_000)
}

/** The cgroups below one, the deepest first. */
function children(cgroup: string): string[] {
  if (!existsSync(cgroup)) return []
  return readdirSync(cgroup, { withFileTypes: true })
    .filter((one) => one.isDirectory())
    .flatMap(({ name }) => [...children(join(cgroup, name)), join(cgroup, name)])
}

function members(cgroup: string): number[] {
  // Those of another process namespace are told as 0.
  return readFileSync(join(cgroup, 'cgroup.procs'), 'utf8')
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 0)
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}

async function removed(cgroup: string): Promise<void> {
  await until(() => {
    rmdirSync(cgroup)
    return true
  }).catch(() => undefined)
}
