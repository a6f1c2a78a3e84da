// lane: quick
// Tests agent/backend.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { Glob } from 'bun'
import { openBackend } from '../../../../agent/backend/open.ts'
import alloc from '../../../../agent/backend/types/alloc.ts'
import { BACKENDS } from '../../../../agent/backend/types/index.ts'
import { testBackend } from '../../../support/suites/testBackend.ts'

testBackend(alloc, false)

describe('alloc', () => {
  it('has no devices of its own', () => assert.deepEqual(alloc.links({}), []))
})

describe('openBackend()', () => {
  it('opens every file of agent/backend/types by its name', async () => {
    const names = [...new Glob('*.ts').scanSync({ cwd: join(import.meta.dir, '../../../../agent/backend/types') })]
      .map((file) => file.replace('.ts', ''))
      .filter((name) => name !== 'index')
    assert.ok(names.includes('alloc') && names.includes('vxlan'), names.join())
    for (const name of names) assert.equal((await openBackend(name)).type, name)
  })
  it('says of flannel’s other types what to use, and of anything else what there is', async () => {
    for (const [type, advice] of Object.entries({
      ipsec: 'use wireguard',
      'tencent-vpc': "use alloc and the cloud's route controller",
      'aws-vpc': "use alloc and the cloud's route controller",
    }))
      await assert.rejects(openBackend(type), {
        name: 'ValueError',
        message: `Cannot use Backend.Type "${type}": not supported, ${advice}`,
      })
    for (const type of ['vxlam', '', 'toString', '../store'])
      await assert.rejects(openBackend(type), {
        name: 'ValueError',
        message: `Cannot read Backend.Type ${JSON.stringify(type)}: want one of ${Object.keys(BACKENDS).join(', ')}`,
      })
  })
})
