// lane: peers
// needs: reference
// Tests lib/takeover and plugins, with pods of the reference plugins.
import assert from 'node:assert/strict'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { cnitool, type Peer, references } from '../../../scripts/peers.ts'
import { asked, DIST, folder, left, on, onFreshNode, serving, type Tool } from '../../support/cnitool.ts'
import { type Finished, type Namespace, type Row, until } from '../../support/harness.ts'
import { makeDevices, names } from '../../support/host-devices.ts'
import { lackingKinds } from '../../support/kinds.ts'
import { WORLD, wireWorld } from '../../support/packets.ts'
import { skip } from '../../support/skip.ts'

const POOL = {
  type: 'host-local',
  ranges: [
    [{ subnet: '10.9.0.0/24', rangeStart: '10.9.0.2', rangeEnd: '10.9.0.2' }],
    [{ subnet: 'fd00:9::/64', rangeStart: 'fd00:9::2', rangeEnd: 'fd00:9::2' }],
  ],
}
const FIXED = {
  type: 'static',
  addresses: [{ address: '10.9.0.2/24', gateway: '10.9.0.1' }, { address: 'fd00:9::2/64' }],
}
const BRIDGE = { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipam: POOL }
const PORTS = {
  CAP_ARGS:
    '{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":5353,"containerPort":53,"protocol":"udp"}]}',
}
const RATES = { ingressRate: 8_000_000, ingressBurst: 8_000_000, egressRate: 16_000_000, egressBurst: 8_000_000 }

/** A list that both programs have. */
interface Case {
  readonly plugins: readonly Row[]
  /** What spoils a pod of the reference's, in turns: CHECK of plumb sees each. */
  readonly spoils: readonly Spoil[]
  /** What spoils one of plumb's, for the CHECK of the reference. */
  readonly spoiled?: readonly Spoil[]
  /** What the reference's CHECK says of a pod of plumb's that is right. */
  readonly mistaken?: RegExp
  /** The release from which on the reference has it. */
  readonly since?: string
}
/**
 * A script in a namespace; `@port` stands for the node's end of the pod's link, `@ifb` for the link on which it is
 * shaped.
 */
interface Spoil {
  readonly where: 'node' | 'pod'
  readonly script: string
}
const pod = (script: string): Spoil => ({ where: 'pod', script })
const node = (script: string): Spoil => ({ where: 'node', script })

const CASES: Readonly<Record<string, Case>> = {
  'bridge over host-local': {
    plugins: [BRIDGE],
    spoils: [pod('ip addr del 10.9.0.2/24 dev eth0'), pod('ip -6 route del default'), node('ip link set @port down')],
    spoiled: [pod('ip addr del 10.9.0.2/24 dev eth0')],
  },
  'bridge with ipMasq': {
    plugins: [{ ...BRIDGE, ipMasq: true }],
    spoils: [
      node('iptables -t nat -F POSTROUTING'),
      node(
        'for chain in $(ip6tables -t nat -S | grep -o "^-N CNI-[^ ]*" | cut -c4-); do ip6tables -t nat -F $chain; done',
      ),
    ],
  },
  'bridge with ipMasq by nftables': {
    plugins: [{ ...BRIDGE, ipMasq: true, ipMasqBackend: 'nftables' }],
    spoils: [
      node('nft flush chain inet cni_plugins_masquerade masq_checks'),
      node('nft flush chain inet cni_plugins_masquerade postrouting'),
    ],
    since: '1.5',
  },
  'bridge with macspoofchk': {
    plugins: [{ ...BRIDGE, macspoofchk: true }],
    spoils: [node('nft flush chain bridge nat PREROUTING')],
  },
  'ptp over host-local, with ipMasq': {
    plugins: [{ type: 'ptp', ipMasq: true, ipam: POOL }],
    spoils: [
      node('iptables -t nat -F POSTROUTING'),
      node('ip route del 10.9.0.2'),
      pod('ip route del default || ip addr del 10.9.0.2/24 dev eth0'),
    ],
  },
  'macvlan over static': {
    plugins: [{ type: 'macvlan', master: 'lan0', ipam: FIXED }],
    spoils: [pod('ip addr del fd00:9::2/64 dev eth0'), pod('ip link set eth0 down')],
  },
  'ipvlan over static': {
    plugins: [{ type: 'ipvlan', master: 'lan0', ipam: FIXED }],
    spoils: [pod('ip addr del fd00:9::2/64 dev eth0')],
  },
  'vlan over static': {
    plugins: [{ type: 'vlan', master: 'lan0', vlanId: 5, ipam: FIXED }],
    spoils: [pod('ip addr del fd00:9::2/64 dev eth0')],
  },
  'dummy over static': {
    plugins: [{ type: 'dummy', ipam: FIXED }],
    spoils: [pod('ip addr del fd00:9::2/64 dev eth0')],
  },
  'host-device over static': {
    plugins: [{ type: 'host-device', device: 'dev0', ipam: FIXED }],
    spoils: [pod('ip addr del fd00:9::2/64 dev eth0'), pod('ip link set eth0 down')],
  },
  loopback: {
    plugins: [{ type: 'loopback' }],
    spoils: [pod('ip link set lo down')],
    spoiled: [pod('ip link set lo down')],
  },
  'bridge, portmap': {
    plugins: [BRIDGE, { type: 'portmap', capabilities: { portMappings: true } }],
    spoils: [node('iptables -t nat -F CNI-HOSTPORT-DNAT'), node('ip6tables -t nat -F PREROUTING')],
    mistaken: /could not check ipv[46] dnat|CNI-DN-/,
  },
  'bridge, portmap by nftables': {
    plugins: [BRIDGE, { type: 'portmap', backend: 'nftables', capabilities: { portMappings: true } }],
    spoils: [node('nft flush chain ip cni_hostport hostports'), node('nft flush chain ip6 cni_hostport prerouting')],
    mistaken: /failed to run nft/,
    since: '1.5',
  },
  'bridge, firewall': {
    plugins: [BRIDGE, { type: 'firewall', backend: 'iptables', ingressPolicy: 'same-bridge' }],
    spoils: [node('iptables -F CNI-FORWARD'), node('ip6tables -F FORWARD'), node('iptables -F CNI-ISOLATION-STAGE-1')],
    mistaken: /expected FORWARD rule/,
  },
  'bridge, tuning': {
    plugins: [
      BRIDGE,
      { type: 'tuning', mtu: 1400, mac: '02:00:00:00:00:09', sysctl: { 'net.ipv4.conf.eth0.arp_filter': '1' } },
    ],
    spoils: [pod('ip link set eth0 mtu 1300'), pod('echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_filter')],
    spoiled: [pod('ip link set eth0 mtu 1300')],
  },
  'bridge, bandwidth': {
    plugins: [BRIDGE, { type: 'bandwidth', ...RATES }],
    spoils: [
      node('tc qdisc change dev @port root tbf rate 1mbit burst 1mb latency 25ms'),
      node('tc qdisc del dev @port ingress'),
      node('ip link del @ifb'),
    ],
    mistaken: /Limit doesn't match/,
  },
  'bridge, sbr': {
    plugins: [BRIDGE, { type: 'sbr' }],
    spoils: [pod('ip rule del from 10.9.0.2')],
    mistaken: /Failed to find Gateway/,
  },
  'bridge, vrf': { plugins: [BRIDGE, { type: 'vrf', vrfname: 'blue' }], spoils: [pod('ip link set eth0 nomaster')] },
}

describe('there and back', () => {
  before(function () {
    if (!cnitool()) skip(this, 'no cnitool could be built (see scripts/peers.ts)')
    if (references().length === 0) skip(this, 'no reference plugins (package containernetworking-plugins)')
  })

  for (const reference of references()) {
    for (const [what, one] of Object.entries(CASES)) {
      const lacks = lackOf(reference, one)
      it(
        `${what}: made by the reference ${reference.version}; CHECK of plumb sees what is right and what is not, DEL of plumb leaves nothing`,
        onFreshNode(['node', 'pod'], async (ns, test) => {
          if (lacks) return skip(test, lacks)
          const { ours, theirs, ...scene } = await prepared(ns.node, one.plugins, reference)
          for (const spoil of [undefined, ...one.spoils]) {
            await works(theirs, ['add', 'back', ns.pod.path])
            const { stderr } = await works(ours, ['check', 'back', ns.pod.path])
            for (const line of stderr.split('\n').filter(Boolean))
              assert.match(line, /^plumb: what another program made for this attachment is there plugin=/)
            if (spoil) {
              await run(spoil, ns)
              assert.match(
                (await ours.call(['check', 'back', ns.pod.path])).stderr,
                /Cannot confirm .*(missing|want|down)/,
                `CHECK after ${spoil.script}`,
              )
            }
            await works(ours, ['del', 'back', ns.pod.path])
            assert.deepEqual(await remains(scene, ns), [], `after DEL by plumb${spoil ? `, ${spoil.script}` : ''}`)
          }
          await works(ours, ['del', 'back', ns.pod.path])
        }),
      )

      it(
        `${what}: made by plumb; CHECK of the reference ${reference.version} ${one.mistaken ? 'does not know it' : 'finds it right'}, its DEL and gc leave nothing`,
        onFreshNode(['node', 'pod'], async (ns, test) => {
          if (lacks) return skip(test, lacks)
          const { ours, theirs, ...scene } = await prepared(ns.node, one.plugins, reference)
          for (const spoil of [undefined, ...(one.spoiled ?? [])]) {
            await works(ours, ['add', 'back', ns.pod.path])
            assert.equal((await works(ours, ['check', 'back', ns.pod.path])).stderr, '')
            if (one.mistaken) assert.match((await theirs.call(['check', 'back', ns.pod.path])).stderr, one.mistaken)
            else await works(theirs, ['check', 'back', ns.pod.path])
            if (spoil) {
              await run(spoil, ns)
              assert.notEqual(
                (await theirs.call(['check', 'back', ns.pod.path])).status,
                0,
                `CHECK after ${spoil.script}`,
              )
            }
            const gone = await theirs.call(['del', 'back', ns.pod.path])
            if (gone.status !== 0) {
              // It looks for a chain that plumb never made, once.
              assert.ok(
                one.plugins[0]?.['ipMasq'] && number(reference.version) < number('1.5'),
                gone.stdout + gone.stderr,
              )
              assert.match(gone.stderr, /CNI-[0-9a-f]{24}/)
              await works(theirs, ['del', 'back', ns.pod.path])
            }
            await collected(ns.node)
            assert.deepEqual(
              await remains(scene, ns),
              [],
              `after DEL by the reference and gc${spoil ? `, ${spoil.script}` : ''}`,
            )
          }
          // The index of its pool is put right with its next address.
          for (const verb of ['add', 'del']) await works(ours, [verb, 'back', ns.pod.path])
          assert.deepEqual([await remains(scene, ns), files('/var/lib/cni/networks/.plumb')], [[], []])
        }),
      )
    }

    for (const backend of ['iptables', 'nftables'])
      for (const [maker, remover, next] of [
        ['the reference', 'plumb', 'plumb'],
        ['the reference', 'plumb', 'the reference'],
        ['plumb', 'the reference', 'plumb'],
        ['plumb', 'the reference and gc', 'the reference'],
      ] as const)
        it(
          `a host port (${backend}) that ${maker} made leads nowhere after DEL by ${remover}, when the pod's address is given again by ${next} (${reference.version})`,
          onFreshNode(['node', 'pod', 'next', 'world'], async (ns, test) => {
            const one = CASES[`bridge, portmap${backend === 'nftables' ? ' by nftables' : ''}`] as Case
            const lacks = lackOf(reference, one)
            if (lacks) return skip(test, lacks)
            const { dir, ours, theirs } = await prepared(ns.node, one.plugins, reference)
            await wireWorld(ns.node, ns.world)
            const by = (who: string) => (who === 'plumb' ? ours : theirs)
            const [port, page80] = [`${WORLD.node4}:8080`, '10.9.0.2:80']
            await works(by(maker), ['add', 'back', ns.pod.path])
            await serving(ns.pod, () => until(() => asked(ns.world, port)))
            await works(by(remover), ['del', 'back', ns.pod.path])
            if (remover.endsWith('gc')) await collected(ns.node)
            // The next pod has no host ports.
            await works(on(ns.node, dir, next === 'plumb' ? DIST : reference.path), ['add', 'back', ns.next.path])
            await serving(ns.next, async () => {
              await until(() => asked(ns.node, page80))
              assert.equal(await asked(ns.world, port), '')
            })
          }),
        )
  }
})

/** A node on which one list is configured, and its two runtimes. */
interface Scene {
  /** The folder of its configuration. */
  readonly dir: string
  readonly theirs: Tool
  readonly ours: Tool
  /** The node's links and files before the first pod. */
  readonly links: readonly string[]
}

async function prepared(node: Namespace, plugins: Case['plugins'], reference: Peer): Promise<Scene> {
  await node.ip('link', 'set', 'lo', 'up')
  await makeDevices(node, 'dev0')
  await node.ip('addr', 'flush', 'dev', 'br0')
  await node.ip('link', 'add', 'lan0', 'up', 'type', 'veth', 'peer', 'name', 'lan1')
  const dir = folder({ cniVersion: '1.0.0', name: 'back', plugins })
  return {
    dir,
    theirs: on(node, dir, reference.path, PORTS),
    ours: on(node, dir, DIST, PORTS),
    links: await names(node),
  }
}

function lackOf(reference: Peer, { plugins, since }: Case): string | undefined {
  const missing = plugins
    .flatMap(({ type, ipam }) => [type, ...(ipam ? [ipam.type] : [])])
    .find((type) => !existsSync(join(reference.path, type)))
  const [kind] = lackingKinds(plugins.map(({ type }) => type))
  if (kind) return `this kernel has no ${kind}`
  if (missing) return `the reference ${reference.version} has no ${missing}`
  return since !== undefined && number(reference.version) < number(since)
    ? `the reference has it from ${since} on`
    : undefined
}

function number(version: string): number {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major * 1000 + minor
}

/** Runs gc of plumb, as docs/back-to-the-reference-plugins.md has it. */
async function collected(node: Namespace): Promise<void> {
  const { status, stderr } = await node.exec([join(DIST, 'plumb'), 'cni', 'gc'])
  assert.equal(status, 0, stderr)
}

async function works(tool: Tool, argv: readonly string[]): Promise<Finished> {
  const done = await tool.call(argv)
  assert.equal(done.status, 0, `${argv.join(' ')}: ${done.stdout}${done.stderr}`)
  return done
}

async function run({ where, script }: Spoil, ns: { readonly node: Namespace; readonly pod: Namespace }): Promise<void> {
  const links = await names(ns.node)
  const link = (start: string) => links.find((name) => name.startsWith(start)) ?? ''
  const { status, stderr } = await ns[where].exec([
    'sh',
    '-c',
    script.replaceAll('@port', link('veth')).replaceAll('@ifb', link('bwp')),
  ])
  assert.equal(status, 0, `${script}: ${stderr}`)
}

/** What tells of a pod that is gone: links, files, rules and elements. */
async function remains(
  { links }: Pick<Scene, 'links'>,
  { node, pod }: { readonly node: Namespace; readonly pod: Namespace },
): Promise<string[]> {
  const { cached, reserved } = await left(node, 'back')
  const { stdout } = await node.exec([
    'sh',
    '-c',
    'nft list ruleset; for tool in iptables ip6tables; do $tool-legacy-save 2>/dev/null; done; ip route; ip -6 route; ip neigh show nud permanent',
  ])
  return [
    ...cached,
    ...reserved,
    ...(await names(node)).filter((name) => !links.includes(name)),
    ...(await names(pod)),
    ...stdout.split('\n').filter((line) => TELLING.test(line) && !/ timeout 1s expires /.test(line)),
    ...files('/run/cni'),
    ...files('/var/lib/cni'),
  ]
}

const TELLING =
  /10\.9\.0\.2\b|fd00:9::2\b|8080|5353|cnitool-|\bveth|\bbwp|CNI-(DN-|SN-)?[0-9a-f]{8}|table bridge.*cni-br/

function files(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, { recursive: true, withFileTypes: true }).flatMap((one) =>
    one.isDirectory() || STAYING.test(one.name) || (one.parentPath.includes('/.plumb/') && !dir.endsWith('.plumb'))
      ? []
      : `${one.parentPath}/${one.name}`,
  )
}

// Locks, the address that was given last, and the time of an index.
const STAYING = /^lock$|\.lock$|^last_reserved_ip|^busy$|^stamp$/
