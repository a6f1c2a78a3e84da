import assert from 'node:assert/strict'
import { clear, onStage, type Scene, type Stage, unchanged } from './plugin-scenes.ts'
import type { Any } from './tool-shims.ts'

type Scripts = Partial<Record<Any, string>>

/** Defines the tests of tools that fail: each tool of each plugin of a scene, at each of its calls in turn. */
export function testWalk(name: string, scene: Scene): void {
  describe('a tool that fails at any one of its calls', () => {
    it(
      `${name}: ADD says what failed and takes back what it made, DEL then leaves nothing; DEL says what failed, and the next one leaves nothing`,
      onStage(scene, async (stage) => {
        for (const [at, { type }] of stage.confs.entries()) {
          for (const tool of scene.tools[type as string] ?? []) {
            assert.ok((await walk(stage, at, tool, adding)) > 0, `ADD of ${type} never failed with ${tool}`)
            await walk(stage, at, tool, deleting)
          }
        }
      }),
    )
  })
}

/** Has the tool fail at each call in turn, until the work has none that fails; how many that were. */
async function walk(
  stage: Stage,
  at: number,
  tool: Any,
  work: (stage: Stage, at: number, scripts: Scripts, about: string) => Promise<boolean>,
): Promise<number> {
  const type = stage.confs[at]?.['type'] as string
  for (let nth = 1; nth < 20; nth++) {
    const script = `
if [ $n != ${nth} ]; then exec "$real" "$@" < "$input"; fi
echo 'Error: Out of memory' >&2
[ ${tool} = nft ] || echo 'Command failed -:1' >&2
exit 2`
    if (!(await work(stage, at, { [tool]: script }, `${type}: ${tool} fails at call ${nth}`))) return nth - 1
  }
  assert.fail(`${tool} of ${type} is called without end`)
}

async function adding(stage: Stage, at: number, scripts: Scripts, about: string): Promise<boolean> {
  const before = await stage.look()
  const given = await stage.addUpTo(at)
  const middle = await stage.look()
  const answer = await stage.call('ADD', at, given, scripts)
  if (answer.status !== 0) {
    clear(answer, /Out of memory/)
    await unchanged(stage, middle, `${about}: what ADD left`)
  }
  await stage.del()
  await unchanged(stage, before, `${about}: what DEL left`)
  return answer.status !== 0
}

async function deleting(stage: Stage, at: number, scripts: Scripts, about: string): Promise<boolean> {
  const before = await stage.look()
  await stage.addUpTo(stage.confs.length)
  for (let i = stage.confs.length - 1; i > at; i--) assert.equal((await stage.call('DEL', i)).status, 0)
  const answer = await stage.call('DEL', at, undefined, scripts)
  if (answer.status !== 0) clear(answer, /Out of memory/)
  await stage.del()
  await unchanged(stage, before, `${about}: what DEL left`)
  return answer.status !== 0
}
