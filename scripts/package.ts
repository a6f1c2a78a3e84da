import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { zstdCompressSync } from 'bun'
import { version } from '../package.json'
import { archive, sha256, sourceDate } from './archive.ts'
import { qemuFor } from './arm64.ts'
import { compile, plugins } from './build.ts'
import { compilePlugins } from './engine.ts'
import { fill } from './package/contents.ts'
import { deb } from './package/deb.ts'
import { manual } from './package/man.ts'
import type { Order } from './package/order.ts'
import { ARCHITECTURES, rpm } from './package/rpm.ts'
import { runtime } from './package/runtime.ts'
import { sbom } from './package/sbom.ts'
import { install } from './packages.ts'

// Makes the packages of plumb: .tar.zst, .deb and .rpm for each architecture, their checksums and a bill of materials. The same commit gives
// the same bytes.

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
  const materials = sbom(epoch)
  const draft = mkdtempSync(join(tmpdir(), 'plumb-package-'))
  const done = join(draft, 'done')
  try {
    mkdirSync(done)
    writeFileSync(join(done, `plumb-${version}.cdx.json`), materials)
    for (const arch of architectures) {
      const [folder, root] = [join(draft, arch), join(draft, arch, 'root')]
      mkdirSync(folder)
      const plumb = join(folder, 'plumb')
      const engine = join(folder, 'plugins')
      await compilePlugins(engine, plugins(), RUNTIMES[arch], RUNTIMES[arch] === process.arch ? {} : { emulator: await qemuFor(RUNTIMES[arch]) })
      await compile(plumb, await runtime(RUNTIMES[arch]), engine)
      const order: Order = { arch, version, epoch, paths: fill(root, { plumb, sbom: materials, manual: pages, epoch }) }
      await archive(root, join(folder, 'plumb.tar'), epoch)
      writeFileSync(join(done, `plumb-${version}-linux-${arch}.tar.zst`), zstdCompressSync(readFileSync(join(folder, 'plumb.tar')), { level: LEVEL }))
      await rpm(root, join(done, `plumb-${version}.${ARCHITECTURES[arch]}.rpm`), order)
      await deb(root, join(done, `plumb_${version}_${arch}.deb`), order)
      rmSync(folder, { recursive: true })
    }
    publish(done, out)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
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
  if (name !== 'amd64' && name !== 'arm64') throw new Error(`Cannot make packages for ${JSON.stringify(name)}: want ${Object.keys(RUNTIMES).join(' or ')}`)
  return name
}

try {
  await main()
} catch (cause) {
  const { stderr, message } = cause as Error & { stderr?: string }
  process.stderr.write(`package: ${stderr || message}\n`)
  process.exitCode = 1
}
