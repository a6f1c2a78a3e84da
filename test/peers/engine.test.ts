// Tests scripts/engine.ts: the executable of the plugins is made again, from the sources of the engine on.
import assert from 'node:assert/strict'
import { cpSync, globSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { sha256 } from '../../scripts/archive.ts'
import { CACHE } from '../../scripts/engine.ts'
import { DIST } from './tool.ts'

const ROOT = join(import.meta.dir, '../..')
const MAKE = `
const { compilePlugins } = await import('./scripts/engine.ts')
const { plugins } = await import('./scripts/build.ts')
await compilePlugins(process.argv.at(-1), plugins(), process.arch)
`

describe('the executable of the plugins', () => {
  it('is bit for bit the same when everything is compiled again, in another folder and another environment', async function () {
    this.timeout(240_000)
    const dir = mkdtempSync(join(tmpdir(), 'plumb-engine-'))
    try {
      // The sources are downloaded once. pip checks their hash then.
      for (const source of globSync(join(CACHE, 'source-*'))) cpSync(source, join(dir, basename(source)), { recursive: true })
      const env = { PLUMB_ENGINE: dir, TMPDIR: dir, HOME: dir, LC_ALL: 'C', TZ: 'Asia/Tokyo' }
      await execa('sh', ['-c', 'umask 077; exec "$@"', 'sh', process.execPath, '-e', MAKE, join(dir, 'made')], { cwd: ROOT, env })
      assert.ok(readdirSync(dir).some((name) => name.startsWith(`objects-${process.arch}-`)))
      assert.equal(sha256(readFileSync(join(dir, 'made'))), sha256(readFileSync(join(DIST, 'bridge'))))
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})
