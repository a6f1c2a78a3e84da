import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fuse } from '../../cli/fuse.ts'
import { type Answer, inNamespaces, type Namespace, plugin, type Row, snapshot, until } from './harness.ts'
import { makeDevices } from './host-devices.ts'
import { wireLan } from './lan.ts'
import { bridgeConf, type Conf, containerId } from './network.ts'
import { type Any, shimmed } from './tool-shims.ts'

const RATES = { ingressRate: 80_000_000, ingressBurst: 1_000_000, egressRate: 40_000_000, egressBurst: 800_000 }
const PORTS = [
  { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
  { hostPort: 5353, containerPort: 53, protocol: 'udp' },
]

/** A list of plugins, and with which tools each of them works. */
export interface Scene {
  readonly list: readonly Row[]
  readonly tools: Readonly<Record<string, readonly Any[]>>
  wire?(node: Namespace): Promise<void>
}

/** The longest of them. */
export const CHAIN = 'bridge, portmap, firewall, bandwidth, tuning'
const PLUGINS: readonly Row[] = [
  { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, macspoofchk: true },
  { type: 'portmap', capabilities: { portMappings: true } },
  { type: 'firewall', ingressPolicy: 'same-bridge' },
  { type: 'bandwidth', ...RATES },
  {
    type: 'tuning',
    sysctl: { 'net.core.somaxconn': '500', 'net.ipv4.conf.IFNAME.arp_filter': '1' },
    mtu: 1400,
    mac: '02:00:00:00:00:77',
    promisc: true,
  },
]

/** Lists of plugins whose tools can be made to fail. */
export const SCENES: Readonly<Record<string, Scene>> = {
  [CHAIN]: {
    list: PLUGINS,
    tools: { bridge: ['ip', 'nft'], portmap: ['nft'], firewall: ['nft'], bandwidth: ['ip', 'tc'], tuning: ['ip'] },
  },
  'the same in one': {
    list: fuse({ cniVersion: '1.1.0', name: 'x', plugins: PLUGINS }).list['plugins'] as Row[],
    tools: { bridge: ['ip', 'nft', 'tc'] },
  },
  'ptp, sbr': { list: [{ type: 'ptp', ipMasq: true }, { type: 'sbr' }], tools: { ptp: ['ip', 'nft'], sbr: ['ip'] } },
  'ptp, routed': { list: [{ type: 'ptp', routed: true, ipMasq: true }], tools: { ptp: ['ip', 'nft'] } },
  macvlan: { list: [{ type: 'macvlan', master: 'eth1' }], tools: { macvlan: ['ip'] }, wire: wireLan },
  'host-device': {
    list: [{ type: 'host-device', device: 'dev1' }],
    tools: { 'host-device': ['ip'] },
    wire: (node) => makeDevices(node, 'dev1'),
  },
}

/** One network of a scene on a node, with one pod, called as a runtime calls it. */
export interface Stage {
  readonly confs: readonly Conf[]
  readonly node: Namespace
  readonly pod: Namespace
  /** ADD of one after the other, up to but not with this one; what the last answered. */
  addUpTo(at: number): Promise<Row | undefined>
  /**
   * A call to one of them, in whose mounts these shell commands are run first, and in which these tools are scripts
   * (see shim.ts).
   */
  call(
    command: string,
    at: number,
    prevResult?: Row,
    scripts?: Partial<Record<Any, string>>,
    before?: string,
  ): Promise<Answer>
  /** DEL of all, the last first, and each has to work. */
  del(): Promise<void>
  /** What /run/cni is outside of the calls. */
  readonly run: string
  /** The addresses that the pool has reserved. */
  reserved(): string[]
  /** What is on the node, in the pod, and in the files of plugins. */
  look(): Promise<string>
}

/**
 * Wraps a test: a scene on a node with its own /run/cni, where its network was used once before, so that what all
 * attachments share is there.
 */
export function onStage(
  { list, wire }: Scene,
  work: (stage: Stage, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
    test.timeout(300_000)
    // The kernel's own link-local addresses, tentative for a second or two, would be one more thing to wait for.
    for (const one of [node, pod]) await one.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
    await wire?.(node)
    const stage = staged(list, node, pod)
    await stage.addUpTo(list.length)
    await stage.del()
    await work(stage, test)
  })
}

function staged(list: readonly Row[], node: Namespace, pod: Namespace): Stage {
  const { name, ipam } = bridgeConf({}, '10.1.0.0/24', 'fd00:1::/64')
  const confs = list.map(
    (one, i): Conf => ({
      cniVersion: '1.1.0',
      name,
      ...one,
      ...(i === 0 && { ipam }),
      ...(one['capabilities'] && { runtimeConfig: { portMappings: PORTS } }),
    }),
  )
  const run = mkdtempSync('/run/cni-')
  const call: Stage['call'] = (command, at, prevResult, scripts = {}, before = '') => {
    const conf = confs[at] as Conf
    const { file } = shimmed(
      conf['type'] as string,
      scripts,
      `mkdir -p /run/cni; mount --bind ${run} /run/cni; ${before}`,
    )
    return plugin(
      conf['type'] as string,
      {
        command,
        // A GC of this network keeps none of these attachments.
        conf: {
          ...conf,
          ...(prevResult && { prevResult }),
          ...(command === 'GC' && { 'cni.dev/valid-attachments': [{ containerID: 'another', ifname: 'eth0' }] }),
        },
        containerId: containerId(pod),
        netns: pod,
        file,
      },
      node,
    )
  }
  return {
    confs,
    node,
    pod,
    run,
    call,
    reserved: () => files(ipam?.dataDir as string).filter((path) => /\/net\d+\/[\da-f]+[.:][^/]*$/.test(path)),
    async addUpTo(at) {
      let result: Row | undefined
      for (let i = 0; i < at; i++) {
        const answer = await call('ADD', i, result)
        assert.equal(answer.status, 0, `${confs[i]?.['type']}: ${answer.stdout}${answer.stderr}`)
        result = answer.result
      }
      return result
    },
    async del() {
      for (const i of [...confs.keys()].reverse()) {
        const { status, stdout, stderr } = await call('DEL', i)
        assert.equal(status, 0, `DEL of ${confs[i]?.['type']}: ${stdout}${stderr}`)
      }
    },
    look: async () => {
      // That a port's frames may come back through it is portmap's wish for the rest of the port's life.
      const text = [
        (await snapshot(node)).replaceAll('["hairpin",true]', '["hairpin",false]'),
        await inPod(pod),
        ...files(ipam?.dataDir as string),
        ...files(run),
      ].join('\n')
      // What the kernel does by itself comes a moment later: a link's own IPv6 address, routes to what is local, what a
      // bridge learns, and what follows a carrier.
      const lines = text
        .replace(/ linkdown\b|\["state","\w+"\],/g, '')
        .split('\n')
        .filter(
          (line) =>
            !/\bfe80:|33:33:|table local proto kernel|multicast ff00::|^[0-9a-f:]{17} dev \S+ master \S+ $/.test(line),
        )
      return lines.join('\n')
    },
  }
}

/** An error that a person can act on: a known code, a sentence, no stack and no class; what was wrong stands in it. */
export function clear({ status, stdout, error }: Answer, about: RegExp): void {
  assert.equal(status, 1, stdout)
  assert.ok([3, 4, 5, 7, 11, 999].includes(error.code) && error.msg, stdout)
  assert.doesNotMatch(stdout, /Unexpected failure|\bundefined\b|\[object|\bat \S+ \(|\.[jt]s:\d+/)
  assert.match(`${error.msg} ${error.details}`.replaceAll('\n', ' '), about)
}

/** Throws unless all is as it was within three seconds: the kernel does some of its work a moment later. */
export async function unchanged({ look }: Stage, before: string, about: string): Promise<void> {
  await until(async () => assert.deepEqual(changes(before, await look()), [], about) === undefined, 3000)
}

/**
 * The same for links, in the node and in the pod. With a tool that never works the rest waits for a DEL. So do the
 * notes of what that DEL must remove.
 */
export async function unlinked({ look }: Stage, before: string, about: string): Promise<void> {
  await until(
    async () =>
      assert.deepEqual(
        changes(before, await look()).filter((line) => /^. (\{"ifname"|\w+(@\w+)?: <)/.test(line)),
        [],
        about,
      ) === undefined,
    3000,
  )
}

/** The lines of a text that another has not, with a sign before each. */
export function changes(before: string, after: string): string[] {
  const [had, has] = [before.split('\n'), after.split('\n')]
  return [
    ...had.filter((line) => !has.includes(line)).map((line) => `- ${line}`),
    ...has.filter((line) => !had.includes(line)).map((line) => `+ ${line}`),
  ]
}

async function inPod({ exec }: Namespace): Promise<string> {
  const script = 'ip -o link; ip -o addr; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule'
  return (await exec(['sh', '-c', script])).stdout.replace(/^\d+: |(lft|expires) \d+sec/gm, '')
}

// What stays of a network beside its attachments: locks, the last address given, the file of who is at work.
function files(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .map((one) => join(one.parentPath, one.name))
    .filter((path) => !/\/(lock|last_reserved_ip\.\d|busy|stamp|owners|draft)$/.test(path))
    .sort()
}
