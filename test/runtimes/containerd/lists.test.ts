// lane: peers
// Tests plugins, called by containerd.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { DIST } from '../../support/cnitool.ts'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd } from '../../support/containerd.ts'
import type { Row } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'
import { answers, reach, serve } from '../../support/servers.ts'

const LIST: Row = {
  cniVersion: '1.0.0',
  name: 'whole',
  plugins: [
    {
      type: 'bridge',
      bridge: 'plumb0',
      isDefaultGateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.9.0.0/24' }], [{ subnet: 'fd00:9::/64' }]] },
    },
    { type: 'portmap', snat: true, capabilities: { portMappings: true } },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
    { type: 'firewall', ingressPolicy: 'same-bridge' },
    { type: 'tuning', sysctl: { 'net.core.somaxconn': '512' } },
  ],
}

describe('lists of five plugins under containerd', () => {
  for (const form of ['as five', 'fused to one'] as const)
    it(`bridge, portmap, bandwidth, firewall and tuning ${form}: limits by a pod's annotations, a way out of a shut node, host ports, sysctls; nothing stays`, async function () {
      const conf = form === 'as five' ? LIST : await fused(LIST)
      assert.equal(conf['plugins'].length, form === 'as five' ? 5 : 1)
      await onContainerd({ conf }, async ({ node, world, containerd }) => {
        for (const six of ['', '6']) await node.exec([`ip${six}tables`, '-P', 'FORWARD', 'DROP'])
        const annotations = { 'kubernetes.io/ingress-bandwidth': '10M', 'kubernetes.io/egress-bandwidth': '20M' }
        const slow = await containerd.run('slow', {
          annotations,
          ports: [
            { host: 8080, container: 80 },
            { host: 5353, container: 53, protocol: 'udp' },
          ],
        })
        const free = await containerd.run('free')
        // What pods send passes a FORWARD that drops; what comes to them again does not, as with the reference's
        // firewall.
        await serve(world, 'world', 'tcp 80')
        assert.equal(await reach(slow.ns, WORLD.world4, 80), `world ${WORLD.node4}`)
        assert.equal(await answers(world, WORLD.node4, 8080), false)
        for (const six of ['', '6']) await node.exec([`ip${six}tables`, '-P', 'FORWARD', 'ACCEPT'])
        assert.deepEqual(await rates(node), ['10Mbit', '20Mbit'])
        await serve(slow.ns, 'slow', 'tcp 80', 'udp 53')
        assert.deepEqual(
          [
            await reach(world, WORLD.node4, 8080),
            await reach(world, WORLD.node6, 5353, 'udp'),
            await reach(node, '127.0.0.1', 8080),
          ],
          [`slow ${WORLD.world4}`, `slow ${WORLD.world6}`, 'slow 10.9.0.1'],
        )
        assert.match(await reach(free.ns, slow.ips[0] as string, 80), /^slow 10\.9\.0\.3/)
        for (const { ns } of [slow, free])
          assert.equal((await ns.exec(['cat', '/proc/sys/net/core/somaxconn'])).stdout, '512\n')
        await containerd.away(slow.id, free.id)
        assert.deepEqual([await rates(node), await remains(node, 'up0')], [[], []])
      }).call(this)
    })
})

/** What `plumb cni fuse` makes of a list. */
async function fused(list: Row): Promise<Row> {
  const file = '/run/list.conflist'
  writeFileSync(file, JSON.stringify(list))
  return JSON.parse((await execa(join(DIST, 'plumb'), ['cni', 'fuse', file])).stdout)
}

/** The rates of a node's token buckets, slowest first. */
async function rates({ exec }: { exec: (argv: readonly string[]) => Promise<{ stdout: string }> }): Promise<string[]> {
  const { stdout } = await exec(['tc', 'qdisc'])
  return [...stdout.matchAll(/^qdisc tbf .* rate (\S+)/gm)].map(([, rate = '']) => rate).sort()
}
