import { join } from 'node:path'
import { execa } from 'execa'

// What the image and the packages share. The same commit gives the same bytes.

/** Writes a folder into a tar archive. Names are sorted, the owner is root, and every file has the date `epoch`. */
export async function archive(dir: string, to: string, epoch: number): Promise<void> {
  await execa('tar', [
    '--sort=name',
    `--mtime=@${epoch}`,
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--format=gnu',
    '-cf',
    to,
    '-C',
    dir,
    '.',
  ])
}

/** The date of the last commit in seconds since 1970, or SOURCE_DATE_EPOCH. Gives 0 when neither exists. */
export async function sourceDate(): Promise<number> {
  const given = process.env['SOURCE_DATE_EPOCH']
  if (given) return Number(given)
  const { stdout } = await execa('git', ['log', '-1', '--format=%ct'], {
    cwd: join(import.meta.dir, '..'),
    reject: false,
  })
  return Number(stdout ?? '') || 0
}

/** The name that Debian and OCI have for this machine's architecture. */
export function architecture(): string {
  return process.arch === 'x64' ? 'amd64' : process.arch
}

/** The SHA-256 of bytes or of a text, in hexadecimal digits. */
export function sha256(data: Uint8Array | string): string {
  return new Bun.CryptoHasher('sha256').update(data).digest('hex')
}
