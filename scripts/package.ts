import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { zstdCompressSync } from 'bun'
import { version } from '../package.json'
import { archive, sha256, sourceDate } from './archive.ts'
import { qemuFor } from './arm64.ts'
import { compile, plugins } from './build.ts'
import { compilePlugins, packagesOf } from './engine.ts'
import { FLAT, fill, fillBgp, fillPlugins, glibc, PACKAGE } from './package/contents.ts'
import { deb } from './package/deb.ts'
import { bgp, pluginsAlone, suite } from './package/identity.ts'
import { manual } from './package/man.ts'
import type { Order } from './package/order.ts'
import { ARCHITECTURES, rpm } from './package/rpm.ts'
import { runtime } from './package/runtime.ts'
import { sbom } from './package/sbom.ts'
import { install } from './packages.ts'
import { PLUGINS as REFERENCE } from './peers.ts'

// Makes the packages of plumb, and those of the plugins alone: .tar.zst, .deb and .rpm for each architecture, their
// checksums and bills of materials. The same commit gives the same bytes.

const ROOT = join(import.meta.dir, '..')
const RUNTIMES = { amd64: 'x64', arm64: 'arm64' } as const
/** The level of zstd. Level 19 takes minutes and saves a twelfth. */
const LEVEL = 10

/** Makes the packages, and prints a line for each. Throws Error. */
async function main(): Promise<void> {
  const { values } = parseArgs({ options: { out: { type: 'string' }, arch: { type: 'string', multiple: true } } })
  const out = values.out ?? join(ROOT, 'out')
  const architectures = (values.arch ?? Object.keys(RUNTIMES)).map(architectureOf)
  await install([
    { name: 'dpkg', shows: 'dpkg-deb', why: 'npm run package makes .deb packages with it' },
    { name: 'rpm', shows: 'rpmbuild', why: 'npm run package makes .rpm packages with it' },
  ])
  const epoch = await sourceDate()
  const pages = await manual(join(ROOT, 'dist/plumb'), { version, epoch })
  const names = plugins()
  const [materials, ofPlugins] = [sbom(epoch), sbom(epoch, packagesOf(names))]
  const draft = mkdtempSync(join(tmpdir(), 'plumb-package-'))
  const done = join(draft, 'done')
  try {
    mkdirSync(done)
    writeFileSync(join(done, `plumb-${version}.cdx.json`), materials)
    writeFileSync(join(done, `plumb-plugins-${version}.cdx.json`), ofPlugins)
    for (const arch of architectures) {
      const folder = join(draft, arch)
      const below = (name: string) => join(folder, name)
      mkdirSync(folder)
      const [plumb, engine] = [below('plumb'), below('plugins')]
      await compilePlugins(
        engine,
        names,
        RUNTIMES[arch],
        RUNTIMES[arch] === process.arch ? {} : { emulator: await qemuFor(RUNTIMES[arch]) },
      )
      await compile(plumb, await runtime(RUNTIMES[arch]), engine)
      const alone = { engine, names, sbom: ofPlugins, epoch }
      const [all, own, flat] = [below('all'), below('own'), below('flat')]
      const order = { arch, version, epoch }
      fillPlugins(flat, FLAT, alone)
      await pack(
        done,
        { ...order, identity: suite(glibc(plumb)), paths: fill(all, { plumb, sbom: materials, manual: pages, epoch }) },
        { files: all },
      )
      await pack(
        done,
        { ...order, identity: pluginsAlone(REFERENCE), paths: fillPlugins(own, PACKAGE, alone) },
        { files: own, archived: flat },
      )
      const withBird = below('bgp')
      await packages(done, { ...order, identity: bgp(), paths: fillBgp(withBird, epoch) }, withBird)
      rmSync(folder, { recursive: true })
    }
    publish(done, out)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

// Makes the three formats. `files` is the root of the packages, and `archived` that of the archive when it differs.
async function pack(
  done: string,
  order: Order,
  { files, archived = files }: { files: string; archived?: string },
): Promise<void> {
  const { identity, arch, epoch } = order
  const [name, tar] = [identity.name, `${files}.tar`]
  await archive(archived, tar, epoch)
  writeFileSync(
    join(done, `${name}-${version}-linux-${arch}.tar.zst`),
    zstdCompressSync(readFileSync(tar), { level: LEVEL }),
  )
  await packages(done, order, files)
}

async function packages(done: string, order: Order, files: string): Promise<void> {
  const { identity, arch } = order
  const { name } = identity
  await rpm(files, join(done, `${name}-${version}.${ARCHITECTURES[arch]}.rpm`), order)
  await deb(files, join(done, `${name}_${version}_${arch}.deb`), order)
}

// Writes each file under another name first, because the folder may lie on another file system.
function publish(from: string, out: string): void {
  mkdirSync(out, { recursive: true })
  const files = readdirSync(from).sort()
  const sums = files.map((file) => `${sha256(readFileSync(join(from, file)))}  ${file}`)
  writeFileSync(join(from, 'SHA256SUMS'), `${sums.join('\n')}\n`)
  for (const file of [...files, 'SHA256SUMS']) {
    const to = join(out, file)
    writeFileSync(`${to}.draft`, readFileSync(join(from, file)))
    renameSync(`${to}.draft`, to)
    process.stdout.write(`${relative('.', to)}: ${(statSync(to).size / 1e6).toFixed(1)} MB\n`)
  }
}

function architectureOf(name: string): keyof typeof RUNTIMES {
  if (name !== 'amd64' && name !== 'arm64')
    throw new Error(`Cannot make packages for ${JSON.stringify(name)}: want ${Object.keys(RUNTIMES).join(' or ')}`)
  return name
}

try {
  await main()
} catch (cause) {
  const { stderr, message } = cause as Error & { stderr?: string }
  process.stderr.write(`package: ${stderr || message}\n`)
  process.exitCode = 1
}
