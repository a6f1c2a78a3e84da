// lane: quick
// Tests cli/explain.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import type { Explanation } from '../../../cli/explain/explanation.ts'
import { bridgeMac, hostMac, hostVeth, podMac } from '../../../lib/text/link-names.ts'
import { parse } from '../../../lib/text/values.ts'
import { nodeFacts } from '../../../lib/wiring/node-facts.ts'
import { linesOf } from '../../support/predicted-node.ts'

const DIST = join(import.meta.dir, '../../../dist')
const POOL = { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/24' }]] }
const BRIDGE = { type: 'bridge', bridge: 'br0', ipam: POOL }
const PORTMAP = { type: 'portmap', capabilities: { portMappings: true } }

describe('plumb cni explain', () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'explain-'))
    for (const name of ['conf', 'bin']) mkdirSync(`${dir}/${name}`)
    // Had one of them been started, it would be seen.
    for (const name of ['theirs', 'theirpool'])
      writeFileSync(`${dir}/bin/${name}`, `#!/bin/sh\necho >${dir}/started\n`, { mode: 0o755 })
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  it('prints for people what each command gets, with a comment on every line, and the answer', async () => {
    configure(BRIDGE)
    const owner = { network: parse.network('net'), containerId: 'c1', ifname: parse.ifname('eth0') }
    const [veth, vethMac, mac] = [hostVeth(owner), hostMac(owner, nodeFacts), podMac(owner, nodeFacts)]
    const { stdout } = await plumb('net', 'web', '--container-id', 'c1')
    const lines = stdout.split('\n')
    assert.equal(
      bare(lines.slice(0, lines.indexOf('# answers'))),
      `
# ADD of eth0 in /run/netns/web to net (container c1); nothing of this was run
# /run/netns/web is not there: ADD would be refused until it is

# 1. plugin bridge, pool host-local: 10.1.0.2/24 (free now; the pool decides when it is asked)
# in the result, mac and mtu of br0 are those of a new one: one that is there already keeps its own
ip -batch -
  link add name br0 address ${bridgeMac(parse.ifname('br0'), owner, nodeFacts)} up type bridge
  link set dev br0 alias plumb-bridge
  link add name ${veth} address ${vethMac} up master br0 type veth peer name eth0 address ${mac} netns /run/netns/web
  link set dev ${veth} alias plumb/net/c1/eth0
# on the node; files below /proc/sys, no process
  net/ipv6/conf/br0/accept_ra = 0
  net/ipv6/conf/${veth}/disable_ipv6 = 1
# in /run/netns/web; files below /proc/sys, no process
  net/ipv6/conf/eth0/accept_dad = 0
  net/ipv4/conf/eth0/arp_notify = 1
  net/ipv6/conf/eth0/ndisc_notify = 1
ip -batch -
  addr replace 10.1.0.2/24 brd + dev eth0
  link set dev eth0 up
ip -batch -
  link set dev br0 up`,
    )
    for (const line of lines.slice(0, lines.indexOf('# answers')).filter(Boolean)) assert.match(line, /# \S/)
    assert.match(stdout, / {2}link add name br0 .* # only when link br0 is not there: the bridge$/m)
    assert.match(stdout, / {2}net\/ipv6\/conf\/br0\/accept_ra = 0 +# only when it is not so already: takes no routes/)
    assert.equal(lines.at(-1), '# ADD answers what 1. bridge answers')
    const { result } = await told('net', 'web', '--container-id', 'c1')
    assert.deepEqual(JSON.parse(lines.slice(lines.indexOf('# answers') + 1, -2).join('\n')), result)
  })

  it('says of every line of data what it is for and, where an answer means that it is so already, which', async () => {
    configure(
      {
        ...BRIDGE,
        isDefaultGateway: true,
        ipMasq: true,
        vlan: 5,
        vlanTrunk: [{ minID: 7, maxID: 9 }],
        macspoofchk: true,
        enabledad: true,
      },
      PORTMAP,
    )
    const add = await told('net', '--port-mapping', '53:53/udp')
    const del = await told('net', '--port-mapping', '53:53/udp', '--del')
    for (const { text, about, already } of [...linesOf(add), ...linesOf(del)]) {
      assert.ok(about.length > 5 && !about.includes('undefined'), `${text}: ${about}`)
      if (already !== undefined) assert.ok(new RegExp(already))
    }
    const find = (one: Explanation, text: RegExp) => linesOf(one).find((line) => text.test(line.text))
    assert.deepEqual(
      [find(add, /^link add name br0/)?.when, find(add, /^link add name br0/)?.already],
      ['only when link br0 is not there', 'File exists'],
    )
    assert.match(
      find(add, /^vlan add vid 5 pvid untagged dev veth/)?.about ?? '',
      /^veth\w+ is in VLAN 5, untagged, its native one$/,
    )
    assert.match(find(add, /^vlan add vid 7-9 dev veth/)?.about ?? '', /^veth\w+ is in VLANs 7 to 9, tagged$/)
    assert.match(find(add, /^vlan delete vid 1 dev veth/)?.about ?? '', /leaves VLAN 1$/)
    assert.match(find(del, /^link delete group/)?.already ?? '', /Cannot find device/)
    assert.deepEqual([add.result?.['ips'] !== undefined, del.result], [true, undefined])
  })

  it('shows the rules of lib/nft whole in data, and in text with --rules', async () => {
    configure({ ...BRIDGE, ipMasq: true })
    const rules = readFileSync(join(DIST, '../lib/nft/masquerade.nft'), 'utf8')
    assert.ok(linesOf(await told('net')).some(({ text }) => text === rules))
    assert.doesNotMatch((await plumb('net')).stdout, /chain outward/)
    assert.match((await plumb('net')).stdout, /: \d+ lines, which --rules shows/)
    assert.ok((await plumb('net', '--rules')).stdout.includes(rules.trimEnd()))
  })

  it('has a path stand for a NETNS that is not given, in lines that are otherwise the same', async () => {
    configure(BRIDGE)
    const [without, given] = [
      await told('net', '--container-id', 'c1'),
      await told('net', '/run/netns/POD', '--container-id', 'c1'),
    ]
    assert.deepEqual(without.notes, ['NETNS was not given: /run/netns/POD stands for it'])
    assert.deepEqual({ ...without, notes: [] }, { ...given, notes: [] })
    assert.match(
      linesOf(without).find(({ text }) => text.includes('type veth'))?.text ?? '',
      / netns \/run\/netns\/POD$/,
    )
  })

  it('takes addresses that are asked for, and says so', async () => {
    configure({ ...BRIDGE, capabilities: { ips: true } })
    const { plugins } = await told('net', '--cap-args', '{"ips":["10.1.0.77"]}')
    assert.deepEqual([plugins[0]?.pool?.about, ips(plugins[0]?.result)], ['asked for', ['10.1.0.77/24']])
  })

  it('starts no plugin that is not plumb’s, goes on as if it answered what it was given, and says so', async () => {
    configure(BRIDGE, { type: 'theirs' }, PORTMAP)
    const { plugins, result } = await told('net', '--port-mapping', '8080:80')
    assert.deepEqual(
      { ...plugins[1], notes: 0 },
      { type: 'theirs', file: `${dir}/bin/theirs`, isPlumb: false, runs: [], isWhole: false, notes: 0 },
    )
    assert.match(
      plugins[1]?.notes.join('\n') ?? '',
      /theirs is not plumb's: it is run as a program with CNI_COMMAND=ADD.*\nwhat it answers is not known: what follows is as if/,
    )
    assert.ok(
      linesOf({ plugins } as Explanation).some(
        ({ text }) => text.includes('ports4 { tcp . 8080') && text.includes('10.1.0.2 . 80'),
      ),
    )
    assert.deepEqual(ips(result), ['10.1.0.2/24'])
  })

  it('--port-mapping: says that nobody publishes the port, also when a plugin declares the capability and does not read it', async () => {
    const said = async (...plugins: object[]) => {
      configure(...plugins)
      return (await plumb('net', '--port-mapping', '8080:80')).stderr
    }
    const capabilities = { portMappings: true }
    const deaf = { type: 'dummy', ipam: BRIDGE.ipam, capabilities }
    assert.match(await said(BRIDGE), /no plugin of net declares the capability portMappings: it is not used/)
    assert.match(
      await said(deaf),
      /no plugin of net publishes ports: no port is open; want the capability at bridge or ptp, or portmap in/,
    )
    for (const list of [[{ ...BRIDGE, capabilities }], [BRIDGE, PORTMAP]]) assert.equal(await said(...list), '')
  })

  it('invents no result: behind a first plugin that is not plumb’s only --prev-result makes lines', async () => {
    configure({ type: 'theirs' }, PORTMAP)
    const lost = await told('net', '--port-mapping', '8080:80')
    assert.deepEqual([lost.plugins[1]?.isWhole, lost.plugins[1]?.runs, lost.result], [false, [], undefined])
    assert.match(
      (await plumb('net', '--port-mapping', '8080:80')).stdout,
      /the result before it, which is not known: --prev-result FILE.*# ADD answers what 2\. portmap answers, which is not known$/s,
    )
    writeFileSync(
      `${dir}/result`,
      JSON.stringify({
        cniVersion: '0.4.0',
        interfaces: [{ name: 'eth0', sandbox: '/x' }],
        ips: [{ version: '4', address: '10.9.0.9/24', interface: 0 }],
      }),
    )
    const { plugins, result } = await told('net', '--port-mapping', '8080:80', '--prev-result', `${dir}/result`)
    assert.deepEqual([plugins[0]?.result, ips(result)], [result, ['10.9.0.9/24']])
    assert.ok(linesOf({ plugins } as Explanation).some(({ text }) => text.includes(': 10.9.0.9 . 80')))
  })

  it('refuses a --prev-result that no program has to answer', async () => {
    configure(BRIDGE)
    writeFileSync(`${dir}/result`, '{"ips":[{"address":"10.9.0.9/24"}]}')
    const { exitCode, stderr } = await plumb('net', '--prev-result', `${dir}/result`)
    assert.deepEqual(
      [exitCode, stderr],
      [2, "--prev-result is what a program that is not plumb's answers: net asks none"],
    )
  })

  it('starts no pool that is not plumb’s: shows what needs no address, and all with --prev-result', async () => {
    configure({ ...BRIDGE, ipam: { type: 'theirpool' } }, PORTMAP)
    const lost = await told('net')
    const [bridge, portmap] = lost.plugins
    assert.deepEqual(
      [bridge?.pool, bridge?.isWhole, portmap?.isWhole],
      [{ type: 'theirpool', program: `${dir}/bin/theirpool`, about: 'what it answers is not known' }, false, false],
    )
    assert.deepEqual(bridge?.runs[0]?.argv, ['ip', '-d', '-j', '-force', '-batch', '-'])
    assert.ok(
      linesOf(lost).every(({ text }) => !/^(addr replace|route)/.test(text)) &&
        linesOf(lost).some(({ text }) => text.includes('type veth')),
    )
    writeFileSync(`${dir}/result`, '{"ips":[{"address":"10.9.0.9/24"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.9.0.1"}]}')
    const known = await told('net', '--prev-result', `${dir}/result`)
    assert.deepEqual(
      [known.plugins[0]?.pool?.about, known.plugins[1]?.isWhole, ips(known.result)],
      ['as --prev-result says', true, ['10.9.0.9/24']],
    )
    assert.ok(linesOf(known).some(({ text }) => text === 'addr replace 10.9.0.9/24 brd + dev eth0'))
  })

  it('tells what happens to an address in the way of a gateway', async () => {
    for (const [forceAddress, note] of [
      [true, /^an address of br0 that is in the way is deleted first: addr delete ADDRESS dev br0$/],
      [
        false,
        /^where br0 has another address ADD is refused: "br0" already has an IP address different from 10\.1\.0\.1\/24$/,
      ],
    ] as const) {
      configure({ ...BRIDGE, isGateway: true, forceAddress })
      assert.ok((await told('net')).plugins[0]?.notes.some((one) => note.test(one)))
    }
  })

  function configure(...plugins: readonly object[]): void {
    const kept = plugins.map((one) =>
      'ipam' in one && typeof one.ipam === 'object' ? { ...one, ipam: { dataDir: `${dir}/pool`, ...one.ipam } } : one,
    )
    writeFileSync(`${dir}/conf/10-net.conflist`, JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins: kept }))
  }
  function plumb(...argv: readonly string[]) {
    return execa(`${DIST}/plumb`, ['cni', 'explain', ...argv, '--cache-dir', `${dir}/cache`], {
      reject: false,
      extendEnv: false,
      env: { NETCONFPATH: `${dir}/conf`, CNI_PATH: `${dir}/bin:${DIST}` },
    })
  }
  async function told(...argv: readonly string[]): Promise<Explanation> {
    const { exitCode, stdout, stderr } = await plumb(...argv, '--json')
    assert.deepEqual([exitCode, stderr], [0, ''], stdout)
    return JSON.parse(stdout)
  }
})

// Without the comments behind lines.
function bare(lines: readonly string[]): string {
  return ['', ...lines.map((line) => (line.startsWith('#') ? line : line.replace(/ +# .*/, '')))].join('\n')
}

function ips(result: Explanation['result']): string[] {
  return ((result?.['ips'] ?? []) as { address: string }[]).map(({ address }) => address)
}
