// needs: dhcp
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Namespace, type Row, until } from './harness.ts'
import { type Conf, type Network, network } from './network.ts'
import type { Sample } from './samples.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
/** The addresses of server and node on the bridge. */
export const LAN = { bridge: 'br-lan', server: '10.7.0.1', node: '10.7.0.2', server6: 'fd07::1' } as const

/** A process in a namespace, until it is stopped or the test ends. */
export interface Running {
  /** All that it has written so far. */
  text(): string
  /** Ends it, and waits for that. */
  stop(signal?: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): Promise<void>
}
/** A DHCP server that is a program of its own. */
export interface Server extends Running {
  /** The addresses that it has given out and not got back. */
  leases(): string[]
}

const started: { kill(signal?: NodeJS.Signals): void; readonly exited: Promise<number> }[] = []
const namespaces: string[] = []
afterEach(async () => {
  for (const one of started.splice(0)) {
    one.kill('SIGKILL')
    await one.exited
  }
  for (const name of namespaces.splice(0)) await execa('ip', ['netns', 'delete', name], { reject: false })
})

/** Starts a program in a namespace, and waits until it has written what it writes when it is ready. */
async function start({ path }: Pick<Namespace, 'path'>, argv: readonly string[], ready: RegExp): Promise<Running> {
  const child = Bun.spawn(['nsenter', `--net=${path}`, '--', ...argv], {
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
  })
  started.push(child)
  let seen = ''
  const told = (async () => {
    for await (const text of child.stderr.pipeThrough(new TextDecoderStream())) seen += text
  })()
  const text = () => seen
  await until(() => ready.test(text()) || child.exitCode !== null)
  if (child.exitCode !== null) await told
  if (!ready.test(text())) throw new Error(`${argv.join(' ')} ended with ${child.exitCode}: ${text()}`)
  return {
    text,
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      if (signal === 'SIGTERM' || signal === 'SIGKILL') await child.exited
    },
  }
}

/** A bridge on the node, with a namespace behind it where servers can be started. */
export async function lan(node: Namespace): Promise<void> {
  await node.exec([
    'sh',
    '-c',
    'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo 1 >/proc/sys/net/ipv4/ip_forward',
  ])
  await node.exec(['ip', 'netns', 'add', serverOf(node)])
  const server = ['-n', serverOf(node)]
  await node.ip('link', 'add', LAN.bridge, 'type', 'bridge')
  await node.ip(
    'link',
    'add',
    'lan0',
    'master',
    LAN.bridge,
    'type',
    'veth',
    'peer',
    'name',
    'lan0',
    'netns',
    serverOf(node),
  )
  for (const link of [LAN.bridge, 'lan0']) await node.ip('link', 'set', link, 'up')
  await node.ip('addr', 'add', `${LAN.node}/24`, 'dev', LAN.bridge)
  await node.ip(...server, 'link', 'set', 'lan0', 'up')
  await node.ip(...server, 'addr', 'add', `${LAN.server}/24`, 'dev', 'lan0')
  await node.ip(...server, 'addr', 'add', `${LAN.server6}/64`, 'dev', 'lan0', 'nodad')
  namespaces.push(serverOf(node))
}

/**
 * Starts dnsmasq on the node's lan, which names the node as router. Without options it gives out 10.7.0.50 to 10.7.0.59
 * for two minutes, the least that it can.
 */
export async function dnsmasq(node: Namespace, ...options: readonly string[]): Promise<Server> {
  const dir = mkdtempSync('/run/dnsmasq-')
  const ranges = options.some((one) => one.startsWith('--dhcp-range')) ? [] : ['--dhcp-range=10.7.0.50,10.7.0.59,120']
  const fixed = [
    '--no-daemon',
    '--conf-file=/dev/null',
    '--user=root',
    '--port=0',
    '--no-ping',
    '--log-dhcp',
    '--dhcp-authoritative',
    `--dhcp-option=option:router,${LAN.node}`,
    `--dhcp-leasefile=${dir}/leases`,
  ]
  const running = await start(
    { path: `/run/netns/${serverOf(node)}` },
    ['dnsmasq', ...fixed, ...ranges, ...options],
    /DHCP(v6)?, IP range/,
  )
  const rows = () => (existsSync(`${dir}/leases`) ? readFileSync(`${dir}/leases`, 'utf8').split('\n') : [])
  return { ...running, leases: () => rows().flatMap((row) => /^\d+ \S+ (\S+) /.exec(row)?.[1] ?? []) }
}

/** Starts udhcpd on the node's lan, for leases of some seconds, the rest as dnsmasq. */
export async function udhcpd(node: Namespace, seconds: number): Promise<Running> {
  const dir = mkdtempSync('/run/udhcpd-')
  writeFileSync(`${dir}/leases`, '')
  writeFileSync(
    `${dir}/conf`,
    `start 10.7.0.50\nend 10.7.0.59\ninterface lan0\nlease_file ${dir}/leases\npidfile ${dir}/pid\nmin_lease 1\nopt lease ${seconds}\nopt subnet 255.255.255.0\nopt router ${LAN.node}\n`,
  )
  return start({ path: `/run/netns/${serverOf(node)}` }, ['udhcpd', '-f', `${dir}/conf`], /started/)
}

/**
 * Starts ISC dhcpd for IPv6 on the node's lan: leases of some seconds, from fd07::70 on; unlike dnsmasq it takes the
 * long way (advertise, request).
 */
export async function dhcpd6(node: Namespace, seconds: number): Promise<Running> {
  const dir = mkdtempSync('/run/dhcpd-')
  writeFileSync(`${dir}/leases`, '')
  writeFileSync(
    `${dir}/conf`,
    `authoritative; default-lease-time ${seconds}; preferred-lifetime ${seconds}; option dhcp6.name-servers fd07::53; option dhcp6.domain-search "six.example"; subnet6 fd07::/64 { range6 fd07::70 fd07::79; }\n`,
  )
  return start(
    { path: `/run/netns/${serverOf(node)}` },
    ['dhcpd', '-6', '-d', '--no-pid', '-cf', `${dir}/conf`, '-lf', `${dir}/leases`, 'lan0'],
    /Server starting service/,
  )
}

/** `ip ARGS` in the namespace of the lan's servers. */
export async function onServer(node: Namespace, ...args: readonly string[]): Promise<void> {
  await node.ip('-n', serverOf(node), ...args)
}

function serverOf({ path }: Namespace): string {
  return `lan-${path.slice(path.lastIndexOf('/') + 1)}`
}

/** Starts the daemon on a node, at a socket of its own unless one is named. */
export async function daemon(node: Namespace, socket: string, ...options: readonly string[]): Promise<Running> {
  return start(
    node,
    [PLUMB, 'dhcp', '-socketpath', socket, '-timeout', '1s', '-resendtimeout', '4s', ...options],
    /dhcp: ready/,
  )
}

/** Starts the daemon of the reference's dhcp, which lies in a folder. */
export async function referenceDaemon(node: Namespace, folder: string, socket: string): Promise<void> {
  const running = start(node, [join(folder, 'dhcp'), 'daemon', '-socketpath', socket], /./)
  // It says nothing when it is ready.
  await Promise.race([running, until(() => existsSync(socket))])
  running.catch(() => {})
}

// What systemd does: a socket that listens, as the third file, and who is meant. perl is in every Debian.
const HANDING =
  'use Socket; use POSIX; $^F = 9; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(shift)) or die $!; listen(S, 5); POSIX::dup2(fileno(S), 3); @ENV{qw(LISTEN_FDS LISTEN_PID)} = (1, $$); exec @ARGV'

/** Starts the daemon as the reference's is started, on a socket that is open already. */
export async function systemd(node: Namespace, socket: string, ...options: readonly string[]): Promise<Running> {
  return start(
    node,
    ['perl', '-e', HANDING, socket, join(PLUMB, '../dhcp'), 'daemon', '-socketpath', socket, ...options],
    /dhcp: ready/,
  )
}

let serial = 0
/** A path for a daemon's socket that no other test has. */
export function socketPath(): string {
  return `/run/cni/dhcp-${++serial}.sock`
}

/** The configuration of a bridge on the lan whose pool asks the daemon of a socket. */
export function leased(socket: string, ipam: object = {}, keys: object = {}): Conf {
  return {
    cniVersion: '1.1.0',
    name: `lan${++serial}`,
    type: 'bridge',
    bridge: LAN.bridge,
    ipam: { type: 'dhcp', daemonSocketPath: socket, ...ipam },
    ...keys,
  } as unknown as Conf
}

/** The files of a daemon's leases. */
export function leaseFiles(socket: string): string[] {
  const dir = `${socket}.leases`
  return existsSync(dir) ? readdirSync(dir).filter((name) => !name.startsWith('.')) : []
}

/** A node with server, daemon and network. */
export interface Place {
  readonly net: Network
  readonly server: Server
  readonly daemon: Running
  readonly socket: string
}

/** All of that at once. */
export async function place(
  node: Namespace,
  {
    ipam = {},
    keys = {},
    options = [],
    server = [],
  }: { ipam?: object; keys?: object; options?: readonly string[]; server?: readonly string[] } = {},
): Promise<Place> {
  const socket = socketPath()
  await lan(node)
  return {
    socket,
    server: await dnsmasq(node, ...server),
    daemon: await daemon(node, socket, ...options),
    net: network(node, leased(socket, ipam, keys)),
  }
}

/** Starts what a sample wants to find: for the pool dhcp a server on its bridge, and the daemon. */
export async function provide({ pool, plugins }: Sample, node: Namespace): Promise<void> {
  if (pool !== 'dhcp') return
  const ipam: Row = plugins[0]?.['ipam']
  await lan(node)
  await dnsmasq(node, '--dhcp-range=10.7.0.50,10.7.0.59,120', '--dhcp-range=fd07::50,fd07::59,64,120')
  await daemon(node, ipam['daemonSocketPath'] ?? '/run/cni/dhcp.sock')
}
