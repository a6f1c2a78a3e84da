import { readdirSync, readFileSync, readlinkSync, realpathSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { has, locate, OWN_TOOLS } from '../../lib/os/exec.ts'
import { CniError, CODE } from '../../lib/text/errors.ts'
import { placeBytes } from './executables.ts'

/** The tools that plugins start. A plugin works without the last one. */
const TOOLS = ['ip', 'tc', 'bridge', 'nft', 'conntrack'] as const
/** Without these two no plugin works. */
const NEEDED = ['ip', 'nft'] as const

/**
 * Copies the tools of this machine, usually a container image, and the libraries that they load, to `binDir`. Plugins
 * use them on a node that has none. One rename of a link puts all of them in place. Files that are damaged are
 * replaced, each in one step. Returns the names of the tools, none when they were right already. Throws CniError 7 when
 * a needed tool is not here.
 */
export function installTools(binDir: string): string[] {
  const missing = missingTools()
  if (missing.length > 0) {
    const hint = 'plumb install --tools copies the tools of the image that it runs in (npm run image)'
    throw new CniError(CODE.config, `Cannot bring ${missing.join(' and ')}: this machine has none`, hint)
  }
  const names = TOOLS.filter(has)
  const loader = findLoader()
  const tools = names.map((name) => locate(name)[0] as string)
  const files = new Map([
    ['ld.so', loader],
    ...tools.map((path) => [`bin/${basename(path)}`, path] as const),
    ...librariesOf(loader, tools).map((path) => [`lib/${basename(path)}`, path] as const),
  ])
  const contents = [...files].map(([name, path]) => [name, readFileSync(realpathSync(path))] as const)
  const hash = new Bun.CryptoHasher('blake2b256')
  for (const [name, bytes] of contents) hash.update(name).update(bytes)
  const folder = `${OWN_TOOLS}-${hash.digest('hex').slice(0, 12)}`
  const [link, draft] = [`${binDir}/${folder}.link`, `${binDir}/${folder}`]
  // A power failure can leave files without their content.
  const lacking = contents.filter(([name, bytes]) => !hasContent(`${draft}/${name}`, bytes))
  if (linkOf(binDir) === folder && lacking.length === 0) return []
  try {
    for (const [name, bytes] of lacking) placeBytes(bytes, `${draft}/${name}`)
    // What a killed call left.
    rmSync(link, { force: true })
    symlinkSync(folder, link)
    renameSync(link, `${binDir}/${OWN_TOOLS}`)
  } catch (cause) {
    // Half of the tools would keep a full disk full.
    rmSync(link, { force: true })
    if (linkOf(binDir) !== folder) rmSync(draft, { recursive: true, force: true })
    throw cause
  }
  for (const old of foldersIn(binDir)) if (old !== folder) rmSync(`${binDir}/${old}`, { recursive: true, force: true })
  return names
}

/** Removes them, and returns the paths. With `dryRun` changes nothing. */
export function removeTools(binDir: string, dryRun: boolean): string[] {
  const names = [...(linkOf(binDir) === undefined ? [] : [OWN_TOOLS]), ...foldersIn(binDir)]
  const paths = names.map((name) => `${binDir}/${name}`)
  if (!dryRun) for (const path of paths) rmSync(path, { recursive: true, force: true })
  return paths
}

/** The needed tools that are neither on this node nor beside this executable. */
export function missingTools(): string[] {
  return NEEDED.filter((name) => !has(name))
}

/** The line that says how to install missing tools, by the distribution that a text of /etc/os-release names. */
export function adviceFor(missing: readonly string[], release = readRelease()): string {
  const [, how = 'install the packages iproute2 and nftables'] = ADVICE.find(([id]) => id.test(release)) ?? []
  const what = `this node has no ${missing.join(' and no ')}, so plugins cannot work`
  return `${what}: ${how}, or use plumb install --tools in the image`
}

const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/^ID(_LIKE)?=.*(debian|ubuntu)/m, 'apt-get install iproute2 nftables'],
  [/^ID(_LIKE)?=.*(fedora|rhel|centos|amzn)/m, 'dnf install iproute iproute-tc nftables'],
  [/^ID(_LIKE)?=.*suse/m, 'zypper install iproute2 nftables'],
  [/^ID(_LIKE)?=.*arch/m, 'pacman -S iproute2 nftables'],
  [/^ID(_LIKE)?=.*alpine/m, 'apk add iproute2 nftables'],
]

function readRelease(): string {
  try {
    return readFileSync('/etc/os-release', 'utf8')
  } catch {
    return ''
  }
}

// glibc's loader. Its place belongs to the ABI of the processor.
function findLoader(): string {
  const found = ['/lib64', '/lib'].flatMap((dir) =>
    namesIn(dir)
      .filter((name) => /^ld-linux-.*\.so\.\d+$/.test(name))
      .map((name) => `${dir}/${name}`),
  )
  if (found[0] === undefined)
    throw new CniError(CODE.config, 'Cannot bring tools: this machine has no loader of glibc (/lib64/ld-linux-*.so.*)')
  return found[0]
}

// The loader itself says what it would load.
function librariesOf(loader: string, tools: readonly string[]): string[] {
  const found = tools.flatMap((tool) => {
    const { stdout, success } = Bun.spawnSync([loader, '--list', tool], { stderr: 'ignore' })
    if (!success) throw new CniError(CODE.io, `Cannot bring ${tool}: ${loader} does not say which libraries it loads`)
    return [...stdout.toString().matchAll(/=> (\/\S+)/g)].map(([, path = '']) => path)
  })
  return [...new Set(found)].sort()
}

function hasContent(path: string, bytes: Buffer): boolean {
  try {
    return readFileSync(path).equals(bytes)
  } catch {
    return false
  }
}

function linkOf(binDir: string): string | undefined {
  try {
    return readlinkSync(`${binDir}/${OWN_TOOLS}`)
  } catch {
    return undefined
  }
}

function foldersIn(binDir: string): string[] {
  return namesIn(binDir).filter((name) => name.startsWith(`${OWN_TOOLS}-`))
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir)
  } catch {
    return []
  }
}
