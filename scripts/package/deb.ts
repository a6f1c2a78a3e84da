import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { put, sizeOf } from './contents.ts'
import type { Order } from './order.ts'

/** Makes a Debian package of the files below `root`. Adds its own folder DEBIAN there and leaves it. Throws Error. */
export async function deb(root: string, to: string, { identity, arch, version, epoch, paths }: Order): Promise<void> {
  const { name, summary, about, relations, settings, scripts } = identity
  const control = `Package: ${name}
Version: ${version}
Architecture: ${arch}
Maintainer: the plumb authors <plumb@localhost>
Installed-Size: ${Math.ceil(sizeOf(root, paths) / 1024)}
${relations.deb.join('\n')}
Section: net
Priority: optional
Description: ${summary}
${about.map((line) => ` ${line}\n`).join('')}`
  const sums = paths
    .filter((path) => !settings.includes(path))
    .map(
      (path) =>
        `${new Bun.CryptoHasher('md5').update(readFileSync(join(root, path))).digest('hex')}  ${path.slice(1)}\n`,
    )
  const debian = (name: string, text: string, mode?: number) => put(join(root, 'DEBIAN', name), text, mode)
  debian('control', control)
  if (settings.length > 0) debian('conffiles', settings.map((path) => `${path}\n`).join(''))
  debian('md5sums', sums.join(''))
  if (scripts) debian('postinst', script('configure', scripts.after), 0o755)
  if (scripts) debian('prerm', script('remove', scripts.beforeRemoval), 0o755)
  await execa('dpkg-deb', ['-Zzstd', '-z3', '--root-owner-group', '--build', root, to], {
    env: { SOURCE_DATE_EPOCH: `${epoch}` },
  })
}

function script(when: string, body: string): string {
  return `#!/bin/sh
set -e
if [ "$1" = ${when} ]; then
${body.replace(/^(?=.)/gm, '  ')}fi
`
}
