// lane: fuzz
// Tests lib/verbs.
import assert from 'node:assert/strict'
import { closeSync, existsSync, ftruncateSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { isIP } from 'node:net'
import { execa } from 'execa'
import type { Plugin } from '../../lib/cni/plugin.ts'
import { CODE } from '../../lib/text/errors.ts'
import { serve } from '../../lib/verbs/serve.ts'
import { type Case, CHAINED, furnish, givenBy, type Input, LINKS, makeCase } from './cases.ts'
import { confine } from './confine.ts'
import { leaseDaemon } from './daemon.ts'
import { PLUGINS } from './plugins.ts'
import { type Fault, Recorder } from './recorder.ts'
import { budgetOf, casesOf, type Figures, tell as report, spent } from './share.ts'
import { spoil } from './spoil.ts'

const CASES = casesOf('serve')
const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
/** One case alone, as a failure names it. */
const ONLY = process.env['PLUMB_FUZZ_CASE']
const LIMIT_MS = 5000
const BASE = '/run/fuzz'
const SITE = { netns: '/run/netns/fuzz', dir: `${BASE}/pool` }
const FOLDERS = [BASE, '/run/cni', '/var/lib/cni']
const CODES: readonly number[] = Object.values(CODE)

/** Words of a spoiled file, which may lead to the pod, too. */
let found: readonly string[] = []
let daemon: Awaited<ReturnType<typeof leaseDaemon>>

describe('serve(), with input that is wrong', () => {
  before(async () => {
    await confine()
    await execa('ip', ['netns', 'add', 'fuzz'])
    await execa('sh', ['-ec', LINKS('fuzz')])
    silence()
    daemon = await leaseDaemon()
  })
  after(() => {
    daemon.stop()
    process.chdir('/')
  })

  it(`answers ${CASES} cases of seed ${SEED}, or as many as 100 s allow, as CNI has it, says to tools nothing but its own grammar, and leaves nothing (PLUMB_FUZZ_CASES, PLUMB_FUZZ_SEED, PLUMB_FUZZ_CASE)`, async function () {
    this.timeout(0)
    const failures: string[] = []
    const seen: Figures = { ok: 0, refused: 0, slowest: 0 }
    const end = Date.now() + budgetOf(100_000)
    for (
      let number = ONLY ? Number(ONLY) : 0;
      number < (ONLY ? Number(ONLY) + 1 : CASES) && failures.length < 20 && Date.now() < end;
      number++
    ) {
      // A case that hangs or kills the process is among the fifty after the last line.
      if (number % 50 === 0) console.log(`fuzz: seed ${SEED}, case ${number}`)
      const made = makeCase(SEED, number, SITE)
      const wrong = await judge(made, seen)
      if (wrong.length > 0)
        failures.push(
          `PLUMB_FUZZ_SEED=${SEED} PLUMB_FUZZ_CASE=${number}: ${wrong.join('\n  ').slice(0, 2000)}\n  ${shown(made)}`,
        )
    }
    report('serve', seen, failures.length)
    if (failures.length > 0) assert.fail(failures.join('\n'))
    // Mostly refused, or mostly answered, would mean that the cases test little.
    const done = seen.ok + seen.refused
    if (!ONLY && CASES >= 5000)
      assert.ok(done > 2000 && seen.ok > done / 10 && seen.refused > done / 10, JSON.stringify(seen))
  })
})

function shown({ type, call, fault, before, squatter, spoiled }: Case): string {
  const rest = JSON.stringify(
    { fault, squatter, spoiled: spoiled !== undefined, preceded: before !== undefined, env: call.env },
    (_, value) => (typeof value === 'string' ? value.slice(0, 200) : value),
  )
  return `${type} ${rest} ${call.stdin.slice(0, 1500)}`
}

/** Runs a case; what was wrong with it, one sentence each. */
async function judge({ type, before, call, fault, squatter, spoiled }: Case, seen: Figures): Promise<string[]> {
  fresh()
  found = []
  const kernel = new Recorder(squatter, CHAINED.includes(type) ? SITE.netns : undefined)
  const wrong: string[] = []
  const tell = (what: string, problems: readonly string[]) =>
    wrong.push(...problems.map((problem) => `${what}: ${problem}`))
  const again = (input: Input, command: string): Input => ({ ...input, env: { ...input.env, CNI_COMMAND: command } })
  const nothing = world(kernel)
  if (before) {
    tell('the good ADD', await good(type, before, kernel))
    // What it made under names of its own another ADD may replace.
    found = [...givenBy(before)].filter((one) => one !== undefined)
  }
  const lost = spoiled && spoil(FOLDERS, spoiled)
  if (lost) found = [...found, ...lost.words]
  const start = world(kernel)
  const command = call.env['CNI_COMMAND'] ?? ''
  const answer = await perform(type, call, kernel, fault)
  tell(`the ${command}`, problems(answer, command))
  seen[answer.status === 0 ? 'ok' : 'refused']++
  seen.slowest = Math.max(seen.slowest, answer.ms)
  if (lost)
    return [...wrong, ...(await afterwards(type, again(call, 'DEL'), kernel)), ...said(kernel)].map(
      (one) => `${one} (${lost.path} was spoiled)`,
    )
  const reached = kernel.calls > 0
  // A fault of the last tool that was called is one of undoing: that is left to the next call.
  const lasting = fault !== undefined && (fault.on || kernel.calls === fault.at + 1)
  // A data directory that cannot be used, or a pool that cannot be found, fails its DEL, too, which then stays
  // unfinished: nothing can clean up after it.
  const hopeless =
    (lasting || (command === 'DEL' && !before)) &&
    answer.answers.some((text) => /Cannot use the address pool|Cannot find the IPAM plugin/.test(text))
  if (hopeless) return [...wrong, ...said(kernel)]
  if (command !== 'DEL' && command !== 'GC' && !(command === 'ADD' && (answer.status === 0 || lasting))) {
    const changed = differ(start, world(kernel))
    // What the kernel refuses takes with it what an ADD before it made for the attachment.
    if (command !== 'ADD' || !before || differ(nothing, world(kernel)).length > 0) tell(`the ${command}`, changed)
  }
  if (command === 'ADD' && (answer.status === 0 || (lasting && reached)))
    tell('the DEL of what was added', await good(type, again(call, 'DEL'), kernel))
  // Without its pool a DEL fails each time.
  const isWithoutPool = answer.answers.some((text) => /Cannot find the IPAM plugin/.test(text))
  if (command === 'DEL' && answer.status === 1 && fault && reached && !isWithoutPool)
    tell('the DEL once more', await good(type, call, kernel))
  if (before) tell('the good DEL', await good(type, again(before, 'DEL'), kernel))
  tell('in the end', differ(nothing, world(kernel)))
  return [...wrong, ...said(kernel)]
}

// What is left then is not judged: nothing may be known of it any more.
async function afterwards(type: string, call: Input, kernel: Recorder): Promise<string[]> {
  return problems(await perform(type, call, kernel), 'DEL')
}

function said({ strange }: Recorder): string[] {
  return strange.map((one) => `said to a tool: ${one}`)
}

interface Answer {
  readonly status: number
  readonly answers: readonly string[]
  readonly said: string
  readonly ms: number
}

async function perform(type: string, { env, stdin }: Input, kernel: Recorder, fault?: Fault): Promise<Answer> {
  // What an ADD before it noted may lead to the pod.
  kernel.arm(() => new Set([...givenBy({ env, stdin }), SITE.netns, ...found]), fault)
  ftruncateSync(2)
  const answers: string[] = []
  const started = process.cpuUsage()
  const status = await serve(PLUGINS[type] as Plugin, {
    env,
    stdin: () => stdin,
    answer: (text) => void answers.push(text),
    run: kernel.run,
    plugin: async (name) => (Object.hasOwn(PLUGINS, name) ? PLUGINS[name] : undefined),
  })
  return { status, answers, ms: spent(started), said: readFileSync('/run/fuzz.stderr', 'utf8') }
}

async function good(type: string, input: Input, kernel: Recorder): Promise<string[]> {
  const answer = await perform(type, input, kernel)
  return answer.status === 0
    ? problems(answer, input.env['CNI_COMMAND'] ?? '')
    : [`it failed: ${answer.answers.join('').slice(0, 500)}`]
}

/** What in an answer is not as CNI, or common sense, has it. */
function problems({ status, answers, said, ms }: Answer, command: string): string[] {
  const all: string[] = []
  if (ms > LIMIT_MS) all.push(`it took ${Math.round(ms)} ms`)
  if (/^\s+at .+:\d+/m.test(said)) all.push(`a stack on stderr: ${said.slice(0, 500)}`)
  if (said.length > 65_536) all.push(`${said.length} characters on stderr, which begin ${said.slice(0, 200)}`)
  const wanted = status === 1 || command === 'ADD' || command === 'VERSION' ? 1 : 0
  if (answers.length !== wanted)
    return [...all, `it answered ${answers.length} times with status ${status}: ${answers.join('|').slice(0, 500)}`]
  if (wanted === 0) return all
  const text = answers[0] as string
  let parsed: Readonly<Record<string, unknown>>
  try {
    parsed = JSON.parse(text)
  } catch (cause) {
    return [...all, `its answer is no JSON: ${(cause as Error).message}: ${text.slice(0, 300)}`]
  }
  if (typeof parsed['cniVersion'] !== 'string') all.push(`its answer has no cniVersion: ${text.slice(0, 300)}`)
  if (status === 0) return all
  const { code, msg, details = '' } = parsed
  if (!CODES.includes(code as number) || typeof msg !== 'string' || msg === '' || typeof details !== 'string')
    all.push(`no error of CNI: ${text.slice(0, 300)}`)
  if (/Unexpected failure|\bundefined\b|\[object |call stack|^\s*at .+:\d+/m.test(`${msg}\n${details}`))
    all.push(`a fault of plumb: ${text.slice(0, 500)}`)
  if (text.length > 16_384) all.push(`an error of ${text.length} characters: ${text.slice(0, 300)}`)
  return all
}

/** What attachments have: links and host ports in the recorder, addresses, and the journal on disk. */
function world(kernel: Recorder): string[] {
  const files = FOLDERS.flatMap((dir) =>
    existsSync(dir) ? readdirSync(dir, { recursive: true, withFileTypes: true }) : [],
  )
  // Addresses, entries of the journal, and the index of what is shared.
  const held = files.filter(
    (one) =>
      (one.isFile() &&
        (isIP(one.name) !== 0 ||
          /\/(flannel\/[^/]+:[^/]+|[^/]+_[^/]+\.json)$/.test(`${one.parentPath}/${one.name}`))) ||
      (/^\/run\/cni\/plumb\/(attachments|shared\/.+)$/.test(one.parentPath) &&
        !isRefusal(`${one.parentPath}/${one.name}`)),
  )
  return [
    ...kernel.links(),
    ...kernel.ports(),
    ...daemon.held(),
    ...held.map(({ name, parentPath }) => `${parentPath}/${name}`),
  ].sort()
}

// What says that an ADD met somebody else's link, which may have addresses of its own.
function isRefusal(path: string): boolean {
  if (!path.includes('/attachments/')) return false
  try {
    const { unfinished, parts } = JSON.parse(readFileSync(path, 'utf8'))
    return (
      !unfinished && JSON.stringify(Object.values(parts).flatMap((part) => (part as { own: unknown[] }).own)) === '[]'
    )
  } catch {
    // Spoiled.
    return false
  }
}

function differ(before: readonly string[], after: readonly string[]): string[] {
  const [left, gone] = [after.filter((one) => !before.includes(one)), before.filter((one) => !after.includes(one))]
  return [...left.map((one) => `${one} is left`), ...gone.map((one) => `${one} is gone`)]
}

function fresh(): void {
  daemon.clear()
  for (const dir of FOLDERS) rmSync(dir, { recursive: true, force: true })
  mkdirSync(SITE.dir, { recursive: true })
  mkdirSync(`${BASE}/cwd`)
  process.chdir(`${BASE}/cwd`)
  furnish(SITE.dir)
}

// What plumb logs goes to a file, to be looked at; stderr may be a socket, which cannot be opened again, so it stays
// there.
function silence(): void {
  closeSync(2)
  assert.equal(openSync('/run/fuzz.stderr', 'a'), 2)
}
