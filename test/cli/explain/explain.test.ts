// lane: long
// Tests cli/explain.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { Glob } from 'bun'
import type { ExplainedPlugin, Explanation } from '../../../cli/explain/explanation.ts'
import { daemon, dnsmasq, lan, leased, socketPath } from '../../support/dhcp.ts'
import { ENV, writeEnv } from '../../support/flannel.ts'
import { type Finished, inNamespaces, type Namespace, type Row } from '../../support/harness.ts'
import { needsTwo, wireMaster } from '../../support/kinds.ts'
import { FRESH, type Node, played, settings, USED } from '../../support/predicted-node.ts'
import { type Recording, recording, STRACE } from '../../support/recording.ts'
import { skip } from '../../support/skip.ts'

const ROOT = join(import.meta.dir, '../../..')
const DIST = join(ROOT, 'dist')
const PORTS = [
  '--port-mapping',
  '8080:80',
  '--port-mapping',
  '5353:53/udp',
  '--port-mapping',
  '192.0.2.7:9000:90/tcp',
  '--port-mapping',
  '5354:53/udp',
]

/** A network on a node: its configuration in a folder of its own. */
interface Network {
  readonly name: string
  readonly types: readonly string[]
  /** Holds plugins that are not plumb's, too. */
  readonly dir: string
  run(argv: readonly string[], path?: string): Promise<Finished>
}

describe('plumb cni explain', () => {
  before(function () {
    if (!existsSync(STRACE)) skip(this, 'strace is not installed')
    writeEnv('/run/flannel/subnet.env', ENV.dual)
  })
  afterEach(() => rmSync('/run/cni/plumb', { recursive: true, force: true }))
  const ranges = (...subnets: string[]) => ({ type: 'host-local', ranges: subnets.map((subnet) => [{ subnet }]) })
  const [four, six] = ['10.1.0.0/24', 'fd00:1::/64']
  const bridge = (keys: object, ...subnets: string[]) => ({
    plugins: [{ type: 'bridge', bridge: 'br0', ...(subnets.length > 0 && { ipam: ranges(...subnets) }), ...keys }],
  })
  const ports = (keys: object, ipMasq = true) => ({
    plugins: [
      ...bridge({ isDefaultGateway: true, ipMasq }, four, six).plugins,
      { type: 'portmap', capabilities: { portMappings: true }, ...keys },
    ],
  })
  const networks: Readonly<Record<string, { readonly conf: object; readonly argv?: readonly string[] }>> = {
    'bridge, IPv4': { conf: bridge({}, four) },
    'bridge, IPv6, isGateway': { conf: bridge({ isGateway: true }, six) },
    'bridge, both, isDefaultGateway, ipMasq': { conf: bridge({ isDefaultGateway: true, ipMasq: true }, four, six) },
    'bridge, mtu, hairpin, a MAC and an address asked for': {
      conf: {
        plugins: [
          { ...bridge({ mtu: 1400, hairpinMode: true, capabilities: { mac: true, ips: true } }, four).plugins[0] },
        ],
      },
      argv: ['--cap-args', '{"mac":"02:00:00:00:00:09","ips":["10.1.0.9"]}'],
    },
    'bridge, macspoofchk, portIsolation, promiscMode, forceAddress': {
      conf: bridge(
        { macspoofchk: true, portIsolation: true, promiscMode: true, isGateway: true, forceAddress: true },
        four,
      ),
    },
    'bridge, enabledad': { conf: bridge({ enabledad: true, isDefaultGateway: true }, six) },
    'bridge, without a pool': { conf: bridge({}) },
    'bridge, disableContainerInterface': { conf: bridge({ disableContainerInterface: true }) },
    'bridge, routes of the pool, 0.4.0': {
      conf: {
        cniVersion: '0.4.0',
        ...bridge({
          ipam: { ...ranges(four), routes: [{ dst: '10.0.0.0/8' }, { dst: '192.168.0.0/16', gw: '10.1.0.7' }] },
        }),
      },
    },
    'bridge, both, 0.2.0': {
      conf: {
        cniVersion: '0.2.0',
        ...bridge({ ipam: { ...ranges(four, six), routes: [{ dst: '10.0.0.0/8', mtu: 1400 }] } }),
      },
    },
    'ptp, both, ipMasq': {
      conf: {
        plugins: [
          { type: 'ptp', ipMasq: true, mtu: 1400, ipam: { ...ranges(four, six), routes: [{ dst: '0.0.0.0/0' }] } },
        ],
      },
    },
    'ptp, without a pool': { conf: { plugins: [{ type: 'ptp' }] } },
    loopback: { conf: { plugins: [{ type: 'loopback' }] } },
    'portmap, TCP and UDP, hostIP': { conf: ports({}), argv: PORTS },
    'portmap, conditions, masqAll': {
      conf: ports({ conditionsV4: ['ip', 'saddr', '192.0.2.0/24'], masqAll: true }, false),
      argv: PORTS,
    },
    'portmap, without snat': { conf: ports({ snat: false }), argv: PORTS.slice(0, 4) },
    'bridge with portMappings of its own': {
      conf: bridge(
        { isDefaultGateway: true, ipMasq: true, capabilities: { portMappings: true }, portMappings: { snat: true } },
        four,
        six,
      ),
      argv: PORTS,
    },
    'ptp with portMappings of its own': {
      conf: { plugins: [{ type: 'ptp', ipam: ranges(four, six), capabilities: { portMappings: true } }] },
      argv: PORTS,
    },
    'portmap, without a port': { conf: ports({}) },
    'loopback behind a bridge': { conf: { plugins: [...bridge({}, four).plugins, { type: 'loopback' }] } },
  }
  // What a DHCP server answers cannot be told.
  const samples = [...new Glob('**/*.{conf,conflist}').scanSync({ cwd: join(ROOT, 'conf') })]
    .filter((file) => file !== 'dhcp.conflist')
    // The agent that admits its pods does not run here (test/plugins/policy.test.ts).
    .filter((file) => file !== 'policy.conflist')
    // Its device, and where that is when it goes back, are told in test/plugins/host-device/host-device.test.ts.
    .filter((file) => !file.startsWith('host-device'))
    .sort()
    .map((file): [string, { conf: Row; argv?: readonly string[] }] => [
      `conf/${file}`,
      {
        conf: JSON.parse(readFileSync(join(ROOT, 'conf', file), 'utf8')),
        argv: file.startsWith('portmap') ? PORTS : [],
      },
    ])
  for (const [what, { conf, argv = [] }] of [...Object.entries(networks), ...samples]) {
    it(
      `prints beforehand, line by line, what ADD and DEL give to tools and write: ${what}`,
      inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
        const net = networkOn(node, conf)
        needsTwo(test, net.types)
        await wireMaster(node, (conf as Row)['plugins'] ?? [conf])
        const first = await explained(net, [pod.path, ...argv])
        const result = await recorded(net, 'add', [pod.path, ...argv], first, FRESH, { node, pod })
        assert.deepEqual(first.result, result)
        const argv2 = argv.map((one) =>
          one
            .replace(/^(\d+):/, '1$1:')
            .replace('10.1.0.9', '10.1.0.10')
            .replace(':9000:', ':9001:'),
        )
        const second = await explained(net, [other.path, ...argv2])
        const result2 = await recorded(net, 'add', [other.path, ...argv2], second, USED, { node, pod: other })
        // The bridge is the first one's.
        assert.deepEqual(withoutBridge(second.result), withoutBridge(result2))
        await recorded(net, 'del', [other.path], await explained(net, ['--del', other.path]), USED, {
          node,
          pod: other,
        })
        await recorded(net, 'del', [pod.path], await explained(net, ['--del', pod.path]), USED, { node, pod })
      }),
    )
  }

  it(
    'prints beforehand what ADD gives to tools on a node whose bridge is down',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = networkOn(node, bridge({ isGateway: true, promiscMode: true }, four, six))
      await node.ip('link', 'add', 'br0', 'type', 'bridge')
      const told = await explained(net, [pod.path])
      const state: Node = (when) =>
        /^only when (link br0 was there before and is not as asked|it is not there yet)$/.test(when)
      const result = await recorded(net, 'add', [pod.path], told, state, { node, pod })
      assert.deepEqual(withoutBridge(told.result), withoutBridge(result))
    }),
  )

  it(
    'prints beforehand what ADD and DEL give to tools where the pool is another program, with what that answers',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = networkOn(node, bridge({ isDefaultGateway: true, ipam: { type: 'theirs' } }))
      const answer = JSON.stringify({
        cniVersion: '1.1.0',
        ips: [{ address: '10.7.0.5/24', gateway: '10.7.0.1' }],
        dns: { nameservers: ['10.7.0.1'] },
      })
      writeFileSync(`${net.dir}/theirs`, `#!/bin/sh\n[ $CNI_COMMAND != ADD ] || echo '${answer}'\n`, { mode: 0o755 })
      writeFileSync(`${net.dir}/answer`, answer)
      const told = await explained(net, [pod.path, '--prev-result', `${net.dir}/answer`])
      assert.deepEqual(told.result, await recorded(net, 'add', [pod.path], told, FRESH, { node, pod }))
      await recorded(net, 'del', [pod.path], await explained(net, ['--del', pod.path]), USED, { node, pod })
    }),
  )

  it(
    'prints beforehand what ADD and DEL give to tools where the pool asks through the link, with what that answers',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      await daemon(node, socket)
      await dnsmasq(node, '--dhcp-range=10.7.0.50,10.7.0.50,120')
      const net = networkOn(node, leased(socket))
      const unknown = await explained(net, [pod.path])
      assert.match(unknown.plugins[0]?.notes.join() ?? '', /what follows depends on the addresses that dhcp gives/)
      writeFileSync(
        `${net.dir}/answer`,
        JSON.stringify({
          cniVersion: '1.1.0',
          ips: [{ address: '10.7.0.50/24', gateway: '10.7.0.2' }],
          routes: [{ dst: '0.0.0.0/0', gw: '10.7.0.2' }],
        }),
      )
      const told = await explained(net, [pod.path, '--prev-result', `${net.dir}/answer`])
      const result = await recorded(net, 'add', [pod.path], told, USED, { node, pod })
      assert.deepEqual(withoutBridge(told.result), withoutBridge(result))
      await recorded(net, 'del', [pod.path], await explained(net, ['--del', pod.path]), USED, { node, pod })
    }),
  )
})

let serial = 0
function networkOn(node: Namespace, conf: object): Network {
  const dir = mkdtempSync('/run/explain-')
  const whole: Row = { cniVersion: '1.1.0', name: `net${++serial}`, ...conf }
  writeFileSync(`${dir}/10-net.conf${whole['plugins'] ? 'list' : ''}`, JSON.stringify(whole))
  return {
    name: whole['name'],
    types: (whole['plugins'] ?? [whole]).map(({ type }: Row) => type),
    dir,
    run: (argv, path = `${dir}:${DIST}`) =>
      node.exec([join(DIST, 'plumb'), 'cni', ...argv], { env: { NETCONFPATH: dir, CNI_PATH: path } }),
  }
}

async function explained(net: Network, argv: readonly string[]): Promise<Explanation> {
  const { status, stdout, stderr } = await net.run(['explain', net.name, '--json', ...argv])
  assert.deepEqual([status, stderr], [0, ''], stdout)
  return JSON.parse(stdout)
}

/**
 * Runs the verb with plugins that write down what they do, and compares all of it with what was told; gives the result.
 */
async function recorded(
  net: Network,
  verb: string,
  argv: readonly string[],
  told: Explanation,
  state: Node,
  spaces: { node: Namespace; pod: Namespace },
): Promise<Row> {
  const tape = recording(net.types)
  const { status, stdout, stderr } = await net.run([verb, net.name, '--json', ...argv], `${net.dir}:${tape.path}`)
  assert.equal(status, 0, stderr + stdout)
  assert.deepEqual(
    told.plugins.map(({ type }) => type),
    verb === 'del' ? net.types.toReversed() : net.types,
  )
  for (const one of told.plugins) {
    // What depends on what it finds was not told.
    if (!one.isWhole) continue
    const all = once(heard(tape, one, spaces))
    const beside = played({ ...one, runs: one.runs.filter((run) => run.inBackground) }, state)
    for (const run of beside)
      assert.equal(all.filter((call) => isDeepStrictEqual(call, run)).length, 1, run.lines.join('\n'))
    const inTurn = played({ ...one, runs: one.runs.filter((run) => !run.inBackground) }, state)
    assert.deepEqual(
      all.filter((call) => !beside.some((run) => isDeepStrictEqual(call, run))),
      inTurn,
      one.type,
    )
    const written = tape.writes(one.type).map(({ netns, text }) => `${netns ?? 'host'} ${text}`)
    const want = settings(one)
    assert.deepEqual(
      want.filter(({ text, sure }) => sure || written.includes(text)).map(({ text }) => text),
      written,
    )
    for (const { text } of want.filter(({ text }) => !written.includes(text))) {
      const [, name = '', value = ''] = /^host (\S+) = (.*)$/.exec(text) ?? []
      const path = `/proc/sys/${name}`
      const is = (await spaces.node.exec(['sh', '-c', `[ ! -e ${path} ] && echo ${value} || cat ${path}`])).stdout
      assert.equal(is.trim(), value, `${text} was told, was not written, and is not so`)
    }
  }
  return JSON.parse(stdout)
}

function heard(tape: Recording, { type }: ExplainedPlugin, { node, pod }: { node: Namespace; pod: Namespace }) {
  const names = new Map([node, pod].map(({ path }, i) => [`net:[${statSync(path).ino}]`, i === 0 ? 'host' : path]))
  return tape.calls(type).map(({ ns, argv, lines }) => ({ namespace: names.get(ns) ?? ns, argv, lines }))
}

// The kernel is asked about an address again and again.
function once<T>(calls: readonly T[]): T[] {
  return calls.filter((call, i) => JSON.stringify(call) !== JSON.stringify(calls[i - 1]))
}

function withoutBridge(result: Row | undefined): Row {
  const { interfaces = [], ...rest } = result ?? {}
  return {
    ...rest,
    interfaces: interfaces.map(({ mac, ...one }: Row) =>
      /^(br|cni|cbr|plumb|minicni)\d$|^br-lan$/.test(one['name']) ? one : { ...one, mac },
    ),
  }
}
