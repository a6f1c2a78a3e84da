// lane: quick
// Tests test/agent/policy/isolation/faults.ts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { FAULTS, OFFLOADED_FAULTS } from './faults.ts'

describe('faults for the isolation histories', () => {
  for (const [name, changes] of [...Object.entries(FAULTS), ...Object.entries(OFFLOADED_FAULTS)])
    it(`${name}: what it changes is in the sources, once`, () => {
      for (const { file, text, becomes } of changes) {
        const source = readFileSync(join(import.meta.dir, '../../../..', file), 'utf8')
        assert.equal(source.split(text).length - 1, 1, `${file}: ${text}`)
        assert.notEqual(text, becomes)
      }
    })
})
