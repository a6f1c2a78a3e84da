// lane: longer
// Tests bench/budget: plumb costs no more instructions than bench/budget.json allows.
// needs: machine
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { type Budget, budgetOf, compare, FILE, partOf, readBudget, WRITE } from '../../bench/budget/budget.ts'
import { ours } from '../../bench/budget/contenders.ts'
import type { Found } from '../../bench/budget/guest.ts'
import { measure } from '../../bench/budget/machine.ts'
import { BUDGET_PATHS } from '../../bench/budget/paths.ts'
import { kernel } from '../../scripts/kernel.ts'
import { until } from '../support/harness.ts'
import { missing } from '../support/machine/machine.ts'
import { skip } from '../support/skip.ts'

/** From one part to the next: nodes with their agents start between them. */
const LIMIT_MS = 240_000

describe('the budget of instructions', function () {
  this.timeout(LIMIT_MS + 30_000)
  let budget: Budget
  const found: Found[] = []
  // One machine measures all. Each test waits for its part.
  let end: { readonly failure?: Error } | undefined

  before(function () {
    if (!existsSync(FILE)) skip(this, `no budget is written yet: ${WRITE} writes one`)
    budget = readBudget()
    const why = missing() ?? otherKernel(budget.versions['kernel'])
    if (why) skip(this, why)
    const order = { contenders: [ours()], paths: BUDGET_PATHS, calls: true, beside: false }
    measure(order, (one) => void found.push(one)).then(
      () => (end = {}),
      (failure: Error) => (end = { failure }),
    )
  })

  async function judge(text: string, path?: string): Promise<void> {
    const isThere = () => found.some((one) => one.what === 'took' && one.text === text)
    await until(() => isThere() || end, LIMIT_MS)
    if (!isThere() && end?.failure) throw end.failure
    const measured = budgetOf(found, ours().name)
    const { grew, fell } = compare(partOf(budget, path), partOf(measured, path))
    if (fell.length > 0)
      process.stderr.write(`It costs less than bench/budget.json has. Lower the budget by ${WRITE}:\n${lines(fell)}\n`)
    assert.equal(grew.length, 0, `${tooMuch(grew)}\n${otherVersions(budget, measured)}`)
  }

  it('has a figure for each path that is measured, and for no other', () => {
    assert.deepEqual(Object.keys(budget.paths).sort(), BUDGET_PATHS.map(({ name }) => name).sort())
  })

  it('holds for plugin calls', () => judge('calls'))

  for (const { name } of BUDGET_PATHS)
    it(`holds for packets on the path ${name}`, () => judge(`${ours().name}, ${name}`, name))
})

function otherKernel(wanted: string | undefined): string | undefined {
  const release = kernel()?.release
  return release === wanted
    ? undefined
    : `the budget is of kernel ${wanted}, and the machine has ${release}: write a new one by ${WRITE}`
}

function tooMuch(grew: readonly string[]): string {
  return `plumb costs more than bench/budget.json allows:\n${lines(grew)}\nMend it, or run ${WRITE} and say why in the commit (CONTRIBUTING.md, "When the budget fails")`
}

function otherVersions(budget: Budget, measured: Budget): string {
  return Object.entries(measured.versions)
    .filter(([name, version]) => budget.versions[name] !== version)
    .map(([name, version]) => `${name} is ${version}, the budget is of ${budget.versions[name]}\n`)
    .join('')
}

function lines(all: readonly string[]): string {
  return all.map((one) => `  ${one}`).join('\n')
}
