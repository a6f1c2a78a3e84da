// lane: quick
// Tests scripts/schemas.ts.
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { schemas } from '../../scripts/schemas.ts'
import { conforms } from '../support/schemas.ts'
import { peers, scripted } from '../support/scripted.ts'

describe('docs/schemas', () => {
  it('has each schema as npm run docs would write it, and no other', () => {
    const all = schemas()
    for (const { file, is, want } of all) assert.equal(is, want, `${file} is not what npm run docs would write`)
    assert.deepEqual(
      readdirSync(join(import.meta.dir, '../../docs/schemas')).sort(),
      all.map(({ file }) => file.replace('docs/schemas/', '')).sort(),
    )
  }).timeout(60_000)

  it('take a status as the agent gives it, and refuse one with another key, another type and without a key', () => {
    const status = JSON.parse(JSON.stringify(scripted({ peers: peers(3) }).status()))
    conforms('status', status)
    const { node: _, ...nameless } = status
    for (const wrong of [{ ...status, more: 1 }, { ...status, mtu: '1450' }, nameless])
      assert.throws(() => conforms('status', wrong))
  })
})
