import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { execa } from 'execa'
import type { Kernel } from '../../../scripts/kernel.ts'

/** What the kernel needs before it can see the files of this machine. */
const FIRST = ['virtio_pci', 'virtio_console', '9pnet_virtio', '9p', 'overlay']
const INIT = `#!/bin/busybox sh
PATH=/bin; /bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /ro /rw /new
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
fail() { echo "machine: $*"; dmesg | tail -n 5; poweroff -f; }
for m in /m/*; do insmod "$m" || fail "cannot load $m"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /ro || fail 'no root'
mount -t tmpfs -o size=80% t /rw; mkdir -p /rw/up /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/up,workdir=/rw/work o /new || fail 'no overlay'
for m in proc sys dev; do mount --move /$m /new/$m; done
for d in run tmp-of-machine; do mkdir -p /new/$d; mount -t tmpfs t /new/$d; done
cp /job /new/tmp-of-machine/job
exec chroot /new /bin/bash /tmp-of-machine/job`

/** A file of an archive; what ends in a slash is a folder. */
interface Entry {
  readonly name: string
  readonly data: Uint8Array
}

/**
 * What a kernel starts with: busybox, the modules by which it sees this machine's root, and `job`, a bash script that
 * then runs as its first process, there.
 */
export async function initrd(kernel: Kernel, job: string): Promise<Uint8Array> {
  const modules = await Promise.all(
    (await paths(kernel)).map(
      async (path, i): Promise<Entry> => ({
        name: `m/${String(i).padStart(2, '0')}-${basename(path)}`,
        data: await plain(path),
      }),
    ),
  )
  const text = (name: string, script: string): Entry => ({ name, data: new TextEncoder().encode(script) })
  return archive([
    folder('bin'),
    { name: 'bin/busybox', data: readFileSync(kernel.busybox) },
    folder('m'),
    ...modules,
    text('init', INIT),
    text('job', job),
  ])
}

// In the order in which they have to be loaded.
async function paths({ release, modules }: Kernel): Promise<string[]> {
  const { stdout } = await execa('/sbin/modprobe', [
    '-d',
    modules.replace(/\/lib\/modules\/.*/, ''),
    '-S',
    release,
    '--show-depends',
    '--all',
    ...FIRST,
  ])
  return [...new Set([...stdout.matchAll(/^insmod (\S+)/gm)].map(([, path = '']) => path))]
}

async function plain(path: string): Promise<Uint8Array> {
  return path.endsWith('.xz') ? (await execa('xz', ['-dc', path], { encoding: 'buffer' })).stdout : readFileSync(path)
}

function folder(name: string): Entry {
  return { name: `${name}/`, data: new Uint8Array() }
}

// Kernel documentation driver-api/early-userspace/buffer-format: "newc", each part filled up to four bytes.
function archive(entries: readonly Entry[]): Uint8Array {
  const parts = [...entries, { name: 'TRAILER!!!', data: new Uint8Array() }].flatMap(({ name, data }, i) => {
    const isFolder = name.endsWith('/')
    const path = name.replace(/\/$/, '')
    const numbers = [i + 1, isFolder ? 0o040755 : 0o100755, 0, 0, 1, 0, data.length, 0, 0, 0, 0, path.length + 1, 0]
    const head = new TextEncoder().encode(
      `070701${numbers.map((one) => one.toString(16).padStart(8, '0')).join('')}${path}\0`,
    )
    return [filled(head), filled(data)]
  })
  return Buffer.concat(parts)
}

function filled(bytes: Uint8Array): Uint8Array {
  const whole = new Uint8Array(Math.ceil(bytes.length / 4) * 4)
  whole.set(bytes)
  return whole
}
