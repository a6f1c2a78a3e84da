// lane: fuzz
// Tests plugins/index.ts on the small engine beside the same plugins on Bun, with random input.
import assert from 'node:assert/strict'
import { linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { plugins } from '../../scripts/build.ts'
import { type Arch, compilePlugins } from '../../scripts/engine.ts'
import { inNamespaces, type Namespace } from '../support/harness.ts'
import { furnish, type Input, LINKS, makeCase } from './cases.ts'
import { confine } from './confine.ts'
import { casesOf, type Figures, tell } from './share.ts'

const CASES = casesOf('engine')
const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
const ROOT = join(import.meta.dir, '../..')
const BASE = '/run/fuzz'
const DIR = `${BASE}/pool`

/** What a call must not find of the one before it: links, rules, forwarding. */
const RESET = `
nft flush ruleset
for link in $(ip -o link | sed -n 's/^[0-9]*: \\([^:@]*\\).*/\\1/p' | grep -v '^lo$\\|^fuzz'); do ip link del $link 2>/dev/null; done
ip link set fuzz0 down; ip link set fuzz1 down; ip addr flush dev fuzz0; ip addr flush dev fuzz1
for file in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 0 > /proc/sys/net/$file; done
`
const FORCE = { recursive: true, force: true } as const
/** Texts that only a program hostile to its engine would write. */
const HOSTILE = [
  '{"a":"\\ud800"}',
  '{"name":"\\udc00\\ud800x"}',
  '{"a":1e400,"b":-1e-400,"c":123456789012345678901234567890}',
  '{"a":"\\u0000"}',
  `{"a":"${'a'.repeat(100_000)}!"}`,
  '[',
  '{"a":',
  '{"a":1}}',
  '\ufeff{}',
  'nul',
  '{"__proto__":{"name":"x"}}',
  '{"a":1,"a":2}',
  '{"a":.5}',
  '{"a":01}',
  '{"a":"\t"}',
  `${'['.repeat(5000)}${']'.repeat(5000)}`,
]
const BYTES = [
  Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
  Buffer.from([0x22, 0xe2, 0x82, 0x22]),
  Buffer.from([0xf0, 0x9f, 0x98]),
  Buffer.from([0xed, 0xa0, 0x80]),
  Buffer.from([0, 0, 0]),
  Buffer.from([0xc0, 0xaf]),
]

/** A call whose configuration may be no text. */
type Call = Pick<Input, 'env'> & { readonly stdin: string | Uint8Array }

describe('the plugins on the small engine, with and without its frozen heap, and on Bun', () => {
  let dir = ''
  before(async function () {
    this.timeout(0)
    dir = mkdtempSync(join(tmpdir(), 'plumb-fuzz-engine-'))
    await compilePlugins(join(dir, 'plain'), plugins(), process.arch as Arch, { isPlain: true })
    await confine()
    await execa(
      process.execPath,
      [
        'build',
        '--compile',
        '--define',
        `PLUGINS=${JSON.stringify(plugins())}`,
        ...['index', ...plugins()].map((name) => `plugins/${name}.ts`),
        '--root',
        'plugins',
        '--splitting',
        '--format=esm',
        '--outfile',
        join(dir, 'program'),
      ],
      { cwd: ROOT },
    )
    for (const [file, folder] of [
      ['program', 'bin'],
      ['plain', 'plain-bin'],
    ] as const) {
      mkdirSync(join(dir, folder))
      for (const name of plugins()) linkSync(join(dir, file), join(dir, folder, name))
    }
  })
  after(() => rmSync(dir, { recursive: true, force: true }))

  it(
    `answer ${CASES} calls of seed ${SEED} with the same bytes and the same status`,
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(0)
      const [frozen, unfrozen, bun] = [join(ROOT, 'dist'), join(dir, 'plain-bin'), join(dir, 'bin')]
      assert.equal((await node.exec(['sh', '-ec', LINKS(pod.path.replace('/run/netns/', ''))])).status, 0)
      const failures: string[] = []
      const seen: Figures = { ok: 0, refused: 0, slowest: 0 }
      const fixed = new Set(filesOfRun())
      let isDirty = true
      for (let i = 0; i < CASES && failures.length < 10; i++) {
        const { type, call } = caseOf(i, pod.path)
        const said = []
        // Each fourth call also meets the engine without a frozen heap.
        for (const bin of i % 4 === 0 ? [frozen, unfrozen, bun] : [frozen, bun]) {
          if (isDirty) await reset(node, fixed)
          const started = performance.now()
          const { status, stdout, stderr } = await start(bin, type, call, node)
          seen.slowest = Math.max(seen.slowest, performance.now() - started)
          said.push({ status, stdout: plain(stdout), stderr: plain(stderr) })
          // Other tests see that a refused call leaves nothing. But the pool goes on after the address that it gave last.
          isDirty = status === 0 || call.env['CNI_COMMAND'] === 'ADD'
          if (status === 0 && call.env['CNI_COMMAND'] === 'ADD')
            await start(bin, type, { ...call, env: { ...call.env, CNI_COMMAND: 'DEL' } }, node)
        }
        const [ours, ...others] = said
        seen[ours?.status === 0 ? 'ok' : 'refused']++
        if (!others.every((other) => Bun.deepEquals(ours, other)))
          failures.push(
            `PLUMB_FUZZ_SEED=${SEED}, case ${i}: ${type} ${JSON.stringify(call.env).slice(0, 500)} ${call.stdin.toString().slice(0, 1000)}\n  the engine: ${JSON.stringify(ours)}\n  the others: ${others.map((one) => JSON.stringify(one)).join('\n  ')}`,
          )
      }
      tell('engine', seen, failures.length)
      assert.deepEqual(failures, [])
    }),
  )

  // A part of the cases is a well-formed call with a text that is hard on an engine.
  function caseOf(number: number, netns: string): { readonly type: string; readonly call: Call } {
    const { type, call } = makeCase(SEED, number * 31, { netns, dir: DIR })
    const all = [...HOSTILE, ...BYTES]
    const text = number % 16 === 0 ? all[(number / 16) % all.length] : undefined
    return { type, call: text === undefined ? call : { ...call, stdin: text } }
  }

  // A case may name any folder below /run as its pool's; `fixed` are the files that stay.
  async function reset(node: Namespace, fixed: ReadonlySet<string>): Promise<void> {
    for (const path of filesOfRun()) if (!fixed.has(path)) rmSync(Buffer.from(path, 'latin1'), FORCE)
    rmSync('/var/lib/cni', FORCE)
    mkdirSync(DIR, { recursive: true })
    mkdirSync(`${BASE}/cwd`)
    furnish(DIR)
    await node.exec(['sh', '-c', RESET])
  }

  // A name may be no text: each byte is one character.
  function filesOfRun(): string[] {
    return readdirSync('/run', { encoding: 'latin1', recursive: true }).map((name) => `/run/${name}`)
  }

  function start(
    bin: string,
    type: string,
    { env, stdin }: Call,
    node: Namespace,
  ): Promise<{ status: number; stdout: string; stderr: string }> {
    const possible = Object.fromEntries(
      Object.entries(env).filter(
        ([name, value]) => !name.includes('\0') && !value.includes('\0') && Buffer.byteLength(value) < 100_000,
      ),
    )
    return node.exec([join(bin, type)], { env: possible, stdin, cwd: `${BASE}/cwd` })
  }

  // What differs between two runs of one program: its process id, and the folder of its own files.
  function plain(text: string): string {
    return text.replaceAll(/\/proc\/\d+\//g, '/proc/PID/').replaceAll(/\.\d+-\d+\.draft/g, '.PID.draft')
  }
})
