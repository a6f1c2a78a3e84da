// lane: netns
// Tests all plugins, with hostile input.
import assert from 'node:assert/strict'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { daemon, lan, leased, socketPath, udhcpd } from '../support/dhcp.ts'
import { inNamespaces, type Namespace, until } from '../support/harness.ts'
import { network } from '../support/network.ts'
import { fileStore, inCluster, type Node } from '../support/nodes.ts'
import { STRACE } from '../support/recording.ts'
import { skip } from '../support/skip.ts'
import { type Traced, traced, tracing } from '../support/strace.ts'

const DIST = join(import.meta.dir, '../../dist')
const TOOLS = ['ip', 'bridge', 'nft', 'tc', 'conntrack', 'iptables-nft-restore', 'ip6tables-nft-restore']
/** What every process opens: its own, the kernel's lists, and libraries of the tools. */
const OWN = [/^\/dev\/(null|tty)$/, /^\/proc\/self\//, /^\/proc\/\d+\//]
const WRITTEN = [
  ...OWN,
  /^\/run(\/cni)?$/,
  /^\/run\/cni\/plumb(\/|$)/,
  /^\/var\/lib\/cni(\/|$)/,
  /^\/proc\/sys\/net\//,
  /^\/run\/xtables\.lock$/,
  /^\/dev\/net\/tun$/,
]
const IPAM = {
  type: 'host-local',
  ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00:1::/64' }]],
  routes: [{ dst: '0.0.0.0/0' }],
}
const LISTS: Readonly<Record<string, readonly object[]>> = {
  'bridge, portmap, firewall, bandwidth and tuning': [
    { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, ipam: IPAM },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'firewall' },
    { type: 'bandwidth', ingressRate: 8_000_000, ingressBurst: 800_000 },
    { type: 'tuning', sysctl: { 'net.ipv4.conf.IFNAME.arp_notify': '1' } },
  ],
  ptp: [{ type: 'ptp', ipMasq: true, ipam: IPAM }],
  'macvlan with static': [
    { type: 'macvlan', master: 'up0', ipam: { type: 'static', addresses: [{ address: '10.1.0.9/24' }] } },
  ],
  tap: [{ type: 'tap', ipam: IPAM }],
}
const VERBS = ['add', 'check', 'status', 'gc', 'del'] as const

/** A list of plugins on a node, and what each verb of it asked of the kernel. */
interface Ran {
  readonly traces: Readonly<Record<string, Traced>>
  /** Where it was started, with files that a careless program reads, and `HOME`. */
  readonly cwd: string
  /** All that stands on disk after ADD, with its mode. */
  readonly modes: readonly string[]
}

afterEach(() => {
  for (const dir of ['/run/cni', '/var/lib/cni', '/run/flannel']) rmSync(dir, { recursive: true, force: true })
})

describe('what plumb does as root', () => {
  for (const [name, plugins] of Object.entries(LISTS)) {
    it(
      `${name}: starts no program but itself and the tools, gives those a PATH and a locale, sends nothing to any network, writes below /run/cni, /var/lib/cni and /proc/sys/net alone, and reads nothing of the working directory or of HOME`,
      inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
        if (!existsSync(STRACE)) skip(test, 'strace is not installed')
        test.timeout(180_000)
        const { traces, cwd } = await ran(plugins, node, pod)
        const wrong = Object.entries(traces).flatMap(([verb, { started, network: sent, opened, changed }]) => {
          const tools = started.filter(({ file }) => !file.startsWith(`${DIST}/`))
          assert.ok(tools.length < started.length, verb)
          return [
            ...tools
              .filter(
                ({ file, env }) =>
                  !TOOLS.some((tool) => /^\/(usr\/)?s?bin$/.test(dirname(file)) && basename(file) === tool) ||
                  !/^"PATH=[\w/:]+", "LC_ALL=C"$/.test(env),
              )
              .map(({ file, env }) => `${verb} starts ${file} with ${env}`),
            ...sent.map((row) => `${verb} sends: ${row}`),
            ...changed.filter((path) => !WRITTEN.some((one) => one.test(path))).map((path) => `${verb} writes ${path}`),
            ...opened
              .filter((path) => path.startsWith(`${cwd}/`) && !path.startsWith(`${cwd}/net.d`))
              .map((path) => `${verb} reads ${path}`),
          ]
        })
        assert.deepEqual(wrong, [])
      }),
    )
  }

  it(
    'files are 0600 and folders 0755 or less, with whatever umask, and belong to who runs it; what others have to read is 0644',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const plugins = LISTS['bridge, portmap, firewall, bandwidth and tuning'] as readonly object[]
      const { modes } = await ran(plugins, node, pod, [])
      assert.ok(modes.length > 10, modes.join('\n'))
      assert.deepEqual(
        modes.filter((one) => !/^(0700|0755) 0 .*\/$|^0600 0 .*[^/]$/.test(one)),
        [],
      )
    }),
  )

  it(
    'the agent starts no program but the tools and the plugin that it installed, sends nothing to a network but with etcd, listens on 127.0.0.1 alone, and writes where it was told',
    inCluster(
      1,
      (cluster) => [...fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }), '--install-cni'],
      async ({ nodes, dir }, test) => {
        if (!existsSync(STRACE)) skip(test, 'strace is not installed')
        const [one] = nodes as [Node]
        test.timeout(180_000)
        const log = join(dir, 'trace')
        const agent = one.agentBy(tracing(log))
        await agent.ready(120_000)
        await agent.stop('SIGTERM')
        await until(() => /exit_group/.test(readFileSync(log, 'utf8')))
        const { started, network: sent, changed } = traced(log, '/')
        const programs = new Set(started.map(({ file }) => file))
        assert.deepEqual(
          [...programs].filter(
            (file) =>
              file !== `${DIST}/plumb` &&
              file !== join(one.dir, 'bin/bandwidth') &&
              !TOOLS.some((tool) => file.endsWith(`bin/${tool}`)),
          ),
          [],
        )
        assert.ok(programs.has('/usr/sbin/nft'), [...programs].join())
        assert.deepEqual(
          sent.filter((row) => !/^bind\(.*sin_port=htons\(9469\), sin_addr=inet_addr\("127\.0\.0\.1"\)/.test(row)),
          [],
        )
        const allowed = [
          ...OWN,
          /^\/proc\/sys\/net\//,
          new RegExp(`^${dir}(/|$)`),
          /^\/run\/cni\/plumb(\/|$)/,
          // Files without a name tell whether the disks of the plugins take something (O_TMPFILE).
          /^\/(run|var\/lib)(\/cni(\/networks)?)?$/,
        ]
        assert.deepEqual(
          changed.filter((path) => !allowed.some((ok) => ok.test(path))),
          [],
        )
        assert.deepEqual(
          modesOf(one.dir).filter(
            (row) =>
              !/^0755 0 .*\/$|^0644 0 .*(subnet\.env|lease[\w-]*\.json|identity|installed\.json|\.conflist)$|^0755 0 .*\/bin\/[\w-]+$|^0600 0 .*(\.sock|\.lock|network[\w-]*\.json)$/.test(
                row,
              ),
          ),
          [],
        )
      },
    ),
  )

  it(
    'the DHCP daemon answers root alone, and keeps its leases to itself',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const socket = socketPath()
      await lan(node)
      await udhcpd(node, 3600)
      await daemon(node, socket)
      await network(node, leased(socket)).add(pod)
      assert.equal(lstatSync(socket).mode & 0o077, 0)
      const files = readdirSync(`${socket}.leases`).map((name) => statSync(`${socket}.leases/${name}`))
      assert.ok(files.length > 0)
      for (const { mode, uid } of files) assert.deepEqual([mode & 0o777, uid], [0o600, 0])
    }),
  )

  it('the executable is for its owner alone to write, and gives nobody another’s rights', () => {
    for (const name of readdirSync(DIST).filter((one) => !one.startsWith('.')))
      assert.equal(statSync(join(DIST, name)).mode & 0o6022, 0, name)
  })

  it(
    'a name that leads elsewhere makes no file there: container, interface and network',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = { cniVersion: '1.1.0', type: 'host-local', ipam: { ...IPAM, dataDir: '/run/security/pool' } }
      const before = tree('/run')
      for (const name of ['../../evil', '/etc/evil', '..', 'a/b', 'a\nb', 'evil\u0000']) {
        for (const at of ['CNI_CONTAINERID', 'CNI_IFNAME', 'name'] as const) {
          const env = {
            CNI_COMMAND: 'ADD',
            CNI_CONTAINERID: 'c1',
            CNI_IFNAME: 'eth0',
            CNI_NETNS: pod.path,
            CNI_PATH: DIST,
            ...(at === 'name' || name.includes('\0') ? {} : { [at]: name }),
          }
          if (name.includes('\0') && at !== 'name') continue
          const { status } = await node.exec([join(DIST, 'host-local')], {
            env,
            stdin: JSON.stringify({ ...conf, name: at === 'name' ? name : 'net' }),
          })
          assert.equal(status, 1, `${at} ${JSON.stringify(name)}`)
        }
      }
      assert.deepEqual(tree('/run'), before)
    }),
  )
})

/**
 * Runs every verb of a list as a person would by `plumb cni`, with a umask that forbids nothing. Without `verbs` only
 * ADD, and the modes of what it left.
 */
async function ran(
  plugins: readonly object[],
  node: Namespace,
  pod: Namespace,
  verbs: readonly string[] = VERBS,
): Promise<Ran> {
  const cwd = mkdtempSync('/run/security-')
  mkdirSync(join(cwd, 'net.d'))
  for (const name of [
    '.env',
    'bunfig.toml',
    '.bunfig.toml',
    '.npmrc',
    'package.json',
    'tsconfig.json',
    'ip',
    'nft',
    'plumb.yaml',
    'agent.yaml',
  ])
    writeFileSync(join(cwd, name), '{}', { mode: 0o755 })
  writeFileSync(join(cwd, 'net.d/10-net.conflist'), JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins }))
  await node.exec([
    'sh',
    '-ec',
    'ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up; ip link set lo up',
  ])
  const traces: Record<string, Traced> = {}
  for (const verb of verbs.length > 0 ? verbs : ['add']) {
    const log = join(cwd, `trace.${verb}`)
    const words = [
      'cni',
      verb,
      'net',
      ...(['gc', 'status'].includes(verb) ? [] : [pod.path]),
      ...(verb === 'gc' ? ['--valid', 'other:eth0', '--dry-run'] : []),
      ...(verb === 'add' ? ['--port-mapping', '8080:80'] : []),
      '--conf-dir',
      join(cwd, 'net.d'),
      '--bin-dir',
      DIST,
    ]
    const before = verbs.length > 0 ? tracing(log) : []
    const { status, stderr } = await node.exec(
      ['sh', '-c', 'umask 0; exec "$@"', 'sh', ...before, `${DIST}/plumb`, ...words],
      {
        cwd,
        env: { HOME: cwd, XDG_CONFIG_HOME: cwd, TMPDIR: cwd, BUN_INSTALL: cwd, PATH: `${cwd}:/usr/sbin:/usr/bin` },
      },
    )
    assert.equal(status, 0, `${verb}: ${stderr}`)
    if (verbs.length > 0) traces[verb] = traced(log, cwd)
  }
  return { traces, cwd, modes: ['/run/cni', '/var/lib/cni'].flatMap(modesOf) }
}

/**
 * `0600 0 /path` of what stands below a folder: mode, owner, path, with a slash at the end of folders. Symbolic links
 * have no mode of their own.
 */
function modesOf(dir: string): string[] {
  if (!existsSync(dir)) return []
  return [dir, ...readdirSync(dir, { recursive: true, encoding: 'utf8' }).map((name) => join(dir, name))].flatMap(
    (path) => {
      const found = lstatSync(path)
      return found.isSymbolicLink()
        ? []
        : [
            `${(found.mode & 0o7777).toString(8).padStart(4, '0')} ${found.uid} ${path}${found.isDirectory() ? '/' : ''}`,
          ]
    },
  )
}

function tree(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .filter((name) => !/^cni\/plumb(\/|$)|^cni$/.test(name))
    .sort()
}
