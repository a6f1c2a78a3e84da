// lane: long
// Tests bench/budget: plumb costs no more instructions than bench/budget.json allows.
// needs: machine
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { budgetOf, compare, FILE, readBudget, WRITE } from '../../bench/budget/budget.ts'
import { ours } from '../../bench/budget/contenders.ts'
import type { Found } from '../../bench/budget/guest.ts'
import { measure } from '../../bench/budget/machine.ts'
import { PATHS } from '../../bench/budget/paths.ts'
import { kernel } from '../../scripts/kernel.ts'
import { missing } from '../support/machine/machine.ts'
import { patient } from '../support/patience.ts'
import { skip } from '../support/skip.ts'

const LIMIT_MS = 240_000

describe('the budget of instructions', () => {
  it('holds for each path of packets and each plugin call', async function () {
    this.timeout(patient(LIMIT_MS))
    if (!existsSync(FILE)) skip(this, `no budget is written yet: ${WRITE} writes one`)
    const budget = readBudget()
    const why = missing() ?? otherKernel(budget.versions['kernel'])
    if (why) skip(this, why)
    const found: Found[] = []
    await measure({ contenders: [ours()], paths: PATHS, calls: true }, (one) => void found.push(one))
    const measured = budgetOf(found, ours().name)
    const { grew, fell } = compare(budget, measured)
    if (fell.length > 0)
      process.stderr.write(`It costs less than bench/budget.json has. Lower the budget by ${WRITE}:\n${lines(fell)}\n`)
    const others = Object.entries(measured.versions).filter(([name, version]) => budget.versions[name] !== version)
    const differ = others.map(([name, version]) => `${name} is ${version}, the budget is of ${budget.versions[name]}\n`)
    assert.deepEqual(
      grew,
      [],
      `plumb costs more than bench/budget.json allows. Mend it, or write a new budget by ${WRITE} and say why:\n${lines(grew)}\n${differ.join('')}`,
    )
  })
})

function otherKernel(wanted: string | undefined): string | undefined {
  const release = kernel()?.release
  return release === wanted
    ? undefined
    : `the budget is of kernel ${wanted}, and the machine has ${release}: write a new one by ${WRITE}`
}

function lines(all: readonly string[]): string {
  return all.map((one) => `  ${one}`).join('\n')
}
