// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd, VERSIONS } from '../../support/containerd.ts'
import { type Namespace, ping, type Row, until } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'
import { reach, serve } from '../../support/servers.ts'

const CONF = join(import.meta.dir, '../../../conf')
const DUAL: Row = JSON.parse(readFileSync(join(CONF, 'dual-stack.conflist'), 'utf8'))
const GATEWAYS = { four: '10.37.0.1', six: 'fd00:37::1' }

for (const version of VERSIONS)
  describe(`plumb as the network of containerd ${version}`, () => {
    it(
      'conf/dual-stack.conflist: a pod has an address of each family in its status, and lo; two stops and a remove leave nothing',
      onContainerd({ conf: DUAL, version }, async ({ node, containerd }) => {
        assert.deepEqual(await containerd.network(), { ready: true, message: ': ' })
        const [one, two] = [await containerd.run('one'), await containerd.run('two')]
        assert.deepEqual(
          [one.ips, two.ips],
          [
            ['10.37.0.2', 'fd00:37::2'],
            ['10.37.0.3', 'fd00:37::3'],
          ],
        )
        for (const address of ['127.0.0.1', '::1', ...two.ips, GATEWAYS.four, GATEWAYS.six])
          assert.ok(await until(() => ping(one.ns, address)), address)
        await containerd.stop(one.id)
        // The other one has all of its own.
        for (const address of two.ips) assert.ok(await until(() => ping(node, address)), address)
        await containerd.stop(one.id)
        await containerd.remove(one.id)
        await containerd.away(two.id)
        assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
      }),
    )

    it(
      'host ports, TCP and UDP, of both families: from another machine, the node, a neighbour and the pod itself',
      onContainerd({ conf: DUAL, version }, async ({ node, world, containerd }) => {
        const web = await containerd.run('web', {
          ports: [
            { host: 8080, container: 80 },
            { host: 5353, container: 53, protocol: 'udp' },
          ],
        })
        const neighbour = await containerd.run('neighbour')
        await serve(web.ns, 'web', 'tcp 80', 'udp 53')
        for (const [protocol, port] of [
          ['tcp', 8080],
          ['udp', 5353],
        ] as const) {
          const told = (from: Namespace, address: string) => reach(from, address, port, protocol)
          // A client from elsewhere is seen as it is.
          assert.deepEqual(
            [await told(world, WORLD.node4), await told(world, WORLD.node6)],
            [`web ${WORLD.world4}`, `web ${WORLD.world6}`],
          )
          assert.deepEqual(
            [await told(node, '127.0.0.1'), await told(node, WORLD.node4), await told(node, WORLD.node6)],
            [`web ${GATEWAYS.four}`, `web ${WORLD.node4}`, `web ${WORLD.node6}`],
          )
          for (const from of [neighbour.ns, web.ns])
            for (const address of [WORLD.node4, WORLD.node6])
              assert.match(await told(from, address), /^web (10\.37\.0|fd00:37:)/)
        }
        await containerd.away(web.id, neighbour.id)
        assert.deepEqual(await remains(node, 'up0'), [])
      }),
    )

    it(
      'a network that containerd makes of a template when it hears the CIDRs of the node: not ready, ready, pods out of them',
      onContainerd(
        { template: readFileSync(join(CONF, 'containerd.template'), 'utf8'), version },
        async ({ node, world, containerd }) => {
          assert.deepEqual(await containerd.network(), {
            ready: false,
            message: 'NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized',
          })
          await assert.rejects(containerd.run('early'), /cni plugin not initialized/)
          await containerd.cri.updateRuntimeConfig({
            runtimeConfig: { networkConfig: { podCidr: '10.77.5.0/24,fd00:77::/64' } },
          })
          await until(async () => (await containerd.network()).ready)
          // That one could not even be taken away before.
          await containerd.away(...(await containerd.list()))
          const pod = await containerd.run('pod', { ports: [{ host: 8080, container: 80 }] })
          assert.deepEqual(pod.ips, ['10.77.5.2', 'fd00:77::2'])
          await serve(pod.ns, 'pod', 'tcp 80')
          assert.deepEqual(
            [await reach(world, WORLD.node4, 8080), await reach(world, WORLD.node6, 8080)],
            [`pod ${WORLD.world4}`, `pod ${WORLD.world6}`],
          )
          await containerd.away(pod.id)
          assert.deepEqual(await remains(node, 'up0'), [])
        },
      ),
    )

    it(
      '20 pods at once have 20 addresses of each family, and all go at once',
      onContainerd({ conf: DUAL, version }, async ({ node, containerd }) => {
        const pods = await Promise.all(
          Array.from({ length: 20 }, (_, i) =>
            containerd.run(`pod${i}`, { ports: [{ host: 9000 + i, container: 80 }] }),
          ),
        )
        for (const family of [0, 1]) assert.equal(new Set(pods.map(({ ips }) => ips[family])).size, 20)
        for (const { ips } of pods)
          for (const address of ips) assert.ok(await until(() => ping(node, address)), address)
        await Promise.all(pods.map(({ id }) => containerd.away(id)))
        assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
      }),
    )
  })
