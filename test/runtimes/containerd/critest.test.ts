// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { globSync, mkdtempSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { critest } from '../../../scripts/peers.ts'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd, VERSIONS } from '../../support/containerd.ts'
import { IMAGE, WEB_IMAGE } from '../../support/image.ts'
import { skip } from '../../support/skip.ts'
import { network } from './web.ts'

// Where a runtime puts the pods of who names no cgroup.
const CGROUPS = ['/sys/fs/cgroup/k8s.io', '/sys/fs/cgroup/*/k8s.io']
const before = globSync(CGROUPS)
after(() => {
  for (const made of globSync(CGROUPS)) if (!before.includes(made)) rmdirSync(made)
})

describe("Kubernetes' own tests of a runtime, critest, over plumb", () => {
  for (const version of VERSIONS)
    it(`containerd ${version}: all of Networking and of PodSandbox pass, and leave nothing`, async function () {
      const program = critest()
      if (!program) skip(this, 'critest was not built: bun scripts/peers.ts critest does that, where Go is new enough')
      await onContainerd({ conf: network(), version }, async ({ node, containerd }) => {
        const dir = mkdtempSync('/run/critest-')
        writeFileSync(join(dir, 'images'), `defaultTestContainerImage: ${IMAGE}\nwebServerTestImage: ${WEB_IMAGE}\n`)
        const endpoint = `unix://${containerd.socket}`
        // 1.6 answers with an error to the stop of a sandbox that never was: that is its own.
        const skipped = version === 1 ? ['--ginkgo.skip=Idempotence'] : []
        const { status, stdout } = await node.exec(
          [
            program.path,
            ...skipped,
            `--runtime-endpoint=${endpoint}`,
            `--image-endpoint=${endpoint}`,
            `--test-images-file=${join(dir, 'images')}`,
            '--ginkgo.no-color',
            '--ginkgo.focus=Networking|PodSandbox',
          ],
          {
            env: { HOME: dir },
          },
        )
        assert.equal(status, 0, stdout.slice(-3000))
        const [, passed = 0, failed] = /(\d+) Passed \| (\d+) Failed/.exec(stdout) ?? []
        assert.ok(Number(passed) >= 8, `${passed} tests ran`)
        assert.equal(failed, '0')
        assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
      }).call(this)
    })
})
