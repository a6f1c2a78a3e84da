// needs: reference
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Finished, Namespace } from './harness.ts'

const DIST = join(import.meta.dir, '../../dist')
const CNITOOL = '/var/cache/plumb/peers/cnitool-1.3.0/cnitool'
/** The distribution's reference plugins. */
export const PLUGINS = '/usr/lib/cni'
type Env = Readonly<Record<string, string>>
// biome-ignore lint/suspicious/noExplicitAny: cache files, looked at key by key
export type Entry = any

/**
 * A node as a person has it before him: a configuration directory, a plugin directory before the reference's, and the
 * two tools.
 */
export interface Desk {
  readonly dir: string
  /** `plumb cni ARGV`, the built program. */
  plumb(node: Namespace, argv: readonly string[], env?: Env): Promise<Finished>
  /** Real cnitool; undefined where it is not installed. */
  readonly cnitool: ((node: Namespace, argv: readonly string[], env?: Env) => Promise<Finished>) | undefined
  conf(file: string, content: object): void
  /** A plugin that is a shell script. */
  script(name: string, text: string): void
  /** The addresses that the pool of the network `net` holds. */
  reserved(): string[]
  /** The files of the result cache, by name. */
  cached(): Record<string, Entry>
  remove(): void
}

/** Sets a desk up with the network `net`: a reference bridge and a reference pool, 10.9.0.0/24. */
export function makeDesk(): Desk {
  const dir = mkdtempSync(join(tmpdir(), 'desk-'))
  for (const name of ['conf', 'bin']) mkdirSync(`${dir}/${name}`)
  rmSync('/var/lib/cni', { recursive: true, force: true })
  const usual = { NETCONFPATH: `${dir}/conf`, CNI_PATH: `${dir}/bin:${PLUGINS}` }
  const tool =
    (argv0: readonly string[]) =>
    (node: Namespace, argv: readonly string[], env: Env = {}) =>
      node.exec([...argv0, ...argv], { env: { ...usual, ...env } })
  const desk: Desk = {
    dir,
    plumb: tool([`${DIST}/plumb`, 'cni']),
    cnitool: existsSync(CNITOOL) ? tool([CNITOOL]) : undefined,
    conf: (file, content) => writeFileSync(`${dir}/conf/${file}`, JSON.stringify(content)),
    script: (name, text) => writeFileSync(`${dir}/bin/${name}`, `#!/bin/sh\n${text}\n`, { mode: 0o755 }),
    reserved: () => readdirSync(`${dir}/pool/net`).filter((name) => /^[\d.]+$/.test(name)),
    cached: () =>
      Object.fromEntries(
        filesIn('/var/lib/cni/results').map((file) => [
          file.slice(file.lastIndexOf('/') + 1),
          JSON.parse(readFileSync(file, 'utf8')),
        ]),
      ),
    remove: () => rmSync(dir, { recursive: true }),
  }
  desk.conf('10-net.conflist', netConf(dir))
  return desk
}

/** The configuration of `net`; `more` goes into its bridge. */
export function netConf(dir: string, more: object = {}): object {
  const ipam = { type: 'host-local', subnet: '10.9.0.0/24', dataDir: `${dir}/pool` }
  return {
    cniVersion: '1.0.0',
    name: 'net',
    plugins: [{ type: 'bridge', bridge: 'br9', isGateway: true, ipam, ...more }],
  }
}

function filesIn(dir: string): string[] {
  return existsSync(dir)
    ? readdirSync(dir)
        .sort()
        .map((name) => `${dir}/${name}`)
    : []
}
