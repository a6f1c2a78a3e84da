import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'

/** What is in an image of the lab, and what it starts. */
export interface PodImage {
  readonly names: readonly string[]
  readonly entrypoint?: readonly string[]
  readonly cmd?: readonly string[]
  /** Files of this machine. The libraries that they load come with them. */
  readonly files: readonly { readonly from: string; readonly to: string }[]
}

const USERS = 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n'

/**
 * Writes an image as `docker save` does, which `ctr images import` reads. A `busybox` among the files gets a link for
 * each of its commands.
 */
export async function dockerArchive(out: string, { names, entrypoint, cmd, files }: PodImage): Promise<void> {
  const draft = mkdtempSync(join(dirname(out), '.draft-'))
  const root = join(draft, 'root')
  try {
    for (const dir of [
      'etc',
      'proc',
      'sys',
      'dev',
      'root',
      'tmp',
      'run',
      'uploads',
      'usr/bin',
      'usr/sbin',
      'usr/lib',
      'usr/lib64',
      'var/tmp',
      'var/registry',
    ])
      mkdirSync(join(root, dir), { recursive: true })
    for (const dir of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${dir}`, join(root, dir))
    for (const { from, to } of files) {
      copy(from, join(root, to))
      for (const library of await libraries(from)) copy(library, join(root, library.replace(/^\/(?=lib)/, '/usr/')))
    }
    for (const { from, to } of files)
      if (to.endsWith('/busybox'))
        for (const name of (await execa(from, ['--list'])).stdout.split('\n'))
          if (globSync(`usr/bin/${name}`, { cwd: root }).length === 0) symlinkSync(to, join(root, 'usr/bin', name))
    if (globSync('usr/bin/sh', { cwd: root }).length === 0 && globSync('usr/bin/bash', { cwd: root }).length > 0)
      symlinkSync('bash', join(root, 'usr/bin/sh'))
    writeFileSync(join(root, 'etc/passwd'), USERS)
    writeFileSync(join(root, 'etc/group'), 'root:x:0:\nnogroup:x:65534:\n')
    writeFileSync(join(root, 'etc/nsswitch.conf'), 'hosts: files dns\n')
    await execa('tar', [
      '--sort=name',
      '--mtime=@0',
      '--owner=0',
      '--group=0',
      '-cf',
      join(draft, 'layer.tar'),
      '-C',
      root,
      '.',
    ])
    const digest = new Bun.CryptoHasher('sha256').update(readFileSync(join(draft, 'layer.tar'))).digest('hex')
    const env = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin']
    const config = {
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Entrypoint: entrypoint ?? null, Cmd: cmd ?? null, WorkingDir: '/', Env: env },
      rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
    }
    writeFileSync(join(draft, 'config.json'), JSON.stringify(config))
    writeFileSync(
      join(draft, 'manifest.json'),
      JSON.stringify([{ Config: 'config.json', RepoTags: names, Layers: ['layer.tar'] }]),
    )
    await execa('tar', ['-cf', out, '-C', draft, 'config.json', 'layer.tar', 'manifest.json'])
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true })
  cpSync(from, to, { dereference: true })
}

// A static program has none.
async function libraries(file: string): Promise<string[]> {
  const { stdout } = await execa('ldd', [file], { reject: false })
  return [...(stdout ?? '').matchAll(/(?:=> )?(\/\S+) \(0x/g)].map(([, path]) => path as string)
}
