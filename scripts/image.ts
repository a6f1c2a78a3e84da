import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { parseArgs } from 'node:util'
import { gzipSync } from 'bun'
import { execa } from 'execa'
import { version } from '../package.json'
import { architecture, archive, sha256, sourceDate } from './archive.ts'
import { install } from './packages.ts'
import { unpack } from './unpack.ts'

// Makes an OCI image without docker: plumb, and the tools that it starts, with the libraries that they load. The same
// sources and packages give the same bytes.

const ROOT = join(import.meta.dir, '..')
const CACHE = process.env['PLUMB_IMAGE'] ?? '/var/cache/plumb/image'
/** Debian's packages with the tools that plumb starts. */
const PACKAGES = ['iproute2', 'nftables', 'conntrack', 'iptables', 'wireguard-tools', 'bird2']
/** Those tools. The names of iptables are links to two programs, one for each kind. */
const TOOLS = [
  '/sbin/ip',
  '/sbin/tc',
  '/sbin/bridge',
  '/usr/sbin/nft',
  '/usr/sbin/conntrack',
  '/usr/bin/wg',
  '/usr/sbin/bird',
  '/usr/sbin/xtables-nft-multi',
  '/usr/sbin/xtables-legacy-multi',
]
const IPTABLES = ['iptables', 'ip6tables'].flatMap((family) =>
  ['', '-nft', '-legacy'].flatMap((kind) => ['', '-save', '-restore'].map((verb) => `${family}${kind}${verb}`)),
)
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
const USERS = 'root:x:0:0:root:/root:/sbin/nologin\n'

/** Makes the image, and prints where it is. */
async function image(): Promise<void> {
  const { values } = parseArgs({ options: { out: { type: 'string' }, name: { type: 'string' } } })
  const name = values.name ?? `docker.io/library/plumb:${version}`
  const out = values.out ?? join(ROOT, `out/plumb-${version}-linux-${architecture()}.oci.tar`)
  const epoch = await sourceDate()
  await install([{ name: 'dpkg', shows: 'dpkg-deb', why: "npm run image unpacks Debian's packages with it" }])
  const packages = await withDependencies()
  const unpacked = join(CACHE, Bun.hash(packages.join(' ')).toString(16))
  if (!existsSync(unpacked)) {
    process.stderr.write(`image: downloading ${packages.length} packages of Debian to ${unpacked}\n`)
    await unpack(unpacked, packages)
  }
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    await fill(join(draft, 'root'), unpacked)
    await pack(draft, { name, epoch })
    mkdirSync(dirname(out), { recursive: true })
    await archive(join(draft, 'oci'), join(draft, 'image.tar'), epoch)
    cpSync(join(draft, 'image.tar'), `${out}.draft`)
    renameSync(`${out}.draft`, out)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  const digest = sha256(readFileSync(out))
  process.stdout.write(`${relative('.', out)}: ${name}, ${Math.round(statSync(out).size / 1e6)} MB, sha256:${digest}\n`)
}

// What Debian's packages need, with themselves, in one order.
async function withDependencies(): Promise<string[]> {
  const no = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map((one) => `--no-${one}`)
  const { stdout } = await execa('apt-cache', ['depends', '--recurse', ...no, ...PACKAGES])
  // Indented lines name a dependency, lines in angle brackets a virtual package.
  const names = stdout.split('\n').filter((line) => /^[a-z0-9]/.test(line))
  return [...new Set(names)]
    .filter(
      (one) => !/^(debconf|cdebconf|perl|dpkg|tar|install-info|gcc-12-base|libc-bin|libpam|passwd|login)/.test(one),
    )
    .sort()
}

async function fill(root: string, unpacked: string): Promise<void> {
  for (const dir of [
    'etc',
    'proc',
    'sys',
    'dev',
    'run',
    'tmp',
    'root',
    'var/lib',
    'usr/local/bin',
    'usr/sbin',
    'usr/bin',
    'usr/lib',
    'usr/lib64',
  ])
    mkdirSync(join(root, dir), { recursive: true })
  for (const dir of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${dir}`, join(root, dir))
  const copy = (path: string) => {
    const to = join(root, merged(path))
    mkdirSync(dirname(to), { recursive: true })
    // What the file is, and not a link to it.
    cpSync(realpathSync(join(unpacked, path)), to)
  }
  for (const tool of TOOLS) copy(tool)
  for (const library of await libraries(unpacked)) copy(library)
  for (const plugin of globSync('usr/lib/*/xtables/*.so', { cwd: unpacked })) copy(`/${plugin}`)
  for (const licence of globSync('usr/share/doc/*/copyright', { cwd: unpacked }))
    if (statSync(join(unpacked, licence), { throwIfNoEntry: false })?.isFile()) copy(`/${licence}`)
  for (const name of IPTABLES)
    symlinkSync(name.includes('-legacy') ? 'xtables-legacy-multi' : 'xtables-nft-multi', join(root, 'usr/sbin', name))
  cpSync(join(ROOT, 'dist/plumb'), join(root, 'usr/local/bin/plumb'))
  mkdirSync(join(root, 'usr/share/doc/plumb'), { recursive: true })
  cpSync(join(ROOT, 'LICENSE'), join(root, 'usr/share/doc/plumb/LICENSE'))
  cpSync(join(ROOT, 'native/NOTICE'), join(root, 'usr/share/doc/plumb/NOTICE'))
  writeFileSync(join(root, 'etc/passwd'), USERS)
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\n')
}

// The loader itself says what it would load, of the folder and of nothing else.
async function libraries(unpacked: string): Promise<string[]> {
  const [loader = ''] = globSync('{usr/,}lib64/ld-linux-*.so.*', { cwd: unpacked }).concat(
    globSync('lib/ld-linux-*.so.*', { cwd: unpacked }),
  )
  const [arch = ''] = globSync('{usr/,}lib/*-linux-gnu', { cwd: unpacked }).map((dir) => basename(dir))
  const dirs = [`lib/${arch}`, `usr/lib/${arch}`].map((dir) => join(unpacked, dir))
  const found = new Set<string>([`/${loader}`])
  const plugins = globSync('usr/lib/*/xtables/*.so', { cwd: unpacked }).map((one) => `/${one}`)
  for (const file of [...TOOLS, ...plugins, join(ROOT, 'dist/plumb')]) {
    const path = file.startsWith(ROOT) ? file : join(unpacked, file)
    const { stdout } = await execa(join(unpacked, loader), ['--library-path', dirs.join(':'), '--list', path])
    if (/not found/.test(stdout))
      throw new Error(`Cannot make the image: ${path} needs what no package has:\n${stdout}`)
    for (const [, library = ''] of stdout.matchAll(/=> (\S+)/g))
      if (library.startsWith(unpacked)) found.add(library.slice(unpacked.length))
  }
  return [...found].sort()
}

function merged(path: string): string {
  return /^\/(bin|sbin|lib|lib64)\//.test(path) ? `/usr${path}` : path
}

// The layout of an image (OCI image spec 1.1): blobs by their digest, an index, and a manifest.json for `docker load`.
async function pack(draft: string, { name, epoch }: { readonly name: string; readonly epoch: number }): Promise<void> {
  const oci = join(draft, 'oci')
  mkdirSync(join(oci, 'blobs/sha256'), { recursive: true })
  const layerTar = join(draft, 'layer.tar')
  await archive(join(draft, 'root'), layerTar, epoch)
  const bytes = readFileSync(layerTar)
  const blob = (data: Uint8Array, mediaType: string) => {
    const digest = sha256(data)
    writeFileSync(join(oci, 'blobs/sha256', digest), data)
    return { mediaType, digest: `sha256:${digest}`, size: data.length }
  }
  const json = (value: object, mediaType: string) => blob(Buffer.from(JSON.stringify(value)), mediaType)
  const layer = blob(gzipSync(bytes, { level: 6 }), 'application/vnd.oci.image.layer.v1.tar+gzip')
  const created = new Date(epoch * 1000).toISOString().replace('.000', '')
  const labels = {
    'org.opencontainers.image.title': 'plumb',
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.licenses': 'Apache-2.0',
    'org.opencontainers.image.description': 'The network of a Kubernetes node',
  }
  const config = json(
    {
      created,
      architecture: architecture(),
      os: 'linux',
      config: {
        Env: [`PATH=${PATH}`],
        Entrypoint: ['/usr/local/bin/plumb'],
        Cmd: ['agent'],
        WorkingDir: '/',
        Labels: labels,
      },
      rootfs: { type: 'layers', diff_ids: [`sha256:${sha256(bytes)}`] },
      history: [{ created, created_by: 'npm run image' }],
    },
    'application/vnd.oci.image.config.v1+json',
  )
  const manifest = json(
    { schemaVersion: 2, mediaType: 'application/vnd.oci.image.manifest.v1+json', config, layers: [layer] },
    'application/vnd.oci.image.manifest.v1+json',
  )
  const annotations = { 'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': version }
  writeFileSync(join(oci, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  writeFileSync(
    join(oci, 'index.json'),
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: [{ ...manifest, annotations }],
    }),
  )
  const path = (one: { digest: string }) => `blobs/${one.digest.replace(':', '/')}`
  writeFileSync(
    join(oci, 'manifest.json'),
    JSON.stringify([{ Config: path(config), RepoTags: [name], Layers: [path(layer)] }]),
  )
}

mkdirSync(CACHE, { recursive: true })
await image()
