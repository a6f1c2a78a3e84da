import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { note } from '../lib/journal/journal.ts'
import { take } from '../lib/journal/ports.ts'
import { hostPorts } from '../lib/nft/host-ports.ts'
import { inside } from '../lib/os/netns.ts'
import { writeSysctl } from '../lib/os/sysctls.ts'
import { addition } from '../lib/state/kinds/element.ts'
import { link } from '../lib/state/kinds/link.ts'
import type { Resource } from '../lib/state/resource.ts'
import { parseCidr } from '../lib/text/ip.ts'
import { read } from '../lib/text/shape.ts'
import { parse } from '../lib/text/values.ts'
import bridge from '../plugins/bridge.ts'
import type { Place } from './call.ts'
import { BRIDGE, bridgeConf, NETWORK } from './node.ts'
import { ip, run } from './tools.ts'

// More than twice what a kubelet takes unless told otherwise; the kernel's own limit is 1,023 (BR_MAX_PORTS).
const PORTS = 250

/** The nth attachment that is there already: its container and its address, from 10.1.0.2 on. */
export function other(n: number): { readonly id: string; readonly ip: string } {
  return { id: `other${n}`, ip: `10.1.${(n + 2) >> 8}.${(n + 2) & 255}` }
}

/** Writes the reservations of `count` attachments in host-local's layout, and the note of the last one given out. */
export function reserveOthers(dataDir: string, count: number): void {
  const dir = `${dataDir}/${NETWORK}`
  mkdirSync(dir, { recursive: true })
  const put = (name: string, text: string) => {
    const fd = openSync(`${dir}/${name}`, 'w', 0o600)
    writeSync(fd, text)
    closeSync(fd)
  }
  for (let n = 0; n < count; n++) put(other(n).ip, `${other(n).id}\r\neth0`)
  if (count > 0) put('last_reserved_ip.0', other(count - 1).ip)
}

/**
 * Makes the links of `count` attachments: veth pairs, up, 250 to a bridge, the measured one first; their other ends in
 * a namespace that stands for all the pods. Those of plumb are what its plugin wants on the node.
 */
export async function linkOthers(node: Place, pods: Place, count: number, ours: boolean): Promise<void> {
  // The other pods are silent: they have links, and nothing to say.
  inside(pods, () => run(['sysctl', '-q', '-w', 'net.ipv6.conf.default.disable_ipv6=1']))
  const bridges = Array.from({ length: Math.ceil(count / PORTS) }, (_, i) => (i === 0 ? BRIDGE : `other${i}`))
  const all = Array.from({ length: count }, (_, n) => n)
  const wanted = all.map((n) => wants(n, bridges[Math.floor(n / PORTS)] as string, pods))
  const plain = all.map(
    (n) =>
      `link add name veth${n} up master ${bridges[Math.floor(n / PORTS)]} type veth peer name eth${n} netns ${pods}`,
  )
  inside(node, () => {
    ip([
      ...bridges.slice(1).flatMap((name) => [`link add name ${name} type bridge`, `link set dev ${name} up`]),
      ...(ours
        ? wanted.flat().flatMap((one) => (one.kind === 'link' ? link.put(one).map(({ text }) => text) : []))
        : plain),
    ])
    if (ours) for (const one of wanted.flat()) if (one.kind === 'sysctl') writeSysctl(one.name, one.value)
  })
  inside(pods, () => ip(all.map((n) => `link set dev eth${n} up`)))
  // The kernel notices no more than 100 or 200 carriers a second when so many come at once (linkwatch), and ours would
  // wait for its turn.
  const until = performance.now() + 120_000
  while (inside(node, () => run(['ip', '-o', 'link', 'show', 'type', 'veth'])).split('state UP').length <= count) {
    if (performance.now() > until) throw new Error(`Waited 120 s for ${count} links to be up`)
    await Bun.sleep(100)
  }
}

function wants(n: number, master: string, pods: Place): Resource[] {
  const { id, ip } = other(n)
  if (bridge.role !== 'interface') throw new Error('Cannot ask the bridge plugin what it wants: it is of another role')
  const at = { ...attachment(id, `eth${n}`), netns: pods }
  const conf = read(bridge.conf, { ...bridgeConf('/nowhere', true), bridge: master }).value
  const { own } = bridge.wire(conf, at, { ips: [{ address: parseCidr(`${ip}/16`) }] }, { bridgeNf: false })
  return own.filter(({ ns }) => ns === 'host')
}

/**
 * Gives `count` attachments the iptables rules that the reference plugins make for one. It copies the rules of their
 * one real attachment under the name of each. The host ports count up from `FIRST_PORT`.
 */
export function rulesOfOthers(node: Place, count: number): void {
  inside(node, () => {
    const saved = run(['iptables-save', '-t', 'nat']).split('\n')
    const rules = saved.filter((line) => /CNI-(DN-[0-9a-f]{21}|[0-9a-f]{24})/.test(line))
    const all = rules.join('\n')
    const chains = [...new Set(all.match(/CNI-(?:DN-[0-9a-f]{21}|[0-9a-f]{24})/g))]
    const [, id = ''] = /id: \\"([^"\\]*)\\"/.exec(all) ?? []
    const [, ip = ''] = /-s (\S+)\/32 /.exec(all) ?? []
    if (chains.length === 0 || !id || !ip)
      throw new Error(`Cannot read the reference plugin's rules:\n${saved.join('\n')}`)
    const copy = (line: string, n: number) =>
      chains
        .reduce(
          (text, chain) =>
            text.replaceAll(
              chain,
              chain.replace(/[0-9a-f]{21,24}$/, (hash) => n.toString(16).padStart(hash.length, '0')),
            ),
          line,
        )
        .replaceAll(`\\"${id}\\"`, `\\"${other(n).id}\\"`)
        .replaceAll(ip, other(n).ip)
        .replaceAll(String(FIRST_PORT - 1), String(FIRST_PORT + n))
    const body = Array.from({ length: count }, (_, n) => rules.map((line) => copy(line, n)))
    run(
      ['iptables-restore', '--noflush'],
      [
        '*nat',
        ...body.flatMap((lines) => lines.filter((line) => line.startsWith(':'))),
        ...body.flatMap((lines) => lines.filter((line) => line.startsWith('-A'))),
        'COMMIT',
        '',
      ].join('\n'),
    )
  })
}

/** The host port of the first of the others; the one before it is the measured attachment's. */
export const FIRST_PORT = 20001

/** Gives `count` attachments a host port each, as plumb keeps it: entry, claim, elements. */
export function mapOthers(node: Place, count: number): void {
  const all = Array.from({ length: count }, (_, n) => mapping(n))
  for (const { at, own } of all) note(at, { portmap: own })
  take(all.flatMap(({ own }) => own.filter((one) => one.kind === 'claim')))
  const lines = all.flatMap(({ own }) => own.filter((one) => one.kind === 'element').map(addition))
  inside(node, () => run(['nft', '-f', '-'], `${lines.join('\n')}\n`))
}

function mapping(n: number) {
  const { id, ip } = other(n)
  const at = { ...attachment(id, 'eth0'), netns: parse.netns('/proc/self/ns/net') }
  return {
    at,
    own: hostPorts(
      at,
      [{ protocol: 'tcp', hostPort: FIRST_PORT + n, containerPort: 80, range: 1 }],
      [parseCidr(`${ip}/16`)],
      { snat: 'needed', conditions: {} },
    ),
  }
}

function attachment(id: string, ifname: string) {
  return {
    network: parse.network(NETWORK),
    containerId: parse.containerId(id),
    ifname: parse.ifname(ifname),
    args: new Map<string, string>(),
    path: [],
  }
}
