import { readFileSync } from 'node:fs'
import { embeddedFiles } from 'bun'
import { fingerprint, fingerprintOf } from './executables.ts'

/** The name of the plugins' executable among the files that plumb holds. The build puts it there (scripts/build.ts). */
const FILE = 'plugins.engine'

/**
 * The executable of the plugins, which this program holds. Started from its source, plumb takes that of the last build.
 */
export function pluginProgram(): Uint8Array {
  return readFileSync(embeddedFiles.length > 0 ? `${import.meta.dir}/${FILE}` : `${import.meta.dir}/../../dist/bridge`)
}

let print: string | undefined

/** Whether a file is the executable of the plugins of this version. Throws the error of a file that is not readable. */
export function isPluginProgram(path: string): boolean {
  print ??= fingerprintOf(pluginProgram())
  return fingerprint(path) === print
}
