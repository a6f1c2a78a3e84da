import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import type { Arch } from './engine.ts'
import { CACHE, runtime } from './package/runtime.ts'
import { unpack } from './unpack.ts'

const [QEMU, LIBC] = [join(CACHE, 'qemu-user-static'), join(CACHE, 'libc6-arm64')]

/**
 * What starts an arm64 executable on this machine: qemu's program, and a folder with the C library. Undefined when it
 * is not unpacked.
 */
export function emulator(): { readonly qemu: string; readonly sysroot: string } | undefined {
  const qemu = join(QEMU, 'usr/bin/qemu-aarch64-static')
  return existsSync(qemu) && globSync(join(LIBC, '{usr/,}lib/ld-linux-aarch64.so.1')).length > 0
    ? { qemu, sysroot: LIBC }
    : undefined
}

/**
 * Unpacks qemu, the C library and the Bun runtime of arm64 outside the checkout, if they are missing. Throws Error when
 * that fails.
 */
export async function unpackArm64(): Promise<void> {
  if (process.arch === 'arm64') return
  await runtime('arm64')
  if (emulator()) return
  await qemuFor('arm64')
  process.stderr.write(
    `setup: unpacking arm64's libc6 in ${CACHE} (a test starts the arm64 executable; it is not installed)\n`,
  )
  if (!existsSync(LIBC)) await unpackLibc()
}

/**
 * The program of qemu that starts executables of another architecture. Unpacks it outside the checkout, if it is
 * missing. Throws Error when that fails.
 */
export async function qemuFor(arch: Arch): Promise<string> {
  if (!existsSync(QEMU)) {
    process.stderr.write(
      `setup: unpacking qemu-user-static in ${CACHE} (the executable of the plugins for ${arch} is started once when it is made; it is not installed)\n`,
    )
    await unpack(QEMU, ['qemu-user-static'])
  }
  return join(QEMU, 'usr/bin', arch === 'arm64' ? 'qemu-aarch64-static' : 'qemu-x86_64-static')
}

// apt keeps lists of this machine's architectures alone. So this asks with lists in a folder of its own, and the
// machine's own stay as they are.
async function unpackLibc(): Promise<void> {
  mkdirSync(CACHE, { recursive: true })
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    const folders = { 'Dir::State': 'state', 'Dir::Cache': 'cache' }
    for (const dir of ['state/lists/partial', 'cache/archives/partial'])
      mkdirSync(join(draft, dir), { recursive: true })
    const settings = {
      'APT::Architecture': 'arm64',
      'APT::Architectures': 'arm64',
      'APT::Sandbox::User': 'root',
      'Dir::State::status': '/dev/null',
      ...Object.fromEntries(Object.entries(folders).map(([name, dir]) => [name, join(draft, dir)])),
    }
    const apt = (...argv: string[]) =>
      execa(
        'apt-get',
        ['-qq', ...Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]), ...argv],
        { cwd: draft },
      )
    await apt('update')
    await apt('download', 'libc6')
    const [deb = ''] = globSync(join(draft, '*.deb'))
    await execa('dpkg-deb', ['-x', deb, join(draft, 'root')])
    renameSync(join(draft, 'root'), LIBC)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}
