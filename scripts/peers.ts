import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { execa } from 'execa'
import { install } from './packages.ts'
import { unpackSource } from './sources.ts'

const CACHE = process.env['PLUMB_PEERS'] ?? '/var/cache/plumb/peers'
const CNITOOL = '1.3.0'
/** The release of the reference plugins that plumb is compared with. */
export const PLUGINS = '1.9.1'
const FLANNEL = '0.28.9'
const CONTAINERD = '2.3.4'
const CRITEST = '1.36.0'
/** The newest cnitool whose source builds with the Go of Debian 12. It knows neither `status` nor `gc`. */
const DEBIAN_CNITOOL = '1.1.2'
const GO = { GOTOOLCHAIN: 'local', CGO_ENABLED: '0', GOFLAGS: '' }
const MAINS = [
  'main/loopback',
  'main/bridge',
  'main/ptp',
  'main/macvlan',
  'main/ipvlan',
  'main/vlan',
  'main/dummy',
  'main/tap',
  'main/host-device',
  'ipam/host-local',
  'ipam/static',
  'ipam/dhcp',
  'meta/portmap',
  'meta/firewall',
  'meta/bandwidth',
  'meta/tuning',
  'meta/sbr',
  'meta/vrf',
]

/**
 * Peers whose build takes minutes. Each is built only when the command names it, for example `bun scripts/peers.ts
 * flanneld`.
 */
const LONG: Readonly<
  Record<string, { readonly version: string; readonly folder: string; make(go: string, dir: string): Promise<void> }>
> = {
  flanneld: { version: FLANNEL, folder: `flannel-${FLANNEL}`, make: flannel },
  containerd: { version: CONTAINERD, folder: `containerd-${CONTAINERD}`, make: containerd },
  critest: { version: CRITEST, folder: `critest-${CRITEST}`, make: critestOf },
}

/** A program, or a directory of programs, to compare plumb with. */
export interface Peer {
  readonly path: string
  readonly version: string
}

/** The newest cnitool that was built. Undefined when none was built. */
export function cnitool(): Peer | undefined {
  return [CNITOOL, DEBIAN_CNITOOL]
    .map((version) => ({ version, path: join(CACHE, `cnitool-${version}`, 'cnitool') }))
    .find(({ path }) => existsSync(path))
}

/** The directories of reference plugins, newest first: the release that was built, and Debian's package. */
export function references(): Peer[] {
  const control = existsSync('/var/lib/dpkg/status') ? readFileSync('/var/lib/dpkg/status', 'utf8') : ''
  const debian =
    /^Package: containernetworking-plugins\n(?:.+\n)*?Version: ([\d.]+)/m.exec(control)?.[1] ?? 'of unknown version'
  return [
    { version: PLUGINS, path: join(CACHE, `bin-${PLUGINS}`) },
    { version: debian, path: '/usr/lib/cni' },
  ].filter(({ path }) => existsSync(join(path, 'bridge')))
}

/** flanneld. Undefined when it was not built. */
export function flanneld(): Peer | undefined {
  const path = join(CACHE, `flannel-${FLANNEL}`, 'flannel')
  return existsSync(path) ? { version: FLANNEL, path } : undefined
}

/** containerd 2. It speaks CNI 1.1. Undefined when it was not built. */
export function containerd2(): Peer | undefined {
  const path = join(CACHE, `containerd-${CONTAINERD}`)
  return existsSync(path) ? { version: CONTAINERD, path } : undefined
}

/** Kubernetes' own tests of container runtimes. Undefined when they were not built. */
export function critest(): Peer | undefined {
  const path = join(CACHE, `critest-${CRITEST}`, 'critest')
  return existsSync(path) ? { version: CRITEST, path } : undefined
}

/**
 * Builds the missing peers outside the checkout. A failed build is reported on stderr, and is no error. The tests that
 * need that peer are skipped, and say why.
 */
async function build(wanted: string | undefined): Promise<void> {
  const go = await modernGo()
  const long = Object.hasOwn(LONG, wanted ?? '') ? LONG[wanted ?? ''] : undefined
  if (long) {
    if (go) await attempt(`${wanted} ${long.version}`, long.folder, (dir) => long.make(go, dir))
    else process.stderr.write(`peers: cannot build ${wanted}: want Go 1.24 or newer\n`)
    return
  }
  if (go) {
    await attempt(`cnitool ${CNITOOL}`, `cnitool-${CNITOOL}`, (dir) =>
      goInstall(go, dir, [`github.com/containernetworking/cni/cnitool@v${CNITOOL}`]),
    )
    const modules = (mains: readonly string[]) =>
      mains.map((main) => `github.com/containernetworking/plugins/plugins/${main}@v${PLUGINS}`)
    await attempt(`the reference plugins ${PLUGINS}`, `bin-${PLUGINS}`, (dir) => goInstall(go, dir, modules(MAINS)))
    // An older folder may lack plugins that came into the list later. They are built into that folder.
    const made = join(CACHE, `bin-${PLUGINS}`)
    const late = existsSync(made) ? MAINS.filter((main) => !existsSync(join(made, basename(main)))) : []
    if (late.length > 0)
      await trying(`the reference plugins ${late.join(', ')}`, () => goInstall(go, made, modules(late)))
  }
  if (!cnitool())
    await attempt(`cnitool ${DEBIAN_CNITOOL} from Debian's source`, `cnitool-${DEBIAN_CNITOOL}`, fromDebian)
}

async function attempt(what: string, name: string, make: (dir: string) => Promise<void>): Promise<void> {
  const made = join(CACHE, name)
  if (existsSync(made)) return
  await trying(what, async () => {
    mkdirSync(CACHE, { recursive: true })
    const draft = mkdtempSync(join(CACHE, '.draft-'))
    try {
      await make(draft)
      renameSync(draft, made)
    } finally {
      rmSync(draft, { recursive: true, force: true })
    }
  })
}

async function trying(what: string, work: () => Promise<void>): Promise<void> {
  const started = performance.now()
  try {
    await work()
    process.stderr.write(`peers: built ${what} in ${Math.round((performance.now() - started) / 1000)} s\n`)
  } catch (cause) {
    const { stderr, message } = cause as Error & { stderr?: string }
    process.stderr.write(
      `peers: cannot build ${what}, its tests will be skipped: ${(stderr || message).trim().split('\n').slice(-3).join(' | ')}\n`,
    )
  }
}

// The reference plugins need Go 1.24. GOTOOLCHAIN=local keeps `go` from downloading another version of itself.
async function modernGo(): Promise<string | undefined> {
  for (const go of ['go', '/usr/local/go/bin/go']) {
    const { stdout } = await execa(go, ['env', 'GOVERSION'], { reject: false, env: { GOTOOLCHAIN: 'local' } })
    const [, minor] = /^go1\.(\d+)/.exec(stdout ?? '') ?? []
    if (Number(minor) >= 24) return go
  }
  return undefined
}

async function goInstall(go: string, dir: string, modules: readonly string[], env = {}): Promise<void> {
  for (const module of modules)
    await execa(go, ['install', '-trimpath', module], { env: { ...GO, GOBIN: dir, ...env }, cwd: dir })
}

// flannel's udp backend is in C. The module of one cloud's backend is not available everywhere. Where it is missing,
// flanneld is built without that backend.
async function flannel(go: string, dir: string): Promise<void> {
  const module = `github.com/flannel-io/flannel@v${FLANNEL}`
  const env = { ...GO, CGO_ENABLED: '1' }
  try {
    await goInstall(go, dir, [module], env)
  } catch {
    const { stdout } = await execa(go, ['mod', 'download', '-json', module], { env, cwd: dir })
    const source = join(dir, 'source')
    await execa('cp', ['-r', '--no-preserve=mode', JSON.parse(stdout).Dir, source])
    const main = join(source, 'main.go')
    writeFileSync(main, readFileSync(main, 'utf8').replace(/^.*\/backend\/tencentvpc"\n/m, ''))
    await execa(go, ['build', '-trimpath', '-o', join(dir, 'flannel'), '.'], { env, cwd: source })
    rmSync(source, { recursive: true })
  }
}

// Leaves out the snapshotters in C, because nothing here uses them.
async function containerd(go: string, dir: string): Promise<void> {
  const commands = ['containerd', 'ctr', 'containerd-shim-runc-v2'].map(
    (name) => `github.com/containerd/containerd/v2/cmd/${name}@v${CONTAINERD}`,
  )
  await goInstall(go, dir, commands, { GOFLAGS: '-tags=no_btrfs,no_devmapper,no_zfs' })
}

// critest is a program of tests. `go install` does not build such programs.
async function critestOf(go: string, dir: string): Promise<void> {
  const source = join(dir, 'source')
  mkdirSync(source)
  writeFileSync(join(source, 'go.mod'), `module peer\n\nrequire sigs.k8s.io/cri-tools v${CRITEST}\n`)
  await execa(go, ['test', '-trimpath', '-c', '-o', join(dir, 'critest'), 'sigs.k8s.io/cri-tools/cmd/critest'], {
    cwd: source,
    env: { ...GO, GOFLAGS: '-mod=mod' },
  })
  rmSync(source, { recursive: true })
}

async function fromDebian(dir: string): Promise<void> {
  await install([
    { name: 'golang-go', shows: 'go', why: 'to build cnitool' },
    { name: 'dpkg-dev', shows: 'dpkg-source', why: 'to unpack its source package' },
  ])
  const work = mkdtempSync(join(tmpdir(), 'plumb-cnitool-'))
  try {
    const source = join(work, 'gopath/src/github.com/containernetworking/cni')
    await unpackSource('golang-github-appc-cni', work, source)
    await execa('go', ['build', '-o', join(dir, 'cnitool'), './cnitool'], {
      cwd: source,
      env: { GO111MODULE: 'off', GOFLAGS: '', GOPATH: join(work, 'gopath') },
    })
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

if (import.meta.main) await build(process.argv[2])
