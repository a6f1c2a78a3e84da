// lane: peers
// needs: reference
// Tests lib/takeover and plugins, with pods of the reference plugins.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { cnitool, type Peer, references } from '../../../scripts/peers.ts'
import { DIST, folder, left, on, onFreshNode, page } from '../../support/cnitool.ts'
import { isSilent, type Namespace, ping, type Row, until } from '../../support/harness.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'

const NOTHING = { cached: [], reserved: [], ports: [] }
const pool = { type: 'host-local', ranges: [[{ subnet: '10.9.0.0/24' }], [{ subnet: 'fd00:9::/64' }]] }
const bridge = { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, ipam: pool }
/** What a list of containerd or podman has after bridge. */
const CHAINED = [
  { type: 'portmap', capabilities: { portMappings: true } },
  { type: 'firewall', backend: '' },
  { type: 'tuning', mtu: 1400, sysctl: { 'net.ipv4.conf.eth0.arp_filter': '1' } },
  { type: 'bandwidth', ingressRate: 8_000_000, ingressBurst: 8_000_000 },
]
// Its CHECK of a mapping looks for the IPv4 rules in the IPv6 tables too, whatever plugin comes before it.
const PORTMAP_MISTAKEN = /^1\.[01]\./

describe('plumb among the reference plugins', () => {
  before(function () {
    if (!cnitool()) skip(this, 'no cnitool could be built (see scripts/peers.ts)')
    if (references().length === 0) skip(this, 'no reference plugins (package containernetworking-plugins)')
  })

  for (const reference of references()) {
    const chained = CHAINED.filter(({ type }) => existsSync(join(reference.path, type)))
    it(
      `bridge, then ${chained.map(({ type }) => type).join(', ')} of the reference ${reference.version}: add, packets, check, del, del again`,
      onFreshNode(['node', 'pod', 'world'], async ({ node, pod, world }) => {
        await wireWorld(node, world)
        const dir = folder({ cniVersion: '1.0.0', name: 'mixed', plugins: [bridge, ...chained] })
        const env = { CAP_ARGS: '{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}' }
        // Ours for the first two, the reference's for the rest of the list.
        const path = together(reference, ['bridge', 'host-local'])
        const { call, works } = on(node, dir, path, env)
        const added = JSON.parse(await works(['add', 'mixed', pod.path]))
        assert.deepEqual(
          added.ips.map(({ address }: Row) => address),
          ['10.9.0.2/24', 'fd00:9::2/64'],
        )
        assert.equal(await page(world, pod, `${WORLD.node4}:8080`), `for ${WORLD.world4}`)
        assert.ok(await ping(pod, WORLD.world4))
        if (chained.some(({ type }) => type === 'tuning'))
          assert.equal((await pod.json('link', 'show', 'eth0'))[0]?.['mtu'], 1400)
        if (PORTMAP_MISTAKEN.test(reference.version)) {
          assert.match((await call(['check', 'mixed', pod.path])).stderr, /^could not check ipv6 dnat: /)
          assert.equal(await on(node, dir, path).works(['check', 'mixed', pod.path]), '')
        } else assert.equal(await works(['check', 'mixed', pod.path]), '')
        for (const again of ['', ' again']) assert.equal(await works(['del', 'mixed', pod.path]), '', `del${again}`)
        assert.deepEqual(await left(node, 'mixed'), NOTHING)
        const { stdout } = await node.exec(['nft', 'list', 'ruleset'])
        assert.deepEqual(
          stdout.split('\n').filter((line) => /cnitool-|10\.9\.0\.2|fd00:9::2/.test(line)),
          [],
        )
      }),
    )

    it(
      `bridge, then ${chained.map(({ type }) => type).join(', ')} of the reference ${reference.version}: del with the namespace gone leaves nothing of ours`,
      onFreshNode(['node', 'pod'], async ({ node, pod }) => {
        const { works } = on(
          node,
          folder({ cniVersion: '1.0.0', name: 'mixed', plugins: [bridge, ...chained] }),
          together(reference, ['bridge', 'host-local']),
        )
        await works(['add', 'mixed', pod.path])
        await node.ip('netns', 'delete', pod.path.replace('/run/netns/', ''))
        await works(['del', 'mixed', pod.path])
        assert.deepEqual(await left(node, 'mixed'), NOTHING)
      }),
    )

    for (const [types, mine] of [
      [['bridge'], `plumb's bridge over the host-local`],
      [['host-local'], `plumb's host-local under the bridge`],
    ] as const) {
      it(
        `${mine} of the reference ${reference.version}: add, check, full pool, del, del again`,
        onFreshNode(['node', 'pod', 'other'], async ({ node, pod, other }) => {
          const small = {
            ...pool,
            ranges: [
              [{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.9', rangeEnd: '10.9.0.9' }],
              [{ subnet: 'fd00:9::/64' }],
            ],
          }
          const dir = folder({ cniVersion: '1.0.0', name: 'mixed', plugins: [{ ...bridge, ipam: small }] })
          const { call, works } = on(node, dir, together(reference, types))
          const added = JSON.parse(await works(['add', 'mixed', pod.path]))
          assert.deepEqual(
            added.ips.map(({ address, gateway }: Row) => [address, gateway]),
            [
              ['10.9.0.9/24', '10.9.0.1'],
              ['fd00:9::2/64', 'fd00:9::1'],
            ],
          )
          // Its index is how one sees which of the two was the pool.
          assert.equal(existsSync('/var/lib/cni/networks/.plumb'), types[0] === 'host-local')
          assert.ok(await ping(pod, '10.9.0.1'))
          assert.ok(await until(() => ping(pod, 'fd00:9::1')))
          assert.equal(await works(['check', 'mixed', pod.path]), '')
          const full = await call(['add', 'mixed', other.path])
          assert.notEqual(full.status, 0)
          assert.match(full.stdout + full.stderr, /10\.9\.0\.9/)
          await call(['del', 'mixed', other.path])
          assert.deepEqual((await left(node, 'mixed')).reserved.sort(), ['10.9.0.9', 'fd00:9::2'])
          for (const again of ['', ' again']) assert.equal(await works(['del', 'mixed', pod.path]), '', `del${again}`)
          assert.deepEqual(await left(node, 'mixed'), NOTHING)
          assert.deepEqual(
            (await pod.json('link')).map(({ ifname }) => ifname),
            ['lo'],
          )
        }),
      )
    }
  }

  for (const [caller, ifname, path] of [
    ['containerd', 'lo', (pod: Namespace) => pod.path],
    ['the kubelet', 'eth0', (_: Namespace, pid: number) => `/proc/${pid}/ns/net`],
  ] as const) {
    it(
      `loopback as ${caller} calls it: list "cni-loopback" of CNI 0.3.1, CNI_IFNAME ${ifname}`,
      onFreshNode(['node', 'pod'], async ({ node, pod }) => {
        const conf = { cniVersion: '0.3.1', name: 'cni-loopback', plugins: [{ type: 'loopback' }] }
        const env = {
          CNI_IFNAME: ifname,
          CNI_ARGS: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1',
        }
        const { works } = on(node, folder(conf), DIST, env)
        const pause = Bun.spawn(['nsenter', `--net=${pod.path}`, '--', 'sleep', '60'])
        try {
          const netns = path(pod, pause.pid)
          const added = JSON.parse(await works(['add', 'cni-loopback', netns]))
          assert.deepEqual(
            [added.cniVersion, added.interfaces[0].name, added.interfaces[0].sandbox],
            ['0.3.1', 'lo', netns],
          )
          assert.ok(await ping(pod, '127.0.0.1'))
          await works(['del', 'cni-loopback', netns])
          assert.ok(await isSilent(pod, '127.0.0.1'))
        } finally {
          pause.kill('SIGKILL')
          await pause.exited
        }
        // The container has ended; the kubelet asks once more.
        await works(['del', 'cni-loopback', path(pod, pause.pid)])
        assert.deepEqual(await left(node, 'cni-loopback'), NOTHING)
      }),
    )
  }
})

/** A CNI_PATH where these types are plumb's and all others the reference's. */
function together(reference: Peer, types: readonly string[]): string {
  const dir = mkdtempSync('/run/bin-')
  for (const type of types) symlinkSync(join(DIST, type), join(dir, type))
  return `${dir}:${reference.path}`
}
