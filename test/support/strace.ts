import { readFileSync } from 'node:fs'
import { STRACE } from './recording.ts'

/** What a program and its children asked of the kernel, as far as it reaches out of the process. */
export interface Traced {
  /** Programs that were started: the file, its arguments and its whole environment, as strace writes them. */
  readonly started: readonly { readonly file: string; readonly argv: string; readonly env: string }[]
  /** Files that were opened to be written, made, moved, linked or removed, or whose mode was changed. */
  readonly changed: readonly string[]
  /** All files that were opened. */
  readonly opened: readonly string[]
  /** Calls that would send something to an address of IPv4 or IPv6, or listen there. */
  readonly network: readonly string[]
}

const CALLS =
  'execve,execveat,openat,open,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,chmod,fchmodat,chown,fchownat,truncate,exit_group,connect,sendto,sendmsg,sendmmsg,bind'

/** What to put before a program, so that `traced` can read of it. */
export function tracing(log: string): string[] {
  return [
    STRACE,
    '-D',
    '-f',
    '--seccomp-bpf',
    '-qq',
    '-v',
    '-s',
    '4096',
    '-o',
    log,
    '-e',
    `trace=${CALLS}`,
    '-e',
    'signal=none',
  ]
}

/** Reads what was traced; paths that are relative begin in `cwd`. */
export function traced(log: string, cwd: string): Traced {
  const rows = joined(readFileSync(log, 'utf8')).filter((row) => row !== '' && !/ = -1 E/.test(row))
  const whole = (path: string) => (path.startsWith('/') ? path : `${cwd}/${path}`)
  const matched = (pattern: RegExp) => rows.flatMap((row) => [...row.matchAll(pattern)])
  const opened = matched(/^(?:openat\(AT_FDCWD, |open\(|creat\()"([^"]*)"(?:, ([A-Z_|]+))?/g).map(
    ([, path = '', flags = 'O_CREAT']) => ({
      path: whole(path),
      writes: /O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND/.test(flags),
    }),
  )
  // Of a link only the name that is made: where it leads stays as it is.
  const others = matched(
    /^(\w*link(?:at)?|mkdir|mkdirat|rename\w*|chmod|fchmodat|chown|fchownat|truncate)\((.*)$/g,
  ).flatMap(([, call = '', args = '']) => {
    const paths = [...args.matchAll(/"([^"]*)"/g)].map(([, path = '']) => whole(path))
    return /^(sym)?link/.test(call) ? paths.slice(1) : paths
  })
  return {
    started: matched(/^execve\("([^"]+)", \[(.*?)\], \[(.*)\]\)/g).map(([, file = '', argv = '', env = '']) => ({
      file,
      argv,
      env,
    })),
    opened: opened.map(({ path }) => path),
    changed: [...new Set([...opened.filter(({ writes }) => writes).map(({ path }) => path), ...others])],
    network: rows.filter((row) => /^(connect|sendto|sendmsg|sendmmsg|bind)\(.*sa_family=AF_INET6?\b/.test(row)),
  }
}

/**
 * The calls of a trace, without the process's number: strace writes a call in two rows where another process or thread
 * made one meanwhile.
 */
function joined(text: string): string[] {
  const begun = new Map<string, string>()
  const rows = text.split('\n').flatMap((line) => {
    const [, pid = '', row = ''] = /^(\d+) +(.*)$/.exec(line) ?? []
    const first = /^(.*?) *<unfinished \.\.\.>$/.exec(row)?.[1]
    if (first !== undefined) {
      begun.set(pid, first)
      return []
    }
    const rest = /^<\.\.\. \w+ resumed>(.*)$/.exec(row)?.[1]
    if (rest === undefined) return [row]
    const whole = `${begun.get(pid) ?? ''}${rest}`
    begun.delete(pid)
    return [whole]
  })
  return [...rows, ...[...begun.values()].map((row) => `${row})`)]
}
