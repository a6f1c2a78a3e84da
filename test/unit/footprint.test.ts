import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { fetchHuge, slim } from '../../agent/footprint.ts'
import { skip } from '../skip.ts'

describe('pages of memory', () => {
  let dir = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-footprint-'))
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('slim() gives back the pages of the program that were read from its file, and it goes on', () => {
    const before = fromFiles()
    slim()
    const after = fromFiles()
    assert.ok(after < before - 4096, `${before} kB, then ${after} kB`)
    assert.deepEqual(JSON.parse(JSON.stringify({ text: 'ä'.normalize('NFD').normalize(), bytes: [...Bun.gzipSync('again')].length > 0 })), { text: 'ä', bytes: true })
  })

  it('fetchHuge() has the kernel read a file', async function () {
    const path = join(dir, 'file')
    writeFileSync(path, Buffer.alloc(5_000_000, 7))
    await execa('dd', [`of=${path}`, 'conv=notrunc,fsync', 'oflag=nocache', 'count=0', 'if=/dev/null'])
    if ((await cached(path)) > 0) skip(this, 'this file system keeps its files in memory')
    fetchHuge(path)
    assert.ok((await cached(path)) >= 5_000_000)
    assert.ok(readFileSync(path).equals(Buffer.alloc(5_000_000, 7)))
  })

  it('fetchHuge() leaves it to others to say what is wrong with a file', () => {
    for (const path of [join(dir, 'none'), dir, '/dev/null', '/proc/self/mem']) fetchHuge(path)
  })
})

/** Pages of files that this process has mapped, in kB. */
function fromFiles(): number {
  return Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1])
}

/** How much of a file is in memory, in bytes. */
async function cached(path: string): Promise<number> {
  return Number((await execa('fincore', ['--bytes', '--noheadings', '--output', 'RES', path])).stdout)
}
