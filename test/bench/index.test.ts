// lane: quick
// Tests bench/index.ts.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { execa } from 'execa'

describe('npm run bench', () => {
  it('loads all its parts outside the tests, and refuses a part that it does not have', async () => {
    const { exitCode, stderr } = await execa(
      process.execPath,
      [join(import.meta.dir, '../../bench/index.ts'), '--only', 'nothing'],
      { reject: false },
    )
    assert.match(stderr, /^bench: there is no part "nothing"\nnpm run bench /)
    assert.equal(exitCode, 1)
  })
})
