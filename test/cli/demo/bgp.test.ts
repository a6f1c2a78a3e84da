// lane: netns
// needs: bird
// Tests cli/demo/bgp.ts.
import assert from 'node:assert/strict'
import { assertTold, demo, itEndsOn, itFindsOut, machine } from '../../support/demo.ts'
import { inNamespaces } from '../../support/harness.ts'

describe('plumb demo bgp', () => {
  it(
    'shows pods and a Service reached from outside, a node that dies and comes back, and leaves nothing',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(120_000)
      const before = await machine(node)
      const told = await demo(node, 'bgp')
      assertTold(told, 15)
      for (const line of [
        /^ {2}HTTP from outside to each pod, no NAT +ok +\d+ ms {2}each answered, and saw 198\.51\.100\.2$/m,
        /^ {2}a Service of these pods +ok +\d+ ms {2}203\.0\.113\.10: a way by each node$/m,
        /^ {2}n2 is killed +ok +\d+ ms {2}link down, SIGKILL to its agent and its BIRD$/m,
        /^ {2}what the router does +ok +\d+ ms {2}no way by n2 after \d+ ms, by BFD$/m,
        /^ {2}n2 is back +ok +\d+ ms {2}the router has a way by each node again$/m,
        /^ {2}the pods go; plumb agent cleanup +ok +\d+ ms {2}no BIRD on a node, no route on the router$/m,
      ])
        assert.match(told.stdout, line)
      const bars = [...told.stdout.matchAll(/^ {6}(web|app|db) +#+ +\d+$/gm)].map(([, name]) => name)
      assert.deepEqual(bars, ['web', 'app', 'db', 'web', 'db', 'web', 'app', 'db'])
      assert.deepEqual(await machine(node), before)
    }),
  )

  itFindsOut(
    [
      {
        what: 'bird does not start',
        file: '/usr/sbin/bird',
        script: 'exit 7',
        step: 'BIRD on the router',
        said: /BIRD ended with 7/,
      },
      {
        what: 'the router sends all connections of a client to one node',
        file: '/usr/sbin/sysctl',
        script: 'exec REAL $(sed s/hash_policy=1/hash_policy=0/ <<<"$*")',
        step: '60 connections from outside',
        said: /the pods that answered: saw \["(web|app|db)"\], want \["app","db","web"\]/,
      },
    ],
    'bgp',
  )

  itEndsOn(
    'SIGINT',
    /plumb bgp, on each node +ok/,
    [
      /plumb demo --inside/,
      /plumb agent --node-name n3/,
      /^\S*bird -f -c \/run\/plumb\/bird/,
      /^\S*bird -f -c \/run\/router/,
    ],
    'bgp',
  )
})
