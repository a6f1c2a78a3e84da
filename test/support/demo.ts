import assert from 'node:assert/strict'
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { type Finished, inNamespaces, type Namespace, snapshot, until } from './harness.ts'

/** Where the executable and the plugins are. */
export const DIST = join(import.meta.dir, '../../dist')
const PLUMB = join(DIST, 'plumb')

/** A program instead of real ones, and the step that has to find it out. */
export interface Sabotage {
  readonly what: string
  /** One file, or several with blanks between them. */
  readonly file: string
  /** Of bash; REAL is the one that it stands for. */
  readonly script: string
  readonly step: string
  readonly said: RegExp
}

/** Runs `plumb demo ARGV`. */
export function demo(node: Namespace, ...argv: readonly string[]): Promise<Finished> {
  return node.exec([PLUMB, 'demo', ...argv])
}

/** Throws unless a demo went well, each of its stories on a screen, with so many steps. */
export function assertTold({ status, stdout, stderr }: Finished, ...steps: readonly number[]): void {
  assert.deepEqual([status, stderr], [0, ''], stdout)
  const stories = stdout.trimEnd().split(/^(?=plumb demo: )/m)
  for (const lines of stories.map((story) => story.trimEnd().split('\n'))) {
    assert.ok(lines.length <= 40, `${lines.length} lines, and npm writes four of its own`)
    assert.deepEqual(
      lines.filter((line) => line.length > 100 || /[^ -~]/.test(line)),
      [],
    )
  }
  assert.deepEqual(
    stories.map((story) => story.split('\n').filter((line) => / ok +\d+ ms {2}\S/.test(line)).length),
    steps,
  )
  assert.deepEqual(
    [...stdout.matchAll(/^(\d+) steps, each as it says, in [\d.]+ s$/gm)].map(([, count]) => Number(count)),
    steps,
  )
}

/** What there is on the machine that a demo could leave something in. */
export async function machine(node: Namespace): Promise<unknown[]> {
  return [
    await snapshot(node),
    ...['/run', '/run/netns', '/var/lib', '/etc', '/opt'].map((dir) => readdirSync(dir)),
    readFileSync('/proc/self/mounts', 'utf8'),
    processes(),
  ]
}

/** The test of each: it ends the demo at its step, with the reason on the screen. */
export function itFindsOut(sabotages: readonly Sabotage[], ...argv: readonly string[]): void {
  for (const { what, file, script, step, said } of sabotages) {
    it(
      `exits 1 and names the step when ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        const { status, stdout, stderr } = await withFile(node, file, `#!/bin/bash\n${script}\n`, argv)
        assert.equal(status, 1, stdout)
        assert.equal(
          stderr,
          `plumb demo: FAILED at "${step}", see above; what it made ends with its namespaces\n`,
          stdout,
        )
        const [shown = '', reason = ''] = stdout.split(/ FAILED +\d+ ms\n/)
        assert.equal(shown.split('\n').at(-1)?.trim(), step)
        assert.match(reason, said)
        assert.doesNotMatch(stdout, /each as it says/)
        assert.deepEqual(processes(), [])
      }),
    )
  }
}

/**
 * The test that a signal ends all that a demo has started, once its screen shows a line. `among` are processes that
 * have to be there by then.
 */
export function itEndsOn(
  signal: 'SIGINT' | 'SIGTERM',
  line: RegExp,
  among: readonly RegExp[],
  ...argv: readonly string[]
): void {
  it(
    `ends with all of its processes on ${signal}`,
    inNamespaces(['node'], async ({ node }) => {
      const before = await machine(node)
      const child = execa('nsenter', [`--net=${node.path}`, '--', PLUMB, 'demo', ...argv], {
        reject: false,
        buffer: true,
      })
      let seen = ''
      for await (const chunk of child.iterable({ binary: false })) {
        seen += `${chunk}\n`
        if (line.test(seen)) break
      }
      for (const one of among)
        await until(() => processes().some((argv) => one.test(argv))).catch(() =>
          assert.fail(`no ${one} among ${processes().join('\n')} after ${seen}`),
        )
      child.kill(signal)
      const { exitCode } = await child
      assert.equal(exitCode, signal === 'SIGINT' ? 130 : 143)
      await until(() => processes().length === 0)
      assert.deepEqual(await machine(node), before)
    }),
  )
}

// In a mount namespace of its own.
async function withFile(node: Namespace, files: string, text: string, argv: readonly string[]): Promise<Finished> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-demo-'))
  const [shim, real] = [join(dir, 'shim'), join(dir, 'real')]
  mkdirSync(real)
  if (text.includes('REAL')) for (const file of files.split(' ')) copyFileSync(file, join(real, basename(file)))
  writeFileSync(shim, text.replaceAll('REAL', `${real}/"\${0##*/}"`), { mode: 0o755 })
  try {
    return await node.exec([
      'unshare',
      '--mount',
      '--propagation',
      'private',
      'sh',
      '-ec',
      'shim=$1 files=$2; shift 2; for one in $files; do mount --bind "$shim" "$one"; done; exec "$@"',
      'sh',
      shim,
      files,
      PLUMB,
      'demo',
      ...argv,
    ])
  } finally {
    rmSync(dir, { recursive: true })
  }
}

/** The command lines of what belongs to a demo, in this sandbox's process namespace. */
function processes(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
        return /plumb (demo|agent)|^etcd|\betcd --|^sleep infinity|^ping | monitor\b|^\S*bird -/.test(argv)
          ? [argv]
          : []
      } catch {
        return []
      }
    })
}
