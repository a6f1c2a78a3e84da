import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Any, type Shimmed, shimmed } from './tool-shims.ts'

const DIST = join(import.meta.dir, '../../dist')
/** What shows the settings that plumb writes. */
export const STRACE = '/usr/bin/strace'
const TOOLS = (['ip', 'bridge', 'nft', 'conntrack', 'tc', 'xtables-nft-multi'] as const).filter((tool) =>
  ['/usr/sbin', '/usr/bin', '/sbin', '/bin'].some((dir) => existsSync(`${dir}/${tool}`)),
)
// One that was started ahead and not needed gets no input; one whose argv says all needs none.
// The one program of iptables has many names: it is told by which it was called.
const SCRIPT = (tool: Any) => `
${tool === 'xtables-nft-multi' ? 'name=$(basename "$0"); real="$real $name"' : `name=${tool}`}
if [ -s "$input" ] || ! echo " $*" | grep -q ' -$'; then
  { readlink /proc/self/ns/net; echo "$name $*"; cat "$input"; } > "$dir/call.$(date +%s%N).$$"
fi
exec $real "$@" < "$input"`

/** One process that a plugin started, in the order in which they began to work. */
export interface Recorded {
  /** As `readlink /proc/self/ns/net` shows it. */
  readonly ns: string
  readonly argv: string
  readonly lines: readonly string[]
}
/**
 * A setting below /proc/sys/net that plumb wrote itself, as `net/NAME = VALUE`; `netns` is the path of the namespace
 * that it had entered.
 */
export interface Written {
  readonly netns: string | undefined
  readonly text: string
}

/** Plugins of dist/ that write down which tools they start, with what, and which settings they write. */
export interface Recording {
  /** CNI_PATH. */
  readonly path: string
  calls(type: string): Recorded[]
  writes(type: string): Written[]
}

/** Wraps plugins for one call each. */
export function recording(types: readonly string[]): Recording {
  const shims = new Map<string, Shimmed>(
    types.map((type) => [
      type,
      shimmed(type, Object.fromEntries(TOOLS.map((tool) => [tool, SCRIPT(tool)])), traced(type)),
    ]),
  )
  const dirOf = (type: string) => shims.get(type)?.dir as string
  return {
    path: [...types.map(dirOf), DIST].join(':'),
    calls: (type) =>
      readdirSync(dirOf(type))
        .filter((name) => name.startsWith('call.'))
        .sort()
        .map((name) => {
          const [ns = '', argv = '', ...lines] = readFileSync(join(dirOf(type), name), 'utf8')
            .trimEnd()
            .split('\n')
          return { ns, argv, lines }
        }),
    writes(type) {
      let netns: string | undefined
      return readFileSync(`${dirOf(type)}/trace`, 'utf8')
        .split('\n')
        .flatMap((row) => {
          const [, entered] = /^setns\(\d+<([^>]*)>/.exec(row) ?? []
          if (entered !== undefined) netns = entered.startsWith('/run/') ? entered : undefined
          // One that the kernel has tried again (ERESTARTNOINTR) was not written.
          const [, name, value] =
            /^p?write(?:64)?\(\d+<\/proc\/sys\/(net\/[^>]*)>, "([^"]*)", \d+(?:, \d+)?\) = \d/.exec(row) ?? []
          return name === undefined ? [] : [{ netns, text: `${name} = ${value}` }]
        })
    },
  }
}

// Plumb alone, not the tools: it writes settings on its one thread.
function traced(type: string): string {
  return `exec ${STRACE} -qq -y -s 200 -o "\${0%/*}/trace" -e trace=setns,write,pwrite64 ${DIST}/${type}`
}
