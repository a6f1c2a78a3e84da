import { existsSync, globSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Namespace, until } from '../../support/harness.ts'
import { IMAGE, makeImage } from '../../support/image.ts'
import type { Daemons } from './daemons.ts'

/** Where things are that a kubelet needs. */
export interface Places {
  /** The folder of kubelet, and the one below which Docker was unpacked. */
  readonly bin: string
  readonly docker: string
  /** For all that is written. */
  readonly dir: string
  readonly kubeconfig: string
  /** CNI plugins, and the networks of the node. */
  readonly plugins: string
  readonly networks: string
  /** The node's name. */
  readonly name: string
}

// Where priorities may not be raised (CAP_SYS_RESOURCE), what the kubelet wants killed last could not be started.
const RUNC = `#!/bin/sh
for word; do
  [ "$before" != --bundle ] || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
  before=$word
done
exec runc "$@"
`
const EVERYTHING = {
  'memory.available': '0%',
  'nodefs.available': '0%',
  'nodefs.inodesFree': '0%',
  'imagefs.available': '0%',
}
const KUBELET = {
  apiVersion: 'kubelet.config.k8s.io/v1beta1',
  kind: 'KubeletConfiguration',
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: 'AlwaysAllow' },
  // A full disk is no matter here, and control groups are Docker's alone.
  cgroupsPerQOS: false,
  enforceNodeAllocatable: [],
  evictionHard: EVERYTHING,
  oomScoreAdj: 0,
  failSwapOn: false,
}
const HEALTH = 10248

/** Starts Docker, which makes no network itself, with the image of tests. */
export async function startDocker({ start }: Daemons, node: Namespace, { docker, dir }: Places): Promise<void> {
  writeFileSync(join(dir, 'runc'), RUNC, { mode: 0o755 })
  const off = { bridge: 'none', iptables: false, ip6tables: false, 'ip-forward': false, 'ip-masq': false }
  const places = {
    'data-root': `${dir}/docker`,
    'exec-root': `${dir}/exec`,
    pidfile: `${dir}/docker.pid`,
    hosts: [socketOf(dir)],
    'storage-driver': 'vfs',
    'shutdown-timeout': 1,
    'cgroup-parent': groupOf(dir),
  }
  writeFileSync(
    join(dir, 'docker.json'),
    JSON.stringify({ ...off, ...places, runtimes: { ours: { path: join(dir, 'runc') } }, 'default-runtime': 'ours' }),
  )
  async function client(...argv: string[]): Promise<void> {
    const { status, stderr } = await node.exec([join(docker, 'usr/bin/docker'), '--host', socketOf(dir), ...argv])
    if (status !== 0) throw new Error(stderr)
  }
  await start('dockerd', ['dockerd', '--config-file', join(dir, 'docker.json')], () => client('version'), {
    PATH: pathOf(docker),
  })
  await client('load', '--input', await makeImage(dir))
}

/** Starts a kubelet that calls CNI plugins for Docker's containers (dockershim). */
export async function startKubelet(
  { start }: Daemons,
  node: Namespace,
  { bin, docker, dir, kubeconfig, plugins, networks, name }: Places,
): Promise<void> {
  writeFileSync(join(dir, 'kubelet.json'), JSON.stringify({ ...KUBELET, healthzPort: HEALTH }))
  mkdirSync(join(dir, 'kubelet'))
  const flags = {
    config: join(dir, 'kubelet.json'),
    kubeconfig,
    'root-dir': `${dir}/kubelet`,
    'cert-dir': `${dir}/pki`,
    'hostname-override': name,
    'docker-endpoint': socketOf(dir),
    'pod-infra-container-image': IMAGE,
    'network-plugin': 'cni',
    'cni-conf-dir': networks,
    'cni-bin-dir': plugins,
  }
  const isUp = async () => {
    const { status } = await node.exec(['bash', '-c', `exec 3<>/dev/tcp/127.0.0.1/${HEALTH}`])
    if (status !== 0) throw new Error('it does not answer on its health port')
  }
  await start(
    'kubelet',
    [join(bin, 'kubelet'), ...Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)],
    isUp,
    { PATH: pathOf(docker) },
  )
}

/** Unmounts what Docker and the kubelet left mounted below the folder, and removes their control groups. */
export async function tidy(dir: string): Promise<void> {
  const { stdout } = await execa('cut', ['-d', ' ', '-f', '2', '/proc/self/mounts'])
  const mounts = stdout.split('\n').filter((one) => one.startsWith(`${dir}/`))
  for (const mount of mounts.reverse()) await execa('umount', ['--lazy', mount], { reject: false })
  const groups = globSync(`/sys/fs/cgroup/*${groupOf(dir)}`).flatMap((path) => [...globSync(`${path}/**/`), path])
  // The kernel says for a while that one is in use whose last process has just ended.
  for (const path of groups.sort((a, b) => b.length - a.length))
    await until(() => !existsSync(path) || rmdirSync(path) === undefined, 20_000)
}

// One that no other run has.
function groupOf(dir: string): string {
  return `/plumb-${dir.slice(dir.lastIndexOf('-') + 1)}`
}

function socketOf(dir: string): string {
  return `unix://${dir}/docker.sock`
}

// Docker was not installed.
function pathOf(docker: string): string {
  return [...['usr/sbin', 'usr/bin'].map((one) => join(docker, one)), '/usr/sbin', '/usr/bin', '/sbin', '/bin'].join(
    ':',
  )
}
