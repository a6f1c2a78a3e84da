// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import {
  CHAIN,
  clear,
  onStage,
  SCENES,
  type Scene,
  type Stage,
  unchanged,
  unlinked,
} from '../../support/plugin-scenes.ts'
import { type Any, without } from '../../support/tool-shims.ts'

/**
 * How a tool is broken: a script in its place, or shell commands in the plugin's mounts; what the error has to say, and
 * its code.
 */
interface Breakage {
  readonly script?: string
  readonly before?: (tool: Any) => string
  readonly said: (tool: Any) => RegExp
  readonly code: number
}
const BROKEN: Readonly<Record<string, Breakage>> = {
  'is missing': {
    before: without,
    said: (tool) => new RegExp(`Cannot run ${tool}: it is not installed.*install the package (iproute2|nftables)`),
    code: 5,
  },
  'prints garbage and fails': {
    script: 'head -c 10000 /dev/urandom; head -c 3000 /dev/urandom >&2; exit 3',
    said: () => /./,
    code: 999,
  },
  'is killed': { script: 'kill -KILL $$', said: (tool) => new RegExp(`${tool}.*(137|signal)`), code: 999 },
  // What iproute2 and nft say of a word that came after their time.
  'is ten years old': {
    script: `case "$0" in *nft) echo '/dev/stdin:1:1-3: Error: syntax error, unexpected string' >&2; exit 1;; esac
echo 'Option "-force" is unknown, try "ip -help".' >&2; exit 255`,
    said: () => /(syntax error|is unknown).*want iproute2 5\.18/,
    code: 999,
  },
}

describe('a tool that is of no use', () => {
  for (const [what, breakage] of Object.entries(BROKEN))
    it(`${what}: ADD of a plugin says so and leaves nothing; so does DEL, after which another leaves nothing`, async function () {
      this.timeout(280_000)
      // Of the others each failure is walked through (see walk.ts).
      for (const scene of breakage.script === undefined ? Object.values(SCENES) : [SCENES[CHAIN] as Scene])
        await onStage(scene, (stage) => tried(stage, scene, breakage, what)).call(this)
    })
})

async function tried(
  stage: Stage,
  { tools }: Scene,
  { script, before = () => '', said, code }: Breakage,
  what: string,
): Promise<void> {
  const fresh = await stage.look()
  for (const [at, { type }] of stage.confs.entries())
    for (const tool of tools[type as string] ?? []) {
      const about = `${tool} of ${type} ${what}`
      const scripts = script === undefined ? {} : { [tool]: script }
      const given = await stage.addUpTo(at)
      const middle = await stage.look()
      const answer = await stage.call('ADD', at, given, scripts, before(tool))
      clear(answer, said(tool))
      assert.equal(answer.error.code, code, about)
      // Where `ip` does not work, no link can be removed; then there is none that it made.
      await unlinked(stage, middle, `${about}: what ADD left`)
      const again = await stage.call('ADD', at, given)
      assert.equal(again.status, 0, `${about}: ${again.stdout}`)
      const removed = await stage.call('DEL', at, undefined, scripts, before(tool))
      if (removed.status !== 0) clear(removed, said(tool))
      await stage.del()
      await unchanged(stage, fresh, `${about}: what DEL left`)
    }
}
