// needs: podman
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { present } from '../../scripts/packages.ts'
import { remains } from './container-leftovers.ts'
import { type Finished, inNamespaces, type Namespace, namespaceAt, type Row, until } from './harness.ts'
import { IMAGE, makeImage } from './image.ts'
import { wireWorld } from './packets.ts'
import { skip } from './skip.ts'

const DIST = join(import.meta.dir, '../../dist')

/** A container that sleeps. */
export interface Container {
  readonly id: string
  /** Its network namespace. */
  readonly ns: Namespace
}
/** podman on a node, with CNI for its networks and plumb's plugins. */
export interface Podman {
  /** The folder of its networks. */
  readonly networks: string
  call(...argv: readonly string[]): Promise<Finished>
  /** What it prints, when it ends well and says nothing else. */
  works(...argv: readonly string[]): Promise<string>
  /** What it says when it fails. */
  fails(...argv: readonly string[]): Promise<string>
  /** What it knows of a network or a container. */
  inspect(what: 'network' | 'container', name: string): Promise<Row>
  /** Starts a container of this name, with these options of `podman run`. */
  start(name: string, ...options: readonly string[]): Promise<Container>
  /** What containers have left on the node: links, namespaces, elements, files. */
  left(): Promise<string[]>
}
let room = ''
/** In a suite: makes the image, once for all its tests; skips them where there is no podman that speaks CNI. */
export function podmanHere(): void {
  before(async function () {
    this.timeout(120_000)
    const why = await missing()
    if (why) skip(this, why)
    // In the sandbox /run is in memory.
    assert.equal(process.env['PLUMB_SANDBOX'], '1', 'This test starts containers: run it with `bun test/run.ts FILE`')
    room = mkdtempSync('/run/podman-')
    // crun refuses a machine that has control groups of both versions, though it is to make none.
    await execa('mount', ['-t', 'cgroup2', 'cgroup2', '/sys/fs/cgroup'])
    for (const dir of ['tmp', 'home']) mkdirSync(join(room, dir))
    writeFileSync(join(room, 'policy.json'), JSON.stringify({ default: [{ type: 'insecureAcceptAnything' }] }))
    writeFileSync(
      join(room, 'storage.conf'),
      `[storage]\ndriver = "vfs"\ngraphroot = "${room}/store"\nrunroot = "${room}/run"\n`,
    )
    const env = environment(settings(join(room, 'none'), DIST))
    await execa(
      'podman',
      ['load', '--quiet', '--signature-policy', join(room, 'policy.json'), '--input', await makeImage(room)],
      { env },
    )
  })
}

/**
 * A test on a node with podman; `world` is behind the node (test/support/packets.ts). Its containers are removed at the
 * end.
 */
export function onPodman(
  work: (podman: Podman, ns: Record<'node' | 'world', Namespace>) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(['node', 'world'], async (ns) => {
    // The default data directory of host-local, libcni's cache and what plumb notes of the node before.
    for (const dir of ['/var/lib/cni', '/run/cni']) rmSync(dir, { recursive: true, force: true })
    await wireWorld(ns.node, ns.world)
    const podman = podmanOn(ns.node)
    try {
      await work(podman, ns)
    } finally {
      await podman.call('rm', '--all', '--force')
    }
  })
}

/** podman in a suite's node, with networks of its own, and with these plugins (dist/ when left out). */
export function podmanOn(node: Namespace, plugins = DIST): Podman {
  const networks = mkdtempSync(join(room, 'networks-'))
  const env = environment(settings(networks, plugins))
  const call = (...argv: readonly string[]) => node.exec(['podman', ...argv], { env })
  async function works(...argv: readonly string[]): Promise<string> {
    const { status, stdout, stderr } = await call(...argv)
    assert.deepEqual([status, stderr], [0, ''], `podman ${argv.join(' ')}: ${stdout}`)
    return stdout.trim()
  }
  return {
    networks,
    call,
    works,
    async fails(...argv) {
      const { status, stdout, stderr } = await call(...argv)
      assert.notEqual(status, 0, `podman ${argv.join(' ')} was to fail and printed ${stdout}`)
      return stderr
    },
    inspect: async (what, name) => JSON.parse(await works(what, 'inspect', name))[0],
    async start(name, ...options) {
      const [id, path] = (await works('run', '--detach', '--name', name, ...options, IMAGE).then(async (id) => [
        id,
        await works('inspect', '--format', '{{.NetworkSettings.SandboxKey}}', name),
      ])) as [string, string]
      return { id, ns: namespaceAt(basename(path), name) }
    },
    left: () => remains(node, 'up0'),
  }
}

/** Waits until containers that ended have left nothing on the node: who watches them cleans up behind the command. */
export async function nothingLeft({ left }: Podman): Promise<void> {
  await until(async () => assert.deepEqual(await left(), []) === undefined, 15_000)
}

// CNI was dropped in podman 5, and Debian builds 4.4 to 4.9 without it.
async function missing(): Promise<string | undefined> {
  if (!present('podman')) return 'podman is not installed (npm run setup -- test)'
  if (!present('crun')) return 'crun is not installed, which podman starts containers with (npm run setup -- test)'
  const { stdout } = await execa('podman', ['--version'])
  return /version 4\.[0-4]\./.test(stdout) ? undefined : `${stdout} has no CNI networks; Debian 12's 4.3 has`
}

// The containers have no cgroups of their own and no limits: where podman runs in a container it may make none.
function settings(networks: string, plugins: string): string {
  return `[containers]
cgroups = "disabled"
seccomp_profile = "unconfined"
apparmor_profile = "unconfined"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
stop_timeout = 0
tmp_dir = "${room}/libpod"
[network]
network_backend = "cni"
cni_plugin_dirs = ["${plugins}"]
network_config_dir = "${networks}"
`
}

function environment(settings: string): Record<string, string> {
  const file = join(mkdtempSync(join(room, 'settings-')), 'containers.conf')
  writeFileSync(file, settings)
  return {
    CONTAINERS_CONF: file,
    CONTAINERS_STORAGE_CONF: join(room, 'storage.conf'),
    HOME: join(room, 'home'),
    TMPDIR: join(room, 'tmp'),
  }
}
