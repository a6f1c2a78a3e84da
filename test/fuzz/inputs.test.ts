// lane: fuzz
// Tests every reader of input.
import assert from 'node:assert/strict'
import { closeSync, ftruncateSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { execa } from 'execa'
import { LINKS } from './cases.ts'
import { confine } from './confine.ts'
import { AGENT } from './inputs/agent.ts'
import { DHCP, LINK } from './inputs/dhcp.ts'
import { NODE } from './inputs/node.ts'
import { POLICY } from './inputs/policy.ts'
import { runtimeTargets } from './inputs/runtime.ts'
import { SERVICES } from './inputs/services.ts'
import { dice } from './mutate.ts'
import { PLUGINS } from './plugins.ts'
import { budgetOf, casesOf, type Figures, spent, tell } from './share.ts'
import { asStored, corpusOf, type Parts, type Target, unclear, varied } from './target.ts'

const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
/** One target alone, or one case of it, as a failure names it: `subnet.env 17`. */
const [, ONLY, CASE] = /^(.+?)(?: (\d+))?$/.exec(process.env['PLUMB_FUZZ_INPUT'] ?? '') ?? []
/** Those that take whatever comes. */
const ALL = ['http', 'resolv.conf', 'reservations', 'agent state']
/** Those that open sockets, or write files and wait for the disk: they get fewer cases, the others more. */
const SLOW = ['http', 'file store', 'dhcp questions', 'dhcp leases', 'conflist', 'cache', 'agent state']
const LIMIT_MS = 5000
const BASE = '/run/fuzz'
const STDERR = '/run/fuzz.stderr'
const TARGETS: readonly Target[] = [
  ...AGENT,
  ...POLICY,
  ...SERVICES,
  ...NODE,
  ...DHCP,
  ...runtimeTargets(async (name) => (Object.hasOwn(PLUGINS, name) ? PLUGINS[name] : undefined), Object.keys(PLUGINS)),
]
const EACH = casesOf('inputs') / TARGETS.length
const MORE = (TARGETS.length - 0.2 * SLOW.length) / (TARGETS.length - SLOW.length)

let outside: readonly string[] = []
let prototypes = ''

describe('the readers of what others write', () => {
  before(async () => {
    await furnished()
    silence()
    mkdirSync(BASE, { recursive: true })
    outside = places()
    prototypes = inherited()
  })

  for (const target of TARGETS.filter(({ name }) => ONLY === undefined || name === ONLY)) {
    it(`${target.name}: cases of seed ${SEED}, as many as its time allows, are taken, or refused with one clear sentence, and nothing else comes of them (PLUMB_FUZZ_CASES, PLUMB_FUZZ_SEED, PLUMB_FUZZ_INPUT)`, async function () {
      this.timeout(0)
      const corpus = corpusOf(target.name)
      const seen: Figures = { ok: 0, refused: 0, slowest: 0 }
      const failures: string[] = []
      const end = Date.now() + budgetOf(60_000, ONLY ? 1 : 1 / TARGETS.length)
      const each = Math.ceil(EACH * (SLOW.includes(target.name) ? 0.2 : MORE))
      const [first, last] = CASE ? [Number(CASE), Number(CASE) + 1] : [0, each]
      for (let number = first; number < last && failures.length < 10 && Date.now() < end; number++) {
        // A case that hangs or kills the process is among the hundred after the last line.
        if (number % 100 === 0) console.log(`fuzz: ${target.name}, seed ${SEED}, case ${number}`)
        const stored = corpus[number]
        const parts = stored ? asStored(target, stored) : varied(target, corpus, dice(SEED, number))
        const wrong = [
          ...(await judge(target, parts, seen)),
          ...(number % 20 === 0 || number === last - 1 ? astray() : []),
        ]
        if (wrong.length > 0)
          failures.push(
            `PLUMB_FUZZ_SEED=${SEED} PLUMB_FUZZ_INPUT="${target.name} ${number}": ${wrong.join('\n  ').slice(0, 2000)}\n  ${shown(parts)}`,
          )
      }
      tell(target.name, seen, failures.length)
      if (failures.length > 0) assert.fail(failures.join('\n'))
      assert.ok(
        CASE !== undefined || (seen.ok > 0 && (seen.refused > 0 || ALL.includes(target.name))),
        `all alike: ${JSON.stringify(seen)}`,
      )
    })
  }
})

/** Gives one input to its reader; what was wrong, one sentence each. */
async function judge({ feed }: Target, parts: Parts, seen: Figures): Promise<string[]> {
  ftruncateSync(2)
  const started = process.cpuUsage()
  const wrong = await taken(() => feed(parts), seen)
  const ms = spent(started)
  seen.slowest = Math.max(seen.slowest, ms)
  const said = readFileSync(STDERR, 'utf8')
  if (ms > LIMIT_MS) wrong.push(`it took ${Math.round(ms)} ms`)
  if (/^\s+at .+:\d+/m.test(said) || said.length > 65_536) wrong.push(`on stderr: ${said.slice(0, 500)}`)
  if (/(?!\n)\p{Cc}/u.test(said)) wrong.push(`a control character on stderr: ${JSON.stringify(said.slice(0, 500))}`)
  if (inherited() !== prototypes) wrong.push(`a prototype is another: ${inherited()}`)
  return wrong
}

/** What stands where nothing of it belongs. */
function astray(): string[] {
  const made = places().filter((one) => !outside.includes(one))
  outside = [...outside, ...made]
  return made.map((one) => `this one, or one of the twenty before it, made ${one}`)
}

async function taken(work: () => ReturnType<Target['feed']>, seen: Figures): Promise<string[]> {
  try {
    const wrong = (await work()) ?? []
    seen.ok++
    return [...wrong]
  } catch (cause) {
    seen.refused++
    return unclear(cause)
  }
}

/** Where a path that leads astray would end: beside what the readers are given. */
function places(): string[] {
  return ['/', '/run', '/run/netns', '/run/fuzz.d', BASE]
    .flatMap((dir) => {
      try {
        return readdirSync(dir).map((name) => `${dir}/${name}`)
      } catch {
        return []
      }
    })
    .filter((path) => !/^\/run\/fuzz\/(node|net\.d|bin|cni|pool|dhcp\.sock|dhcp\.sock\.leases|node\.sock)$/.test(path))
}

function inherited(): string {
  return [Object, Array, Function, String, Map]
    .map(({ name, prototype }) => `${name} ${Reflect.ownKeys(prototype).length}`)
    .join(' ')
}

function shown(parts: Parts): string {
  return Object.entries(parts)
    .map(
      ([name, bytes]) =>
        `${name}: ${JSON.stringify(bytes.subarray(0, 800).toString())}${bytes.length > 800 ? ` and ${bytes.length - 800} bytes more` : ''}`,
    )
    .join('\n  ')
}

async function furnished(): Promise<void> {
  await confine()
  await execa('ip', ['netns', 'add', 'fuzz'])
  await execa('sh', ['-ec', `${LINKS('fuzz')}\nip link set ${LINK} up\nip addr add fe80::5/64 dev ${LINK} nodad`])
}

function silence(): void {
  closeSync(2)
  assert.equal(openSync(STDERR, 'a'), 2)
}
