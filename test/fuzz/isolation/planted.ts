// Tests the isolation histories themselves. Each fault below was in plumb once, or could have been. This puts it into a
// copy of the sources and says after how many histories they find it.
//   bun test/fuzz/isolation/planted.ts [--histories=500] [--workers=2] [--seed=1] [WORD …]
// WORD: only faults with this word in their name.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { execa } from 'execa'
import { work } from './worker.ts'

/** What a fault changes: a text of a file, which is there once, and what stands in its place. */
interface Change {
  readonly file: string
  readonly text: string
  readonly becomes: string
}

const [GUARD, FLOWS, STATE, RULES] = [
  'agent/policy/guard.ts',
  'agent/policy/flows.ts',
  'agent/policy/state.ts',
  'agent/policy/rules.ts',
]
const [SETS, TABLE, PART] = ['agent/policy/peer-sets.ts', 'agent/policy/table.ts', 'agent/parts/policy.ts']
const SELF = `...FAMILIES.map((family) => \`\${WORD[family]} saddr . \${WORD[family]} daddr @self\${family} \${PASSES}\`)`

/** The faults, by what a user would see. */
const FAULTS: Readonly<Record<string, readonly Change[]>> = {
  'a frame with a tag passes': [
    { file: GUARD, text: "'ether type != { ip, ip6, arp } counter drop'", becomes: "'ether type 0xffff counter drop'" },
  ],
  'a packet from the address of another pod passes': [
    { file: GUARD, text: "'iifname != @links accept'", becomes: "'accept'" },
  ],
  'an ended connection begins again from the side that answers': [
    {
      file: FLOWS,
      text: 'setBit(\n        own.filter((one) => !isEnded(one) && !lives(flowOf(one))),\n        ENDED_BIT,\n        true,\n      )',
      becomes: 'forget(own.filter((one) => !lives(flowOf(one))))',
    },
    { file: FLOWS, text: '  connectionPieces,\n', becomes: '  connectionPieces,\n  forget,\n' },
  ],
  'a load of the table forgets what has ended': [
    {
      file: PART,
      text: 'await load(state, options, run)\n    state.tightenAll()',
      becomes: 'await load(state, options, run)\n    await reviewEnded(() => true)',
    },
  ],
  'an open connection of a pod that comes to match a Deny goes on': [
    {
      file: SETS,
      text: 'if (set.isOfTier && !before.includes(element)) this.#tightened',
      becomes: 'if (false) this.#tightened',
    },
  ],
  'an open connection to a Node that comes to match a Deny goes on': [
    { file: SETS, text: 'if (!this.#elements.wanted(name).has(ip)) this.#tightened.add(ip)', becomes: '' },
  ],
  'an open connection of a peer that no rule allows any more goes on': [
    { file: SETS, text: 'continue\n      this.#tightened.add(addressIn(element))', becomes: 'continue' },
  ],
  'an open connection of a pod that a policy selects goes on': [
    {
      file: STATE,
      text: 'if (!isSame || has(before, ip) !== has(now, ip))',
      becomes: 'if (has(before, ip) !== has(now, ip))',
    },
  ],
  'a start ends what the node has open to its own pods': [
    { file: FLOWS, text: 'if (own.has(source) && state.isLocal(destination)) return true', becomes: '' },
  ],
  'a pod is admitted under the labels of a former pod of its name': [
    {
      file: 'agent/policy/endpoints.ts',
      text: 'return uid === undefined || object.uid === undefined || uid === object.uid',
      becomes: 'return uid === undefined || object !== undefined',
    },
  ],
  'what a policy has ended stays ended after the policy is gone': [
    { file: PART, text: 'this.#mayRevive = this.#hasEnded', becomes: 'this.#mayRevive = false' },
    { file: FLOWS, text: '      revive(own, lives)\n', becomes: '' },
  ],
  'a Deny of a tier does not hold for a pod that reaches itself by a Service': [
    {
      file: RULES,
      text: '...(admin ? [jump(admin)] : []),\n    ...toItself,',
      becomes: `${SELF},\n    ...(admin ? [jump(admin)] : []),`,
    },
    {
      file: RULES,
      text: '[...tiers.map(jump), PASSES]',
      becomes: `[${SELF}, ...tiers.map(jump), PASSES]`,
    },
  ],
  'a pod that the API does not know reaches itself by a Service': [
    {
      file: TABLE,
      text: 'unknown: [`counter',
      becomes: "unknown: ['ip saddr . ip daddr @self4 accept', 'ip6 saddr . ip6 daddr @self6 accept', `counter",
    },
  ],
  'a Deny ends when the API no longer serves its version': [
    { file: 'agent/cluster/served.ts', text: 'this.isAbsent = isAbsent', becomes: 'this.isAbsent = true' },
  ],
}

const ROOT = join(import.meta.dir, '../../..')
const { values, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    histories: { type: 'string', default: '500' },
    workers: { type: 'string', default: '2' },
    seed: { type: 'string', default: '1' },
  },
})

async function copy(): Promise<string> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-planted-'))
  await execa('git', ['checkout-index', '--all', `--prefix=${dir}/`], { cwd: ROOT })
  symlinkSync(join(ROOT, 'node_modules'), join(dir, 'node_modules'))
  return dir
}

// The sources of the copy are as before afterwards: the histories ask its oracle. Only dist/ has the fault.
async function plant(dir: string, changes: readonly Change[]): Promise<void> {
  const before = new Map(changes.map(({ file }) => [file, readFileSync(join(dir, file), 'utf8')]))
  const after = new Map(before)
  for (const { file, text, becomes } of changes) {
    const pieces = (after.get(file) as string).split(text)
    assert.equal(pieces.length, 2, `${file} has ${pieces.length - 1} times: ${text}`)
    after.set(file, pieces.join(becomes))
  }
  for (const [file, text] of after) writeFileSync(join(dir, file), text)
  await execa('npm', ['run', '--silent', 'build'], { cwd: dir })
  for (const [file, text] of before) writeFileSync(join(dir, file), text)
}

/** Gives how many histories were played, and the failure that was found. */
async function find(dir: string): Promise<{ readonly played: number; readonly failure?: string }> {
  const [workers, most] = [Number(values.workers), Number(values.histories)]
  const each = Math.ceil(most / workers)
  let [played, failure] = [0, undefined as string | undefined]
  await Promise.all(
    Array.from({ length: workers }, (_, i) =>
      work(dir, { first: Number(values.seed) * 1_000_000 + i * each, count: each, ms: 24 * 3_600_000 }, (one) => {
        if (failure === undefined) played++
        failure ??= one.failure
        return failure !== undefined
      }),
    ),
  )
  return { played, ...(failure !== undefined && { failure }) }
}

const dir = await copy()
try {
  for (const [name, changes] of Object.entries(FAULTS)) {
    if (!words.every((word) => name.includes(word))) continue
    await plant(dir, changes)
    const { played, failure } = await find(dir)
    const lines = failure?.split('\n') ?? []
    const said = lines.find((line) => !line.startsWith('history') && !line.startsWith('  '))
    if (failure !== undefined) process.stderr.write(`${failure}\n`)
    process.stdout.write(
      `${failure === undefined ? 'NOT found' : 'found'} in ${played} histories: ${name}${said ? `\n  ${said}` : ''}\n`,
    )
    if (failure === undefined) process.exitCode = 1
  }
} finally {
  rmSync(dir, { recursive: true })
}
