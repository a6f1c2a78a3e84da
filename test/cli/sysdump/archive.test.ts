// lane: quick
// Tests cli/sysdump/archive.ts.
import assert from 'node:assert/strict'
import { execa } from 'execa'
import { Archive } from '../../../cli/sysdump/archive.ts'

describe('Archive', () => {
  it('is a tar.gz that tar reads, and refuses a file that does not fit', async () => {
    const archive = new Archive('folder', 2000)
    const noise = Buffer.from(Array.from({ length: 4000 }, (_, i) => (i * 7919 + (i >> 3) * 104_729) % 251)).toString(
      'base64',
    )
    assert.deepEqual(
      [
        archive.add('a/b.txt', 'one\n', 1_700_000_000_000),
        archive.add('noise', noise, 0),
        archive.add('empty', '', 0),
        archive.add('blocks', 'x'.repeat(1024), 0),
      ],
      [true, false, true, true],
    )
    assert.ok(archive.bytes().length <= 2000)
    const tar = (...args: string[]) => execa('tar', args, { input: archive.bytes() })
    const { stdout } = await tar('tzf', '-')
    assert.equal(stdout, 'folder/a/b.txt\nfolder/empty\nfolder/blocks')
    assert.equal((await tar('xzOf', '-', 'folder/a/b.txt')).stdout, 'one')
  })
})
