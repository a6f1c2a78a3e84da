// lane: quick
// Tests agent/firewall.
import assert from 'node:assert/strict'
import { keepTable, type Table } from '../../../agent/firewall/table.ts'
import type { Run } from '../../../lib/os/run.ts'

const RULES = 'table inet t {\n\tchain c {\n\t\tip saddr 10.0.0.0/8 return\n\t\tmasquerade\n\t}\n}\n'

/** nft, as far as a table is concerned: what is loaded, what others make of it, and the kernel's count of changes. */
interface Kernel {
  loads: number
  changes: number
  text: string
  /** What others do right after a load. */
  meddle: ((text: string) => string) | undefined
  /** How nft prints it. */
  words(text: string): string
  readonly run: Run
  change(text: string): void
}

function nft(): { kernel: Kernel; table: Table } {
  const kept: Kernel = {
    loads: 0,
    changes: 7,
    text: '',
    meddle: undefined,
    words: (text) => text,
    run: (async (argv: readonly string[], stdin: string) => {
      if (argv[1] === 'list') return { status: kept.text === '' ? 1 : 0, stdout: kept.words(kept.text), stderr: '' }
      kept.loads++
      kept.changes++
      kept.text = stdin
      if (kept.meddle) kept.change(kept.meddle(kept.text))
      return { status: 0, stdout: '', stderr: '' }
    }) as Run,
    change(text) {
      kept.changes++
      kept.text = text
    },
  }
  return { kernel: kept, table: keepTable('t', () => kept.changes) }
}

const WANTED = { over: RULES, whole: `# anew\n${RULES}`, parts: ['chain c'] }

describe('keepTable()', () => {
  it('loads once, looks only when it is stale, and loads again what somebody changed', async () => {
    const { kernel, table } = nft()
    assert.equal(await table.ensure(WANTED, kernel.run), true)
    assert.equal(await table.ensure(WANTED, kernel.run), false)
    table.invalidate()
    assert.equal(await table.ensure(WANTED, kernel.run), false)
    kernel.change('')
    assert.equal(await table.ensure(WANTED, kernel.run), false)
    table.invalidate()
    assert.equal(await table.ensure(WANTED, kernel.run), true)
    assert.deepEqual([kernel.loads, kernel.text], [2, RULES])
  })
  it('does not take for its own what somebody made of it between the loading and the look', async () => {
    const { kernel, table } = nft()
    kernel.meddle = (text) => {
      kernel.meddle = undefined
      return text.replace(/\t\tmasquerade\n/, '')
    }
    await table.ensure(WANTED, kernel.run)
    assert.deepEqual([kernel.loads, kernel.text], [2, RULES])
    table.invalidate()
    assert.equal(await table.ensure(WANTED, kernel.run), false)
  })
  it('loads what was removed between the loading and the look when it is asked again', async () => {
    const { kernel, table } = nft()
    kernel.meddle = () => ''
    await table.ensure(WANTED, kernel.run)
    kernel.meddle = undefined
    table.invalidate()
    assert.equal(await table.ensure(WANTED, kernel.run), true)
    assert.equal(kernel.text, RULES)
  })
  it('loads it again where there is more than what is wanted, or where it cannot be loaded over what there is', async () => {
    for (const isRefused of [false, true]) {
      const { kernel, table } = nft()
      const run = async (argv: readonly string[], stdin: string) =>
        isRefused && stdin === WANTED.over ? { status: 1, stdout: '', stderr: 'no' } : kernel.run(argv, stdin, 'host')
      kernel.meddle = (text) => (text === WANTED.over ? `${text.slice(0, -2)}\tchain other {\n\t}\n}\n` : text)
      await table.ensure(WANTED, run)
      assert.equal(kernel.text, WANTED.whole)
    }
  })
  it('does not load again and again where nft prints it in other words, or where others change rules all the time', async () => {
    const { kernel, table } = nft()
    kernel.words = (text) => text.replace('masquerade', 'something else')
    for (let i = 0; i < 10; i++) {
      table.invalidate()
      await table.ensure(WANTED, kernel.run)
    }
    assert.equal(kernel.loads, 1)
    const busy = nft()
    busy.kernel.meddle = (text) => text
    for (let i = 0; i < 10; i++) {
      busy.table.invalidate()
      await busy.table.ensure(WANTED, busy.kernel.run)
    }
    assert.ok(busy.kernel.loads <= 5, `${busy.kernel.loads}`)
  })
})
