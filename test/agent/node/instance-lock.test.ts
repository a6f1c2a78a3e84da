// lane: netns
// Tests agent/store and agent/parts.
import assert from 'node:assert/strict'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ping, until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const CONF = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }

describe('agents of one name', () => {
  it(
    'the second node ends with the address of the first in its message, which goes on; a node that lost its state gets its lease back',
    inCluster(
      2,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes: [one, two] }) => {
        assert.ok(one && two)
        const first = one.agent()
        const { subnets } = await first.ready()
        const second = two.agent('--node-name', one.name)
        assert.notEqual(await second.ended, 0)
        assert.match(
          second.log(),
          /Cannot use the node name "n1": the node at 172\.30\.0\.1 has it, and 10\.244\.\d+\.0\/24; want another name \(--node-name\)/,
        )
        assert.equal((await first.status())?.lastError, undefined)
        await first.stop()
        rmSync(join(one.dir, 'state'), { recursive: true })
        const again = one.agent()
        assert.deepEqual((await again.ready()).subnets, subnets)
        await until(async () => (await again.status())?.ready)
      },
    ),
  )
})

describe('the sockets of an agent', () => {
  it(
    'are there again when somebody removes them, also that of network policy',
    inCluster(
      1,
      (cluster) => [...fileStore(cluster, CONF), `--network-policy=${cluster.dir}`],
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        const agent = one.agent()
        await agent.ready(20_000)
        const sockets = ['agent.sock', 'policy.sock', 'calls.sock'].map((name) => join(one.dir, name))
        for (const path of sockets) rmSync(path)
        await until(() => sockets.every((path) => existsSync(path)), 20_000)
        assert.equal((await agent.status())?.ready, true)
        const { stdout, status } = await one.ns.exec([PLUMB, 'policy', '--policy-socket', sockets[1] as string])
        assert.equal(status, 0)
        assert.match(stdout, /there are no pods on this node/)
        assert.equal(await agent.stop(), 0)
        assert.deepEqual(
          sockets.filter((path) => existsSync(path)),
          [],
        )
      },
    ),
  )
})

describe('two agents of one node', () => {
  it(
    'the second one for a subnet file ends naming the first, whatever its socket is; with a file of its own it runs; one that was killed is in nobody’s way',
    inCluster(
      1,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes, dir }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        const first = one.agent()
        await first.ready()
        // A mount namespace of its own, as a container has.
        for (const way of [
          [],
          [
            'unshare',
            '--mount',
            '--propagation',
            'private',
            'sh',
            '-ec',
            'mount -t tmpfs tmpfs "$0"; exec "$@"',
            one.dir,
          ],
        ]) {
          const second = one.agentBy(way, '--socket', join(dir, 'other.sock'))
          assert.equal(await second.ended, 1)
          assert.match(
            second.log(),
            new RegExp(
              `Cannot run an agent for ${one.dir}/subnet\\.env: process \\d+, another agent of this node, runs for it already`,
            ),
          )
        }
        assert.equal((await first.status())?.state, 'ready')
        await first.stop('SIGKILL')
        await one.agent().ready()
      },
    ),
  )

  it(
    'the device of an agent that was killed is taken over by one with another subnet file',
    inCluster(
      2,
      (cluster) => fileStore(cluster, CONF),
      async ({ nodes, dir }, test) => {
        test.timeout(60_000)
        const [one, two] = nodes as [Node, Node]
        await two.agent().ready()
        const former = one.agent('--subnet-file', join(dir, 'other.env'))
        await former.ready()
        const [device] = await one.ns.json('link', 'show', 'flannel.1')
        await former.stop('SIGKILL')
        const agent = one.agent()
        await agent.ready()
        const [now] = await one.ns.json('link', 'show', 'flannel.1')
        assert.notEqual(now?.['ifalias'], device?.['ifalias'])
        await until(() => ping(one.ns, (subnetEnv(two)?.['FLANNEL_SUBNET'] ?? '').replace('.1/24', '.0')), 20_000)
        assert.equal((await agent.status())?.state, 'ready')
      },
    ),
  )
})
