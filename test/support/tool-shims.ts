import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const DIST = join(import.meta.dir, '../../dist')
/** As lib/os/exec.ts looks for them. */
const DIRS = ['/usr/sbin', '/sbin', '/usr/bin', '/bin']
export const TOOLS = ['ip', 'bridge', 'nft'] as const
export type Tool = (typeof TOOLS)[number] | 'conntrack'
/** All that can be one of the scripts. */
export type Any = Tool | 'tc' | 'xtables-nft-multi' | 'dbus-send'

// A tool that was started ahead counts when it gets its input.
const COUNT = `
input=$(mktemp "$dir/input.XXXXXX")
cat > "$input"
exec 9> "$dir/lock"
flock 9
n=$(($(cat "$dir/count") + 1))
echo $n > "$dir/count"
exec 9>&-
`

/** A plugin's executable that sees other tools than the rest of the node. */
export interface Shimmed {
  /** What to start in its place. */
  readonly file: string
  /** The folder that its scripts find in `$dir`; the tools themselves are below `real/`. */
  readonly dir: string
}

/**
 * Wraps dist/`type`. In a mount namespace of its own each of these tools is a shell script. There `$real` is the tool,
 * `$input` a file with its standard input, and `$dir` a folder of the test. `$n` is the number of the call, from 1 over
 * all tools. `before` are further shell commands, run as root in that mount namespace.
 */
export function shimmed(type: string, scripts: Partial<Record<Any, string>>, before = ''): Shimmed {
  const dir = mkdtempSync('/run/shim-')
  for (const one of ['real', 'tools']) mkdirSync(join(dir, one))
  const mounts = Object.entries(scripts).map(([tool, script]) => {
    const path = pathOf(tool as Any)
    copyFileSync(path, join(dir, 'real', tool))
    write(join(dir, 'tools', tool), `#!/bin/sh\ndir=${dir} real=${dir}/real/${tool}\n${COUNT}${script}\n`)
    return `mount --bind ${dir}/tools/${tool} ${path}`
  })
  writeFileSync(join(dir, 'count'), '0')
  write(join(dir, 'inside'), ['#!/bin/sh', 'set -e', ...mounts, before, `exec ${DIST}/${type} "$@"`, ''].join('\n'))
  const file = join(dir, type)
  write(file, `#!/bin/sh\nexec unshare --mount --propagation private ${dir}/inside "$@"\n`)
  return { file, dir }
}

/** Shell commands for `before`: the tool is in none of the folders where plumb looks. */
export function without(tool: Any): string {
  const dirs = [...new Set(DIRS.map((dir) => realpathSync(dir)))]
  return dirs
    .map((dir, i) => {
      const layer = mkdtempSync('/run/layer-')
      for (const one of ['up', 'work']) mkdirSync(join(layer, one))
      return `mount -t overlay -o lowerdir=${dir},upperdir=${layer}/up,workdir=${layer}/work layer${i} ${dir}\nrm -f ${dir}/${tool}`
    })
    .join('\n')
}

/**
 * Every tool kills plumb at the call of this number, counted from 1 over all tools: when it has its input and before it
 * works, or when it has worked.
 */
export function killing(type: string, at: number, when: 'before' | 'after', tools: readonly Tool[] = TOOLS): Shimmed {
  const script = `
if [ $n = ${at} ] && [ ${when} = before ]; then kill -KILL $PPID; exit 1; fi
"$real" "$@" < "$input"
status=$?
if [ $n = ${at} ]; then kill -KILL $PPID; fi
exit $status`
  return shimmed(type, Object.fromEntries(tools.map((tool) => [tool, script])))
}

/** How many tools were called to the end of their input. */
export function calls({ dir }: Shimmed): number {
  return Number(readFileSync(join(dir, 'count'), 'utf8'))
}

function pathOf(tool: Any): string {
  for (const dir of DIRS) {
    try {
      return realpathSync(join(dir, tool))
    } catch {
      // The next one has it.
    }
  }
  throw new Error(`Cannot find ${tool} in ${DIRS.join(', ')}`)
}

function write(path: string, text: string): void {
  writeFileSync(path, text)
  chmodSync(path, 0o755)
}
