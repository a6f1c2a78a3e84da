// lane: quick
// Tests the order of all rooms: lib, agent, plugins, cli.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { Glob } from 'bun'
import { needsOf, testFiles } from './lanes.ts'

const ROOT = join(import.meta.dir, '..')
/** Rooms of the product, and what each may import from: rooms, then packages (`*` is any). */
const ROOMS: Readonly<Record<string, { rooms: readonly string[]; packages: readonly string[] }>> = {
  lib: { rooms: ['lib'], packages: ['valibot', 'jsonc-parser', '@noble/hashes/sha2.js', '@noble/hashes/utils.js'] },
  plugins: { rooms: ['lib'], packages: ['valibot'] },
  agent: { rooms: ['lib', 'agent'], packages: ['*'] },
  cli: { rooms: ['lib', 'agent', 'cli', 'plugins'], packages: ['*'] },
}
/**
 * The rooms within lib, agent and cli, from the ground up: each imports what stands before it. What stands in none of them
 * is above them all.
 */
const FLOORS: Readonly<Record<string, readonly string[]>> = {
  lib: [
    'text',
    'os',
    'cni',
    'state/kinds',
    'journal',
    'nft',
    'state',
    'pools',
    'wiring',
    'takeover',
    'verbs',
    'runtime',
  ],
  agent: [
    'scheduler',
    'cluster',
    'lease',
    'settings',
    'node',
    'store',
    'kernel',
    'backend',
    'firewall',
    'fast-path',
    'policy',
    'services',
    'bgp',
    'state',
    'doctor',
    'telemetry',
    'page',
    'http',
    'parts',
    'dhcp',
  ],
  cli: ['trace', 'connectivity', 'sysdump', 'fleet'],
}
/**
 * Words of all rooms of lib: what a resource, a result and a plugin is. Their types may be named below them, too, where
 * nothing of them is run.
 */
const VOCABULARY = /^lib\/(state\/(kinds\/\w+|resource|handler|batch)|cni\/(plugin|result))\.ts$/
/**
 * Words that may stand in some files only: how the CNI path stays thin, and the kernel and the disk have one door each.
 */
const DOORS: readonly {
  readonly what: string
  readonly rooms: readonly string[]
  readonly word: RegExp
  readonly except: Readonly<Record<string, string>>
}[] = [
  {
    what: 'starts processes',
    rooms: ['lib', 'plugins'],
    word: /\bBun\.(spawn|spawnSync|\$)|child_process|\bspawn\(/,
    except: {
      'lib/os/exec.ts': 'the one place',
      'lib/os/libc.ts': 'posix_spawn',
      'lib/runtime/invoke.ts':
        "the runtime's side, off the CNI path: it waits with a time limit and kills the whole group",
    },
  },
  {
    what: 'calls libc',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /from ['"]bun:ffi['"]/,
    except: {
      'lib/os/door.ts': 'the one place',
      'agent/node/garbage.ts': 'memory: as little',
    },
  },
  {
    what: 'writes to open files',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /\b(writeSync|writeAllSync|writevSync|ftruncateSync|futimesSync|fsyncSync|fdatasyncSync)\b/,
    except: {
      'lib/os/fs.ts': 'the calls themselves',
      'lib/os/files.ts': 'the one place',
      'lib/os/sysctls.ts': 'files below /proc/sys, which is no disk',
      'lib/os/drop-reasons.ts': 'files below /sys/kernel/tracing, which is no disk',
      'lib/os/log.ts': 'stderr',
      'lib/os/stdout.ts': 'stdout',
      'lib/os/exec.ts': 'the input of tools',
      'agent/node/executables.ts': 'a copy of our own program, before it is in place',
      'lib/runtime/invoke.ts': 'stderr of the plugins it calls',
      'cli/output.ts': 'stdout and stderr',
    },
  },
  {
    what: 'changes the file system',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /\b(writeFileSync|appendFileSync|mkdirSync|mkdtempSync|renameSync|unlinkSync|rmSync|rmdirSync|linkSync|symlinkSync|truncateSync|chmodSync|chownSync|copyFileSync|cpSync|utimesSync)\b|\bBun\.write\b|fs\/promises|\bopenSync\([^)]*, ['"`][^r'"`]/,
    except: {
      'lib/os/fs.ts': 'the calls themselves',
      'lib/os/files.ts': 'the one place',
      'lib/runtime/cache.ts': "makes libcni's folders, 0700",
      'lib/pools/reservations.ts': "host-local's last_reserved_ip, written in place",
      'lib/os/turns.ts': 'the file that says who is at work, made on first use',
      'lib/os/drop-reasons.ts': 'folders below /sys/kernel/tracing, which is no disk',
      'lib/journal/shared.ts': 'who needs a shared thing: a folder per thing, symbolic links in it',
      'agent/node/executables.ts': 'our own program installed: hard links and copies',
      'agent/node/own-tools.ts': 'a folder of tools and libraries, put in place by one rename',
      'cli/purge.ts': 'folders of state, with all that is in them',
      'cli/policy-pairs.ts': '/proc/self/oom_score_adj, which is no disk',
      'lib/pools/owner-index.ts': "the index by owner: symbolic links, and the directory's time",
    },
  },
  {
    what: 'takes the address of an array, which garbage collection does not know of',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /\b(ptr|pointerTo)\(/,
    except: {
      'lib/os/door.ts': 'the door itself',
      'lib/os/door-engine.ts': 'the same',
      'lib/os/libc.ts': 'argv and envp: the texts are returned with their addresses',
      'lib/os/sockets.ts': 'an ethtool request: what it points to is read after the call',
      'lib/os/packet-filter.ts': 'the program of a filter, which is read within the call',
      'lib/os/drop-reasons.ts': 'the paths of a mount, which are read within the call',
    },
  },
  {
    what: 'prints through console, which reports success on a closed stdout',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /\bconsole\./,
    except: {},
  },
  {
    what: 'costs milliseconds at start',
    rooms: ['lib', 'plugins'],
    word: /['"](node:)?(crypto|child_process|http|https|os|util)['"]|process\.(stdin|stdout)|['"](execa|yaml|ip-address)['"]/,
    except: {},
  },
  {
    what: 'loads jsonc-parser',
    rooms: ['lib', 'plugins'],
    word: /['"]jsonc-parser['"]/,
    except: { 'lib/text/json-place.ts': "the runtime's side and the agent's: where a text stops being JSON" },
  },
  {
    what: 'loads node:fs or node:path, a millisecond and a third of one',
    rooms: ['lib', 'plugins'],
    word: /^import (?!type).*['"](node:)?(fs|path)['"]/,
    except: {
      'lib/runtime/network-list.ts': "the runtime's side, off the CNI path",
      'lib/runtime/cache.ts': "the runtime's side",
      'lib/runtime/invoke.ts': "the runtime's side",
    },
  },
]

/** The first words of command lines in tests, and calls that give a program's place, by what they need. */
const PROGRAMS: Readonly<Record<string, RegExp>> = {
  bird: /\[['"](?:bird|birdc)['"],/,
  dhcp: /\[['"](?:dnsmasq|udhcpd|dhcpd)['"],/,
  reference: /\breferences\(\)|\bhasPlugin\(/,
  podman: /\[\s*['"]podman['"],/,
  containerd: /'containerd'\),\n/,
  firewalld: /\[['"]dbus-daemon['"],/,
  browser: /\bCHROMIUM\b/,
  packages: /'rpmbuild'/,
  musl: /\bmusl\(\)/,
  systemd: /spawn\(\['\/lib\/systemd\//,
  etcd: /['"]\/usr\/bin\/etcd['"]/,
}

const files = [...new Glob('{lib,plugins,agent,cli,scripts,bench,test}/**/*.{ts,tsx}').scanSync({ cwd: ROOT })]
  .filter((name) => !name.includes('/generated/'))
  .sort()
  .map((name) => ({ name, room: name.slice(0, name.indexOf('/')), text: readFileSync(join(ROOT, name), 'utf8') }))
const product = files.filter(({ room }) => room in ROOMS)

describe('architecture', () => {
  it('a test file says its lane and then which room it tests, and names files that exist', () => {
    const wrong = testFiles(ROOT).flatMap(({ path: name }) => {
      const [, first = ''] = readFileSync(join(ROOT, name), 'utf8')
        .replace(/^\/\/ needs: .*\n/m, '')
        .split('\n')
      const named = first.match(/\b(?:agent|cli|conf|docs|lib|plugins|scripts|test)\/[\w./-]*\w/g) ?? []
      return first.startsWith('// Tests ') && named.every((one) => existsSync(join(ROOT, one)))
        ? []
        : [`${name}: ${first}`]
    })
    assert.deepEqual(wrong, [])
  })
  it('a quick test needs nothing but the packages of npm', () => {
    const quick = testFiles(ROOT).filter(({ lane }) => lane === 'quick')
    assert.deepEqual(
      quick.flatMap((file) => [...needsOf(ROOT, [file])].map((need) => `${file.name}: ${need}`)),
      [],
    )
  })
  it('a file that starts a program which not every lane has says that it needs it', () => {
    const wrong = files
      .filter(({ name }) => name.startsWith('test/') && name !== 'test/architecture.test.ts')
      .flatMap(({ name, text }) =>
        Object.entries(PROGRAMS)
          .filter(([need, word]) => word.test(code(text)) && !needsOf(ROOT, [{ path: name }]).has(need))
          .map(([need]) => `${name}: ${need}`),
      )
    assert.deepEqual(wrong, [])
  })
  it('no title of a test has a label of a list that is not here', () => {
    const label = /(['"`])(?:\[(?!DR)[A-Z]{1,4} ?\d+\w*\]|(?:NP|SV|BE|PG)\d+ )/
    const wrong = files
      .filter(({ name }) => name.startsWith('test/'))
      .flatMap(({ name, text }) => lines(text, label).map((line) => `${name}:${line}`))
    assert.deepEqual(wrong, [])
  })

  it('what tests draw at random has a seed that a failure prints: no Math.random, and fast-check by test/support/properties.ts', () => {
    const wrong = files
      .filter(
        ({ name }) =>
          name.startsWith('test/') &&
          !name.startsWith('test/architecture') &&
          !/^test\/support\/(seed|properties)\.ts$/.test(name),
      )
      .flatMap(({ name, text }) =>
        lines(code(text), /\bMath\.random\b|['"]fast-check['"]/).map((line) => `${name}:${line}`),
      )
    assert.deepEqual(wrong, [])
  })

  it('a room imports only what stands below it, and test, bench and scripts are imported by none', () => {
    const wrong = product.flatMap(({ name, room, text }) =>
      imports(text)
        .filter((from) => !allowed(name, room, from))
        .map((from) => `${name} imports ${from}`),
    )
    assert.deepEqual(wrong, [])
  })

  it('within lib, agent and cli imports go down from room to room', () => {
    const wrong = product.flatMap(({ name, text }) =>
      imported(text).flatMap(({ from, isType }) => {
        const to = normalize(join(name, '..', from))
        const [floor, other] = [floorOf(name), floorOf(to)]
        return !from.startsWith('.') ||
          other === undefined ||
          floor === undefined ||
          dirname(name).split('/')[0] !== to.split('/')[0] ||
          floor >= other ||
          (isType && VOCABULARY.test(to))
          ? []
          : [`${name} imports ${to}`]
      }),
    )
    assert.deepEqual(wrong, [])
  })

  it('what a plugin loads uses no global of Bun or Node: the small engine has the language, TextEncoder, TextDecoder and performance.now, and no Math.random, whose seed is frozen', () => {
    const GLOBAL =
      /(?<![.\w'"`$/-])(Bun|process|Buffer|global|require|console|setTimeout|setInterval|setImmediate|clearTimeout|queueMicrotask|structuredClone|fetch|URL|crypto|AbortController|AbortSignal|Intl|WebAssembly|navigator|Math\.random)\b(?=[.(])/
    const wrong = [...loaded()].flatMap((name) => {
      const code = readFileSync(join(ROOT, name), 'utf8').replace(/\/\*[\s\S]*?\*\/|(?<![:'"`])\/\/.*/g, '')
      const found = code
        .split('\n')
        .filter(
          (line) => GLOBAL.test(line) || /from ['"](bun|node):/.test(line) || /\bperformance\.(?!now\(\))/.test(line),
        )
      return found.map((line) => `${name}: ${line.trim()}`)
    })
    assert.deepEqual(wrong, [])
  })

  it('the door of the small engine exports what the door of Bun exports', () => {
    const names = (file: string) =>
      [
        ...readFileSync(join(ROOT, 'lib/os', file), 'utf8').matchAll(
          /^export (?:const|function) (?:\{ ([^}]*) \}|(\w+))/gm,
        ),
      ]
        .flatMap(([, list, name]) => list?.split(', ') ?? [name])
        .sort()
    assert.deepEqual(names('door-engine.ts'), names('door.ts'))
  })

  it('no file imports itself by way of others, not even by types', () => {
    assert.deepEqual(circles(true), [])
  })

  for (const { what, rooms, word, except } of DOORS) {
    it(`nothing in ${rooms.join(', ')} ${what}${Object.keys(except).length > 0 ? `, except ${Object.keys(except).join(', ')}` : ''}`, () => {
      const found = product
        .filter(({ name, room }) => rooms.includes(room) && !(name in except))
        .flatMap(({ name, text }) => lines(code(text), word).map((line) => `${name}:${line}`))
      assert.deepEqual(found, [])
      for (const name of Object.keys(except)) assert.ok(word.test(code(read(name))), `${name} is excepted for nothing`)
    })
  }

  it('every export of the product has a doc comment', () => {
    const bare = product
      .filter(({ name }) => !name.endsWith('.d.ts'))
      .flatMap(({ name, text }) =>
        exported(text).flatMap(({ line, documented }) => (documented ? [] : `${name}:${line}`)),
      )
    assert.deepEqual(bare, [])
  })

  it('every plugin has a test and a sample in conf/', () => {
    const samples = [...new Glob('conf/**/*.{conf,conflist}').scanSync({ cwd: ROOT })].flatMap((name) =>
      types(JSON.parse(read(name))),
    )
    const tests = files.map(({ name }) => /([^/]+)\.test\.ts$/.exec(name)?.[1])
    const plugins = files.flatMap(({ name }) => /^plugins\/(?!index\.)([^/]+)\.ts$/.exec(name)?.[1] ?? [])
    assert.ok(plugins.length > 0)
    assert.deepEqual(
      {
        untested: plugins.filter((name) => !tests.includes(name)),
        unsampled: plugins.filter((name) => !samples.includes(name)),
      },
      { untested: [], unsampled: [] },
    )
  })

  it('package-lock.json names no place to download from and every optional package, and every dependency is pinned', () => {
    assert.doesNotMatch(read('package-lock.json'), /"resolved": "https?:/)
    // npm writes none for packages that the registry at hand does not have, and `npm ci` then refuses the whole file.
    const locked: Record<string, { optionalDependencies?: object }> = JSON.parse(read('package-lock.json')).packages
    const missing = Object.values(locked).flatMap(({ optionalDependencies = {} }) =>
      Object.keys(optionalDependencies).filter((name) => !locked[`node_modules/${name}`]),
    )
    assert.deepEqual(missing, [])
    const { dependencies, devDependencies } = JSON.parse(read('package.json'))
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies }))
      assert.match(version as string, /^\d+\.\d+\.\d+$/, name)
  })
})

function read(name: string): string {
  return existsSync(join(ROOT, name)) ? readFileSync(join(ROOT, name), 'utf8') : ''
}

// Comments may name what code may not.
function code(text: string): string {
  return text.replace(/^\s*\/\/.*$/gm, '').replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ''))
}

function lines(text: string, word: RegExp): string[] {
  return text.split('\n').flatMap((line, i) => (word.test(line) ? `${i + 1}: ${line.trim()}` : []))
}

function imports(text: string): string[] {
  return [...code(text).matchAll(/(?:^|\s|\()(?:from\s+|import\s*\(?\s*)(['"`])([^'"`\n]+)\1/gm)].map(
    (match) => match[2] as string,
  )
}

// How high the room of a file is; undefined for one that is no file of lib, agent or cli.
function floorOf(name: string): number | undefined {
  const [top = '', ...rest] = name.split('/')
  const floors = FLOORS[top]
  if (!floors) return undefined
  if (top === 'lib' && /^state\/(resource|handler|batch)\.ts$/.test(rest.join('/')))
    return floors.indexOf('state/kinds')
  const found = floors.findLastIndex(
    (floor) =>
      rest.join('/').startsWith(`${floor}/`) &&
      !floors.some((other) => other.length > floor.length && rest.join('/').startsWith(`${other}/`)),
  )
  return found < 0 ? floors.length : found
}

function imported(text: string): { readonly from: string; readonly isType: boolean }[] {
  return [...code(text).matchAll(/^(?:import|export) (type )?[^'"\n]*?from '([^']+)'/gm)].map(([, type, from]) => ({
    from: from as string,
    isType: type !== undefined,
  }))
}

// Groups of files that all reach each other (Tarjan), with imports of types or without.
function circles(withTypes: boolean): string[][] {
  const names = new Set(product.map(({ name }) => name))
  const edges = new Map(
    product.map(({ name, text }) => [
      name,
      imported(text).flatMap(({ from, isType }) =>
        (isType && !withTypes ? [] : [normalize(join(name, '..', from))]).filter((to) => names.has(to)),
      ),
    ]),
  )
  const [order, lowest, stack, found] = [
    new Map<string, number>(),
    new Map<string, number>(),
    [] as string[],
    [] as string[][],
  ]
  function visit(name: string): void {
    order.set(name, order.size)
    lowest.set(name, order.get(name) as number)
    stack.push(name)
    for (const to of edges.get(name) ?? []) {
      if (!order.has(to)) visit(to)
      if (stack.includes(to)) lowest.set(name, Math.min(lowest.get(name) as number, lowest.get(to) as number))
    }
    if (lowest.get(name) !== order.get(name)) return
    const circle = stack.splice(stack.indexOf(name))
    if (circle.length > 1) found.push(circle)
  }
  for (const name of names) if (!order.has(name)) visit(name)
  return found
}

function allowed(name: string, room: string, from: string): boolean {
  if (
    /^(node|bun):/.test(from) ||
    from === 'bun' ||
    (/^cli\/(index|agent|sysdump|fleet-list)\.ts$/.test(name) && from === '../package.json') ||
    (name.startsWith('cli/demo/') && /^\.\.\/\.\.\/conf\/(bridge|flannel)\.conflist$/.test(from))
  )
    return true
  const { rooms, packages } = ROOMS[room] as { rooms: readonly string[]; packages: readonly string[] }
  if (!from.startsWith('.')) return packages.includes('*') || packages.includes(from)
  const to = normalize(join(name, '..', from)).split('/')[0] as string
  // `plumb demo kubernetes` starts the cluster that the tests start.
  if (/^cli\/demo(\/kubernetes)?\.ts$/.test(name) && normalize(join(name, '..', from)) === 'tools/k8s/lab.ts')
    return true
  // The entry picks a file by the name that the program was called with.
  return rooms.includes(to) || (name === 'plugins/index.ts' && to in ROOMS)
}

function exported(text: string): { line: number; documented: boolean }[] {
  const rows = text.split('\n')
  return rows.flatMap((row, i) => {
    // What a plugin is says its own `about`.
    if (!row.startsWith('export ') || row.startsWith('export default definePlugin(')) return []
    const above = rows.slice(0, i).findLast((other) => !/^\/\/ biome-ignore/.test(other)) ?? ''
    return [{ line: i + 1, documented: above.trimEnd().endsWith('*/') }]
  })
}

function types(conf: {
  type?: string
  ipam?: { type?: string }
  plugins?: { type?: string; ipam?: { type?: string } }[]
}): (string | undefined)[] {
  return [conf, ...(conf.plugins ?? [])].flatMap((one) => [one.type, one.ipam?.type])
}

/** The files that the plugins' executable has, except the two doors. */
function loaded(): Set<string> {
  const found = new Set([...new Glob('plugins/*.ts').scanSync({ cwd: ROOT })])
  for (const name of found) {
    if (name.endsWith('.nft')) continue
    const text = readFileSync(join(ROOT, name), 'utf8')
    for (const [, from = ''] of text.matchAll(/^(?:import (?!type )|export )[^']*?from '(\.[^']+)'/gms))
      if (from) found.add(normalize(join(name, '..', from)))
    for (const [, from = ''] of text.matchAll(/import\('(\.[^']+)'\)/g)) found.add(normalize(join(name, '..', from)))
  }
  found.delete('lib/os/door.ts')
  return found
}
