import assert from 'node:assert/strict'
import { keepTable } from '../../agent/table.ts'
import type { Run } from '../../lib/plugin.ts'

const RULES = 'table inet t {\n\tchain c {\n\t\tip saddr 10.0.0.0/8 return\n\t\tmasquerade\n\t}\n}\n'

/** nft, as far as a table is concerned: what is loaded, and what others make of it. */
function nft(): { run: Run; loads: number; text: string; meddle: ((text: string) => string) | undefined } {
  const kept = { loads: 0, text: '', meddle: undefined as ((text: string) => string) | undefined }
  const run = async (argv: readonly string[], stdin: string) => {
    if (argv[1] === 'list') return { status: 0, stdout: kept.text, stderr: '' }
    kept.loads++
    kept.text = kept.meddle?.(stdin) ?? stdin
    return { status: 0, stdout: '', stderr: '' }
  }
  return Object.assign(kept, { run: run as Run })
}

describe('keepTable()', () => {
  it('loads once, looks only when it is in doubt, and loads again what somebody changed', async () => {
    const [kernel, table] = [nft(), keepTable('t')]
    assert.equal(await table.ensure(RULES, kernel.run), true)
    assert.equal(await table.ensure(RULES, kernel.run), false)
    table.doubt()
    assert.equal(await table.ensure(RULES, kernel.run), false)
    kernel.text = ''
    assert.equal(await table.ensure(RULES, kernel.run), false)
    table.doubt()
    assert.equal(await table.ensure(RULES, kernel.run), true)
    assert.deepEqual([kernel.loads, kernel.text], [2, RULES])
  })
  it('does not take for its own what somebody made of it between the loading and the look: the event of that puts it right', async () => {
    const [kernel, table] = [nft(), keepTable('t')]
    kernel.meddle = (text) => text.replace(/\t\tmasquerade\n/, '')
    await table.ensure(RULES, kernel.run)
    kernel.meddle = undefined
    table.doubt()
    assert.equal(await table.ensure(RULES, kernel.run), true)
    assert.equal(kernel.text, RULES)
    table.doubt()
    assert.equal(await table.ensure(RULES, kernel.run), false)
  })
  it('does not load again and again where nft prints it in other words', async () => {
    const [kernel, table] = [nft(), keepTable('t')]
    kernel.meddle = (text) => text.replace('masquerade', 'something else')
    for (let i = 0; i < 10; i++) {
      table.doubt()
      await table.ensure(RULES, kernel.run)
    }
    assert.equal(kernel.loads, 2)
  })
})
