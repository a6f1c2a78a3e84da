// lane: netns
// Tests cli/demo/policy.ts.
import assert from 'node:assert/strict'
import { assertTold, demo, itEndsOn, itFindsOut, machine } from '../../support/demo.ts'
import { inNamespaces } from '../../support/harness.ts'

describe('plumb demo policy', () => {
  it(
    'shows who reaches whom without policies, under default deny, with one allow and at the end, and leaves the machine as it was',
    inNamespaces(['node'], async ({ node }) => {
      const before = await machine(node)
      const told = await demo(node, 'policy')
      assertTold(told, 9)
      const rows = [...told.stdout.matchAll(/^ {4}(web|app|db) +(.*)$/gm)].map(
        ([, from, cells = '']) => `${from}: ${cells.split(/ +/).join(' ')}`,
      )
      const all = ['web: - ok ok', 'app: ok - ok', 'db: ok ok -']
      assert.deepEqual(rows, [
        ...all,
        'web: - drop drop',
        'app: drop - drop',
        'db: drop drop -',
        'web: - drop drop',
        'app: ok - drop',
        'db: drop drop -',
        ...all,
      ])
      assert.match(
        told.stdout,
        /dropped ICMP shop\/db -> shop\/web\n {4}shop\/default-deny isolates shop\/web for ingress, and no rule allows it\n/,
      )
      assert.deepEqual(await machine(node), before)
    }),
  )

  itFindsOut(
    [
      {
        what: 'nothing answers a ping',
        file: '/usr/bin/ping',
        script: 'exit 1',
        step: 'no policy: everything passes',
        said: /answered are none/,
      },
      {
        what: 'every ping is answered',
        file: '/usr/bin/ping',
        script: 'exit 0',
        step: 'default-deny: nothing passes',
        said: /answered are web to app, web to db, app to web/,
      },
    ],
    'policy',
  )

  itEndsOn(
    'SIGINT',
    /plumb agent --network-policy=DIR +ok/,
    [/plumb demo --inside/, /plumb agent --node-name=demo/],
    'policy',
  )
})
