import { chmodSync, globSync, linkSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { gzipSync } from 'bun'
import { APART, PACKAGED } from '../../agent/node/install.ts'

const ROOT = join(import.meta.dir, '../..')
const DOC = '/usr/share/doc/plumb'
/** The settings, which the administrator changes. */
export const CONFIGURATION = '/etc/plumb/agent.yaml'

/** The content of a file. The paths of one program are hard links to one file, except one that is `isApart`. */
type Content = string | Uint8Array | { readonly program: string; readonly isApart?: boolean }

/** What the package `plumb` holds besides what is in the checkout. */
interface Given {
  /** The executable. */
  readonly plumb: string
  readonly sbom: string
  /** The manual pages by file name. */
  readonly manual: Readonly<Record<string, string>>
  readonly epoch: number
}

function here(path: string): Buffer {
  return readFileSync(join(ROOT, path))
}

/** Writes the files of the package `plumb` below `root`, and gives their paths as they are once installed. */
export function fill(root: string, { plumb, sbom, manual, epoch }: Given): string[] {
  const pages = globSync('docs/**/*.md', { cwd: ROOT }).map(
    (path) => [join(DOC, path.slice('docs/'.length)), here(path)] as const,
  )
  const units = globSync('conf/*.{service,socket}', { cwd: ROOT }).map(
    (path) =>
      [
        `/usr/lib/systemd/system/${basename(path)}`,
        here(path).toString().replaceAll(`${PACKAGE.bin}/plumb`, '/usr/bin/plumb'),
      ] as const,
  )
  const manuals = Object.entries(manual).map(
    ([file, text]) =>
      [`/usr/share/man/man${file.at(-1)}/${file}.gz`, gzipSync(Buffer.from(text), { level: 9 })] as const,
  )
  const files = new Map<string, Content>([
    ['/usr/bin/plumb', { program: plumb }],
    [CONFIGURATION, here('conf/agent.yaml')],
    ...units,
    ...manuals,
    ...pages,
    ['/usr/share/bash-completion/completions/plumb', here('conf/completions/plumb.bash')],
    // Debian's zsh looks in the first folder, and other distributions look in the second.
    ['/usr/share/zsh/vendor-completions/_plumb', here('conf/completions/_plumb')],
    ['/usr/share/zsh/site-functions/_plumb', here('conf/completions/_plumb')],
    ['/usr/share/fish/vendor_completions.d/plumb.fish', here('conf/completions/plumb.fish')],
    ...legal(DOC, 'plumb', sbom),
    [join(DOC, 'CHANGELOG.md'), here('CHANGELOG.md')],
  ])
  return layOut(root, files, epoch)
}

/** The folders of the plugins alone: `bin` for the programs, `doc` for the licence and the bill of materials. */
export interface Folders {
  readonly bin: string
  readonly doc: string
  /** The name of a file in `bin` by which `plumb install` knows the package's programs. */
  readonly mark?: string
}
/**
 * Those of a package, and those of an archive that is unpacked into the folder of the plugins. No plugin has a name
 * with a dot.
 */
export const PACKAGE: Folders = { bin: '/opt/cni/bin', doc: '/usr/share/doc/plumb-plugins', mark: PACKAGED }
export const FLAT: Folders = { bin: '/', doc: '/.plumb-doc' }

/** Writes the plugins alone below `root`, and gives their paths. `engine` is their executable. */
export function fillPlugins(
  root: string,
  { bin, doc, mark }: Folders,
  { engine, names, sbom, epoch }: { engine: string; names: readonly string[]; sbom: string; epoch: number },
): string[] {
  const programs = names.map((name) => [join(bin, name), { program: engine, isApart: name === APART }] as const)
  const marks =
    mark === undefined
      ? []
      : [
          [
            join(bin, mark),
            'The package plumb-plugins owns the plugins in this folder. plumb install leaves them.\n',
          ] as const,
        ]
  return layOut(root, new Map<string, Content>([...programs, ...marks, ...legal(doc, 'plumb-plugins', sbom)]), epoch)
}

/** Writes the one file of the package `plumb-bgp` below `root`, and gives its path as it is once installed. */
export function fillBgp(root: string, epoch: number): string[] {
  return layOut(root, new Map<string, Content>([['/usr/share/doc/plumb-bgp/LICENSE', here('LICENSE')]]), epoch)
}

function legal(doc: string, name: string, sbom: string): [string, Content][] {
  return [
    [join(doc, 'LICENSE'), here('LICENSE')],
    [join(doc, 'NOTICE'), here('native/NOTICE')],
    [join(doc, `${name}.cdx.json`), sbom],
  ]
}

function layOut(root: string, files: ReadonlyMap<string, Content>, epoch: number): string[] {
  const paths = [...files.keys()].sort()
  const first = new Map<string, string>()
  for (const path of paths) {
    const [to, content] = [join(root, path), files.get(path) as Content]
    // A setting may be a password, such as that of etcd.
    const mode = path === CONFIGURATION ? 0o600 : 0o644
    if (typeof content === 'string' || content instanceof Uint8Array) put(to, content, mode)
    else {
      const known = content.isApart ? undefined : first.get(content.program)
      if (known === undefined) put(to, readFileSync(content.program), 0o755)
      else linkSync(known, to)
      if (!content.isApart) first.set(content.program, known ?? to)
    }
    utimesSync(to, epoch, epoch)
  }
  return paths
}

/** Writes a file with this mode, whatever the umask is. New folders have mode 0755. */
export function put(path: string, content: string | Uint8Array, mode = 0o644): void {
  const made = mkdirSync(dirname(path), { recursive: true })
  if (made !== undefined)
    for (let dir = dirname(path); dir.length >= made.length; dir = dirname(dir)) chmodSync(dir, 0o755)
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

/** The size of files together in bytes. Hard links to one file count once. */
export function sizeOf(root: string, paths: readonly string[]): number {
  const files = new Map(paths.map((path) => statSync(join(root, path))).map(({ ino, size }) => [ino, size]))
  return [...files.values()].reduce((sum, size) => sum + size, 0)
}

/**
 * The line that an installation of `plumb` prints. That package owns no file in /opt/cni/bin, so that it does not
 * collide with other packages.
 */
export const AFTER = `if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
echo 'plumb: now run "plumb install", which puts the plugins into /opt/cni/bin'
`
/**
 * What happens before a removal. `plumb uninstall` refuses it while pods live that plumb attached. The agent rests
 * meanwhile, because it may install the plugins again. BIRD outlives the agent's unit, and ends here.
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
if [ -d /run/systemd/system ]; then
  systemctl --quiet disable plumb-agent.service plumb-dhcp.socket plumb-dhcp.service || true
  systemctl stop 'plumb-bird-*.scope' || true
fi
`
/**
 * What follows an installation of `plumb-bgp`. The agent starts no BIRD beside another one. Debian's package starts one,
 * whose configuration has no peers. With a changed configuration the service stays.
 */
export const AFTER_BGP = `if [ -f /usr/share/bird2/bird.conf ]; then
  if cmp -s /usr/share/bird2/bird.conf /etc/bird/bird.conf; then
    systemctl --quiet disable bird.service || true
    if [ -d /run/systemd/system ]; then systemctl stop bird.service || true; fi
    echo 'plumb-bgp: disabled bird.service, whose configuration nobody changed: the agent runs a BIRD of its own'
  else
    echo 'plumb-bgp: left bird.service, whose configuration /etc/bird/bird.conf is yours: the agent runs no BIRD beside it' >&2
  fi
fi
`
