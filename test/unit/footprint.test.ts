// Tests agent/node.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { fetchHuge, pageFaults, slim, watchPages } from '../../agent/node/memory-pages.ts'
import { markdown, pagesOf } from '../../bench/report.ts'
import { until } from '../support/harness.ts'
import { skip } from '../support/skip.ts'

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

  // A program that starts another for each 50 page faults and more.
  const plugin = (faults: number) => writeFileSync(join(dir, 'loopback'), `#!/bin/sh\n${'/bin/true\n'.repeat(faults / 50)}`, { mode: 0o755 })

  it('[FP15] watchPages() says once when plugins lie in small pages, and once when they do so no longer', async () => {
    const [said, end]: [string[], AbortController] = [[], new AbortController()]
    plugin(0)
    watchPages(join(dir, 'loopback'), (text) => said.push(text), end.signal, 10)
    try {
      plugin(2000)
      await until(() => said.length === 1, 30_000)
      assert.match(said[0] ?? '', /^agent: the plugins lie in small pages of memory, .*plumb install --rewrite .* starts with \d+ page faults$/)
      plugin(0)
      await until(() => said.length === 2, 30_000)
      assert.match(said[1] ?? '', /large pages of memory again/)
    } finally {
      end.abort()
    }
    rmSync(join(dir, 'loopback'))
    assert.equal(pageFaults(join(dir, 'loopback')), undefined)
  })

  it('[FP15] a table of the bench has the page faults of each program beside it', () => {
    plugin(2000)
    const sides = [
      { name: 'plumb', dir, ours: true },
      { name: 'reference 1.1.1', dir: join(dir, 'none'), ours: false },
    ]
    const pages = pagesOf(sides)
    assert.match(pages, /^Minor page faults of a VERSION: \d{4,} of plumb \(small pages\), unknown of reference 1\.1\.1\.$/)
    assert.ok(markdown({ title: 'T', method: 'M', head: ['a'], rows: [['1']], bars: [] }, pages).endsWith(`| 1   |\n\n${pages}\n`))
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
