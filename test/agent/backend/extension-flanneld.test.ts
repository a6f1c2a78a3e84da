// lane: peers
// Tests agent/parts/commands.ts beside flanneld.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assertReach } from '../../support/etcd-networks.ts'
import { besideFlanneld } from '../../support/flanneld.ts'
import { until } from '../../support/harness.ts'
import { notingCommand } from '../../support/noting-command.ts'

describe('extension in a cluster of nodes with flanneld and nodes with plumb', () => {
  const network = besideFlanneld()
  const dir = mkdtempSync(join(tmpdir(), 'extension-'))
  after(() => rmSync(dir, { recursive: true }))
  const { path, calls } = notingCommand(dir)
  const conf = {
    Network: '10.5.0.0/16',
    Backend: {
      Type: 'extension',
      PreStartupCommand: `${path} data`,
      PostStartupCommand: `${path} start $SUBNET \${PUBLIC_IP} "$NONE"; echo $$`,
      SubnetAddCommand: `${path} add`,
      SubnetRemoveCommand: `${path} remove`,
    },
  }

  it(
    'commands have the same words, variables and input with both, the leases are equal to the byte, and packets pass both ways',
    network.on(2, conf, async ([first, second], { nodes }) => {
      await network.flannel(first)
      await second.agent('--allow-extension').ready(20_000)
      await assertReach(nodes, { v4: 1500 })
      const leases = (await network.leases()).map(({ value }) => value.replace(/172\.30\.0\.\d/g, 'OWN'))
      assert.match(leases[0] ?? '', /"BackendData":"\\u003c\\u0026\\"\\nOWN \\n\\nsecond"/)
      assert.equal(leases[0], leases[1])
      await until(() => [first, second].every((node) => calls(node).some(({ words }) => words === 'add')))
      const plain = (text: string) => text.replace(/10\.5\.\d+\.0/g, 'NET').replace(/172\.30\.0\.\d/g, 'IP')
      // What flannel has for a family that there is not, or leaves out, is empty with plumb.
      const seen = [first, second].map((node) =>
        calls(node).map(({ words, env, input }) => {
          const { IPV6SUBNET: _, PUBLIC_IPV6: __, ...given } = env
          return plain(JSON.stringify({ words, given, input }))
        }),
      )
      assert.equal(seen[0]?.length, 3)
      assert.deepEqual(seen[1], seen[0])
    }),
  )
})
