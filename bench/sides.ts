import { closeSync, openSync, readdirSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { type Peer, references } from '../scripts/peers.ts'

/** Plugins to be measured: where they are, and how the tables call them. */
export interface Side {
  readonly name: string
  readonly dir: string
  readonly ours: boolean
}

/**
 * plumb, which `plumb install` puts into `binDir` as on a node, and the reference plugins that are there, newest first.
 * Throws Error when there is none to compare with.
 */
export function sides(binDir: string): { readonly ours: Side; readonly theirs: readonly Side[] } {
  const found = references()
  if (found.length === 0)
    throw new Error('Cannot find reference plugins to compare with: install containernetworking-plugins')
  const { exitCode, stderr } = Bun.spawnSync(
    [join(import.meta.dir, '../dist/plumb'), 'install', `--bin-dir=${binDir}`, `--state-dir=${binDir}`],
    { stdout: 'ignore', stderr: 'pipe' },
  )
  if (exitCode !== 0) throw new Error(`Cannot install plumb: ${stderr}`)
  return {
    ours: { name: 'plumb', dir: binDir, ours: true },
    theirs: found.map(({ path, version }: Peer) => ({ name: `reference ${version}`, dir: path, ours: false })),
  }
}

/**
 * Reads the executables once from front to end, so that they lie in the page cache in large pieces: without it, results
 * vary by a third.
 */
export function preread({ dir }: Side): void {
  const buffer = new Uint8Array(1 << 20)
  for (const name of readdirSync(dir).filter((one) =>
    /^(bridge|host-local|loopback|portmap|ptp|firewall|bandwidth|tuning|sbr|macvlan|tap|host-device)$/.test(one),
  )) {
    const fd = openSync(join(dir, name), 'r')
    while (readSync(fd, buffer) > 0);
    closeSync(fd)
  }
}
