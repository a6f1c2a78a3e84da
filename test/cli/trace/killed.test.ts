// lane: long
// Tests cli/trace: traces that are killed at random moments.
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { inNamespaces, until } from '../../support/harness.ts'
import { arrives, isNothingLeft, nodeWithPods, PLUMB, sh, traced } from '../../support/traces.ts'

const [A, B] = ['10.1.0.2', '10.1.0.3'] as const
/** A trace takes less than this, in milliseconds, where the packet is answered. */
const LONGEST_MS = 300
const KILLS = 60

describe('plumb trace', () => {
  it(
    'a trace that is killed at any moment leaves nothing that the next one does not remove',
    inNamespaces(['node', 'a', 'b', 'outside'] as const, async (spaces, test) => {
      test.timeout(240_000)
      const { node, a, b } = spaces
      await nodeWithPods(spaces)
      let left = 0
      for (let i = 0; i < KILLS; i++) {
        const words = [[A, B], ['--live', A, B], ['--dropped'], [A, B, '--size', '1500']][i % 4] ?? []
        const argv = ['nsenter', `--net=${node.path}`, '--', PLUMB, 'trace', ...words]
        const child = Bun.spawn(argv, { stdout: 'ignore', stderr: 'ignore' })
        await Bun.sleep((i * LONGEST_MS) / KILLS)
        child.kill('SIGKILL')
        await child.exited
        for (const ns of [node, a, b])
          if ((await ns.exec(['nft', 'list', 'tables'])).stdout.includes('plumb_trace')) left++
      }
      // Some kills came while the tables were there.
      assert.ok(left > 0)
      // The last trace is about other pods, and removes what the others left all the same.
      arrives(await traced(node, B, '192.0.2.9'))
      await isNothingLeft(node, a, b)
      // The instances of tracing, where they can be seen.
      await sh(node, 'mount -t tracefs none /sys/kernel/tracing 2>/dev/null || true')
      const instances = readdirSync('/sys/kernel').includes('tracing') ? readdirSync('/sys/kernel/tracing') : []
      const ours = () => readdirSync('/sys/kernel/tracing/instances').filter((name) => name.startsWith('plumb-trace-'))
      // The machine has one list for all tests: that of a trace of another test goes with it.
      if (instances.includes('instances')) await until(() => ours().length === 0)
    }),
  )
  it(
    'Ctrl-C removes all at once',
    inNamespaces(['node', 'a', 'b', 'outside'] as const, async (spaces, test) => {
      test.timeout(60_000)
      const { node, a, b } = spaces
      await nodeWithPods(spaces)
      await sh(
        b,
        'nft add table ip own; nft add chain ip own in "{ type filter hook prerouting priority 0; policy drop; }"',
      )
      for (const words of [[A, '192.0.2.9', '81/udp'], ['--live', A, B], ['--dropped']]) {
        const argv = ['nsenter', `--net=${node.path}`, '--', PLUMB, 'trace', ...words]
        const child = Bun.spawn(argv, { stdout: 'ignore', stderr: 'ignore' })
        await until(async () => (await node.exec(['nft', 'list', 'tables'])).stdout.includes('plumb_trace'))
        child.kill('SIGINT')
        await child.exited
        await isNothingLeft(node, a, b)
      }
    }),
  )
})
