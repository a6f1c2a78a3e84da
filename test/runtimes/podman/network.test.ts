// lane: peers
// Tests plugins, called by podman.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Namespace, Row } from '../../support/harness.ts'
import { WORLD } from '../../support/packets.ts'
import { onPodman, podmanHere } from '../../support/podman.ts'
import { reach, serve } from '../../support/servers.ts'

const RESULTS = '/var/lib/cni/results'
describe("podman's networks on plumb", () => {
  podmanHere()

  it(
    'network create writes what plumb takes as it is; ls, inspect and rm',
    onPodman(async (podman, { world }) => {
      await podman.works(
        'network',
        'create',
        '--ipv6',
        '--subnet',
        '10.89.7.0/24',
        '--ip-range',
        '10.89.7.128/25',
        '--subnet',
        'fd00:89:7::/64',
        '--opt',
        'mtu=1400',
        '--label',
        'a=b',
        'both',
      )
      const { cniVersion, plugins }: Row = JSON.parse(readFileSync(join(podman.networks, 'both.conflist'), 'utf8'))
      assert.equal(cniVersion, '0.4.0')
      const [bridge, portmap, firewall, tuning] = plugins
      assert.deepEqual(
        [
          bridge.ipam.ranges[0][0].rangeStart,
          bridge.ipam.ranges[0][0].rangeEnd,
          portmap.capabilities,
          firewall,
          tuning,
        ],
        ['10.89.7.129', '10.89.7.255', { portMappings: true }, { type: 'firewall', backend: '' }, { type: 'tuning' }],
      )
      await podman.works('network', 'create', '--internal', 'inside')
      assert.deepEqual((await podman.works('network', 'ls', '--format', '{{.Name}}')).split('\n').sort(), [
        'both',
        'inside',
        'podman',
      ])
      assert.deepEqual(
        (await podman.inspect('network', 'both'))['subnets'].map(({ subnet, gateway }: Row) => [subnet, gateway]),
        [
          ['10.89.7.0/24', '10.89.7.1'],
          ['fd00:89:7::/64', 'fd00:89:7::1'],
        ],
      )
      const { ns } = await podman.start('web', '--network', 'both', '--publish', '8080:80')
      const [link] = await ns.json('address', 'show', 'eth0')
      assert.deepEqual([link?.['mtu'], addresses(link)], [1400, ['10.89.7.129', 'fd00:89:7::2']])
      await serve(ns, 'web', 'tcp 80')
      for (const address of [WORLD.node4, WORLD.node6]) assert.match(await reach(world, address, 8080), /^web /)
      // What podman tells of the container is what plumb answered.
      const { both } = (await podman.inspect('container', 'web'))['NetworkSettings'].Networks
      assert.deepEqual(
        [both.IPAddress, both.IPPrefixLen, both.Gateway, both.GlobalIPv6Address, both.IPv6Gateway, both.MacAddress],
        ['10.89.7.129', 24, '10.89.7.1', 'fd00:89:7::2', 'fd00:89:7::1', link?.['address']],
      )
      const inside = await podman.start('shy', '--network', 'inside')
      assert.deepEqual(await inside.ns.json('route', 'show', 'default'), [])
      assert.match(await podman.fails('network', 'rm', 'both'), /network is being used/)
      await podman.works('network', 'rm', '--force', 'both', 'inside')
      assert.deepEqual([await podman.left(), await podman.works('ps', '--all', '--quiet')], [[], ''])
    }),
  )

  it(
    'network connect and disconnect, of a container that runs',
    onPodman(async (podman, { world }) => {
      await podman.works('network', 'create', '--subnet', '10.89.7.0/24', 'one')
      await podman.works('network', 'create', '--subnet', '10.89.8.0/24', 'two')
      const [web, other] = [
        await podman.start('web', '--network', 'one', '--publish', '8080:80'),
        await podman.start('other', '--network', 'two'),
      ]
      await podman.works('network', 'connect', '--ip', '10.89.8.50', 'two', 'web')
      assert.deepEqual(await held(web.ns), ['eth0 10.89.7.2', 'eth1 10.89.8.50'])
      await serve(web.ns, 'web', 'tcp 80')
      assert.equal(await reach(other.ns, '10.89.8.50', 80), 'web 10.89.8.2')
      await podman.works('network', 'disconnect', 'two', 'web')
      assert.deepEqual(await held(web.ns), ['eth0 10.89.7.2'])
      assert.deepEqual(
        readdirSync('/var/lib/cni/networks/two').filter((name) => name.startsWith('10.')),
        ['10.89.8.2'],
      )
      assert.equal(await reach(world, WORLD.node4, 8080), `web ${WORLD.world4}`)
      await podman.works('network', 'disconnect', 'one', 'web')
      assert.deepEqual(await held(web.ns), [])
      await podman.works('network', 'connect', 'one', 'web')
      assert.equal(await reach(world, WORLD.node4, 8080), `web ${WORLD.world4}`)
      await podman.works('rm', '--all', '--force')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    'network reload, after somebody flushed the firewall: the same addresses, which podman asks for twice over, and the host ports',
    onPodman(async (podman, { node, world }) => {
      await podman.works(
        'network',
        'create',
        '--ipv6',
        '--subnet',
        '10.89.7.0/24',
        '--subnet',
        'fd00:89:7::/64',
        'both',
      )
      const { id, ns } = await podman.start(
        'web',
        '--network',
        'both',
        '--ip',
        '10.89.7.200',
        '--mac-address',
        '02:00:00:00:00:99',
        '--publish',
        '8080:80',
      )
      const before = await held(ns)
      await serve(ns, 'web', 'tcp 80')
      await node.exec(['nft', 'flush', 'ruleset'])
      await podman.works('network', 'reload', 'web')
      assert.deepEqual(asked('both', id)['ips'], ['10.89.7.200', '10.89.7.200', 'fd00:89:7::2'])
      assert.deepEqual(
        [await held(ns), (await ns.json('link', 'show', 'eth0'))[0]?.['address']],
        [before, '02:00:00:00:00:99'],
      )
      for (const address of [WORLD.node4, WORLD.node6]) assert.match(await reach(world, address, 8080), /^web /)
      await podman.works('network', 'reload', '--all')
      assert.deepEqual(await held(ns), before)
      await podman.works('rm', '--force', 'web')
      assert.deepEqual(await podman.left(), [])
    }),
  )

  it(
    "a network whose file is gone: its containers go by podman's cache",
    onPodman(async (podman) => {
      await podman.works('network', 'create', '--subnet', '10.89.7.0/24', 'one')
      await podman.start('web', '--network', 'one', '--publish', '8080:80')
      rmSync(join(podman.networks, 'one.conflist'))
      await podman.call('rm', '--force', 'web')
      assert.deepEqual([await podman.left(), await podman.works('ps', '--all', '--quiet')], [[], ''])
    }),
  )
})

/** `LINK ADDRESS` of all that a container has. */
async function held(ns: Namespace): Promise<string[]> {
  return (await ns.json('address'))
    .filter(({ ifname }) => ifname !== 'lo')
    .flatMap((link) => addresses(link).map((address) => `${link['ifname']} ${address}`))
}

function addresses(link: Row | undefined): string[] {
  return link?.['addr_info'].filter(({ scope }: Row) => scope === 'global').map(({ local }: Row) => local)
}

/** What podman asked of the plugins for a container, as it remembers. */
function asked(network: string, id: string): Row {
  return JSON.parse(readFileSync(join(RESULTS, `${network}-${id}-eth0`), 'utf8')).capabilityArgs
}
