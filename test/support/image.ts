import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'

/** What the images are called, one that only stays, and a web server on port 80. They differ in their command alone. */
export const IMAGE = 'localhost/plumb/busybox:1'
export const WEB_IMAGE = 'localhost/plumb/web:1'
const COMMANDS = {
  [IMAGE]: ['/bin/busybox', 'sleep', '1000000'],
  [WEB_IMAGE]: ['/bin/busybox', 'httpd', '-f', '-p', '80', '-h', '/www'],
}
const APPLETS = ['sh', 'sleep', 'cat', 'ip', 'nc', 'wget', 'top', 'hostname', 'httpd']

/**
 * Makes images of the machine's busybox alone, as `docker save` writes them (docker image specification v1.2). A
 * dynamic busybox comes with its libraries. They serve as a pod's own container, or any other. Gives the archive's
 * path, below `dir`.
 */
export async function makeImage(dir: string): Promise<string> {
  const [root, archive] = [mkdtempSync(join(dir, 'root-')), mkdtempSync(join(dir, 'image-'))]
  const busybox = (await execa('sh', ['-c', 'command -v busybox'])).stdout
  const { stdout = '' } = await execa('ldd', [busybox], { reject: false })
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path)
  for (const [from, to] of [[busybox, '/bin/busybox'], ...libraries.map((path) => [path, path])] as [
    string,
    string,
  ][]) {
    mkdirSync(join(root, dirname(to)), { recursive: true })
    await execa('cp', ['--dereference', from, join(root, to)])
  }
  for (const name of APPLETS) symlinkSync('busybox', join(root, 'bin', name))
  for (const name of ['dev', 'etc', 'proc', 'sys', 'tmp', 'www']) mkdirSync(join(root, name), { recursive: true })
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\n')
  writeFileSync(join(root, 'www/index.html'), 'web\n')
  await execa('tar', ['-cf', join(archive, 'layer.tar'), '--numeric-owner', '-C', root, '.'])
  const layer = sha256(readFileSync(join(archive, 'layer.tar')))
  const manifest = Object.entries(COMMANDS).map(([name, command]) => {
    const config = JSON.stringify({
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      config: { Cmd: command, Env: ['PATH=/bin'] },
      rootfs: { type: 'layers', diff_ids: [`sha256:${layer}`] },
      history: [{ created_by: 'plumb' }],
    })
    writeFileSync(join(archive, `${sha256(config)}.json`), config)
    return { Config: `${sha256(config)}.json`, RepoTags: [name], Layers: ['layer.tar'] }
  })
  writeFileSync(join(archive, 'manifest.json'), JSON.stringify(manifest))
  await execa('tar', [
    '-cf',
    join(dir, 'draft.tar'),
    '-C',
    archive,
    'manifest.json',
    'layer.tar',
    ...manifest.map(({ Config }) => Config),
  ])
  for (const one of [root, archive]) rmSync(one, { recursive: true })
  renameSync(join(dir, 'draft.tar'), join(dir, 'image.tar'))
  return join(dir, 'image.tar')
}

function sha256(what: string | Uint8Array): string {
  return new Bun.CryptoHasher('sha256').update(what).digest('hex')
}
