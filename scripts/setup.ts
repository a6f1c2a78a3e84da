import { wishOf } from '../cli/demo/wish.ts'
import { unpackArm64 } from './arm64.ts'
import { unpackBgpDaemons } from './bgp-daemons.ts'
import { CROSS, NEEDS } from './engine.ts'
import { unpackFirewalld } from './firewalld.ts'
import { unpackKernel } from './kernel.ts'
import { unpackMusl } from './musl.ts'
import { install, type Need } from './packages.ts'
import { unpackPrometheus } from './prometheus.ts'

const node: readonly Need[] = [
  { name: 'iproute2', shows: 'ip', why: 'plumb makes links, addresses and routes with it' },
  { name: 'nftables', shows: 'nft', why: 'plumb keeps its firewall elements with it' },
  {
    name: 'conntrack',
    shows: 'conntrack',
    why: 'plumb makes the kernel forget UDP connections with it when a host port changes hands',
  },
]
const wireguard: Need = {
  name: 'wireguard-tools',
  shows: 'wg',
  why: 'the agent sets up the backend wireguard with it, which the tests try in a virtual machine',
}
const ping: Need = { name: 'iputils-ping', shows: 'ping', why: 'the demo and the tests send real packets' }
const peers: readonly Need[] = [
  {
    name: 'containernetworking-plugins',
    shows: '/usr/lib/cni/bridge',
    why: 'the reference plugins to be compared with',
  },
  { name: 'iptables', shows: 'iptables', why: 'the reference plugins keep their rules with it' },
]
const etcd: Need = {
  name: 'etcd-server',
  shows: 'etcd',
  why: 'the tests, the bench and the demo keep leases in it, started by themselves',
}
const bird: Need = {
  name: 'bird2',
  shows: 'bird',
  why: 'the agent runs BGP by it, and the tests and the demo have routers of it; no service of it is started',
}
const dhcp: readonly Need[] = [
  { name: 'dnsmasq-base', shows: 'dnsmasq', why: 'a DHCP server of both families for the tests' },
  { name: 'udhcpd', shows: 'udhcpd', why: 'a DHCP server whose leases last seconds' },
  { name: 'isc-dhcp-server', shows: 'dhcpd', why: 'the same for DHCPv6' },
]
const bus: readonly Need[] = [
  { name: 'dbus-daemon', shows: 'dbus-daemon', why: 'the tests ask a firewalld of their own on a bus of their own' },
  { name: 'dbus-bin', shows: 'dbus-send', why: 'plumb asks firewalld with it, where that runs' },
  { name: 'python3-dbus', shows: '/usr/lib/python3/dist-packages/dbus', why: 'firewalld is written with it' },
  { name: 'python3-gi', shows: '/usr/lib/python3/dist-packages/gi', why: 'the same' },
]
const machine: readonly Need[] = [
  {
    name: 'qemu-system-x86',
    shows: 'qemu-system-x86_64',
    why: "tests of the lane vm try in a virtual machine what this machine's kernel lacks",
  },
  { name: 'kmod', shows: 'modprobe', why: 'that machine loads modules with it' },
]
const rpm: Need = { name: 'rpm', shows: 'rpmbuild', why: 'the tests make an .rpm package and install it in a folder' }
const runtimes: readonly Need[] = [
  { name: 'busybox', shows: 'busybox', why: "the tests' containers have nothing else in them" },
  { name: 'containerd', shows: 'containerd', why: 'a runtime that calls plumb in the tests, which start their own' },
  { name: 'runc', shows: 'runc', why: 'containerd starts containers with it' },
  { name: 'crun', shows: 'crun', why: 'podman starts containers with it, also where it may make no cgroups' },
  {
    name: 'systemd',
    shows: '/lib/systemd/systemd',
    why: 'tests run containerd and the agent in units of it',
  },
  { name: 'podman', shows: 'podman', why: 'a runtime that calls plumb in the tests' },
]
/** The packages that each task needs on a machine that has only npm. `node` is what a node of a cluster needs. */
const SETS: Readonly<Record<string, readonly Need[]>> = {
  node,
  demo: [...node, ping],
  bench: [...node, ...peers, etcd],
  test: [
    ...node,
    ...NEEDS,
    ping,
    ...peers,
    ...dhcp,
    { name: 'strace', shows: 'strace', why: 'the tests kill plumb at chosen system calls with it' },
    etcd,
    bird,
    { name: 'openssl', shows: 'openssl', why: 'the tests make certificates for etcd with it' },
  ],
}
/** Packages that a task can do without. Tests that need such a package are skipped, and say why. */
const EXTRAS: Readonly<Record<string, (argv: readonly string[]) => readonly Need[]>> = {
  test: () => [
    { name: 'chromium-headless-shell', shows: 'chromium-headless-shell', why: 'a browser, to try the status page in' },
    ...machine,
    wireguard,
    ...bus,
    rpm,
    ...runtimes,
    ...CROSS[process.arch === 'arm64' ? 'x64' : 'arm64'],
  ],
  demo: forDemo,
}

const [wanted = 'test', , ...argv] = process.argv.slice(2)
const needs = SETS[wanted]
try {
  if (!needs)
    throw new Error(`Cannot set up for ${JSON.stringify(wanted)}: want one of ${Object.keys(SETS).join(', ')}`)
  const extras = EXTRAS[wanted]?.(argv) ?? []
  await install(needs)
  for (const extra of extras) await attempt(`${extra.name}, and without what needs it`, () => install([extra]))
  if (wanted === 'test') {
    await attempt('a kernel for the lane vm, whose tests are skipped', unpackKernel)
    await attempt('firewalld, and what needs it', unpackFirewalld)
    await attempt('BGP daemons of other projects, whose tests are skipped', unpackBgpDaemons)
    await attempt('Prometheus, and the tests of alerts, which are skipped', unpackPrometheus)
    await attempt('what starts the arm64 executable, whose test is skipped', unpackArm64)
    await attempt('musl, and the test of plugins with it', unpackMusl)
  }
} catch (cause) {
  process.stderr.write(`setup: ${(cause as Error).message}\n`)
  process.exitCode = 1
}

// The command line of the demo says which stories it tells, and with which stores.
function forDemo(argv: readonly string[]): readonly Need[] {
  const wish = wishOf(argv)
  const stories = wish === 'help' ? [] : wish.stories
  return [
    ...(stories.some(({ store }) => store === 'etcd') ? [etcd] : []),
    ...(stories.some(({ name }) => name === 'bgp') ? [bird] : []),
  ]
}

async function attempt(what: string, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (cause) {
    const said = (cause as Error).message.split('\n').filter((line, i) => i === 0 || line.startsWith('E: '))
    process.stderr.write(`setup: going on without ${what}: ${said.join(' ')}\n`)
  }
}
