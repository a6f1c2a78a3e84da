// lane: quick
// Tests agent/node.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { slim } from '../../../agent/node/garbage.ts'

describe('pages of memory', () => {
  it('slim() gives back the pages of the program that were read from its file, and it goes on', () => {
    const before = fromFiles()
    slim()
    const after = fromFiles()
    assert.ok(after < before - 4096, `${before} kB, then ${after} kB`)
    assert.deepEqual(
      JSON.parse(
        JSON.stringify({ text: 'ä'.normalize('NFD').normalize(), bytes: [...Bun.gzipSync('again')].length > 0 }),
      ),
      { text: 'ä', bytes: true },
    )
  })
})

/** Pages of files that this process has mapped, in kB. */
function fromFiles(): number {
  return Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1])
}
