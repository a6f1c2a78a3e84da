import { join } from 'node:path'
import { wishOf as demoWishOf } from '../cli/demo/wish.ts'
import { chosen, needsOf, testFiles, wishOf } from '../test/lanes.ts'
import { unpackArm64 } from './arm64.ts'
import { unpackBgpDaemons } from './bgp-daemons.ts'
import { CROSS } from './engine.ts'
import { unpackFirewalld } from './firewalld.ts'
import { unpackKernel } from './kernel.ts'
import { unpackMusl } from './musl.ts'
import { install, type Need } from './packages.ts'
import { unpackPrometheus } from './prometheus.ts'

/** Debian packages, packages that a task can do without, and what is unpacked, by what is missing without it. */
interface Wanted {
  readonly needs?: readonly Need[]
  readonly extras?: readonly Need[]
  readonly unpack?: Readonly<Record<string, () => Promise<void>>>
}

const ROOT = join(import.meta.dir, '..')

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
const rpm: Need = { name: 'rpm', shows: 'rpmbuild', why: 'the tests make an .rpm package and install it in a folder' }
const busybox: Need = { name: 'busybox', shows: 'busybox', why: "the tests' containers have nothing else in them" }
/** What every lane of tests needs, but `quick`. */
const lanes: readonly Need[] = [
  ...node,
  ping,
  { name: 'iptables', shows: 'iptables', why: 'the tests have rules of other programs beside plumb' },
  { name: 'strace', shows: 'strace', why: 'the tests kill plumb at chosen system calls with it' },
  { name: 'openssl', shows: 'openssl', why: 'the tests make certificates for etcd with it' },
]
/** What the lanes `vm` and `vmlong` need, and a test that starts such a machine itself. */
const machines: Wanted = {
  extras: [
    {
      name: 'qemu-system-x86',
      shows: 'qemu-system-x86_64',
      why: "tests of the lane vm try in a virtual machine what this machine's kernel lacks",
    },
    { name: 'kmod', shows: 'modprobe', why: 'that machine loads modules with it' },
    wireguard,
  ],
  unpack: { 'a kernel for the lane vm, whose tests are skipped': unpackKernel },
}
/**
 * What tests need, by the words of their lines `// needs: WORD`. Tests can do without `extras` and what is unpacked: those
 * that need them are skipped, and say why.
 */
const WORDS: Readonly<Record<string, Wanted>> = {
  etcd: { needs: [etcd] },
  bird: { needs: [bird] },
  dhcp: { needs: dhcp },
  reference: { needs: peers },
  machine: machines,
  browser: {
    extras: [
      {
        name: 'chromium-headless-shell',
        shows: 'chromium-headless-shell',
        why: 'a browser, to try the status page in',
      },
    ],
  },
  firewalld: { extras: bus, unpack: { 'firewalld, and what needs it': unpackFirewalld } },
  containerd: {
    extras: [
      busybox,
      {
        name: 'containerd',
        shows: 'containerd',
        why: 'a runtime that calls plumb in the tests, which start their own',
      },
      { name: 'runc', shows: 'runc', why: 'containerd starts containers with it' },
    ],
  },
  podman: {
    extras: [
      busybox,
      { name: 'crun', shows: 'crun', why: 'podman starts containers with it, also where it may make no cgroups' },
      { name: 'podman', shows: 'podman', why: 'a runtime that calls plumb in the tests' },
    ],
  },
  systemd: {
    extras: [
      {
        name: 'systemd',
        shows: '/lib/systemd/systemd',
        why: 'tests run containerd and the agent in units of it',
      },
    ],
  },
  packages: {
    extras: [rpm, ...CROSS[process.arch === 'arm64' ? 'x64' : 'arm64']],
    unpack: { 'what starts the arm64 executable, whose test is skipped': unpackArm64 },
  },
  'bgp-daemons': { unpack: { 'BGP daemons of other projects, whose tests are skipped': unpackBgpDaemons } },
  prometheus: { unpack: { 'Prometheus, and the tests of alerts, which are skipped': unpackPrometheus } },
  musl: { unpack: { 'musl, and the test of plugins with it': unpackMusl } },
}
/** The packages that each task needs on a machine that has only npm. `node` is what a node of a cluster needs. */
const SETS: Readonly<Record<string, (argv: readonly string[]) => Wanted>> = {
  node: () => ({ needs: node }),
  demo: (argv) => ({ needs: [...node, ping], extras: forDemo(argv) }),
  bench: () => ({ needs: [...node, ...peers, etcd] }),
  test: forTests,
}

const [wanted = 'test', ...rest] = process.argv.slice(2)
const argv = rest.filter((one) => one !== '--')
try {
  const set = Object.hasOwn(SETS, wanted) ? SETS[wanted] : undefined
  if (!set) throw new Error(`Cannot set up for ${JSON.stringify(wanted)}: want one of ${Object.keys(SETS).join(', ')}`)
  const { needs = [], extras = [], unpack = {} } = set(argv)
  await install(needs)
  for (const extra of extras) await attempt(`${extra.name}, and without what needs it`, () => install([extra]))
  for (const [what, work] of Object.entries(unpack)) await attempt(what, work)
} catch (cause) {
  process.stderr.write(`setup: ${(cause as Error).message}\n`)
  process.exitCode = 1
}

// The command line of the tests chooses files, and those say what they need.
function forTests(argv: readonly string[]): Wanted {
  const files = chosen(testFiles(ROOT), wishOf(argv))
  const words = [...needsOf(ROOT, files)].sort()
  const unknown = words.filter((word) => !Object.hasOwn(WORDS, word))
  if (unknown.length > 0)
    throw new Error(`Cannot read what tests need: ${unknown.join(', ')}; want one of ${Object.keys(WORDS).join(', ')}`)
  const all = [
    ...(files.some(({ lane }) => lane !== 'quick') ? [{ needs: lanes }] : []),
    ...words.flatMap((word) => WORDS[word] ?? []),
    ...(files.some(({ lane }) => lane === 'vm' || lane === 'vmlong') ? [machines] : []),
  ]
  return {
    needs: all.flatMap(({ needs = [] }: Wanted) => needs),
    extras: all.flatMap(({ extras = [] }: Wanted) => extras),
    unpack: Object.assign({}, ...all.map(({ unpack = {} }: Wanted) => unpack)),
  }
}

// The command line of the demo says which stories it tells, and with which stores.
function forDemo(argv: readonly string[]): readonly Need[] {
  const wish = demoWishOf(argv)
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
