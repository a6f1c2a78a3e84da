// lane: quick
// Tests cli/demo.
import assert from 'node:assert/strict'
import { wishOf } from '../../../cli/demo/wish.ts'

const [pods, file, etcd] = [{ name: 'pods' }, { name: 'nodes', store: 'file' }, { name: 'nodes', store: 'etcd' }]

describe('wishOf() of plumb demo', () => {
  for (const [argv, stories, isStoreNamed] of [
    ['', [pods, file, etcd], false],
    ['pods', [pods], false],
    ['nodes', [file, etcd], false],
    ['nodes --store file', [file], true],
    ['--store=etcd nodes', [etcd], true],
    ['--store etcd', [etcd], true],
  ] as const)
    it(`takes ${JSON.stringify(argv)} for ${stories.map(({ name, ...more }) => Object.values({ name, ...more }).join(' on ')).join(', ')}`, () =>
      assert.deepEqual(wishOf(argv.split(' ').filter(Boolean)), { stories, isStoreNamed }))

  it('takes --help, whatever else there is', () => assert.equal(wishOf(['nodes', '--help']), 'help'))
})
