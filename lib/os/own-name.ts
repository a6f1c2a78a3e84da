import { calledAs, executable } from './door.ts'
import { fs } from './fs.ts'
import { readRegular } from './reading.ts'

/** More links than any node has. The kernel follows 40. */
const MOST = 40

/**
 * The plugin that this program is when its own name is none: a name on the way of its symbolic links, or the text of a
 * file `NAME.plugin` beside it. KubeVirt calls a copy of bridge `cnv-bridge`. Undefined when nothing says it.
 */
export function pluginBehind(plugins: readonly string[]): string | undefined {
  const path = calledAs().includes('/') ? calledAs() : executable()
  return [...names(path), textOf(`${path}.plugin`)].find((name) => plugins.includes(name))
}

function names(path: string): string[] {
  const found: string[] = []
  for (let at = path; found.length < MOST; ) {
    try {
      const target = fs.readlinkSync(at)
      at = target.startsWith('/') ? target : `${fs.dirname(at)}/${target}`
      found.push(at.slice(at.lastIndexOf('/') + 1))
    } catch {
      // This is no link.
      return found
    }
  }
  return found
}

function textOf(path: string): string {
  try {
    return (readRegular(path) ?? '').trim()
  } catch {
    return ''
  }
}
