import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { flanneld, PLUGINS, references } from '../../scripts/peers.ts'
import { KUBE_PROXY } from '../agent/services-fixture.ts'
import type { Contender } from './nodes.ts'

/** plumb as it was built last, with these arguments of its agent more. */
export function ours(flags: readonly string[] = []): Contender {
  const name = ['plumb', ...flags].join(' ')
  return { name, flags, plugins: { name, dir: join(import.meta.dir, '../../dist'), ours: true } }
}

/** What a node has without plumb. Undefined with the reason where a part of it was not built. */
export function theirs(): { readonly contender: Contender } | { readonly missing: string } {
  const plugins = references().find(({ version }) => version === PLUGINS)
  const daemon = flanneld()
  if (!plugins) return { missing: `the reference plugins ${PLUGINS} (\`node_modules/.bin/bun scripts/peers.ts\`)` }
  if (!daemon) return { missing: 'flanneld (`node_modules/.bin/bun scripts/peers.ts flanneld`)' }
  if (!existsSync(KUBE_PROXY)) return { missing: 'kube-proxy (`node_modules/.bin/bun tools/k8s/build.ts proxy`)' }
  const name = `flanneld ${daemon.version}`
  return { contender: { name, flags: [], plugins: { name: `reference ${PLUGINS}`, dir: plugins.path, ours: false } } }
}
