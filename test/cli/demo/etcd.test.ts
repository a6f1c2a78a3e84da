// lane: peers
// needs: etcd
// Tests cli/demo.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { assertTold, demo, itEndsOn, itFindsOut, machine, type Sabotage } from '../../support/demo.ts'
import { inNamespaces } from '../../support/harness.ts'
import { skip } from '../../support/skip.ts'

const ETCD = '/usr/bin/etcd'

describe('plumb demo with etcd', () => {
  before(function () {
    if (!existsSync(ETCD)) skip(this, 'no etcd (package etcd-server)')
  })

  it(
    'tells the story of pods, and that of nodes on a folder and on etcd, each on one screen, and leaves the machine as it was',
    inNamespaces(['node'], async ({ node }) => {
      const before = await machine(node)
      const told = await demo(node)
      assertTold(told, 23, 20, 22)
      const [, etcd = ''] = told.stdout.split('their leases in etcd')
      for (const line of [
        /^ {2}etcd, started +ok +\d+ ms {2}http:\/\/192\.0\.2\.9:2379, on a host of its own$/m,
        /^ {2}\/coreos\.com\/network\/config +ok +\d+ ms {2}10\.244\.0\.0\/16 fd00:244::\/48, vxlan$/m,
        /^ {2}\/coreos\.com\/network\/subnets\/ +ok +\d+ ms {2}3: 10\.244\.\d+\.0-24&fd00:244:0:[\da-f]+::-64 \.\.\.$/m,
        /^ {2}ping pod to pod, 1430 bytes +ok +\d+ ms {2}12 of 12 answered, over IPv4 and IPv6$/m,
        /^ {2}etcd hangs from here +ok +\d+ ms {2}SIGSTOP: it takes requests, and answers none$/m,
        /^ {2}the pings since then +ok +\d+ ms {2}\d of 12 were cut, all answer again in \d+ ms$/m,
        /^ {2}etcd goes on +ok +\d+ ms {2}SIGCONT: it answers$/m,
        /^ {2}ping pod to pod, 1500 bytes +ok +\d+ ms {2}12 of 12 answered, over IPv4 and IPv6$/m,
        /^ {2}leases in the store +0 +3 +3 +0$/m,
        /^ {2}records of nodes beside them +0 +6 +6 +0$/m,
      ])
        assert.match(etcd, line)
      assert.match(told.stdout, /\nNext: plumb cni --help, plumb agent --help\n$/)
      assert.deepEqual(await machine(node), before)
    }),
  )

  const broken: readonly Sabotage[] = [
    {
      what: 'etcd does not start',
      file: ETCD,
      script: 'echo "no room" >&2; exit 3',
      step: 'etcd, started',
      said: /etcd ended with 3: no room/,
    },
    {
      what: 'etcd does not answer',
      file: ETCD,
      script: 'exec sleep infinity',
      step: 'etcd, started',
      said: /waited 10 s: etcd does not answer on http:\/\/192\.0\.2\.9:2379/,
    },
    {
      what: 'etcd goes on though it is stopped',
      file: ETCD,
      script: 'REAL "$@"; exit 4',
      step: 'etcd hangs from here',
      said: /waited 10 s: etcd was stopped, and answers/,
    },
  ]
  itFindsOut(broken, '--store', 'etcd')

  itEndsOn(
    'SIGTERM',
    /plumb agent, on each node +ok/,
    [/plumb demo --inside/, /etcd --data-dir/, /plumb agent --node-name n1/],
    'nodes',
    '--store',
    'etcd',
  )
})
