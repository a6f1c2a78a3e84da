// lane: netns
// Tests lib/journal.
import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces } from '../../support/harness.ts'
import { mappings, portNetwork, works } from '../../support/host-ports.ts'
import { skip } from '../../support/skip.ts'

const STRACE = '/usr/bin/strace'
const DIST = join(import.meta.dir, '../../../dist')
const SAID = /^plumb: Cannot tell whether an earlier call still runs; continuing without it: fcntl: errno 37$/m

describe('where the kernel gives out no locks', () => {
  before(function () {
    if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which makes a system call fail`)
  })

  it(
    'bridge and portmap: ADD works, DEL removes all the same, and both say that they could not wait for an earlier call',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const dir = mkdtempSync('/run/strace-')
      for (const type of ['bridge', 'portmap']) {
        writeFileSync(
          join(dir, type),
          `#!/bin/sh\nexec ${STRACE} -qq -o /dev/null -e trace=fcntl -e inject=fcntl:error=ENOLCK ${join(DIST, type)}\n`,
        )
        chmodSync(join(dir, type), 0o755)
      }
      const net = portNetwork(node)
      const prevResult = await net.add(pod, [])
      const given = { prevResult, runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80 }] } }
      const more = { file: join(dir, 'portmap') }
      assert.match(works(await net.call('ADD', pod, given, more)).stderr, SAID)
      assert.equal((await mappings(node)).length, 2)
      assert.match(works(await net.call('DEL', pod, {}, more)).stderr, SAID)
      assert.deepEqual(await mappings(node), [])
      const bridge = { conf: net.bridge, file: join(dir, 'bridge') }
      assert.match(works(await net.call('DEL', pod, {}, bridge)).stderr, SAID)
      assert.match(works(await net.call('ADD', pod, {}, bridge)).stderr, SAID)
      await net.del(pod)
    }),
  )
})
