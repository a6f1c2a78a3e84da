// lane: vmlong
// Tests test/agent/policy/isolation/offloaded.ts: histories with flows in the fast path find faults of the agent.
import assert from 'node:assert/strict'
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SEED } from '../../../support/seed.ts'
import { type Change, OFFLOADED_FAULTS } from './faults.ts'
import { loadBridgedFrames } from './histories.ts'
import { work } from './worker.ts'

const ROOT = join(import.meta.dir, '../../../..')
const MOST = Number(process.env['PLUMB_HISTORIES'] ?? 40)

/** Makes a program of the sources with a fault. It runs them as they are, for to build one takes minutes here. */
function plant(changes: readonly Change[]): { readonly dir: string; readonly program: string } {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-planted-'))
  for (const part of ['agent', 'cli', 'docs', 'lib', 'plugins', 'README.md', 'package.json', 'tsconfig.json'])
    cpSync(join(ROOT, part), join(dir, part), { recursive: true })
  symlinkSync(join(ROOT, 'node_modules'), join(dir, 'node_modules'))
  for (const { file, text, becomes } of changes) {
    const pieces = readFileSync(join(dir, file), 'utf8').split(text)
    assert.equal(pieces.length, 2, `${file} has ${pieces.length - 1} times: ${text}`)
    writeFileSync(join(dir, file), pieces.join(becomes))
  }
  const program = join(dir, 'plumb')
  writeFileSync(program, `#!/bin/sh\nexec ${process.execPath} ${join(dir, 'cli/plumb.ts')} "$@"\n`)
  chmodSync(program, 0o755)
  return { dir, program }
}

describe('histories with flows in the fast path find', () => {
  before(loadBridgedFrames)

  for (const [name, changes] of Object.entries(OFFLOADED_FAULTS))
    it(`${name}: within ${MOST} histories`, async function () {
      this.timeout(0)
      const { dir, program } = plant(changes)
      try {
        const all = await work(ROOT, { first: SEED, count: MOST, ms: 24 * 3_600_000, kind: 'offloaded', program })
        const failure = all.at(-1)?.failure
        assert.ok(failure !== undefined, `not found in ${all.length} histories from ${SEED} on`)
        process.stdout.write(`found in ${all.length} histories: ${name}\n${failure.slice(0, 2000)}\n`)
      } finally {
        rmSync(dir, { recursive: true })
      }
    })
})
