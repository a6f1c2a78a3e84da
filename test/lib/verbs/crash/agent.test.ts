// lane: crash
// Tests lib/verbs, killed at every step.
import assert from 'node:assert/strict'
import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { snapshot, until } from '../../../support/harness.ts'
import { settled } from '../../../support/network.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node, subnetEnv } from '../../../support/nodes.ts'
import { skip } from '../../../support/skip.ts'
import { type Files, losses, readFiles, writeFiles } from './disk.ts'
import type { Figures } from './figures.ts'
import { changes } from './scene.ts'
import { type Point, STRACE, spread, stand } from './shots.ts'

// Two subnets for two nodes: who gives one back gets the same again.
const CONF = {
  Network: '10.244.0.0/16',
  SubnetMin: '10.244.1.0',
  SubnetMax: '10.244.2.0',
  EnableIPv6: true,
  IPv6Network: 'fd00:244::/48',
  IPv6SubnetMin: 'fd00:244:0:1::',
  IPv6SubnetMax: 'fd00:244:0:2::',
  Backend: { Type: 'vxlan' },
}
const PLUMB = join(import.meta.dir, '../../../../dist/plumb')
const WHOLE = process.env['PLUMB_CRASH']

interface Place {
  readonly cluster: Cluster
  readonly one: Node
  /** Node and files without an agent, and with one that was ready. */
  readonly bare: string
  readonly built: string
  /** What `plumb agent` or `plumb agent cleanup` changes, call by call. */
  readonly starting: readonly Point[]
  readonly leaving: readonly Point[]
}

describe('SIGKILL of plumb agent at system calls', () => {
  before(needStrace)
  it(
    `${WHOLE ? 'each' : 'some'} of those of a first start that change something: the next start makes the same node of it, and cleanup leaves nothing`,
    inPlace(async (place) => {
      const { one, built } = place
      await walk(place, 'start', place.starting, async (point) => {
        const killed = await begun(one.agentAs(stand('plumb', point, true).file))
        await begin(one)
        await same(place, built, LATER)
        await cleanup(one)
        return killed
      })
    }),
  )
  it(
    `${WHOLE ? 'each' : 'some'} of those of a first start that change something, then cleanup: nothing is left`,
    inPlace(async (place) => {
      await walk(place, 'start, then cleanup', place.starting, async (point) => {
        const killed = await begun(place.one.agentAs(stand('plumb', point, true).file))
        await cleanup(place.one)
        return killed
      })
    }),
  )
  it(
    `${WHOLE ? 'each' : 'some'} of those of cleanup that change something, then cleanup: nothing is left`,
    inPlace(async (place) => {
      await walk(place, 'cleanup', place.leaving, async (point) => {
        await begin(place.one)
        const { status } = await clean(place.one, stand('plumb', point).file)
        await cleanup(place.one)
        return status !== 0
      })
    }),
  )
})

describe('a power loss at any moment of a start of plumb agent', () => {
  before(needStrace)
  it(
    'every file is old or new, and the next start makes the same node of it',
    inPlace(async (place) => {
      const { one, cluster, built } = place
      const dirs = [join(one.dir, 'state'), join(one.dir, 'net.d'), join(cluster.dir, 'store')]
      for (const dir of dirs) mkdirSync(dir, { recursive: true })
      const [before, bare] = [readFiles(dirs), await look(cluster, one)]
      const by = stand('plumb', undefined, true)
      await begun(one.agentAs(by.file))
      const after = readFiles(dirs)
      await cleanup(one)
      const { states: all, whole } = losses(before, by.lines(), dirs)
      assert.ok(all.length > 10, `${all.length} states`)
      assert.deepEqual(finals(all.at(-1)?.files ?? new Map()), finals(after))
      const torn = all.flatMap(({ files, when }) =>
        finals(files).flatMap(([path, text]) =>
          whole.has(text) || [before, after].some((one) => one.get(path) === text) ? [] : `${path} ${text} ${when}`,
        ),
      )
      assert.deepEqual(torn, [])
      const points = all.map(({ files, when }) => ({ name: 'power loss', nth: 0, text: when, files }))
      await walk({ ...place, bare }, 'power loss', points, async ({ files }) => {
        writeFiles(dirs, files)
        await begin(one)
        await same(place, built, LATER)
        await cleanup(one)
        return true
      })
    }),
  )
})

function needStrace(this: Mocha.Context): void {
  if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which stops a program at a system call`)
}

/** Two nodes: the second has an agent; the first has had one. */
function inPlace(work: (place: Place) => Promise<void>): (this: Mocha.Context) => Promise<void> {
  return inCluster(
    2,
    (cluster) => [...fileStore(cluster, CONF), '--install-cni'],
    async (cluster, test) => {
      test.timeout(WHOLE ? 3_600_000 : 120_000)
      const [one, two] = cluster.nodes as [Node, Node]
      await two.agent().ready(30_000)
      await begin(one)
      await clean(one)
      const bare = await settled(() => look(cluster, one))
      const recorder = stand('plumb', undefined, true)
      await begun(one.agentAs(recorder.file))
      const built = await settled(() => look(cluster, one))
      const leaver = stand('plumb')
      await clean(one, leaver.file)
      await until(async () => assert.equal(await look(cluster, one), bare) === undefined)
      await work({ cluster, one, bare, built, starting: recorder.points(), leaving: leaver.points() })
    },
  )
}

async function walk<P extends Point>(
  place: Place,
  verb: string,
  points: readonly P[],
  round: (point: P) => Promise<boolean>,
): Promise<void> {
  const began = performance.now()
  const faults: string[] = []
  let killed = 0
  // On a slow machine the record goes on after the agent was ready, and late calls are no part of a start.
  const chosen = WHOLE ? points : spread(points, 4)
  for (const point of chosen) {
    try {
      if (await round(point)) killed++
      await same(place, place.bare)
    } catch (cause) {
      faults.push(`${point.text}: ${(cause as Error).message}`)
      await clean(place.one)
      await clean(place.one)
      for (const name of readdirSync(join(place.one.dir, 'state')))
        rmSync(join(place.one.dir, 'state', name), { recursive: true, force: true })
    }
  }
  if (WHOLE)
    appendFileSync(
      WHOLE,
      `${JSON.stringify({ subject: 'agent', verb, points: points.length, rounds: chosen.length, killed, faults, ms: performance.now() - began } satisfies Figures)}\n`,
    )
  assert.deepEqual(faults, [], `of ${chosen.length} rounds`)
  assert.ok(killed > 0, `killed nowhere of ${points.length}`)
}

/** Whether it was killed before it was ready; one that was ready is stopped there. */
async function begun(agent: Agent): Promise<boolean> {
  const ready = agent.ready(30_000).then(
    () => undefined,
    (cause: Error) => cause,
  )
  const first = await Promise.race([ready, agent.ended])
  if (first === undefined) await agent.stop('SIGKILL')
  else assert.ok(typeof first === 'number' ? first > 128 : /ended with/.test(first.message), `${first} ${agent.log()}`)
  return first !== undefined
}

async function begin(one: Node): Promise<void> {
  const agent = one.agent()
  await agent.ready(30_000)
  await agent.stop('SIGKILL')
}

async function cleanup(one: Node): Promise<void> {
  const { status, stdout, stderr } = await clean(one)
  assert.equal(status, 0, `${stdout}${stderr}`)
}

function clean(one: Node, program = PLUMB): ReturnType<Node['ns']['exec']> {
  return one.ns.exec([program, 'agent', 'cleanup', ...one.options])
}

/**
 * Files that an agent writes 5 s after its start (agent/store/last-known.ts). An agent that was ready and stopped
 * before has none.
 */
const LATER = /\/state\/network-\w+\.json$/

/** Waits until node and files are as wanted. Files of `others` may be there or not. */
async function same({ cluster, one }: Place, want: string, others?: RegExp): Promise<void> {
  await until(async () => {
    const differ = changes(want, await look(cluster, one)).filter((line) => !others?.test(line))
    return assert.deepEqual(differ, []) === undefined
  })
}

/**
 * The node and its files, with the texts of those that others read. A killed process leaves a socket, and in a shared
 * store one draft for all writers.
 */
async function look({ dir }: Cluster, one: Node): Promise<string> {
  const names = [one.dir, join(dir, 'store')].flatMap((folder) =>
    readdirSync(folder, { recursive: true }).map((name) => join(folder, `${name}`)),
  )
  const files = names.filter((path) => !/\.sock$|\/store\/\w+\/\.draft$/.test(path)).sort()
  const texts = files.filter((path) => /\.(env|conflist)$/.test(path)).map((path) => readFileSync(path, 'utf8'))
  return [await snapshot(one.ns), ...files, ...texts, JSON.stringify(subnetEnv(one) ?? {})].join('\n')
}

function finals(files: Files): [string, string][] {
  return [...files].filter(([path, text]) => text !== '/' && !/draft$|lock$/.test(path)).sort()
}
