import { isProgram, placeBytes, placeLink } from './executables.ts'
import { pluginNames } from './plugin-names.ts' with { type: 'macro' }
import { pluginProgram } from './plugin-program.ts'

/**
 * The plugins of plumb: the files of plugins/ at build time. Load this file only with import(), like
 * agent/page/index.ts.
 */
export const PLUGINS: readonly string[] = pluginNames()

/** A folder with all plugins: the one of this program when they lie there, else `dir`, into which they are written. */
export function pluginsNextTo(dir: string): string {
  const own = process.execPath.slice(0, process.execPath.lastIndexOf('/'))
  if (PLUGINS.every((name) => isProgram(`${own}/${name}`))) return own
  const [first = '', ...others] = PLUGINS.map((name) => `${dir}/${name}`)
  placeBytes(pluginProgram(), first)
  for (const path of others) placeLink(first, path)
  return dir
}
