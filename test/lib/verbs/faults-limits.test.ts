// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import { DISK_SCENES } from '../../support/disk-walk.ts'
import { testRefusals } from '../../support/kernel-limits.ts'
import { CHAIN, clear, onStage, SCENES, type Scene, type Stage, unchanged } from '../../support/plugin-scenes.ts'

/** What is wrong with the node, as shell commands in a plugin's mounts, and what the error says. */
const NODES: Readonly<Record<string, readonly [before: string, said: RegExp]>> = {
  '/run is read-only': ['mount -o remount,bind,ro /run/cni', /\/run\/cni\/plumb.*EROFS|EROFS.*\/run\/cni\/plumb/],
  '/run has no inodes': ['mount -t tmpfs -o nr_inodes=1 tmpfs /run/cni', /\/run\/cni.*ENOSPC|ENOSPC.*\/run\/cni/],
}
/** What becomes of a node with pods on it. /run/cni and the addresses are on a disk of 1 MB. */
const TROUBLES: Readonly<Record<string, readonly [before: string, after: string]>> = {
  full: ['dd if=/dev/zero of=/run/cni/filler bs=1k 2>/dev/null || true', 'rm /run/cni/filler'],
  'read-only, with the addresses on another one': ['mount -o remount,bind,ro /run/cni', 'true'],
}

describe('a node with nothing left', () => {
  for (const [what, [before, said]] of Object.entries(NODES))
    it(`${what}: ADD of every plugin says so, with code 5, and leaves nothing; DEL works all the same`, async function () {
      this.timeout(280_000)
      for (const scene of Object.values(SCENES))
        await onStage(scene, (stage) => tried(stage, before, said, what)).call(this)
    })

  for (const [what, [before, after]] of Object.entries(TROUBLES))
    it(`/run is ${what}: DEL and GC of every plugin end with 0 and free the address, without a word on stdout`, async function () {
      this.timeout(280_000)
      for (const scene of [...Object.values(SCENES), ...Object.values(DISK_SCENES)])
        await onStage(scene, (stage) => gone(stage, before, after, what)).call(this)
    })

  // A sample: `npm run test:storm` has all of them.
  testRefusals(SCENES[CHAIN] as Scene, 'chained', ['portmap'], ['ENOSPC'])
})

async function tried(stage: Stage, before: string, said: RegExp, what: string): Promise<void> {
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

// Pods that go are what makes room.
async function gone(stage: Stage, before: string, after: string, what: string): Promise<void> {
  const fresh = await stage.look()
  await stage.node.exec(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', stage.run])
  try {
    for (const verb of ['DEL', 'GC']) {
      await stage.addUpTo(stage.confs.length)
      for (const at of [...stage.confs.keys()].reverse()) {
        const { status, stdout, stderr } = await stage.call(verb, at, undefined, {}, before)
        const about = `${verb} of ${stage.confs[at]?.['type']}, /run is ${what}: ${stdout}${stderr}`
        assert.deepEqual({ status, stdout }, { status: 0, stdout: '' }, about)
      }
      assert.deepEqual(stage.reserved(), [], `${verb}, /run is ${what}`)
      await stage.node.exec(['sh', '-c', after.replaceAll('/run/cni', stage.run)])
      // A runtime may repeat DEL. The next life of the pod finds what the records still say.
      await stage.del()
      await stage.addUpTo(stage.confs.length)
      await stage.del()
    }
  } finally {
    await stage.node.exec(['umount', stage.run])
  }
  await unchanged(stage, fresh, `/run is ${what}: what DEL left`)
}
