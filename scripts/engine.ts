// Makes the executable of the plugins: the small engine (native/), and the bytecode of plugins/ and of what it imports.
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join, normalize } from 'node:path'
import { transformSync } from 'amaro'
import { execa } from 'execa'
import { install, type Need } from './packages.ts'

const ROOT = join(import.meta.dir, '..')
const NATIVE = join(ROOT, 'native')
/** Where the sources of the engine and what was compiled of them are kept. */
export const CACHE = process.env['PLUMB_ENGINE'] ?? '/var/cache/plumb/engine'
const PIN = join(NATIVE, 'requirements.txt')
const RELEASE = join(NATIVE, 'engine.sha256')
const SOURCES = ['quickjs', 'dtoa', 'libregexp', 'libunicode']
// The same text and flags give the same bytes: no path and no time goes into them.
const FLAGS = [
  '-O2',
  '-DNDEBUG',
  '-D_GNU_SOURCE',
  '-ffunction-sections',
  '-fdata-sections',
  '-fno-asynchronous-unwind-tables',
  // A write past its place ends the process. A distribution's compiler may have its own default.
  '-fstack-protector-strong',
  '-U_FORTIFY_SOURCE',
  '-D_FORTIFY_SOURCE=3',
]
/**
 * The profile of the engine, by architecture: how often each branch of its sources is taken in calls of plugins
 * (scripts/profile.ts, docs/decisions/0046). gcc lays the code out by it. Without a profile it compiles as usual.
 */
export const PROFILES = join(NATIVE, 'profile')
const PROFILED = ['-fprofile-use', '-Wmissing-profile', '-Wno-error=coverage-mismatch']
// What gcc says when a profile does not fit, or was made by another version of gcc.
const MISFIT = /\[-W(?:coverage-mismatch|missing-profile)\]|\.gcda.* is version /
// The engine's callbacks have parameters that not every function needs.
const OURS =
  '-Wall -Wextra -Wno-unused-parameter -Wshadow -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wpointer-arith -Werror'.split(
    ' ',
  )
// The executable has no position-independent code: the frozen heap has addresses in it (native/heap.c).
const LINK = [
  '-static',
  '-no-pie',
  '-s',
  '-Wl,--gc-sections,--build-id=none,--wrap=gettimeofday',
  '-Wl,-z,separate-code,-z,relro,-z,now,-z,noexecstack',
]
// A build that counts. A call ends by _exit, and native/counting.c writes the counts before that.
const COUNTING = ['-fprofile-generate', '-fprofile-update=single']
const COUNTING_LINK = ['-fprofile-generate', '-Wl,--wrap=_exit', join(NATIVE, 'counting.c')]
/** Assembler for a list of no modules, and the bytes of a heap that is only its header. */
const [NO_MODULES, EMPTY_HEAP_BYTES] = ['.byte 0', 64]
/** The executable of the plugins has the second file instead of the first. */
const REPLACED: Readonly<Record<string, string>> = { 'lib/os/door.ts': 'lib/os/door-engine.ts' }
const GLOBALS = 'native/globals.ts'

/** The architecture of an executable, by its name in Node's `process.arch`. */
export type Arch = 'x64' | 'arm64'

/** The packages that make the executable of the plugins. */
export const NEEDS: readonly Need[] = [
  { name: 'gcc', shows: 'gcc', why: 'the engine of the plugins is compiled with it' },
  { name: 'libc6-dev', shows: '/usr/include/stdio.h', why: 'the same' },
  {
    name: 'python3-pip',
    shows: '/usr/lib/python3/dist-packages/pip',
    why: "the engine's sources are downloaded with it",
  },
  {
    name: 'python3-setuptools',
    shows: '/usr/lib/python3/dist-packages/setuptools',
    why: 'pip reads a source package with it',
  },
]

/** The packages that compile for the other architecture. */
export const CROSS: Readonly<Record<Arch, readonly Need[]>> = {
  x64: [
    {
      name: 'gcc-x86-64-linux-gnu',
      shows: 'x86_64-linux-gnu-gcc',
      why: 'the engine of the plugins is compiled for x86-64 with it',
    },
    { name: 'libc6-dev-amd64-cross', shows: '/usr/x86_64-linux-gnu/include/stdio.h', why: 'the same' },
  ],
  arm64: [
    {
      name: 'gcc-aarch64-linux-gnu',
      shows: 'aarch64-linux-gnu-gcc',
      why: 'the engine of the plugins is compiled for arm64 with it',
    },
    { name: 'libc6-dev-arm64-cross', shows: '/usr/aarch64-linux-gnu/include/stdio.h', why: 'the same' },
  ],
}

/** Room for the heap of the first link (native/heap.c). */
const HEAP_ROOM_BYTES = 16 << 20

/**
 * Compiles the executable of the plugins to a file. Installs what that needs, and keeps what it compiled in a cache.
 * Freezes its heap, which another architecture's executable does under `emulator`, the path of qemu's program. Without
 * it, or with `isPlain`, the executable holds the bytecode instead. With `counts`, a folder, the executable adds to the
 * profile there what each call does. Throws Error.
 */
export async function compilePlugins(
  to: string,
  names: readonly string[],
  arch: Arch,
  { emulator, isPlain = false, counts }: { emulator?: string; isPlain?: boolean; counts?: string } = {},
): Promise<void> {
  await install([...NEEDS, ...(arch === process.arch ? [] : CROSS[arch])])
  const source = await engineSource()
  const objects = counts
    ? (await compileEngine(source, counts, arch, COUNTING)).objects
    : await engineObjects(source, arch)
  const bytecode = await bytecodeCompiler(source)
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    const modules = modulesOf(names)
    const inputs = [...modules].map(([name, text], i) => {
      writeFileSync(join(draft, `${i}.js`), text)
      return `${name}=${join(draft, `${i}.js`)}`
    })
    await execa(bytecode, [join(draft, 'modules'), ...inputs])
    const { cc } = tools(arch)
    for (const name of ['host', 'heap'])
      await execa(cc, [...FLAGS, ...OURS, '-isystem', source, '-c', join(NATIVE, `${name}.c`), '-o', `${name}.o`], {
        cwd: draft,
      })
    const link = async (heap: string, modules: string) => {
      writeFileSync(join(draft, 'content.S'), contentOf(heap, modules))
      await execa(cc, ['-c', 'content.S', '-o', 'content.o'], { cwd: draft })
      const parts = ['host.o', 'heap.o', ...objects, 'content.o', '-lm', '-lpthread']
      await execa(cc, [...LINK, ...(counts ? COUNTING_LINK : []), '-o', 'plugins', ...parts], { cwd: draft })
    }
    const freeze = async () => {
      const [program, args] = [join(draft, 'plugins'), [join(draft, 'heap'), join(draft, 'modules')]]
      if (emulator) await execa(emulator, ['-0', 'freeze', program, ...args], { extendEnv: false })
      else await execa(program, args, { argv0: 'freeze', extendEnv: false })
      return statSync(join(draft, 'heap')).size
    }
    if (isPlain || (arch !== process.arch && !emulator)) await link(`.fill ${EMPTY_HEAP_BYTES}`, '.incbin "modules"')
    else {
      // native/heap.c says why three times.
      await link(`.fill ${HEAP_ROOM_BYTES}`, NO_MODULES)
      await link(`.fill ${await freeze()}`, NO_MODULES)
      await freeze()
      await link('.incbin "heap"', NO_MODULES)
    }
    renameSync(join(draft, 'plugins'), to)
  } catch (cause) {
    throw new Error(
      `Cannot make the executable of the plugins: ${(cause as { stderr?: string; stdout?: string }).stderr || (cause as { stdout?: string }).stdout || (cause as Error).message}`,
      { cause },
    )
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

/** What the executable of the plugins is made of, beside plugins/ and lib/. */
export function engineFiles(): string[] {
  const native = readdirSync(NATIVE, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
  return [...native.map(({ parentPath, name }) => join(parentPath, name)).sort(), import.meta.path]
}

/** The npm packages that the executable of these plugins holds parts of. */
export function packagesOf(names: readonly string[]): string[] {
  const paths = [...modulesOf(names).keys()].filter((name) => !existsSync(join(ROOT, name)))
  return [...new Set(paths.map((path) => /^(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? path))].sort()
}

// The heap and the modules as native/host.c finds them.
function contentOf(heap: string, modules: string): string {
  return `.data\n.balign 4096\n.global heap\nheap: ${heap}\nend:\n.section .rodata\n.global heap_size, linked_modules\n.balign 8\nheap_size: .quad end-heap\nlinked_modules: ${modules}\n.section .note.GNU-stack,"",%progbits\n`
}

function tools(arch: Arch): { readonly cc: string } {
  return { cc: arch === process.arch ? 'gcc' : arch === 'arm64' ? 'aarch64-linux-gnu-gcc' : 'x86_64-linux-gnu-gcc' }
}

// The folder of the engine's C sources. pip checks the hash of the package, which a third party makes.
async function engineSource(): Promise<string> {
  const folder = join(CACHE, `source-${hashOf(readFileSync(PIN))}`)
  const source = join(folder, 'upstream-quickjs')
  if (!existsSync(folder)) await downloadSource(folder)
  compareWithRelease(source, readFileSync(RELEASE, 'utf8'))
  return source
}

/**
 * Removes the files of a folder that `release` does not list. Throws Error when a listed file is missing or differs.
 * `release` is a text as sha256sum writes it, with comments.
 */
export function compareWithRelease(folder: string, release: string): void {
  const wanted = new Map([...release.matchAll(/^([0-9a-f]{64}) {2}(\S+)$/gm)].map(([, hash, name]) => [name, hash]))
  for (const name of readdirSync(folder)) if (!wanted.has(name)) rmSync(join(folder, name), { recursive: true })
  for (const [name = '', hash] of wanted) {
    const path = join(folder, name)
    const found = existsSync(path) ? new Bun.CryptoHasher('sha256').update(readFileSync(path)).digest('hex') : 'no file'
    if (found !== hash)
      throw new Error(`Cannot use ${path}: it has ${found}, want ${hash} as in the engine's release (${RELEASE})`)
  }
}

async function downloadSource(folder: string): Promise<void> {
  process.stderr.write(
    `build: downloading the engine of the plugins to ${CACHE} (quickjs-ng, pinned in native/requirements.txt)\n`,
  )
  mkdirSync(CACHE, { recursive: true })
  const draft = mkdtempSync(join(CACHE, '.draft-'))
  try {
    const pip = [
      '-m',
      'pip',
      'download',
      '--quiet',
      '--disable-pip-version-check',
      '--no-deps',
      '--no-binary',
      ':all:',
      '--no-build-isolation',
      '--require-hashes',
      '-d',
      draft,
      '-r',
      PIN,
    ]
    await execa('/usr/bin/python3', pip, { cwd: draft })
    const archive = readdirSync(draft).find((file) => file.endsWith('.tar.gz')) ?? ''
    mkdirSync(join(draft, 'unpacked'))
    await execa('tar', ['-xzf', archive, '-C', 'unpacked', '--strip-components=1', '--no-same-owner'], { cwd: draft })
    renameSync(join(draft, 'unpacked'), folder)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

// The compiled engine. This takes most of a minute, once for each architecture.
async function engineObjects(source: string, arch: Arch): Promise<string[]> {
  const folder = await objectsFolder(source, arch)
  if (!existsSync(folder)) {
    process.stderr.write(`build: compiling the engine of the plugins for ${arch} (once; kept in ${CACHE})\n`)
    const draft = mkdtempSync(join(CACHE, '.draft-'))
    try {
      for (const [name, counts] of profileOf(arch)) writeFileSync(join(draft, name), counts)
      const { objects, misfits } = await compileEngine(source, draft, arch, profileOf(arch).size > 0 ? PROFILED : [])
      const kept = join(draft, 'kept')
      mkdirSync(kept)
      for (const object of objects) renameSync(object, join(kept, basename(object)))
      writeFileSync(join(kept, MISFITS), misfits)
      renameSync(kept, folder)
    } finally {
      rmSync(draft, { recursive: true, force: true })
    }
  }
  const misfits = readFileSync(join(folder, MISFITS), 'utf8')
  if (misfits)
    process.stderr.write(
      `build: native/profile does not fit the engine for ${arch}: ${misfits}. The plugins work, and take more CPU. Make it again: node_modules/.bin/bun scripts/profile.ts\n`,
    )
  return SOURCES.map((name) => join(folder, `${name}.o`))
}

const MISFITS = 'misfits'

/**
 * Where the profile does not fit the engine as this machine's gcc compiles it, in words. Empty when it fits. The engine
 * must have been compiled.
 */
export async function profileMisfits(): Promise<string> {
  return readFileSync(join(await objectsFolder(await engineSource(), process.arch as Arch), MISFITS), 'utf8')
}

// The files of an architecture's profile.
function profileOf(arch: Arch): ReadonlyMap<string, Uint8Array> {
  const folder = join(PROFILES, arch)
  const names = existsSync(folder) ? readdirSync(folder).sort() : []
  return new Map(names.map((name) => [name, readFileSync(join(folder, name))]))
}

async function objectsFolder(source: string, arch: Arch): Promise<string> {
  const { stdout: compiler } = await execa(tools(arch).cc, ['--version'])
  const parts = [source, compiler, [...FLAGS, ...PROFILED].join(' '), ...profileOf(arch).values()]
  return join(CACHE, `objects-${arch}-${hashOf(...parts)}`)
}

// Compiles a copy of the engine's sources in a folder. gcc puts the paths of sources and objects into a profile. So they
// are the same in each folder.
async function compileEngine(
  source: string,
  folder: string,
  arch: Arch,
  more: readonly string[],
): Promise<{ objects: string[]; misfits: string }> {
  cpSync(source, folder, { recursive: true })
  const said = await Promise.all(SOURCES.map((name) => compileProfiled(tools(arch).cc, folder, name, more)))
  return { objects: SOURCES.map((name) => join(folder, `${name}.o`)), misfits: said.filter(Boolean).join(', ') }
}

/**
 * Compiles NAME.c of a folder to NAME.o there, with the profile NAME.gcda beside it. Returns where the profile does not
 * fit, in words. That is no failure: where gcc refuses the profile, the file is compiled without it. Throws Error when
 * gcc refuses the source.
 */
export async function compileProfiled(
  cc: string,
  folder: string,
  name: string,
  more: readonly string[] = PROFILED,
): Promise<string> {
  const compile = (flags: readonly string[], reject: boolean) =>
    execa(cc, [...FLAGS, ...flags, '-c', `${name}.c`, '-o', `${name}.o`], { cwd: folder, env: { LC_ALL: 'C' }, reject })
  const { stderr, exitCode } = await compile(more, more !== PROFILED)
  if (exitCode !== 0) {
    await compile([], true)
    return `${name}.c: gcc refuses its profile`
  }
  const misfits = stderr.split('\n').filter((line) => MISFIT.test(line))
  const other = misfits.map((line) => / is version (.+)$/.exec(line)?.[1]).find(Boolean)
  if (other) return `${name}.c: its profile is of another gcc, ${other}`
  return misfits.length > 0 ? `${name}.c: gcc warns ${misfits.length} times` : ''
}

async function bytecodeCompiler(source: string): Promise<string> {
  const main = join(NATIVE, 'bytecode.c')
  const made = join(CACHE, `bytecode-${hashOf(source, readFileSync(main), FLAGS.join(' '))}`)
  if (existsSync(made)) return made
  const objects = await engineObjects(source, process.arch as Arch)
  const draft = `${made}.${process.pid}`
  await execa(tools(process.arch as Arch).cc, [
    ...FLAGS,
    ...OURS,
    '-isystem',
    source,
    main,
    ...objects,
    '-lm',
    '-lpthread',
    '-o',
    draft,
  ])
  renameSync(draft, made)
  return made
}

// The modules by name, sorted: JavaScript in which each token keeps its line, so that an error names the line of the
// source.
function modulesOf(names: readonly string[]): Map<string, string> {
  const [texts, wanted, packages] = [
    new Map<string, string>(),
    [GLOBALS, 'plugins/index.ts', ...names.map((name) => `plugins/${name}.ts`)],
    new Map<string, Set<string>>(),
  ]
  const scanner = new Bun.Transpiler({ loader: 'js' })
  for (const name of wanted) {
    if (texts.has(name)) continue
    const source = readFileSync(join(ROOT, REPLACED[name] ?? name), 'utf8')
    // `import … with { type: 'text' }`
    if (!name.endsWith('.ts')) {
      texts.set(name, `export default ${JSON.stringify(source)}`)
      continue
    }
    const { code } = transformSync(source, { mode: 'strip-only' })
    texts.set(name, name === 'plugins/index.ts' ? `const PLUGINS=${JSON.stringify(names)};${code}` : code)
    for (const { path } of scanner.scan(code).imports) {
      if (path.startsWith('.')) wanted.push(normalize(join(dirname(name), path)))
      else packages.set(path, new Set([...(packages.get(path) ?? []), ...usedOf(code, path, name)]))
    }
  }
  for (const [path, used] of packages) texts.set(path, bundled(path, [...used].sort()))
  return new Map([...texts].sort(([one], [other]) => (one < other ? -1 : 1)))
}

// The names that a module takes of a package: `import * as v` with `v.NAME`, or `import { NAME }`.
function usedOf(code: string, path: string, name: string): string[] {
  const quoted = path.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
  const [, all, some] =
    new RegExp(`import\\s+(?:\\*\\s+as\\s+(\\w+)|\\{([^}]*)\\})\\s+from\\s+'${quoted}'`).exec(code) ?? []
  if (all !== undefined)
    return [...code.matchAll(new RegExp(`\\b${all}\\.(\\w+)`, 'g'))].map(([, used]) => used as string)
  if (some !== undefined)
    return some
      .split(',')
      .map((one) => one.trim().split(/\s+as\s+/)[0] as string)
      .filter(Boolean)
  throw new Error(`Cannot tell what ${name} takes of ${path}: want import * as NAME, or import { NAMES }`)
}

// A module of the used parts of an npm package.
function bundled(path: string, used: readonly string[]): string {
  const draft = mkdtempSync(join(CACHE, '.bundle-'))
  try {
    const entry = join(ROOT, 'node_modules', `.plumb-entry-${process.pid}.js`)
    writeFileSync(entry, `export { ${used.join(', ')} } from '${path}'\n`)
    try {
      const { exitCode, stderr } = Bun.spawnSync(
        [
          process.execPath,
          'build',
          '--target=browser',
          '--format=esm',
          '--minify',
          '--outfile',
          join(draft, 'out.js'),
          entry,
        ],
        { cwd: ROOT },
      )
      if (exitCode !== 0) throw new Error(`Cannot bundle ${path}: ${stderr.toString()}`)
    } finally {
      rmSync(entry, { force: true })
    }
    return readFileSync(join(draft, 'out.js'), 'utf8')
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

function hashOf(...parts: readonly (string | Uint8Array)[]): string {
  const hash = new Bun.CryptoHasher('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest('hex').slice(0, 16)
}
