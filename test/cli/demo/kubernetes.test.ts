// lane: kubernetes
// Tests cli/demo/kubernetes.ts.
import assert from 'node:assert/strict'
import { globSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { missing } from '../../../tools/k8s/lab.ts'
import { skip } from '../../support/skip.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')

describe('plumb demo kubernetes', function () {
  this.timeout(400_000)

  it('makes a cluster whose pods talk, draws the matrix, and leaves nothing on the machine', async function () {
    const why = missing()
    if (why !== undefined) skip(this, why)
    const before = globSync('/tmp/plumb-demo-*').length
    const { stdout, exitCode } = await execa(PLUMB, ['demo', 'kubernetes'], { reject: false })
    assert.equal(exitCode, 0, stdout)
    assert.match(stdout, /18 of 18 answered/)
    assert.match(stdout, /web-n3 +ok \/ ok +ok \/ ok +ok \/ ok/)
    assert.deepEqual([globSync('/sys/fs/cgroup/*/k8s-*'), globSync('/tmp/plumb-demo-*').length], [[], before])
  })
})
