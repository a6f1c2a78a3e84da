import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'
import { put } from './contents.ts'
import type { Identity, Order } from './order.ts'

/** The names of the architectures in rpm. */
export const ARCHITECTURES = { amd64: 'x86_64', arm64: 'aarch64' } as const

/** Makes an rpm package of the files below `root`. Throws Error. */
export async function rpm(root: string, to: string, { identity, arch, version, epoch, paths }: Order): Promise<void> {
  const { name, summary, about, relations, settings, scripts } = identity
  const work = `${to}.work`
  const isOwn = (folder: string) => identity.folders.some((own) => `${folder}/`.startsWith(`${own}/`))
  const folders = [...new Set(paths.flatMap(foldersOf))].filter(isOwn).sort()
  const spec = `Name: ${name}
Version: ${version.replaceAll('-', '~')}
Release: 1
Summary: ${summary.replace(/^./, (first) => first.toUpperCase())}
License: Apache-2.0
AutoReqProv: no
${relations.rpm.join('\n')}

%description
${about.join('\n')}

%install
cp -a ${root}/. %{buildroot}/
${scripts ? scriptlets(scripts) : ''}
%files
%defattr(-, root, root, 0755)
${[...folders.map((path) => `%dir ${path}`), ...paths.map((path) => (settings.includes(path) ? `%config(noreplace) ${path}` : path))].join('\n')}
`
  put(join(work, 'plumb.spec'), spec)
  const macros: Readonly<Record<string, string>> = {
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
  const argv = [
    '-bb',
    '--quiet',
    '--target',
    `${ARCHITECTURES[arch]}-linux`,
    ...Object.entries(macros).flatMap(([name, value]) => ['--define', `${name} ${value}`]),
    join(work, 'plumb.spec'),
  ]
  // Without the user's own ~/.rpmmacros.
  await execa('rpmbuild', argv, { env: { HOME: work, SOURCE_DATE_EPOCH: `${epoch}`, LC_ALL: 'C' } })
  renameSync(join(work, 'plumb.rpm'), to)
  rmSync(work, { recursive: true })
}

function scriptlets({ after, beforeRemoval }: NonNullable<Identity['scripts']>): string {
  return `
%post
${after}
%preun
if [ "$1" -eq 0 ]; then
${beforeRemoval.replace(/^(?=.)/gm, '  ')}fi
`
}

// All folders above a path, except the root.
function foldersOf(path: string): string[] {
  const folder = dirname(path)
  return folder === '/' ? [] : [folder, ...foldersOf(folder)]
}
