// lane: quick
// Tests agent/policy/pair-questions.ts, pair-answers.ts and snapshot.ts, and agent/node/own-program.ts: questions that a
// process of their own answers.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { type Namespace, namespaceOf, type Pod, type Policy, podOf, policyOf } from '../../../agent/cluster/objects.ts'
import { noObjects } from '../../../agent/cluster/source.ts'
import { askOwnProgram, type Limits, NoAnswerError } from '../../../agent/node/own-program.ts'
import { comparisonOf, draftsOf } from '../../../agent/policy/comparison.ts'
import { cellOf, matrixOf } from '../../../agent/policy/matrix.ts'
import { PAIR_COMMAND } from '../../../agent/policy/pair-command.ts'
import { PairQuestions } from '../../../agent/policy/pair-questions.ts'
import type { PairKnowledge } from '../../../agent/policy/pairs.ts'
import { linesOf, readLines } from '../../../agent/policy/snapshot.ts'
import { compile } from '../../../agent/policy/state.ts'
import { atOnce } from '../../../agent/scheduler/pieces.ts'
import { ValueError } from '../../../lib/text/errors.ts'

const LIMITS: Limits = { ms: 60_000, bytes: 1 << 30, advice: 'want less' }
const GUARD =
  'apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: guard, namespace: x}\nspec: {podSelector: {}}'
const NEVER = new AbortController().signal

describe('questions about all pairs of pods', function () {
  this.timeout(120_000)

  it('another process answers what this one would', async () => {
    const { known } = world()
    const questions = new PairQuestions(() => known)
    assert.deepEqual(await questions.matrix(), atOnce(matrixOf(known)))
    assert.deepEqual(await questions.cell('x', 'y'), atOnce(cellOf(known, 'x', 'y')))
    const compared = atOnce(comparisonOf(known, atOnce(draftsOf(GUARD))))
    assert.ok(compared.pairs.length > 0)
    assert.deepEqual(await questions.comparison({ text: GUARD }), compared)
  })
  it('a text that is no policy is refused as the agent would', async () => {
    const questions = new PairQuestions(() => world().known)
    await assert.rejects(
      questions.comparison({ text: 'kind: Pod' }),
      (cause) => cause instanceof ValueError && /^Cannot compare "Pod": want NetworkPolicy/.test(cause.message),
    )
  })
  it('a matrix is the same for all readers until something changes, and none is older than the last change', async () => {
    const { known, policies } = world()
    let asked = 0
    const questions = new PairQuestions(() => {
      asked++
      return known
    })
    const [first, second] = await Promise.all([questions.matrix(), questions.matrix()])
    assert.deepEqual([first, await questions.matrix(), asked], [second, first, 1])
    policies.set('x/guard', policyIn('x', { podSelector: {}, policyTypes: ['Ingress'] }))
    questions.changed()
    assert.deepEqual(
      [first.rows, (await questions.matrix()).rows],
      [
        ['oo', 'oo'],
        ['co', 'co'],
      ],
    )
    assert.equal(asked, 2)
  })
  it('a failed matrix is made again for the next reader', async () => {
    const { known } = world()
    let fails = true
    const questions = new PairQuestions(() => {
      if (fails) throw new ValueError('not yet')
      return known
    })
    await assert.rejects(questions.matrix(), /not yet/)
    fails = false
    assert.deepEqual((await questions.matrix()).namespaces, ['x', 'y'])
  })
  it('the process gets the objects of one moment, whatever changes while it reads them', () => {
    const { known, pods } = world()
    const lines = linesOf({ about: 'matrix' }, known)
    const before = [...pods]
    const first = lines.next().value as string
    pods.clear()
    const { known: read } = readLines([first, ...lines].join('\n'))
    assert.deepEqual([...read.cluster.pods], before)
    assert.deepEqual(read.state.locals.get('x/a'), { ips: ['10.1.0.1'], isClosed: false })
  })
  it('a label of any name reaches the process', () => {
    const { known, pods } = world()
    const labels = JSON.parse('{"__proto__": "a", "constructor": "b"}')
    pods.set('x/a', podIn('x', 'a', '10.1.0.1', labels))
    const { known: read } = readLines([...linesOf({ about: 'matrix' }, known)].join('\n'))
    assert.deepEqual(Object.entries(read.cluster.pods.get('x/a')?.labels ?? {}), Object.entries(labels))
  })
})

describe('a process of its own for one question', function () {
  this.timeout(120_000)
  function* endless(each: () => void = () => {}): Generator<string> {
    for (;;) {
      yield ''
      each()
    }
  }
  const asked = (lines: Iterable<string>, limits: Partial<Limits> = {}, signal = NEVER) =>
    askOwnProgram([PAIR_COMMAND], lines, { ...LIMITS, ...limits }, signal)
  const refused = async (answer: Promise<string>, why: RegExp, advice: RegExp) => {
    await assert.rejects(
      answer,
      (cause) => cause instanceof NoAnswerError && why.test(cause.message) && advice.test(cause.details),
    )
    assert.deepEqual(children(), [])
  }

  it('ends at its limit of time', () =>
    refused(asked(endless(), { ms: 300 }), /^Cannot compute the answer: it takes longer than 0.3 s$/, /^want less$/))
  it('ends at its limit of memory', () =>
    refused(asked(endless(), { bytes: 1 << 20 }), /it needs more than 1 MiB of memory$/, /^want less$/))
  it('says that somebody killed it, and that memory may be short', () => {
    const kill = () => {
      for (const pid of children()) process.kill(pid, 'SIGKILL')
    }
    return refused(
      asked(endless(kill)),
      /its process was killed by SIGKILL$/,
      /resources\.limits\.memory\); want less$/,
    )
  })
  it('says that it failed', () =>
    refused(asked(['no question']), /its process ended with status 1; see the log$/, /^want less$/))
  it('ends with the agent', async () => {
    const end = new AbortController()
    await refused(
      asked(
        endless(() => end.abort()),
        {},
        end.signal,
      ),
      /the agent ends$/,
      /./,
    )
  })
  it('goes before the agent when memory runs out, and leaves the processor to it', async () => {
    const seen: string[][] = []
    const look = () => {
      for (const pid of children()) {
        const [, ...fields] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
        seen.push([readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8').trim(), fields.join().split(' ')[16] ?? ''])
      }
      if (seen.some(([score]) => score === '1000')) throw new ValueError('seen')
    }
    await assert.rejects(asked(endless(look)), /seen/)
    assert.deepEqual(seen.at(-1), ['1000', '5'])
    assert.deepEqual(children(), [])
  })
})

// The processes that this one has started, and that still run.
function children(): number[] {
  return readdirSync('/proc/self/task')
    .flatMap((task) => readFileSync(`/proc/self/task/${task}/children`, 'utf8').split(' '))
    .filter((pid) => pid !== '')
    .map(Number)
    .filter((pid) => !/^\S+ \(.*\) Z/.test(statOf(pid)))
}

function statOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    // It has ended meanwhile.
    return `${pid} () Z`
  }
}

function podIn(namespace: string, name: string, ip: string, labels: Readonly<Record<string, string>> = {}): Pod {
  return podOf({ metadata: { namespace, name, labels }, spec: { nodeName: 'here' }, status: { podIP: ip } }) as Pod
}

function policyIn(namespace: string, spec: object): Policy {
  return policyOf({ metadata: { namespace, name: 'guard' }, spec })
}

function world(): { known: PairKnowledge; pods: Map<string, Pod>; policies: Map<string, Policy> } {
  const namespaces = new Map<string, Namespace>(
    ['x', 'y'].map((name) => [name, namespaceOf({ metadata: { name } })] as const),
  )
  const pods = new Map(
    ['x', 'y'].flatMap((space, i) =>
      ['a', 'b'].map((name, j) => [`${space}/${name}`, podIn(space, name, `10.1.${i}.${j + 1}`)] as const),
    ),
  )
  const policies = new Map<string, Policy>()
  const cluster = { ...noObjects(), namespaces, pods, policies }
  return { known: { cluster, state: compile(cluster, 'here') }, pods, policies }
}
