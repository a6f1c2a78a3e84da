import { chmodSync, globSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { gzipSync } from 'bun'

const ROOT = join(import.meta.dir, '../..')
const DOC = '/usr/share/doc/plumb'
/** The settings, which the administrator changes. */
export const CONFIGURATION = '/etc/plumb/agent.yaml'

/** What a package holds besides what is in the checkout. */
export interface Given {
  /** The executable. */
  readonly plumb: string
  readonly sbom: string
  /** The manual pages by file name. */
  readonly manual: Readonly<Record<string, string>>
  readonly epoch: number
}

/** Writes the files of a package below `root`, and gives their paths as they are once installed. */
export function fill(root: string, { plumb, sbom, manual, epoch }: Given): string[] {
  const here = (path: string) => readFileSync(join(ROOT, path))
  const pages = globSync('docs/**/*.md', { cwd: ROOT }).map((path) => [join(DOC, path.slice('docs/'.length)), here(path)] as const)
  const units = globSync('conf/*.{service,socket}', { cwd: ROOT }).map((path) => [`/usr/lib/systemd/system/${basename(path)}`, here(path).toString().replaceAll('/usr/local/bin/plumb', '/usr/bin/plumb')] as const)
  const manuals = Object.entries(manual).map(([file, text]) => [`/usr/share/man/man${file.at(-1)}/${file}.gz`, gzipSync(Buffer.from(text), { level: 9 })] as const)
  const files = new Map<string, string | Uint8Array>([
    ['/usr/bin/plumb', readFileSync(plumb)],
    [CONFIGURATION, here('conf/agent.yaml')],
    ...units,
    ...manuals,
    ...pages,
    ['/usr/share/bash-completion/completions/plumb', here('conf/completions/plumb.bash')],
    // Debian's zsh looks in the first folder, and other distributions look in the second.
    ['/usr/share/zsh/vendor-completions/_plumb', here('conf/completions/_plumb')],
    ['/usr/share/zsh/site-functions/_plumb', here('conf/completions/_plumb')],
    ['/usr/share/fish/vendor_completions.d/plumb.fish', here('conf/completions/plumb.fish')],
    ...['LICENSE', 'CHANGELOG.md'].map((name) => [join(DOC, name), here(name)] as const),
    [join(DOC, 'NOTICE'), here('native/NOTICE')],
    [join(DOC, 'plumb.cdx.json'), sbom],
  ])
  const paths = [...files.keys()].sort()
  for (const path of paths) {
    put(join(root, path), files.get(path) as string | Uint8Array, path === '/usr/bin/plumb' ? 0o755 : 0o644)
    utimesSync(join(root, path), epoch, epoch)
  }
  return paths
}

/** Writes a file with this mode, whatever the umask is. New folders have mode 0755. */
export function put(path: string, content: string | Uint8Array, mode = 0o644): void {
  const made = mkdirSync(dirname(path), { recursive: true })
  if (made !== undefined) for (let dir = dirname(path); dir.length >= made.length; dir = dirname(dir)) chmodSync(dir, 0o755)
  writeFileSync(path, content)
  chmodSync(path, mode)
}

/** The oldest glibc that an executable starts with, such as 2.34. */
export function glibc(file: string): string {
  const minors = [
    ...readFileSync(file)
      .toString('latin1')
      .matchAll(/\bGLIBC_2\.(\d+)\0/g),
  ].map(([, minor]) => Number(minor))
  return `2.${Math.max(...minors)}`
}

/** The size of files together in bytes. */
export function sizeOf(root: string, paths: readonly string[]): number {
  return paths.reduce((sum, path) => sum + statSync(join(root, path)).size, 0)
}

/** The line that an installation prints. A package owns no file in /opt/cni/bin, so that it does not collide with other packages. */
export const AFTER = `if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
echo 'plumb: now run "plumb install", which puts the plugins into /opt/cni/bin'
`
/**
 * What happens before a removal. `plumb uninstall` refuses it while pods live that plumb attached. The agent rests meanwhile, because it
 * may install the plugins again.
 */
export const BEFORE_REMOVAL = `units=
if [ -d /run/systemd/system ]; then
  for unit in plumb-agent.service plumb-dhcp.socket plumb-dhcp.service; do
    if systemctl --quiet is-active $unit; then units="$units $unit"; fi
  done
fi
if [ -n "$units" ]; then systemctl stop $units; fi
if ! /usr/bin/plumb uninstall; then
  if [ -n "$units" ]; then systemctl start $units; fi
  exit 1
fi
if [ -d /run/systemd/system ]; then systemctl --quiet disable plumb-agent.service plumb-dhcp.socket plumb-dhcp.service || true; fi
`
