// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import { testRefusals } from '../support/kernel-limits.ts'
import { CHAIN, clear, onStage, SCENES, type Scene, unchanged } from '../support/plugin-scenes.ts'

/** What is wrong with the node, as shell commands in a plugin's mounts, and what the error says. */
const NODES: Readonly<Record<string, readonly [before: string, said: RegExp]>> = {
  '/run is read-only': ['mount -o remount,bind,ro /run/cni', /\/run\/cni\/plumb.*EROFS|EROFS.*\/run\/cni\/plumb/],
  '/run has no inodes': ['mount -t tmpfs -o nr_inodes=1 tmpfs /run/cni', /\/run\/cni.*ENOSPC|ENOSPC.*\/run\/cni/],
}

describe('a node with nothing left', () => {
  for (const [what, [before, said]] of Object.entries(NODES))
    it(`${what}: ADD of every plugin says so, with code 5, and leaves nothing; DEL works all the same`, async function () {
      this.timeout(280_000)
      for (const scene of Object.values(SCENES))
        await onStage(scene, (stage) => tried(stage, before, said, what)).call(this)
    })

  // A sample: `npm run test:storm` has all of them.
  testRefusals(SCENES[CHAIN] as Scene, 'chained', ['portmap'], ['ENOSPC'])
})

async function tried(
  stage: Parameters<typeof unchanged>[0],
  before: string,
  said: RegExp,
  what: string,
): Promise<void> {
  const fresh = await stage.look()
  for (const [at, { type }] of stage.confs.entries()) {
    const given = await stage.addUpTo(at)
    const middle = await stage.look()
    const answer = await stage.call('ADD', at, given, {}, before)
    // One that keeps nothing there needs nothing there.
    if (answer.status !== 0) {
      clear(answer, said)
      assert.equal(answer.error.code, 5, `${type}: ${what}`)
      await unchanged(stage, middle, `${type}, ${what}: what ADD left`)
    }
    await stage.del()
    await unchanged(stage, fresh, `${type}, ${what}: what DEL left`)
  }
}
