import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fuse } from '../../cli/fuse.ts'
import type { Answer, Row } from './harness.ts'
import { clear, onStage, SCENES, type Scene, type Stage, unchanged } from './plugin-scenes.ts'
import { STRACE } from './recording.ts'
import { skip } from './skip.ts'

const PLUGINS: readonly Row[] = [
  { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true },
  { type: 'portmap', capabilities: { portMappings: true } },
  { type: 'firewall', ingressPolicy: 'same-bridge' },
  { type: 'bandwidth', ingressRate: 80_000_000, ingressBurst: 1_000_000 },
]
/** The scenes of the walk. */
export const DISK_SCENES: Readonly<Record<string, Scene>> = {
  'a list': { list: [...PLUGINS, { type: 'tuning', mtu: 1400, promisc: true }], tools: {} },
  'a list in one': {
    list: fuse({ cniVersion: '1.1.0', name: 'x', plugins: PLUGINS }).list['plugins'] as Row[],
    tools: {},
  },
  ...Object.fromEntries(Object.entries(SCENES).filter(([, { list }]) => list[0]?.['type'] !== 'bridge')),
}

const DIST = join(import.meta.dir, '../../dist')
/**
 * The system calls that change a file or a folder. Those that remove come last, because what a disk does not let go
 * stays for the rest of the walk.
 */
const CHANGES = [
  'mkdir',
  'link',
  'symlink',
  'rename',
  'write',
  'pwrite64',
  'ftruncate',
  'fsync',
  'utimensat',
  'unlink',
  'rmdir',
] as const
/** What a disk says that takes nothing more. */
const ERRNOS = ['ENOSPC', 'EDQUOT', 'EIO', 'EROFS'] as const
const VERBS = ['ADD', 'CHECK', 'DEL', 'GC'] as const

/** A disk that fails at one system call, or from that one on. */
interface Fault {
  readonly call: (typeof CHANGES)[number]
  readonly errno: (typeof ERRNOS)[number]
  readonly nth: number
  readonly stays: boolean
}

/** Which part of the walk a test takes. All of it when left out. */
interface Part {
  readonly types?: readonly string[]
  readonly verbs?: readonly (typeof VERBS)[number][]
  readonly errnos?: readonly (typeof ERRNOS)[number][]
  /** Whether a fault stays: all later calls of its kind fail as well. */
  readonly stays?: readonly boolean[]
}

/**
 * Defines the tests of a disk that fails: each system call by which a verb of these plugins changes a file fails in
 * turn, alone and with all that follow.
 */
export function testDiskWalk(name: string, part: Part = {}): void {
  const scene = DISK_SCENES[name] as Scene
  const {
    types = scene.list.map(({ type }) => type as string),
    verbs = VERBS,
    errnos = ERRNOS,
    stays = [false, true],
  } = part
  for (const verb of verbs)
    it(
      `${name}: ${errnos.join(', ')} at each change of a file by ${verb}: ${PROMISES[verb]}`,
      onStage(scene, async (stage, test) => {
        if (!existsSync(STRACE)) skip(test, `${STRACE} is not installed, which makes system calls fail`)
        test.timeout(1_800_000)
        let failed = 0
        for (const [at, { type }] of stage.confs.entries())
          if (types.includes(type as string)) failed += await walk(stage, at, verb, errnos, stays)
        assert.ok(failed > 0 || verb === 'CHECK', 'no call changed a file')
      }),
    )
}

const PROMISES: Readonly<Record<(typeof VERBS)[number], string>> = {
  ADD: 'a result that works, or one error and nothing left',
  CHECK: 'no error for a record, and at most one error',
  DEL: 'no error for a record, and the address is free',
  GC: 'no error for a record, and the address is free',
}

async function walk(
  stage: Stage,
  at: number,
  verb: (typeof VERBS)[number],
  errnos: Part['errnos'] & object,
  stays: readonly boolean[],
): Promise<number> {
  const before = await stage.look()
  const { log } = await called(stage, at, verb, before)
  let failed = 0
  for (const call of CHANGES) {
    const count = log.filter((line) => line.startsWith(`${call}(`)).length
    for (let nth = 1; nth <= count; nth++) {
      for (const errno of errnos)
        for (const one of stays) await called(stage, at, verb, before, { call, errno, nth, stays: one })
      failed++
    }
  }
  return failed
}

/** One life of the pod in which one call has the fault. Returns what that call changed, as strace writes it. */
async function called(
  stage: Stage,
  at: number,
  verb: (typeof VERBS)[number],
  before: string,
  fault?: Fault,
): Promise<{ readonly log: readonly string[] }> {
  const type = stage.confs[at]?.['type'] as string
  const given = await stage.addUpTo(verb === 'ADD' ? at : stage.confs.length)
  if (verb === 'DEL' || verb === 'GC')
    for (let i = stage.confs.length - 1; i > at; i--) assert.equal((await stage.call('DEL', i)).status, 0)
  const file = join(mkdtempSync('/run/strace-'), 'log')
  const inject = fault ? `-e inject=${fault.call}:error=${fault.errno}:when=${fault.nth}${fault.stays ? '+' : ''}` : ''
  const program = `exec ${STRACE} -qq -y -s 200 -o ${file} -e trace=${CHANGES.join(',')} -e signal=none ${inject} ${DIST}/${type}`
  const middle = fault?.stays === false && verb === 'ADD' ? await stage.look() : undefined
  const about = `${verb} of ${type}, ${fault ? `${fault.errno} at ${fault.call} ${fault.nth}${fault.stays ? ' and later' : ''}` : 'no fault'}`
  const answer = await stage
    .call(verb, at, given, {}, program)
    .catch((cause: Error) => assert.fail(`${about}: the answer is not one JSON document: ${cause.message}`))
  const log = readFileSync(file, 'utf8').split('\n')
  const hit = log.filter((line) => line.endsWith('(INJECTED)'))
  const told = `${about}: status ${answer.status}, ${answer.stdout}${answer.stderr}\n${hit.join('\n')}\n`
  if (!fault) assert.equal(answer.status, 0, told)
  judge(answer, verb, hit, told)
  if (verb === 'ADD' && answer.status === 0) await confirmed(stage, at, answer.result, told)
  if (middle !== undefined && answer.status !== 0) await same(stage, middle, `${told}what ADD left`, fault)
  if ((verb === 'DEL' || verb === 'GC') && answer.status === 0 && at === 0)
    assert.deepEqual(stage.reserved(), [], `${told}the address is still reserved`)
  await stage.del()
  if (fault && isRemoval(fault)) {
    await stage.addUpTo(stage.confs.length)
    await stage.del()
  }
  await same(stage, before, `${told}what DEL left`, fault)
  return { log }
}

function judge(answer: Answer, verb: (typeof VERBS)[number], hit: readonly string[], told: string): void {
  const { status, stdout, result } = answer
  if (status === 0) {
    if (verb === 'ADD') assert.ok(result['cniVersion'] && result['code'] === undefined, told)
    else assert.equal(stdout, '', told)
    return
  }
  assert.equal(status, 1, told)
  if (stdout !== '') clear(answer, /ENOSPC|EDQUOT|EIO|EROFS/)
  else
    assert.ok(
      hit.some((line) => /^write\(1</.test(line)),
      `${told}no answer, though stdout works`,
    )
  if (verb !== 'ADD') assert.ok(!hit.every(isRecord), `${told}fails though only a record could not be written`)
}

// Files that plumb keeps to remember something. The reservation of an address is none: while it is there, the address
// is taken.
function isRecord(line: string): boolean {
  return /\/run\/cni\/|\/\.plumb\/|\/last_reserved_ip\.|^write\(2</.test(line)
}

async function confirmed(stage: Stage, at: number, prevResult: Row, told: string): Promise<void> {
  const { status, stdout } = await stage.call('CHECK', at, prevResult)
  assert.equal(status, 0, `${told}CHECK says ${stdout}`)
}

function isRemoval({ call }: Fault): boolean {
  return call === 'unlink' || call === 'rmdir'
}

// What a disk does not let go stays in the index. It stands for no entry of the journal, and the agent sweeps it.
async function same(stage: Stage, before: string, about: string, fault?: Fault): Promise<void> {
  const stays = fault && isRemoval(fault) ? /\/plumb\/shared\// : /^$/
  const plain = (text: string) =>
    text
      .split('\n')
      .filter((line) => !stays.test(line))
      .join('\n')
  await unchanged({ ...stage, look: async () => plain(await stage.look()) }, plain(before), about)
}
