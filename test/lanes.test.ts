// lane: quick
// Tests test/lanes.ts.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isMeant, laneOf, type TestFile, testFiles } from './lanes.ts'

const LIVE: TestFile = {
  path: 'test/agent/policy/live.test.ts',
  lane: 'long',
  name: 'long/agent/policy/live',
}

describe('the lane of a test file', () => {
  it('is what its first line says, and nothing else', () => {
    assert.equal(laneOf('// lane: netns\n// Tests lib/os.\n'), 'netns')
    for (const text of [
      '',
      '// Tests lib/os.\n// lane: netns\n',
      '// lane: fast\n',
      '// lane: netns vm\n',
      ' // lane: vm\n',
    ])
      assert.equal(laneOf(text), undefined, text)
  })

  it('is required: the files without one are named', () => {
    const root = mkdtempSync(join(tmpdir(), 'plumb-lanes-'))
    try {
      mkdirSync(join(root, 'test/lib'), { recursive: true })
      writeFileSync(join(root, 'test/lib/one.test.ts'), '// lane: vm\n')
      assert.deepEqual(testFiles(root), [{ path: 'test/lib/one.test.ts', lane: 'vm', name: 'vm/lib/one' }])
      writeFileSync(join(root, 'test/lib/two.test.ts'), '// lane: fast\n')
      assert.throws(
        () => testFiles(root),
        /^Error: Cannot read the lane of test\/lib\/two\.test\.ts: the first line must be/,
      )
    } finally {
      rmSync(root, { recursive: true })
    }
  })
})

describe('a word of `npm test`', () => {
  for (const word of [
    'policy',
    'long/agent/policy/live',
    'test/agent/policy/live.test.ts',
    './test/agent/policy/live.test.ts',
    'long/agent-policy',
    'long/policy-live',
    'long/live.test',
    'agent/policy',
  ])
    it(`${word} means ${LIVE.name}`, () => assert.ok(isMeant(LIVE, word)))
  for (const word of ['netns/agent-policy', 'long/services', 'quick', 'live/policy'])
    it(`${word} does not mean ${LIVE.name}`, () => assert.ok(!isMeant(LIVE, word)))
  it('unit is another word for quick', () =>
    assert.ok(isMeant({ path: 'test/lib/text/ip.test.ts', lane: 'quick', name: 'quick/lib/text/ip' }, 'unit/ip')))
})
