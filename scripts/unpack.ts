import { existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { execa } from 'execa'

/** Has apt fetch packages and unpacks them into a folder, outside the checkout, without installing them: no service of theirs is enabled, and nothing else on the machine finds them. `tidy` works on the folder before it has its name. Throws Error when they cannot be had. */
export async function unpack(dir: string, packages: readonly string[], tidy?: (draft: string) => Promise<void>): Promise<void> {
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
