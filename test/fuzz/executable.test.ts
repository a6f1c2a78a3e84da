// lane: fuzz
// Tests the executable, with random input.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { CODE } from '../../lib/text/errors.ts'
import { inNamespaces, type Namespace, type Row } from '../support/harness.ts'
import { furnish, type Input, LINKS, makeCase } from './cases.ts'
import { confine } from './confine.ts'
import { casesOf, type Figures, tell } from './share.ts'

const CASES = casesOf('executable')
const SEED = Number(process.env['PLUMB_FUZZ_SEED'] ?? 1)
/** As a failure names it. */
const ONLY = process.env['PLUMB_FUZZ_CASE']
const DIST = join(import.meta.dir, '../../dist')
const BASE = '/run/fuzz'
const DIR = `${BASE}/pool`
const CODES: readonly number[] = Object.values(CODE)

describe('the executable, with input that is wrong', () => {
  before(confine)

  it(
    `answers each of ${CASES} cases of seed ${SEED} as CNI has it, and changes nothing when it refuses`,
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(0)
      assert.equal((await node.exec(['sh', '-ec', LINKS(pod.path.replace('/run/netns/', ''))])).status, 0)
      const failures: string[] = []
      const seen: Figures = { ok: 0, refused: 0, slowest: 0 }
      for (const number of ONLY ? [Number(ONLY)] : Array.from({ length: CASES }, (_, i) => i * 67)) {
        if (failures.length > 10) break
        fresh()
        const { type, call } = makeCase(SEED, number, { netns: pod.path, dir: DIR })
        const before = await state(node, pod)
        const { status, stdout, stderr, ms } = await start(type, call, node)
        // Far more than it may take, because other tests run meanwhile.
        const wrong = ms > 20_000 ? [`it took ${ms} ms`] : []
        if (/^\s+at .+:\d+/m.test(stderr) || stderr.length > 65_536) wrong.push(`stderr: ${stderr.slice(0, 1000)}`)
        if (status === 1) wrong.push(...misformed(stdout), ...differ(before, await state(node, pod), stdout))
        else if (status !== 0) wrong.push(`it ended with status ${status}: ${stderr.slice(0, 1000)}`)
        seen[status === 0 ? 'ok' : 'refused']++
        seen.slowest = Math.max(seen.slowest, ms)
        if (status === 0 && call.env['CNI_COMMAND'] === 'ADD') {
          const undone = await start(type, { ...call, env: { ...call.env, CNI_COMMAND: 'DEL' } }, node)
          if (undone.status !== 0) wrong.push(`DEL of what was added: ${undone.stdout}`)
          wrong.push(...(await state(node, pod)).filter(isOwn).map((line) => `after DEL: ${line}`))
        }
        if (wrong.length > 0)
          failures.push(
            `${stdout.slice(0, 500)} PLUMB_FUZZ_SEED=${SEED} PLUMB_FUZZ_CASE=${number}: ${wrong.join('\n  ')}\n  ${type} ${JSON.stringify(call.env).slice(0, 500)} ${call.stdin.slice(0, 1500)}`,
          )
      }
      tell('executable', seen, failures.length)
      if (failures.length > 0) assert.fail(failures.join('\n'))
      if (!ONLY && CASES > 100) assert.ok(seen.refused > CASES / 10 && seen.ok > 0, JSON.stringify(seen))
    }),
  )
})

/** What the kernel lets through to a program. */
async function start(
  type: string,
  { env, stdin }: Input,
  node: Namespace,
): Promise<{ status: number; stdout: string; stderr: string; ms: number }> {
  const possible = Object.fromEntries(
    Object.entries(env).filter(
      ([name, value]) => !name.includes('\0') && !value.includes('\0') && Buffer.byteLength(value) < 100_000,
    ),
  )
  const started = performance.now()
  const done = await node.exec([join(DIST, type)], { env: possible, stdin, cwd: `${BASE}/cwd` })
  return { ...done, ms: performance.now() - started }
}

function misformed(stdout: string): string[] {
  try {
    const { cniVersion, code, msg, details = '' } = JSON.parse(stdout)
    const whole =
      typeof cniVersion === 'string' &&
      CODES.includes(code) &&
      typeof msg === 'string' &&
      msg !== '' &&
      typeof details === 'string'
    return whole && !/Unexpected failure|\bundefined\b|\[object |call stack/.test(`${msg} ${details}`)
      ? []
      : [`no error of CNI: ${stdout.slice(0, 500)}`]
  } catch (cause) {
    return [`${(cause as Error).message}: ${stdout.slice(0, 500)}`]
  }
}

/**
 * What calls can change on the node, in the pod and on disk. Without what the kernel goes on doing by itself after a
 * call: carrier, link-local addresses, multicast.
 */
async function state(node: Namespace, pod: Namespace): Promise<string[]> {
  const [links, inPod, ...texts] = await Promise.all([
    node.json('addr'),
    pod.json('addr'),
    ...ASKED.map(async (argv) => (await node.exec(argv.split(' '))).stdout),
  ])
  const link = ({ ifname, address, mtu, master, ifalias, flags, addr_info }: Row) =>
    JSON.stringify([
      ifname,
      address,
      mtu,
      master,
      ifalias,
      flags.includes('UP'),
      addr_info.flatMap(({ local, prefixlen }: Row) => (local.startsWith('fe80:') ? [] : `${local}/${prefixlen}`)),
    ])
  // What the kernel forgets by itself within a second is nothing that is left.
  const lines = texts
    .flatMap((text) => text.replace(/\n\t\telements = \{[^}]* timeout [^}]*\}/g, '').split('\n'))
    .map((line) => line.replace(/ linkdown| pref \w+/g, '').trim())
  return [
    ...links.map(link),
    ...inPod.map((row) => `pod: ${link(row)}`),
    ...lines.filter((line) => !/^(broadcast|local|anycast|multicast|fe80|ff00)/.test(line)),
    ...addresses(),
  ]
}
const ASKED = [
  'ip route show table all',
  'ip -6 route show table all',
  'ip rule',
  'nft --stateless list ruleset',
  'cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding /proc/sys/net/ipv6/conf/all/accept_ra',
]

// What nothing of the input tells: how the kernel is, and what the pool has.
const LATE =
  /"msg": "(The kernel or a tool refused|failed to allocate all requested IPs|\\".+\\" already has an IP address different)/

/**
 * What differs. A bridge, and what else the pods of a network share, may stay when that could be made and the rest
 * could not.
 */
function differ(before: readonly string[], after: readonly string[], said: string): string[] {
  const all = [
    ...after.filter((line) => !before.includes(line)).map((line) => `+ ${line}`),
    ...before.filter((line) => !after.includes(line)).map((line) => `- ${line}`),
  ]
  const isShared = (line: string) => !isOwn(line.slice(2)) && (line.startsWith('+ ') || /comment "[^"/]+"/.test(line))
  return LATE.test(said) ? all.filter((line) => !isShared(line)) : all
}

// The objects of an attachment: its link by the alias, its host ports by the comment, and its addresses and claims on
// disk. In the pod, all but lo and what configurations name.
function isOwn(line: string): boolean {
  return (
    line.includes('"plumb/') ||
    /comment "[^"]+\/[^"]+"/.test(line) ||
    (line.startsWith('pod: ') && !/^pod: \["(lo|fuzz\w+)"/.test(line)) ||
    line.startsWith('/')
  )
}

/** Addresses and host ports that are taken, and ADDs that have not ended. */
function addresses(): string[] {
  const files = [BASE, '/run/cni', '/var/lib/cni'].flatMap((dir) =>
    existsSync(dir) ? readdirSync(dir, { recursive: true, withFileTypes: true }) : [],
  )
  const isTaken = ({ name, parentPath }: (typeof files)[number]) =>
    /^[\da-f:]+[.:][\da-f:.]+$/.test(name) ||
    /\/(flannel\/[^/]+:[^/]+)$/.test(`${parentPath}/${name}`) ||
    /^\/run\/cni\/plumb\/(attachments|shared\/.+)$/.test(parentPath)
  return files.flatMap((one) => (!one.isDirectory() && isTaken(one) ? `${one.parentPath}/${one.name}` : []))
}

function fresh(): void {
  for (const dir of [BASE, '/run/cni', '/var/lib/cni']) rmSync(dir, { recursive: true, force: true })
  mkdirSync(DIR, { recursive: true })
  mkdirSync(`${BASE}/cwd`)
  furnish(DIR)
}
