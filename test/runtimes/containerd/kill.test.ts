// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { type Held, tapped } from '../../support/call-log.ts'
import { remains } from '../../support/container-leftovers.ts'
import { type Containerd, onContainerd, VERSIONS } from '../../support/containerd.ts'
import type { Namespace } from '../../support/harness.ts'
import { leavesNothing, network, TYPES, WEB } from './web.ts'

const POINTS = [
  ['loopback', 'before'],
  ['bridge', 'before'],
  ['bridge', 'after'],
  ['portmap', 'before'],
  ['portmap', 'after'],
] as const

for (const version of VERSIONS)
  describe(`containerd ${version}, killed with SIGKILL in the middle of RunPodSandbox and started again`, () => {
    for (const [type, when] of POINTS)
      it(
        `${when} the ADD of ${type}, which goes on alone: the sandbox is there, it is removed, and nothing stays`,
        killedAt(type, when, version, async (held, containerd) => {
          await held.release()
          await containerd.start()
          assert.equal((await containerd.list()).length, 1)
        }),
      )

    it(
      'before the ADD of bridge, which begins when the sandbox has been removed: it leaves nothing',
      killedAt('bridge', 'before', version, async (held, containerd, node) => {
        await containerd.start()
        await containerd.away(...(await containerd.list()))
        await held.release()
        assert.deepEqual(await remains(node, 'up0'), [])
      }),
    )
  })

/** A test that kills it there; `then` starts it again. */
function killedAt(
  type: string,
  when: 'before' | 'after',
  version: (typeof VERSIONS)[number],
  then: (held: Held, containerd: Containerd, node: Namespace) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return async function (this: Mocha.Context) {
    const tap = tapped(TYPES)
    await onContainerd({ conf: network(), bin: tap.bin, version }, async ({ node, containerd }) => {
      const held = tap.hold(type, 'ADD', when)
      const running = assert.rejects(containerd.run('web', WEB))
      await held.reached()
      await containerd.kill()
      await running
      await then(held, containerd, node)
      await leavesNothing(containerd, node)
    }).call(this)
  }
}
