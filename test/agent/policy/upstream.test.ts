// lane: kubernetes
// Tests agent/policy and plugins/policy.ts with upstream's own end-to-end tests of NetworkPolicy, in a real Kubernetes.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import type { Cluster } from '../../../tools/k8s/lab.ts'
import { skip } from '../../support/skip.ts'
import { missingUpstream, passesUpstream, upWithPlumb } from '../../support/upstream.ts'

/** PLUMB_E2E names other tests, as a pattern. */
const GIVEN = process.env['PLUMB_E2E']
const SCTP = '\\[Feature:SCTPConnectivity\\]'
/** Tests of Kubernetes 1.37.2: two of the API, and those that send packets by TCP and UDP. */
const LEAST = 48

let cluster: Cluster
before(async function () {
  this.timeout(600_000)
  const why = missingUpstream()
  if (why !== undefined) skip(this as unknown as Mocha.Context, why)
  cluster = await upWithPlumb()
})
after(async function () {
  this.timeout(120_000)
  await cluster?.down()
})

describe('upstream tests of NetworkPolicy', function () {
  this.timeout(3_600_000)

  it('every agent is ready with network policy on', async () => {
    for (const node of cluster.nodes) {
      const { stdout } = await node.exec(['curl', '-s', '-m', '5', 'http://127.0.0.1:9469/readyz'])
      assert.equal(stdout.trim(), 'ready', node.name)
      const tables = await node.exec(['nft', 'list', 'tables'])
      assert.match(tables.stdout, /plumb_policy/, `${node.name}: ${tables.stderr}`)
    }
  })

  it('Netpol passes', () =>
    passesUpstream(cluster, { focus: GIVEN ?? 'Netpol', skip: SCTP, procs: 4, least: GIVEN === undefined ? LEAST : 1 }))

  it('Netpol passes with SCTP', async function () {
    if (!/^SCTP/m.test(readFileSync('/proc/net/protocols', 'utf8'))) skip(this, 'the kernel has no SCTP')
    await passesUpstream(cluster, { focus: `Netpol.*${SCTP}`, skip: '^$', procs: 4, least: 3 })
  })
})
