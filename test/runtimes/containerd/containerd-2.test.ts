// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { DIST } from '../../support/cnitool.ts'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd } from '../../support/containerd.ts'
import { ENV, writeEnv } from '../../support/flannel.ts'
import { ping, type Row, until } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'
import { reach, serve } from '../../support/servers.ts'

const FLANNEL: Row = JSON.parse(readFileSync(join(import.meta.dir, '../../../conf/flannel.conflist'), 'utf8'))
const SUBNETS = '/run/flannel/subnet.env'

describe('containerd 2, which speaks CNI 1.1', () => {
  it(
    'STATUS: the network is not ready until the agent has written its subnet, and containerd says why; then pods get addresses of it',
    onContainerd({ conf: FLANNEL, version: 2 }, async ({ node, world, containerd }) => {
      rmSync(SUBNETS)
      const { ready, message } = await containerd.network()
      assert.equal(ready, false)
      assert.match(message, /\/run\/flannel\/subnet\.env/)
      writeEnv(SUBNETS, ENV.dual)
      await until(async () => (await containerd.network()).ready)
      const pod = await containerd.run('pod', { ports: [{ host: 8080, container: 80 }] })
      await serve(pod.ns, 'pod', 'tcp 80')
      assert.deepEqual(
        [await reach(world, WORLD.node4, 8080), await reach(world, WORLD.node6, 8080)],
        [`pod ${WORLD.world4}`, `pod ${WORLD.world6}`],
      )
      await containerd.away(pod.id)
      assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
    }),
  )

  it(
    'STATUS tells that the pool is full, and no more when a pod has gone; the pods of a full pool can be removed',
    onContainerd({ conf: small(), version: 2 }, async ({ node, containerd }) => {
      assert.equal((await containerd.network()).ready, true)
      const { id, ips } = await containerd.run('pod')
      assert.deepEqual(ips, ['10.9.0.9'])
      const { ready, message } = await containerd.network()
      assert.equal(ready, false)
      assert.match(message, /10\.9\.0\.9/)
      await containerd.away(id)
      assert.equal((await containerd.network()).ready, true)
      assert.deepEqual(await remains(node, 'up0'), [])
    }),
  )

  it(
    'GC of what containerd remembers, when it has forgotten a pod: that one has nothing any more, the others have everything',
    onContainerd(
      {
        conf: {
          ...small(),
          plugins: [
            { ...small()['plugins'][0], ipam: { type: 'host-local', ranges: [[{ subnet: '10.9.0.0/24' }]] } },
            { type: 'portmap', capabilities: { portMappings: true } },
          ],
        },
        version: 2,
      },
      async ({ node, containerd }) => {
        const [forgotten, kept] = [
          await containerd.run('forgotten', { ports: [{ host: 8080, container: 80 }] }),
          await containerd.run('kept', { ports: [{ host: 8081, container: 80 }] }),
        ]
        await serve(kept.ns, 'kept', 'tcp 80')
        await containerd.kill()
        const { status, stderr } = await node.exec([
          join(DIST, 'plumb'),
          'cni',
          'gc',
          'small',
          '--valid',
          `${kept.id}:eth0`,
          '--conf-dir',
          containerd.folder,
          '--bin-dir',
          DIST,
        ])
        assert.equal(status, 0, stderr)
        assert.deepEqual(
          [
            await forgotten.ns.json('link').then((links) => links.map(({ ifname }) => ifname)),
            await ping(node, kept.ips[0] as string),
            await reach(node, '127.0.0.1', 8081),
          ],
          [['lo'], true, 'kept 10.9.0.1'],
        )
        await containerd.start()
        await containerd.away(forgotten.id, kept.id)
        assert.deepEqual(await remains(node, 'up0'), [])
      },
    ),
  )
})

/** A network with one address. */
function small(): Row {
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }]],
  }
  return { cniVersion: '1.1.0', name: 'small', plugins: [{ type: 'bridge', bridge: 'plumb0', isGateway: true, ipam }] }
}
