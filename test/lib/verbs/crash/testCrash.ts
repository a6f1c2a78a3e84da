import assert from 'node:assert/strict'
import { appendFileSync, existsSync } from 'node:fs'
import { basename } from 'node:path'
import { inNamespaces } from '../../../support/harness.ts'
import { skip } from '../../../support/skip.ts'
import type { Subject } from '../../../support/suites/subject.ts'
import type { Figures } from './figures.ts'
import { type Scene, type Sequel, setScene, type Verb } from './scene.ts'
import { type Point, STRACE, spread, stand } from './shots.ts'

/** The file that the figures go to, when the whole matrix is wanted. */
const WHOLE = process.env['PLUMB_CRASH']
const VERBS: readonly Verb[] = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS']
// A pod that is made again has no servers: those that need it as it is come first.
const SEQUELS: readonly Sequel[] = ['DEL', 'ADD', 'GC', 'DEL without the namespace']

interface Round {
  readonly point: Point
  readonly sequel: Sequel
}

/**
 * Defines the tests of SIGKILL at each system call that changes something, and of the call that then puts things right.
 * They take a sample of the points. With PLUMB_CRASH they take all of them, each with every sequel.
 */
export function testCrash(subject: Subject): void {
  describe('SIGKILL at system calls', () => {
    before(function () {
      if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which stops a program at a system call`)
    })
    for (const verb of WHOLE ? VERBS : (['ADD', 'DEL'] as const))
      it(`${WHOLE ? 'each' : 'some'} of those of ${verb} that change something, then ${WHOLE ? SEQUELS.join(', or ') : 'DEL, ADD or GC'}: works, and nothing is left`, async function () {
        this.timeout(WHOLE ? 3_600_000 : 60_000)
        const figures = await walk.call(
          this,
          subject,
          verb,
          !WHOLE ? sample : verb === 'CHECK' || verb === 'STATUS' ? inTurn : all,
        )
        if (WHOLE) appendFileSync(WHOLE, `${JSON.stringify(figures)}\n`)
        assert.ok(figures.killed > 0, `${verb} was killed nowhere`)
        assert.deepEqual(figures.faults, [], `of ${figures.rounds} rounds`)
      })
  })
}

function all(points: readonly Point[]): Round[] {
  return SEQUELS.flatMap((sequel) => points.map((point) => ({ point, sequel })))
}

// These change nothing that lasts: one sequel for each point.
function inTurn(points: readonly Point[]): Round[] {
  return SEQUELS.flatMap((sequel, k) =>
    points.flatMap((point, i) => (i % SEQUELS.length === k ? [{ point, sequel }] : [])),
  )
}

function sample(points: readonly Point[]): Round[] {
  return spread(points, 3).map((point, i) => ({ point, sequel: SEQUELS[i] as Sequel }))
}

// After a fault the next round has a scene of its own.
async function walk(
  this: Mocha.Context,
  subject: Subject,
  verb: Verb,
  choose: (points: readonly Point[]) => Round[],
): Promise<Figures> {
  const figures = {
    subject: basename(this.test?.file ?? '', '.test.ts'),
    verb,
    points: 0,
    rounds: 0,
    killed: 0,
    faults: [] as string[],
    ms: 0,
  }
  const began = performance.now()
  let left: Round[] | undefined
  do {
    await inNamespaces(['node', 'pod', 'other'], async (nodes) => {
      const scene = await setScene(subject, nodes)
      if (!left) {
        const points = await record(scene, subject, verb)
        Object.assign(figures, { points: points.length })
        left = choose(points)
      }
      for (let round = left.shift(), isGood = true; round && isGood; round = isGood ? left.shift() : undefined) {
        figures.rounds++
        const { point, sequel } = round
        const by = stand(subject.type, point)
        try {
          await scene.prepare(verb)
          if (await scene.shoot(verb, by)) figures.killed++
          await scene.follow(sequel, verb !== 'ADD' || point.name === 'exit_group' || !by.died())
        } catch (cause) {
          isGood = false
          figures.faults.push(
            `${verb} killed at ${point.name} ${point.nth} (${by.died()?.text ?? 'it came to its end'}), then ${sequel}: ${(cause as Error).message}`,
          )
        }
      }
    }).call(this)
  } while (left && left.length > 0)
  return { ...figures, ms: performance.now() - began }
}

async function record(scene: Scene, { type }: Subject, verb: Verb): Promise<Point[]> {
  const by = stand(type)
  await scene.prepare(verb)
  await scene.shoot(verb, by)
  await scene.follow('DEL', true)
  return by.points()
}
