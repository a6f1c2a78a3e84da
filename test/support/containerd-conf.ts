import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Peer } from '../../scripts/peers.ts'
import { IMAGE } from './image.ts'

/** Where a containerd has its things. */
export interface Place {
  readonly dir: string
  /** What the cgroups of its pods are below. */
  readonly cgroup: string
  readonly program: Peer
  /** The plugins. */
  readonly bin: string
  /** The networks. */
  readonly folder: string
}

/** The configuration file of a containerd whose root, state and socket are below `dir`, as its version wants it. */
export function configOf({ dir, bin, folder, program }: Place): string {
  const template = existsSync(join(dir, 'template')) ? `conf_template = "${dir}/template"` : ''
  const common = `
root = "${dir}/root"
state = "${dir}/state"
[grpc]
address = "${dir}/sock"
[plugins."io.containerd.internal.v1.opt"]
path = "${dir}/opt"`
  // Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj.
  const limits = `
restrict_oom_score_adj = true
disable_apparmor = true`
  if (program.version.startsWith('1'))
    return `version = 2
${common}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${IMAGE}"
${limits}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "${bin}"
conf_dir = "${folder}"
${template}
`
  return `version = 3
${common}
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "${IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
${limits}
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["${bin}"]
conf_dir = "${folder}"
${template}
`
}
