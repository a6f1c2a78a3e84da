import { existsSync, globSync, renameSync, rmSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { execa } from 'execa'
import { unpack } from './unpack.ts'

const CACHE = process.env['PLUMB_KERNELS'] ?? '/var/cache/plumb/kernels'
const META = 'linux-image-amd64'
const BUSYBOX = 'busybox-static'
/** The modules that a machine without hardware needs. They are a quarter of all modules. */
const PARTS = [
  'arch',
  'crypto',
  'lib',
  'net',
  'drivers/net',
  'drivers/virtio',
  'drivers/char',
  'drivers/uio',
  'drivers/vfio',
  'fs/9p',
  'fs/fscache',
  'fs/netfs',
  'fs/overlayfs',
]

/** A kernel that is on the disk but not installed. No boot loader knows this kernel. */
export interface Kernel {
  /** The output of `uname -r` under this kernel. */
  readonly release: string
  readonly image: string
  /** The folder of the kernel's modules. */
  readonly modules: string
  /** The path of a busybox that needs no library. It runs before the machine has libraries. */
  readonly busybox: string
}

/** The newest unpacked kernel. Undefined when there is none. */
export function kernel(): Kernel | undefined {
  const found = globSync(join(CACHE, 'linux-image-*/boot/vmlinuz-*')).sort((a, b) =>
    b.localeCompare(a, 'en', { numeric: true }),
  )[0]
  if (found === undefined) return undefined
  const release = basename(found).slice('vmlinuz-'.length)
  const dir = join(found, '../..')
  return { release, image: found, modules: join(dir, 'lib/modules', release), busybox: join(dir, 'bin/busybox') }
}

/**
 * Unpacks the distribution's kernel outside the checkout, and prints a line on stderr. Does nothing when a kernel is
 * there. Throws Error when that fails.
 */
export async function unpackKernel(): Promise<void> {
  if (kernel()) return
  const { stdout } = await execa('apt-cache', ['depends', '--important', META])
  const name = /Depends: (linux-image-[\w.+-]+)/.exec(stdout)?.[1]
  if (!name) throw new Error(`Cannot find a kernel: apt knows no package that ${META} depends on`)
  process.stderr.write(
    `setup: unpacking ${name} in ${CACHE} (tests of the lane vm try in a virtual machine what this machine's kernel lacks; it is not installed)\n`,
  )
  await unpack(join(CACHE, name), [name, BUSYBOX], tidy)
}

// Newer packages put everything except the kernel below usr.
async function tidy(dir: string): Promise<void> {
  for (const name of ['lib', 'bin'])
    if (!existsSync(join(dir, name))) renameSync(join(dir, 'usr', name), join(dir, name))
  const [modules = ''] = globSync(join(dir, 'lib/modules/*'))
  if (globSync(join(dir, 'boot/vmlinuz-*')).length === 0 || !existsSync(join(modules, 'kernel')))
    throw new Error(`Cannot unpack ${META} in ${dir}: want a kernel and its modules in it`)
  for (const path of globSync(join(modules, 'kernel/{*,drivers/*,fs/*}'))) {
    const part = relative(join(modules, 'kernel'), path)
    if (!PARTS.some((one) => one === part || one.startsWith(`${part}/`))) rmSync(path, { recursive: true, force: true })
  }
  await execa('/sbin/depmod', ['-b', dir, basename(modules)])
}
