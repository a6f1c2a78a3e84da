import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { clear, onStage, type Scene, type Stage, unchanged } from './plugin-scenes.ts'
import { skip } from './skip.ts'

const DIST = join(import.meta.dir, '../../dist')
const STRACE = '/usr/bin/strace'
/** What a node with nothing left says to a program: to which system calls, and what. */
const REFUSALS: Readonly<Record<string, readonly string[]>> = {
  ENOSPC: ['mkdir', 'link', 'symlink', 'rename', 'write', 'pwrite64'],
  EIO: ['fsync'],
  EMFILE: ['memfd_create', 'pipe2', 'socket'],
  ENOMEM: ['clone3', 'clone', 'vfork'],
}

/**
 * Defines the tests of what the kernel refuses: each system call of ADD of these plugins by which it takes something of
 * the node, in turn.
 */
export function testRefusals(
  scene: Scene,
  name: string,
  types: readonly string[] = scene.list.map(({ type }) => type),
  errnos: readonly string[] = Object.keys(REFUSALS),
): void {
  for (const errno of errnos)
    it(
      `${name}: ${errno} at each system call of ${types.join(', ')}: ADD says so and takes back what it made, or does without, and DEL leaves nothing`,
      onStage(scene, async (stage, test) => {
        if (!existsSync(STRACE)) skip(test, `${STRACE} is not installed, which makes system calls fail`)
        test.timeout(1_800_000)
        let refused = 0
        for (const [at, { type }] of stage.confs.entries())
          for (const call of types.includes(type as string) ? (REFUSALS[errno] ?? []) : [])
            refused += await walk(stage, at, `${call}:error=${errno}`, errno)
        // A chained plugin syncs nothing to a disk.
        assert.ok(refused > 0 || errno === 'EIO', 'nothing was refused')
        process.stdout.write(`storm: ${name}: ${errno} at ${refused} system calls\n`)
      }),
    )
}

// Until the call came to its end with nothing refused; how often something was.
async function walk(stage: Stage, at: number, inject: string, errno: string): Promise<number> {
  for (let nth = 1; nth < 200; nth++) {
    const log = join(mkdtempSync('/run/strace-'), 'log')
    const before = await stage.look()
    const given = await stage.addUpTo(at)
    const middle = await stage.look()
    const program = `exec ${STRACE} -qq -o ${log} -e trace=${inject.split(':')[0]} -e inject=${inject}:when=${nth} ${DIST}/${stage.confs[at]?.['type']}`
    const answer = await stage
      .call('ADD', at, given, {}, program)
      .catch((cause: Error) => assert.fail(`${inject} ${nth}: ${cause.message}`))
    const isRefused = /\(INJECTED\)/.test(readFileSync(log, 'utf8'))
    const about = `${stage.confs[at]?.['type']}: ${inject} at call ${nth}, status ${answer.status}, ${answer.stdout}${answer.stderr}`
    // What Bun itself cannot do without ends it: as a kill would.
    if (answer.status === 1 && answer.stdout !== '') {
      clear(answer, new RegExp(errno))
      await unchanged(stage, middle, `${about}: what ADD left`)
    } else assert.ok(isRefused || answer.status === 0, about)
    await stage.del()
    await unchanged(stage, before, `${about}: what DEL left`)
    if (!isRefused) return nth - 1
  }
  assert.fail(`${inject} never ends`)
}
