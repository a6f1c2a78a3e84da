import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { AFTER, BEFORE_REMOVAL, CONFIGURATION, glibc, put, sizeOf } from './contents.ts'
import type { Order } from './order.ts'

/** Makes a Debian package of the files below `root`. Adds its own folder DEBIAN there and leaves it. Throws Error. */
export async function deb(root: string, to: string, { arch, version, epoch, paths }: Order): Promise<void> {
  const control = `Package: plumb
Version: ${version}
Architecture: ${arch}
Maintainer: the plumb authors <plumb@localhost>
Installed-Size: ${Math.ceil(sizeOf(root, paths) / 1024)}
Depends: libc6 (>= ${glibc(join(root, 'usr/bin/plumb'))}), iproute2, nftables
Recommends: conntrack
Section: net
Priority: optional
Description: network for containers
 CNI plugins in one executable, and an agent that connects the pods of
 the nodes of a Kubernetes cluster. It drives the kernel by iproute2 and
 nftables.
`
  const sums = paths.filter((path) => path !== CONFIGURATION).map((path) => `${new Bun.CryptoHasher('md5').update(readFileSync(join(root, path))).digest('hex')}  ${path.slice(1)}\n`)
  const debian = (name: string, text: string, mode?: number) => put(join(root, 'DEBIAN', name), text, mode)
  debian('control', control)
  debian('conffiles', `${CONFIGURATION}\n`)
  debian('md5sums', sums.join(''))
  debian('postinst', script('configure', AFTER), 0o755)
  debian('prerm', script('remove', BEFORE_REMOVAL), 0o755)
  await execa('dpkg-deb', ['-Zzstd', '-z3', '--root-owner-group', '--build', root, to], { env: { SOURCE_DATE_EPOCH: `${epoch}` } })
}

function script(when: string, body: string): string {
  return `#!/bin/sh
set -e
if [ "$1" = ${when} ]; then
${body.replace(/^(?=.)/gm, '  ')}fi
`
}
