import { existsSync, globSync, renameSync, rmSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { execa } from 'execa'
import { unpack } from './unpack.ts'

const CACHE = process.env['PLUMB_KERNELS'] ?? '/var/cache/plumb/kernels'
const META = 'linux-image-amd64'
const BUSYBOX = 'busybox-static'
/** What a machine without hardware needs of the modules, a quarter of them. */
const PARTS = ['arch', 'crypto', 'lib', 'net', 'drivers/net', 'drivers/virtio', 'drivers/char', 'drivers/uio', 'drivers/vfio', 'fs/9p', 'fs/fscache', 'fs/netfs', 'fs/overlayfs']

/** A kernel that is on the disk and not installed: no boot loader knows it. */
export interface Kernel {
  /** As `uname -r` will say in it. */
  readonly release: string
  readonly image: string
  /** The folder of its modules. */
  readonly modules: string
  /** A program that needs no library, for what runs before there are any. */
  readonly busybox: string
}

/** The newest kernel that was unpacked, undefined when none was. */
export function kernel(): Kernel | undefined {
  const found = globSync(join(CACHE, 'linux-image-*/boot/vmlinuz-*')).sort((a, b) => b.localeCompare(a, 'en', { numeric: true }))[0]
  if (found === undefined) return undefined
  const release = basename(found).slice('vmlinuz-'.length)
  const dir = join(found, '../..')
  return { release, image: found, modules: join(dir, 'lib/modules', release), busybox: join(dir, 'bin/busybox') }
}

/** Unpacks the distribution's kernel outside the checkout, one line on stderr, unless one is there. Throws Error when it cannot be had. */
export async function unpackKernel(): Promise<void> {
  if (kernel()) return
  const { stdout } = await execa('apt-cache', ['depends', '--important', META])
  const name = /Depends: (linux-image-[\w.+-]+)/.exec(stdout)?.[1]
  if (!name) throw new Error(`Cannot find a kernel: apt knows no package that ${META} depends on`)
  process.stderr.write(`setup: unpacking ${name} in ${CACHE} (test/vm tries in a virtual machine what this machine's kernel lacks; it is not installed)\n`)
  await unpack(join(CACHE, name), [name, BUSYBOX], tidy)
}

// Newer packages have all but the kernel below usr.
async function tidy(dir: string): Promise<void> {
  for (const name of ['lib', 'bin']) if (!existsSync(join(dir, name))) renameSync(join(dir, 'usr', name), join(dir, name))
  const [modules = ''] = globSync(join(dir, 'lib/modules/*'))
  if (globSync(join(dir, 'boot/vmlinuz-*')).length === 0 || !existsSync(join(modules, 'kernel'))) throw new Error(`Cannot unpack ${META} in ${dir}: want a kernel and its modules in it`)
  for (const path of globSync(join(modules, 'kernel/{*,drivers/*,fs/*}'))) {
    const part = relative(join(modules, 'kernel'), path)
    if (!PARTS.some((one) => one === part || one.startsWith(`${part}/`))) rmSync(path, { recursive: true, force: true })
  }
  await execa('/sbin/depmod', ['-b', dir, basename(modules)])
}
