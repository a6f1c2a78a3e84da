// lane: quick
// Tests docs/differences.md.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { differences, isParting } from '../plugins/differential/compare.ts'
import { draw, pairsOf, pairwise } from '../plugins/differential/generate.ts'
import { KEYS, sceneOf } from '../plugins/differential/keys.ts'
import { RULES } from '../plugins/differential/rules.ts'

describe('differential tests: wanted differences', () => {
  it('each rule has its row in docs/differences.md, and each row its rule', () => {
    const text = readFileSync(join(import.meta.dir, '../../docs/differences.md'), 'utf8')
    const rows = [...text.matchAll(/^\| `([\w.-]+)` +\|/gm)].map(([, id]) => id)
    assert.deepEqual(rows.sort(), [...new Set(RULES.map(({ id }) => id))].sort())
  })
})

describe('differential tests: generated scenes', () => {
  for (const newer of [true, false])
    it(`${newer ? 'with' : 'without'} new keys: the same for the same seed, every pair of values that can be together, every value, few scenes`, () => {
      const scenes = pairwise(7, newer)
      assert.deepEqual(pairwise(7, newer), scenes)
      const met = new Set(scenes.flatMap(pairsOf))
      assert.deepEqual(
        draw(7, newer)
          .flatMap(pairsOf)
          .filter((pair) => !met.has(pair)),
        [],
      )
      const values = Object.entries(KEYS).flatMap(([key, all]) =>
        all.filter((value) => newer || !value.endsWith('+')).map((value) => `${key} ${value}`),
      )
      const used = new Set(scenes.flatMap((choice) => Object.entries(choice).map(([key, value]) => `${key} ${value}`)))
      assert.deepEqual(
        values.filter((value) => !used.has(value)),
        [],
      )
      assert.ok(scenes.length < 130, `${scenes.length}`)
      assert.equal(new Set(scenes.map((choice) => sceneOf(choice).name)).size, scenes.length)
    })
})

describe('differential tests: differences()', () => {
  const facts = (all: Record<string, string>) => new Map(Object.entries(all))

  it('tells each fact in which the sides differ', () => {
    assert.deepEqual(differences('added', facts({ a: '1', b: '2', c: '3' }), facts({ a: '1', b: '0', d: '4' })), [
      { path: 'added/b', theirs: '2', ours: '0' },
      { path: 'added/c', theirs: '3', ours: undefined },
      { path: 'added/d', theirs: undefined, ours: '4' },
    ])
  })

  it('tells of a link that only one side has nothing but that', () => {
    const veth = {
      'node/dev veth-a/there': 'yes',
      'node/dev veth-a/mtu': '1500',
      'node/dev veth-a/address 10.1.0.1|32/scope': 'global',
    }
    assert.deepEqual(
      differences('none', facts({ ...veth, 'node/dev br0/there': 'yes' }), facts({ 'node/dev br0/there': 'yes' })),
      [{ path: 'none/node/dev veth-a/there', theirs: 'yes', ours: undefined }],
    )
  })

  it('compares of two refusals the codes, and of one the fact alone', () => {
    const [refused, other, works] = [
      facts({ bridge: 'refuses with 999: no' }),
      facts({ bridge: 'refuses with 7: want yes' }),
      facts({ bridge: 'works', 'bridge/form': 'json' }),
    ]
    assert.deepEqual(differences('add a', refused, other), [{ path: 'add a/bridge/code', theirs: '999', ours: '7' }])
    assert.deepEqual(differences('add a', refused, facts({ bridge: 'refuses with 999: not this' })), [])
    const [parting, ...more] = differences('add a', refused, works)
    assert.deepEqual(more, [])
    assert.ok(parting && isParting(parting))
  })
})
