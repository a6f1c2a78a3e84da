import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../archive.ts'
import { RUNTIMES } from './runtime.ts'

/** An entry of package-lock.json. */
interface Locked {
  readonly version: string
  readonly license?: string
  readonly integrity?: string
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
}
/**
 * The engine of the plugins, as native/requirements.txt pins it. Its tables of Unicode have a licence of their own, and
 * the C library is linked in.
 */
function engine(): { readonly 'bom-ref': string; readonly [key: string]: unknown } {
  const [, name = '', version = '', hash = ''] =
    /^([\w-]+)==([\w.]+) --hash=sha256:([\da-f]+)$/m.exec(
      readFileSync(join(import.meta.dir, '../../native/requirements.txt'), 'utf8'),
    ) ?? []
  return {
    'bom-ref': `${name}@${version}`,
    type: 'library',
    name,
    version,
    scope: 'required',
    purl: `pkg:pypi/${name}@${version}`,
    hashes: [{ alg: 'SHA-256', content: hash }],
    licenses: [{ expression: 'MIT AND Unicode-3.0' }],
  }
}

/** The licence of Bun, whose packages name none in package-lock.json. */
const BUN = 'MIT'

/**
 * The bill of materials (CycloneDX 1.5): the packages of npm that are compiled into an executable, Bun, and the engine
 * of the plugins. That of the plugins alone has the packages `plugins`, and no Bun. It comes from package-lock.json,
 * because `npm sbom --omit dev` of npm 11 leaves out packages that a developer's tool needs too. The same commit gives
 * the same text: the date is the commit's, and the serial number follows from the content. Throws Error for a package
 * that is not locked.
 */
export function sbom(epoch: number, plugins?: readonly string[]): string {
  const locked: Readonly<Record<string, Locked>> = JSON.parse(
    readFileSync(join(import.meta.dir, '../../package-lock.json'), 'utf8'),
  ).packages
  const found = new Map<string, string[]>()
  const root = plugins ? plugins.map((name) => place(name, '', locked)) : visit('', locked, found)
  const runtimes = plugins ? [] : RUNTIMES.map((name) => place(name, '', locked))
  for (const path of root) visit(path, locked, found)
  for (const path of runtimes) found.set(path, [])
  const paths = [...found.keys()].filter((path) => path !== '').sort()
  const refs = (all: readonly string[]) => all.map((path) => refOf(path, locked)).sort()
  const document = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      timestamp: new Date(epoch * 1000).toISOString(),
      component: { ...component('', locked), name: plugins ? 'plumb-plugins' : 'plumb', type: 'application' },
    },
    components: [...paths.map((path) => component(path, locked)), engine()],
    dependencies: [
      { ref: refOf('', locked), dependsOn: [...refs([...root, ...runtimes]), engine()['bom-ref']].sort() },
      { ref: engine()['bom-ref'], dependsOn: [] },
      ...paths.map((path) => ({ ref: refOf(path, locked), dependsOn: refs(found.get(path) ?? []) })),
    ],
  }
  const hash = sha256(JSON.stringify(document))
  // A UUID of version 8 is free for the content to give (RFC 9562).
  const uuid = `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`
  return `${JSON.stringify({ $schema: 'http://cyclonedx.org/schema/bom-1.5.schema.json', ...document, serialNumber: `urn:uuid:${uuid}` }, null, 2)}\n`
}

// Notes what the package at a path needs, and what that needs.
function visit(path: string, locked: Readonly<Record<string, Locked>>, found: Map<string, string[]>): string[] {
  const known = found.get(path)
  if (known) return known
  const { dependencies = {}, peerDependencies = {}, peerDependenciesMeta = {} } = locked[path] as Locked
  const peers = Object.keys(peerDependencies).filter((name) => !peerDependenciesMeta[name]?.optional)
  const needs = [...new Set([...Object.keys(dependencies), ...peers])].map((name) => place(name, path, locked))
  found.set(path, needs)
  for (const one of needs) visit(one, locked, found)
  return needs
}

// The nearest node_modules that has the package, as Node looks for it.
function place(name: string, from: string, locked: Readonly<Record<string, Locked>>): string {
  for (let dir = from; ; dir = dir.slice(0, Math.max(dir.lastIndexOf('/node_modules/'), 0))) {
    const path = `${dir ? `${dir}/` : ''}node_modules/${name}`
    if (locked[path]) return path
    if (dir === '') throw new Error(`Cannot list what plumb is made of: package-lock.json has no ${name}`)
  }
}

function nameOf(path: string): string {
  return path === '' ? 'plumb' : path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
}

function refOf(path: string, locked: Readonly<Record<string, Locked>>): string {
  return `${nameOf(path)}@${locked[path]?.version}`
}

function component(path: string, locked: Readonly<Record<string, Locked>>): object {
  const { version, license, integrity } = locked[path] as Locked
  const [name, isBun] = [nameOf(path), RUNTIMES.includes(nameOf(path))]
  return {
    'bom-ref': refOf(path, locked),
    type: isBun ? 'platform' : 'library',
    name,
    version,
    scope: 'required',
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    ...(integrity && {
      hashes: [{ alg: 'SHA-512', content: Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex') }],
    }),
    // An expression of SPDX; one identifier is an expression too.
    licenses: [{ expression: license ?? (isBun ? BUN : 'NOASSERTION') }],
  }
}
