// lane: vmlong
// Tests agent/kernel/wireguard.ts with many peers.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { inNamespaces } from '../../support/harness.ts'
import type { Scale } from '../../support/scale.ts'

const PEERS = 1000
/** The peers that test/support/scale.ts adds one by one, afterwards. */
const MORE = 9

describe('wireguard', () => {
  it(
    `has ${PEERS} peers after one step, each with its own subnet and endpoint; one more comes, and a removed one comes back`,
    inNamespaces(['node', 'lan'], async ({ node, lan }) => {
      await node.ip('link', 'add', 'eth0', 'up', 'type', 'veth', 'peer', 'name', 'port1', 'netns', lan.path)
      await lan.ip('link', 'set', 'port1', 'up')
      await node.ip('address', 'add', '10.200.0.1/16', 'dev', 'eth0')
      const scale = join(import.meta.dir, '../../support/scale.ts')
      const { status, stdout, stderr } = await node.exec([process.execPath, scale, 'wireguard', `${PEERS}`])
      assert.equal(status, 0, stderr)
      const { resources }: Scale = JSON.parse(stdout)
      // Beside the peers: the device, its key, its address and two routes.
      assert.equal(resources, PEERS + 5)
      const dump = (await node.exec(['wg', 'show', 'flannel-wg', 'dump'])).stdout.trim().split('\n').slice(1)
      const seen = dump.map((line) => line.split('\t').slice(2, 4).join(' ')).sort()
      const numbers = Array.from({ length: PEERS + MORE }, (_, i) => (i < PEERS ? i + 2 : i + 10))
      const place = (n: number) => `${n >> 8}.${n & 255}`
      assert.deepEqual(seen, numbers.map((n) => `10.200.${place(n)}:51820 10.${place(n)}.0/24`).sort())
    }),
  )
})
