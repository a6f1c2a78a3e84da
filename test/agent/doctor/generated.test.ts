// lane: soak
// Tests agent/doctor: faults that a generator draws, on three nodes. PLUMB_FAULTS is their number, PLUMB_SEED their seed.
import assert from 'node:assert/strict'
import { appendFileSync } from 'node:fs'
import { nextFault } from '../../support/diagnosis/faults.ts'
import { judge, tableOf, type Verdict } from '../../support/diagnosis/judge.ts'
import { brokenOf, pathsOf } from '../../support/diagnosis/matrix.ts'
import { inWorld, isCalm, type World } from '../../support/diagnosis/world.ts'
import { until } from '../../support/harness.ts'
import { generator } from '../../support/random.ts'
import { SEED } from '../../support/seed.ts'

const COUNT = Number(process.env['PLUMB_FAULTS'] ?? 20)
/** Each verdict is a line there. */
const FILE = process.env['PLUMB_FAULTS_FILE']
/** The doctor names at least this part of what broke a path. */
const NAMED = 0.9
const [PATIENCE_MS, HEALTHY_MS] = [45_000, 60_000]

describe('the doctor and faults that a generator draws', () => {
  it('names them', async function () {
    this.timeout(36_000_000)
    const all: Verdict[] = []
    const random = generator(SEED)
    // A world that cannot be healed is made again.
    const some = async (world: World) => {
      await isHealthy(world)
      for (let isHealed = true; isHealed && all.length < COUNT; ) {
        const verdict = await judge(world, nextFault(world, random, all.length), PATIENCE_MS)
        all.push(verdict)
        isHealed = verdict.isHealed
        if (FILE) appendFileSync(FILE, `${JSON.stringify(verdict)}\n`)
      }
    }
    while (all.length < COUNT) await inWorld(some).call(this)
    process.stderr.write(`${tableOf(all)}\n`)
    const broken = all.filter((one) => one.broken.length > 0)
    const named = broken.filter((one) => one.isNamed)
    assert.ok(named.length >= NAMED * broken.length, tableOf(all))
  })
})

async function isHealthy(world: World): Promise<void> {
  await isCalm(world, HEALTHY_MS)
  const paths = pathsOf(world)
  const names = async () => (await brokenOf(paths)).map(({ name }) => name)
  await until(async () => (await names()).length === 0, HEALTHY_MS).catch(async () =>
    assert.deepEqual(await names(), []),
  )
}
