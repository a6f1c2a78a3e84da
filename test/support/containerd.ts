// needs: containerd systemd
import assert from 'node:assert/strict'
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { present } from '../../scripts/packages.ts'
import { containerd2, type Peer } from '../../scripts/peers.ts'
import { DIST, onFreshNode } from './cnitool.ts'
import { configOf, type Place } from './containerd-conf.ts'
import { type Cri, found, openCri } from './cri.ts'
import { type Namespace, namespaceAt, type Row, until } from './harness.ts'
import { IMAGE, makeImage } from './image.ts'
import { wireWorld } from './packets.ts'
import { cgroupName, remainder, sweep } from './runtime-leftovers.ts'
import { skip } from './skip.ts'
import { BY_KERNEL, inUnit, leaveUnit } from './without-executable-memory.ts'

/** How a containerd is set up. */
export interface Setting {
  /** The network of its folder, if there is one from the beginning. */
  readonly conf?: Row
  /** The file that it makes a network of when it hears the pods' CIDR. */
  readonly template?: string
  /** Where the plugins are; dist/ when left out. */
  readonly bin?: string
  /** Its folder of networks, when it is somebody else's too. */
  readonly folder?: string
  /** Which containerd; Debian's when left out. */
  readonly version?: (typeof VERSIONS)[number]
  /** Neither it nor what it starts may make memory executable: by a unit of systemd, or by the kernel alone. */
  readonly withoutExecutableMemory?: 'unit' | 'kernel'
}
/** A host port, `protocol` tcp unless said otherwise. */
export interface Port {
  readonly host: number
  readonly container: number
  readonly protocol?: 'tcp' | 'udp'
}
/** What a pod asks for. */
export interface Wish {
  readonly ports?: readonly Port[]
  readonly annotations?: Readonly<Record<string, string>>
}
/** A pod that runs: its sandbox, its addresses as PodSandboxStatus has them, the namespace that it is in. */
export interface Pod {
  readonly id: string
  readonly ips: readonly string[]
  readonly ns: Namespace
}
/** A real containerd, with runc, on a node: root, state, socket and folders of its own. */
export interface Containerd {
  readonly cri: Cri
  readonly socket: string
  /** Where its networks are. */
  readonly folder: string
  /** Makes a sandbox and looks at it. Rejects with what containerd says. */
  run(name: string, wish?: Wish): Promise<Pod>
  stop(id: string): Promise<void>
  remove(id: string): Promise<void>
  /** Stops and removes, as a kubelet does: two stops, a remove. */
  away(...ids: readonly string[]): Promise<void>
  /** The sandboxes that it knows of, by id. */
  list(): Promise<string[]>
  /** Whether the network is ready, and what is said of it when not. */
  network(): Promise<{ readonly ready: boolean; readonly message: string }>
  /** Puts another network into its folder, and waits until it has read it. */
  configure(conf: Row): Promise<void>
  /** Ends it as a power cut does. What it started lives on. */
  kill(): Promise<void>
  /** Starts it, again, and waits until it answers. */
  start(): Promise<void>
}

const PATH = '/usr/sbin:/usr/bin:/sbin:/bin'
let image: Promise<string> | undefined

/** The versions that there are tests for: Debian's 1.6, and 2, which scripts/peers.ts builds when it is asked to. */
export const VERSIONS = [1, 2] as const

/** Wraps a test: a node with a containerd, and another machine, `world`, on the node's network. */
export function onContainerd(
  setting: Setting,
  work: (all: { node: Namespace; world: Namespace; containerd: Containerd }) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return onFreshNode(['node', 'world'], async ({ node, world }, test) => {
    await wireWorld(node, world)
    await withContainerd(node, setting, test, (containerd) => work({ node, world, containerd }))
  })
}

/**
 * Runs work with a containerd on a node. Afterwards no mount, cgroup, process or pod's namespace may be left. Skips the
 * test where there is none.
 */
export async function withContainerd(
  node: Namespace,
  setting: Setting,
  test: Mocha.Context,
  work: (containerd: Containerd) => Promise<void>,
): Promise<void> {
  const program = programOf(setting, test)
  test.timeout(150_000)
  const dir = mkdtempSync('/run/containerd-')
  const place = {
    dir,
    program,
    cgroup: cgroupName(),
    bin: setting.bin ?? DIST,
    folder: setting.folder ?? join(dir, 'net.d'),
  }
  mkdirSync(place.folder, { recursive: true })
  if (setting.conf) writeConf(place, setting.conf)
  if (setting.template !== undefined) writeFileSync(join(dir, 'template'), setting.template)
  writeFileSync(join(dir, 'config.toml'), configOf(place))
  const containerd = await daemon(node, place, setting.withoutExecutableMemory)
  let left: string[] = []
  try {
    await work(containerd)
  } catch (cause) {
    throw new Error(`${(cause as Error).message}\ncontainerd said: ${said(dir)}`, { cause })
  } finally {
    for (const id of await containerd.list().catch(() => [])) await containerd.away(id).catch(() => undefined)
    containerd.cri.close()
    await containerd.kill()
    left = remainder(dir, place.cgroup)
    await sweep(dir, place.cgroup)
  }
  assert.deepEqual(left, [])
}

function programOf({ version }: Setting, test: Mocha.Context): Peer {
  const absent = ['containerd', 'runc', 'busybox'].find((name) => !present(name))
  if (absent) skip(test, `no ${absent} (a package of that name)`)
  const program = version === 2 ? containerd2() : { version: '1', path: '/usr/bin' }
  return (
    program ??
    skip(test, 'containerd 2 was not built: bun scripts/peers.ts containerd does that, where Go is new enough')
  )
}

async function daemon(node: Namespace, place: Place, denied: Setting['withoutExecutableMemory']): Promise<Containerd> {
  const { dir, program, folder } = place
  const socket = join(dir, 'sock')
  const cri = openCri(socket)
  let child: Bun.Subprocess | undefined
  async function start(): Promise<void> {
    const log = openSync(join(dir, 'log'), 'a')
    const argv = [
      '/usr/bin/nsenter',
      `--net=${node.path}`,
      '--',
      join(program.path, 'containerd'),
      '-c',
      join(dir, 'config.toml'),
    ]
    const started =
      denied === 'unit'
        ? inUnit(argv, { dir, cgroup: place.cgroup, log: join(dir, 'log') })
        : denied === 'kernel'
          ? [...BY_KERNEL, ...argv]
          : argv
    child = Bun.spawn(started, { cwd: dir, env: { PATH: `${program.path}:${PATH}` }, stdio: ['ignore', log, log] })
    closeSync(log)
    await until(() => cri.version({}), 30_000).catch((cause) =>
      assert.fail(`containerd does not start: ${cause.message}\n${said(dir)}`),
    )
  }
  const network = async () => {
    const { status } = await cri.status({})
    const { status: ready, reason, message } = status.conditions.find(({ type }: Row) => type === 'NetworkReady')
    return { ready, message: `${reason}: ${message}` }
  }
  await start()
  image ??= makeImage(mkdtempSync('/run/image-'))
  await execa(join(program.path, 'ctr'), [
    '--address',
    socket,
    '--namespace',
    'k8s.io',
    'images',
    'import',
    '--snapshotter',
    'overlayfs',
    await image,
  ])
  // It hears of its images by events.
  await until(async () => (await cri.imageStatus({ image: { image: IMAGE } }))['image']?.id, 10_000)
  const stop = async (podSandboxId: string) => void (await cri.stopPodSandbox({ podSandboxId }))
  const remove = async (podSandboxId: string) => void (await cri.removePodSandbox({ podSandboxId }))
  return {
    cri,
    socket,
    folder,
    start,
    network,
    run: async (name, wish = {}) =>
      look(cri, name, (await cri.runPodSandbox({ config: podConfig(name, place, wish) }))['podSandboxId']),
    stop,
    remove,
    async away(...ids) {
      for (const id of ids) for (const call of [stop, stop, remove]) await call(id)
    },
    list: async () => (await cri.listPodSandbox({}))['items'].map(({ id }: Row) => id),
    async configure(other) {
      writeConf(place, other)
      await until(async () => (await networks(cri)).includes(JSON.stringify(other)), 10_000)
    },
    async kill() {
      // A systemd ends its unit first, by SIGKILL.
      child?.kill(denied === 'unit' ? 'SIGTERM' : 'SIGKILL')
      await child?.exited
      if (denied === 'unit') await leaveUnit(place.cgroup)
    },
  }
}

async function look(cri: Cri, name: string, id: string): Promise<Pod> {
  const { status, info } = await cri.podSandboxStatus({ podSandboxId: id, verbose: true })
  const { network } = status
  const path: string = JSON.parse(found(info, 'info')).runtimeSpec.linux.namespaces.find(
    ({ type }: Row) => type === 'network',
  ).path
  return {
    id,
    ips: [network.ip, ...network.additionalIps.map(({ ip }: Row) => ip)],
    ns: namespaceAt(path.slice(path.lastIndexOf('/') + 1), name),
  }
}

function podConfig(name: string, { dir, cgroup }: Place, { ports = [], annotations = {} }: Wish): Row {
  return {
    metadata: { name, uid: name, namespace: 'plumb' },
    hostname: name,
    logDirectory: join(dir, 'logs'),
    dnsConfig: {},
    portMappings: ports.map(({ host, container, protocol }) => ({
      hostPort: host,
      containerPort: container,
      protocol: protocol === 'udp' ? 1 : 0,
    })),
    annotations: Object.entries(annotations).map(([key, value]) => ({ key, value })),
    linux: { cgroupParent: `/${cgroup}` },
  }
}

function writeConf({ folder }: Place, conf: Row): void {
  // It hears a file renamed within its folder, and none that comes from elsewhere.
  writeFileSync(join(folder, '.draft'), JSON.stringify(conf))
  renameSync(join(folder, '.draft'), join(folder, '10-pods.conflist'))
}

/** The texts of the networks that it has read, for pods. */
async function networks(cri: Cri): Promise<string[]> {
  const { Networks } = JSON.parse(found((await cri.status({ verbose: true }))['info'], 'cniconfig'))
  return (Networks ?? []).map(({ Config }: Row) => Config.Source)
}

function said(dir: string): string {
  return readFileSync(join(dir, 'log'), 'utf8').split('\n').slice(-8).join('\n')
}
