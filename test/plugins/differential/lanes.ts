// needs: reference
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { references } from '../../../scripts/peers.ts'

/** A reference to stand beside. */
export interface Lane {
  readonly version: string
  /** The directory of its plugins. */
  readonly path: string
  /** The CNI versions that its bridge speaks. */
  readonly speaks: readonly string[]
  /** Whether it knows what came after release 1.1.1. */
  readonly newer: boolean
}

/** The references that are installed or were built, newest first. */
export function lanes(): Lane[] {
  return references().map(({ version, path }) => {
    const { stdout } = Bun.spawnSync([join(path, 'bridge')], { env: { CNI_COMMAND: 'VERSION' }, stdin: 'ignore' })
    const { supportedVersions: speaks } = JSON.parse(String(stdout)) as { supportedVersions: string[] }
    return { version, path, speaks, newer: speaks.includes('1.1.0') }
  })
}

/** Why there is no lane of this kind. */
export function missing(newer: boolean): string {
  return newer
    ? 'no reference plugins were built of a release after 1.1.1 (scripts/peers.ts builds them where Go is 1.24 or later)'
    : 'no reference plugins of the distribution are installed (package containernetworking-plugins)'
}

/** Whether a reference has a plugin. */
export function hasPlugin({ path }: Lane, type: string): boolean {
  return existsSync(join(path, type))
}
