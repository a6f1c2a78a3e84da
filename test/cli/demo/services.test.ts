// lane: netns
// Tests cli/demo/services.ts.
import assert from 'node:assert/strict'
import { assertTold, demo, machine } from '../../support/demo.ts'
import { inNamespaces } from '../../support/harness.ts'

describe('plumb demo services', () => {
  it(
    'serves three pods by one address, draws the spread, and leaves nothing on the machine',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(60_000)
      const before = await machine(node)
      const told = await demo(node, 'services')
      assertTold(told, 10)
      const bars = [...told.stdout.matchAll(/^ {6}(web-[abc]) +#+ +(\d+)$/gm)].map(
        ([, name, count]) => [name, Number(count)] as const,
      )
      assert.deepEqual(
        bars.map(([name]) => name),
        ['web-a', 'web-b', 'web-c', 'web-a', 'web-b', 'web-c', 'web-a', 'web-c'],
      )
      assert.equal(
        bars.slice(0, 3).reduce((sum, [, count]) => sum + count, 0),
        60,
      )
      assert.deepEqual(await machine(node), before)
    }),
  )
})
