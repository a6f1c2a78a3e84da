import { chmodSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const DIST = join(import.meta.dir, '../../../../dist')
/** Stops a program at a system call. */
export const STRACE = '/usr/bin/strace'
/**
 * By which a process changes files, kernel and children, or takes what others wait for; by their arguments some of them
 * do not, and those are left out.
 */
const CALLS: Readonly<Record<string, RegExp>> = {
  'open openat creat': /O_(CREAT|TRUNC|WRONLY|RDWR)(?!.*"\/dev\/)/,
  'write writev pwrite64 pwritev': /^\d+(?!<anon_inode:)/,
  'mkdir mkdirat rmdir link linkat symlink symlinkat unlink unlinkat rename renameat renameat2 truncate ftruncate fsync fdatasync utimensat chmod fchmod fchmodat chown fchown setns unshare mount bind':
    /^/,
  'fcntl flock': /F_OFD_SETLK|LOCK_/,
  'sendto sendmsg': /^(?!.*(GET|NLM_F_DUMP|"HTTP))/,
  ioctl: /SIOCS|SIOCETHTOOL|TUNSET/,
  'clone clone3 vfork fork': /^(?!.*CLONE_THREAD)/,
  'poll wait4 waitid': /pidfd|^\d+/,
  exit_group: /^/,
}
const CHANGES = new Map(
  Object.entries(CALLS).flatMap(([names, args]) => names.split(' ').map((name) => [name, args] as const)),
)

/** A system call of a program's first thread. */
export interface Point {
  readonly name: string
  /** Which of this name it is, from 1. */
  readonly nth: number
  /** As strace prints it. */
  readonly text: string
}
/** What runs in a program's place. */
export interface Stand {
  readonly file: string
  /** What it called, as strace prints it. */
  lines(): string[]
  /** The calls that change something, as far as it came. */
  points(): Point[]
  /** The call that it was killed at. */
  died(): Point | undefined
}

/**
 * A program of dist/ that writes down what it changes; `at` is the call that it is killed at, before the kernel has
 * seen it. Its children, and its threads that only collect garbage, are not stopped. `alone`: it is the caller's own
 * child, which a signal reaches.
 */
export function stand(program: string, at?: Pick<Point, 'name' | 'nth'>, alone = false): Stand {
  const dir = mkdtempSync('/run/strace-')
  const [file, out] = [join(dir, program), join(dir, 'out')]
  const inject = at ? `-e inject=${at.name}:signal=KILL:when=${at.nth}` : ''
  const seen = new Set([...CHANGES.keys(), ...(at ? [at.name] : [])])
  writeFileSync(
    file,
    `#!/bin/sh\nexec ${STRACE} ${alone ? '-D ' : ''}-y -s 65536 -o ${out} -e trace=${[...seen].join(',')} ${inject} ${DIST}/${program} "$@"\n`,
  )
  chmodSync(file, 0o755)
  const lines = () => (existsSync(out) ? readFileSync(out, 'utf8').split('\n') : [])
  return {
    file,
    lines,
    points: () => numbered(lines()).filter(isChange),
    died: () => (lines().includes('+++ killed by SIGKILL +++') ? numbered(lines()).at(-1) : undefined),
  }
}

/** Some of many, evenly, the last always among them. */
export function spread<T>(all: readonly T[], count: number): T[] {
  return all.filter((_, i) => Math.floor(((i + 1) * count) / all.length) > Math.floor((i * count) / all.length))
}

function numbered(lines: readonly string[]): Point[] {
  const counts = new Map<string, number>()
  return lines.flatMap((text) => {
    const name = /^(\w+)\(/.exec(text)?.[1]
    if (name === undefined) return []
    counts.set(name, (counts.get(name) ?? 0) + 1)
    return { name, nth: counts.get(name) as number, text }
  })
}

function isChange({ name, text }: Point): boolean {
  return CHANGES.get(name)?.test(text.slice(name.length + 1)) ?? false
}
