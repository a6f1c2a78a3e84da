import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { AFTER, BEFORE_REMOVAL, CONFIGURATION, glibc, put } from './contents.ts'
import type { Order } from './order.ts'

/** The names of the architectures in rpm. */
export const ARCHITECTURES = { amd64: 'x86_64', arm64: 'aarch64' } as const
/** Folders that belong to plumb alone. */
const OWN = /^(\/etc\/plumb|\/usr\/share\/doc\/plumb)(\/|$)/

/** Makes an rpm package of the files below `root`. Throws Error. */
export async function rpm(root: string, to: string, { arch, version, epoch, paths }: Order): Promise<void> {
  const work = `${to}.work`
  const folders = [...new Set(paths.map((path) => dirname(path)))].filter((path) => OWN.test(path)).sort()
  const spec = `Name: plumb
Version: ${version.replaceAll('-', '~')}
Release: 1
Summary: Network for containers
License: Apache-2.0
AutoReqProv: no
Requires: iproute, nftables, libc.so.6(GLIBC_${glibc(join(root, 'usr/bin/plumb'))})(64bit)
Recommends: conntrack-tools, iproute-tc

%description
CNI plugins in one executable, and an agent that connects the pods of
the nodes of a Kubernetes cluster. It drives the kernel by iproute2 and
nftables.

%install
cp -a ${root}/etc ${root}/usr %{buildroot}/

%post
${AFTER}
%preun
if [ "$1" -eq 0 ]; then
${BEFORE_REMOVAL.replace(/^(?=.)/gm, '  ')}fi

%files
%defattr(-, root, root, 0755)
${[...folders.map((path) => `%dir ${path}`), ...paths.map((path) => (path === CONFIGURATION ? `%config(noreplace) ${path}` : path))].join('\n')}
`
  put(join(work, 'plumb.spec'), spec)
  const settings: Readonly<Record<string, string>> = {
    _topdir: work,
    _rpmdir: work,
    _build_name_fmt: 'plumb.rpm',
    _buildhost: 'plumb',
    _binary_payload: 'w3.zstdio',
    use_source_date_epoch_as_buildtime: '1',
    clamp_mtime_to_source_date_epoch: '1',
    source_date_epoch_from_changelog: '0',
    // The executable holds its own code behind the last section. A strip would remove that code.
    __os_install_post: '%{nil}',
    __strip: '/bin/true',
    debug_package: '%{nil}',
    _build_id_links: 'none',
  }
  mkdirSync(work, { recursive: true })
  const argv = ['-bb', '--quiet', '--target', `${ARCHITECTURES[arch]}-linux`, ...Object.entries(settings).flatMap(([name, value]) => ['--define', `${name} ${value}`]), join(work, 'plumb.spec')]
  // Without the user's own ~/.rpmmacros.
  await execa('rpmbuild', argv, { env: { HOME: work, SOURCE_DATE_EPOCH: `${epoch}`, LC_ALL: 'C' } })
  renameSync(join(work, 'plumb.rpm'), to)
  rmSync(work, { recursive: true })
}
