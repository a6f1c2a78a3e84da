import assert from 'node:assert/strict'
import { lackingKinds } from '../../support/kinds.ts'
import { skip } from '../../support/skip.ts'
import type { Difference } from './compare.ts'
import { pairwise } from './generate.ts'
import { sceneOf } from './keys.ts'
import { hasPlugin, type Lane, lanes, missing } from './lanes.ts'
import { type Judge, live } from './life.ts'
import type { Scene } from './list.ts'
import { appliesTo, RULES, wantedBy } from './rules.ts'
import { samples, scenesOf, typesOf } from './samples.ts'
import { staged } from './scenes.ts'

/** So many scenes are lived at once: each waits for the kernel more than it works. */
const WIDTH = 3
/** Plugins whose wanted differences are told by a test of their own. */
const APART = ['sbr', 'vrf', 'dhcp']
const SEED = Number(process.env['PLUMB_DIFFERENTIAL_SEED'] ?? 1)
/**
 * How many generated scenes each lane has at most: all of the newer reference's, a part of the older one's.
 * PLUMB_BESIDE=all lives them all.
 */
const MOST =
  process.env['PLUMB_BESIDE'] === 'all'
    ? { newer: Number.POSITIVE_INFINITY, older: Number.POSITIVE_INFINITY }
    : { newer: Number.POSITIVE_INFINITY, older: 40 }

/** Defines a test for each scene: nothing differs but what a rule wants. `met` gathers the ids of rules. */
export function differential(scenes: readonly Scene[], lane: Lane, met = new Set<string>()): void {
  let lived: Promise<Difference[]>[] | undefined
  for (const [i, scene] of scenes.entries())
    it(`${scene.name}: as ${lane.version}`, async () => {
      // In order and several at once, from the first test on.
      lived ??= inParallel(scenes, (one) => steady(() => live(one, lane.path, judge(one, lane, met))))
      const found = (await lived[i]) as Difference[]
      assert.equal(found.length, 0, told(found, scene))
    })
}

/** Defines the tests of one part of the generated scenes. */
export function generated(newer: boolean, part: number, parts: number): void {
  inLane(`generated scenes of seed ${SEED}, part ${part} of ${parts}`, newer, (lane) => {
    const most = MOST[newer ? 'newer' : 'older']
    const choices = pairwise(SEED, newer).slice(0, most)
    differential(choices.filter((_, i) => i % parts === part - 1).map(sceneOf), lane)
  })
}

/** Defines the tests of the staged scenes, and one that they meet every wanted difference at least once. */
export function stagedScenes(newer: boolean): void {
  inLane('staged scenes', newer, (lane) => {
    const met = new Set<string>()
    differential(
      staged(newer).filter((scene) => scene.list.plugins.every(({ type }) => hasPlugin(lane, type))),
      lane,
      met,
    )
    it('meet every wanted difference at least once', () => {
      const unmet = RULES.filter(
        (rule) => appliesTo(rule, newer) && (!rule.needs || hasPlugin(lane, rule.needs)) && !met.has(rule.id),
      )
      assert.deepEqual(
        unmet.map(({ id }) => id),
        [],
      )
    })
  })
}

/** Defines a suite beside the newer or the older reference; one skipped test where there is none. */
export function inLane(title: string, newer: boolean, define: (lane: Lane) => void): void {
  const all = lanes()
  const lane = all.find((one) => one.newer === newer)
  describe(`beside the ${newer ? 'newer' : 'older'} reference: ${title}`, () => {
    if (lane) define(lane)
    else
      it('is as the reference', function () {
        skip(this, missing(newer))
      })
  })
}

/** Defines the tests of every sample in conf/ beside the newer reference, or the older. */
export function sampleScenes(newer: boolean): void {
  inLane('every sample in conf/', newer, (lane) => {
    assert.ok(samples().length > 0)
    for (const sample of samples()) {
      const kinds = lackingKinds(typesOf(sample))
      const lacking = typesOf(sample).filter((type) => !hasPlugin(lane, type))
      const apart = typesOf(sample).filter((type) => APART.includes(type))
      if (lacking.length + kinds.length + apart.length === 0) differential(scenesOf(sample, lane), lane)
      else
        it(`conf/${sample.file}: as ${lane.version}`, function () {
          const why =
            apart.length > 0
              ? `what ${apart.join(', ')} makes is meant to differ: a test of its own compares it`
              : lacking.length > 0
                ? `the reference ${lane.version} has no ${lacking.join(', ')}`
                : `this kernel has no ${kinds.join(', ')}`
          skip(this, why)
        })
    }
  })
}

// The reference races with the kernel: its ptp was seen to ask for an IPv6 route before the address is there that it
// names. What is not there a second time is chance.
async function steady(once: () => Promise<Difference[]>): Promise<Difference[]> {
  const first = await once()
  if (first.length === 0) return first
  const paths = new Set((await once()).map(({ path }) => path))
  return first.filter(({ path }) => paths.has(path))
}

function judge(scene: Scene, { newer }: Lane, met: Set<string>): Judge {
  return (one, refused) => {
    const rule = wantedBy(one, { scene, refused, newer })
    if (rule) met.add(rule.id)
    return rule !== undefined
  }
}

function inParallel<T>(scenes: readonly Scene[], work: (scene: Scene) => Promise<T>): Promise<T>[] {
  const ends = scenes.map(() => Promise.withResolvers<T>())
  // One that fails before its test asks is no unhandled rejection.
  for (const { promise } of ends) promise.catch(() => {})
  let next = 0
  const worker = async () => {
    for (let i = next++; i < scenes.length; i = next++)
      await work(scenes[i] as Scene).then(ends[i]?.resolve, ends[i]?.reject)
  }
  for (let i = 0; i < WIDTH; i++) void worker()
  return ends.map(({ promise }) => promise)
}

function told(found: readonly Difference[], scene: Scene): string {
  const lines = found.map(
    ({ path, theirs = '(nothing)', ours = '(nothing)' }) => `${path}\n    reference: ${theirs}\n    plumb:     ${ours}`,
  )
  return `${found.length} differences that no rule of test/plugins/differential/rules.ts wants:\n${lines.join('\n')}\nin ${JSON.stringify(scene)}`
}
