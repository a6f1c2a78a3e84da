import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'

/**
 * Downloads packages with apt and unpacks them into a folder outside the checkout, without installing them. So apt
 * enables no service, and no other program on the machine finds them. `tidy` works on the folder before the folder gets
 * its final name. Throws Error when the download or the unpacking fails.
 */
export async function unpack(
  dir: string,
  packages: readonly string[],
  tidy?: (draft: string) => Promise<void>,
): Promise<void> {
  mkdirSync(dirname(dir), { recursive: true })
  const draft = mkdtempSync(join(dirname(dir), '.draft-'))
  try {
    await execa('apt-get', ['-qq', '-o', 'APT::Sandbox::User=root', 'download', ...packages], { cwd: draft })
    for (const deb of globSync(join(draft, '*.deb'))) {
      await execa('dpkg-deb', ['-x', deb, draft])
      rmSync(deb)
    }
    await tidy?.(draft)
    if (!existsSync(dir)) renameSync(draft, dir)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}
