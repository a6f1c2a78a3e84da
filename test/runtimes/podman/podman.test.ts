// lane: peers
// Tests plugins, called by podman.
import assert from 'node:assert/strict'
import type { Namespace } from '../../support/harness.ts'
import { IMAGE } from '../../support/image.ts'
import { WORLD } from '../../support/packets.ts'
import { type Container, nothingLeft, onPodman, podmanHere } from '../../support/podman.ts'
import { reach, serve } from '../../support/servers.ts'

/** podman's own network: its first container, and the bridge. */
const FIRST = '10.88.0.2'
const GATEWAY = '10.88.0.1'
describe("podman's containers on plumb, in docker's four modes", () => {
  podmanHere()

  it(
    'bridge: host ports of both protocols, from outside, from the node and from the container itself; address and MAC as they are asked for',
    onPodman(async (podman, { node, world }) => {
      const wish = [
        '--ip',
        '10.88.0.77',
        '--mac-address',
        '02:00:00:00:00:77',
        '--publish',
        '8080:80',
        '--publish',
        `${WORLD.node4}:5353:53/udp`,
      ]
      const { ns } = await podman.start('web', ...wish)
      assert.deepEqual(await linkOf(ns), { mac: '02:00:00:00:00:77', addresses: ['10.88.0.77'] })
      await serve(ns, 'web', 'tcp 80', 'udp 53')
      assert.equal(await reach(world, WORLD.node4, 8080), `web ${WORLD.world4}`)
      assert.equal(await reach(world, WORLD.node4, 5353, 'udp'), `web ${WORLD.world4}`)
      for (const address of ['127.0.0.1', WORLD.node4]) assert.match(await reach(node, address, 8080), /^web /)
      assert.match(await reach(node, WORLD.node4, 5353, 'udp'), /^web /)
      assert.equal(await reach(ns, WORLD.node4, 8080), `web ${GATEWAY}`)
      assert.equal(await reach(ns, WORLD.node4, 5353, 'udp'), `web ${GATEWAY}`)
      // The way out: the outside sees the node.
      await serve(world, 'out', 'tcp 9000')
      assert.equal(await reach(ns, WORLD.world4, 9000), `out ${WORLD.node4}`)
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
      // All that it had can be had again.
      await podman.start('again', ...wish)
    }),
  )

  it(
    'bridge: what a container itself serves and sends',
    onPodman(async (podman, { world }) => {
      await podman.works(
        'run',
        '--detach',
        '--name',
        'web',
        '--publish',
        '8080:80',
        IMAGE,
        'nc',
        '-ll',
        '-p',
        '80',
        '-e',
        '/bin/busybox',
        'echo',
        'here',
      )
      assert.equal(await reach(world, WORLD.node4, 8080), 'here')
      assert.equal(await podman.works('run', '--rm', IMAGE, 'nc', FIRST, '80'), 'here')
      await podman.works('stop', 'web')
      assert.deepEqual(await podman.left(), [])
      await podman.works('start', 'web')
      assert.equal(await reach(world, WORLD.node4, 8080), 'here')
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    'bridge: two networks, the second of both families, with the same host port for both; it serves as long as one of them is there',
    onPodman(async (podman, { world }) => {
      await podman.works('network', 'create', '--subnet', '10.89.7.0/24', 'one')
      await podman.works(
        'network',
        'create',
        '--ipv6',
        '--subnet',
        '10.89.8.0/24',
        '--subnet',
        'fd00:89:8::/64',
        'both',
      )
      const { ns } = await podman.start('web', '--network', 'one', '--network', 'both', '--publish', '8080:80')
      assert.deepEqual(
        [await linkOf(ns, 'eth0'), await linkOf(ns, 'eth1')].flatMap(({ addresses }) => addresses).sort(),
        ['10.89.7.2', '10.89.8.2', 'fd00:89:8::2'],
      )
      await serve(ns, 'web', 'tcp 80')
      for (const address of [WORLD.node4, WORLD.node6]) assert.match(await reach(world, address, 8080), /^web /)
      await podman.works('network', 'disconnect', 'one', 'web')
      for (const address of [WORLD.node4, WORLD.node6]) assert.match(await reach(world, address, 8080), /^web /)
      await podman.works('network', 'connect', 'one', 'web')
      await podman.works('network', 'disconnect', 'both', 'web')
      assert.match(await reach(world, WORLD.node4, 8080), /^web /)
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    "host: the container has the node's links, and nothing is made for it",
    onPodman(async (podman, { node, world }) => {
      const names = (await node.json('link')).map(({ ifname }) => ifname)
      const rules = (await node.exec(['nft', 'list', 'ruleset'])).stdout
      await podman.works(
        'run',
        '--detach',
        '--network',
        'host',
        '--name',
        'web',
        IMAGE,
        'nc',
        '-ll',
        '-p',
        '8080',
        '-e',
        '/bin/busybox',
        'echo',
        'here',
      )
      assert.equal(await reach(world, WORLD.node4, 8080), 'here')
      assert.deepEqual(linkNames(await podman.works('exec', 'web', 'ip', 'link')), names)
      assert.deepEqual([(await node.exec(['nft', 'list', 'ruleset'])).stdout, await podman.left()], [rules, []])
    }),
  )

  it(
    'none: the container has lo alone',
    onPodman(async (podman, { node }) => {
      const names = (await node.json('link')).map(({ ifname }) => ifname)
      assert.deepEqual(linkNames(await podman.works('run', '--rm', '--network', 'none', IMAGE, 'ip', 'link')), ['lo'])
      assert.deepEqual([(await node.json('link')).map(({ ifname }) => ifname), await podman.left()], [names, []])
    }),
  )

  it(
    "container:ID: the other's addresses and host ports, which stay when it goes, and go with the other",
    onPodman(async (podman, { world }) => {
      const { id, ns }: Container = await podman.start('first', '--publish', '8080:80')
      await podman.works(
        'run',
        '--detach',
        '--network',
        `container:${id}`,
        '--name',
        'second',
        IMAGE,
        'nc',
        '-ll',
        '-p',
        '80',
        '-e',
        '/bin/busybox',
        'echo',
        'second',
      )
      assert.equal(await reach(world, WORLD.node4, 8080), 'second')
      assert.match(await podman.works('exec', 'second', 'ip', 'address'), new RegExp(`inet ${FIRST}/16`))
      await podman.works('rm', '--force', 'second')
      await serve(ns, 'first', 'tcp 80')
      assert.equal(await reach(world, WORLD.node4, 8080), `first ${WORLD.world4}`)
      await podman.works('rm', '--force', 'first')
      await nothingLeft(podman)
    }),
  )
})

async function linkOf(ns: Namespace, name = 'eth0'): Promise<{ mac: string; addresses: string[] }> {
  const [link] = await ns.json('address', 'show', name)
  return {
    mac: link?.['address'],
    addresses: link?.['addr_info']
      .filter(({ scope }: { scope: string }) => scope === 'global')
      .map(({ local }: { local: string }) => local),
  }
}

function linkNames(printed: string): string[] {
  return [...printed.matchAll(/^\d+: ([^:@]+)/gm)].map(([, name = '']) => name)
}
