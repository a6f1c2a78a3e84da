import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join, normalize } from 'node:path'
import { Glob } from 'bun'

const ROOT = join(import.meta.dir, '..')
/** Rooms of the product, and what each may import from: rooms, then packages (`*` is any). */
const ROOMS: Readonly<Record<string, { rooms: readonly string[]; packages: readonly string[] }>> = {
  lib: { rooms: ['lib'], packages: ['valibot', 'jsonc-parser'] },
  plugins: { rooms: ['lib'], packages: ['valibot'] },
  agent: { rooms: ['lib', 'agent'], packages: ['*'] },
  cli: { rooms: ['lib', 'agent', 'cli', 'plugins'], packages: ['*'] },
}
/** Words that may stand in some files only: how the CNI path stays thin, and the kernel and the disk have one door each. */
const DOORS: readonly { readonly what: string; readonly rooms: readonly string[]; readonly word: RegExp; readonly except: Readonly<Record<string, string>> }[] = [
  {
    what: 'starts processes',
    rooms: ['lib', 'plugins'],
    word: /\bBun\.(spawn|spawnSync|\$)|child_process|\bspawn\(/,
    except: { 'lib/os/exec.ts': 'the one place', 'lib/os/libc.ts': 'posix_spawn', 'lib/runtime/invoke.ts': "the runtime's side, off the CNI path: it waits with a time limit and kills the whole group" },
  },
  {
    what: 'calls libc',
    rooms: ['lib', 'plugins', 'agent', 'cli'],
    word: /from ['"]bun:ffi['"]/,
    except: {
      'lib/os/libc.ts': 'the one place',
      'lib/os/sockets.ts': 'what it asks of sockets',
      'lib/os/datagram.ts': "systemd's socket: calls that a plugin has no use for",
      'lib/os/packets.ts': 'packet sockets: as little',
      'lib/os/echo.ts': "the agent's probes",
      'agent/node/memory-pages.ts': 'memory: as little',
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
      'lib/journal/shared.ts': 'who needs a shared thing: a folder per thing, symbolic links in it',
      'agent/node/executables.ts': 'our own program installed: hard links and copies',
      'cli/purge.ts': 'folders of state, with all that is in them',
      'lib/pools/owner-index.ts': "the index by owner: symbolic links, and the directory's time",
    },
  },
  { what: 'prints through console, which reports success on a closed stdout', rooms: ['lib', 'plugins', 'agent', 'cli'], word: /\bconsole\./, except: {} },
  { what: 'costs milliseconds at start', rooms: ['lib', 'plugins'], word: /['"](node:)?(crypto|child_process|http|https|os|util)['"]|process\.(stdin|stdout)|['"](execa|yaml|ip-address)['"]/, except: {} },
  { what: 'loads jsonc-parser', rooms: ['lib', 'plugins'], word: /['"]jsonc-parser['"]/, except: { 'lib/text/json-place.ts': "the runtime's side and the agent's: where a text stops being JSON" } },
  {
    what: 'loads node:fs or node:path, a millisecond and a third of one',
    rooms: ['lib', 'plugins'],
    word: /^import (?!type).*['"](node:)?(fs|path)['"]/,
    except: { 'lib/runtime/network-list.ts': "the runtime's side, off the CNI path", 'lib/runtime/cache.ts': "the runtime's side", 'lib/runtime/invoke.ts': "the runtime's side" },
  },
]

const files = [...new Glob('{lib,plugins,agent,cli,scripts,bench,test}/**/*.{ts,tsx}').scanSync({ cwd: ROOT })]
  .filter((name) => !name.includes('/generated/'))
  .sort()
  .map((name) => ({ name, room: name.slice(0, name.indexOf('/')), text: readFileSync(join(ROOT, name), 'utf8') }))
const product = files.filter(({ room }) => room in ROOMS)

describe('architecture', () => {
  it('a room imports only what stands below it, and test, bench and scripts are imported by none', () => {
    const wrong = product.flatMap(({ name, room, text }) =>
      imports(text)
        .filter((from) => !allowed(name, room, from))
        .map((from) => `${name} imports ${from}`),
    )
    assert.deepEqual(wrong, [])
  })

  for (const { what, rooms, word, except } of DOORS) {
    it(`nothing in ${rooms.join(', ')} ${what}${Object.keys(except).length > 0 ? `, except ${Object.keys(except).join(', ')}` : ''}`, () => {
      const found = product.filter(({ name, room }) => rooms.includes(room) && !(name in except)).flatMap(({ name, text }) => lines(code(text), word).map((line) => `${name}:${line}`))
      assert.deepEqual(found, [])
      for (const name of Object.keys(except)) assert.ok(word.test(code(read(name))), `${name} is excepted for nothing`)
    })
  }

  it('every export of the product has a doc comment', () => {
    const bare = product.filter(({ name }) => !name.endsWith('.d.ts')).flatMap(({ name, text }) => exported(text).flatMap(({ line, documented }) => (documented ? [] : `${name}:${line}`)))
    assert.deepEqual(bare, [])
  })

  it('every plugin has a test and a sample in conf/', () => {
    const samples = [...new Glob('conf/**/*.{conf,conflist}').scanSync({ cwd: ROOT })].flatMap((name) => types(JSON.parse(read(name))))
    const tests = files.map(({ name }) => /([^/]+)\.test\.ts$/.exec(name)?.[1])
    const plugins = files.flatMap(({ name }) => /^plugins\/(?!index\.)([^/]+)\.ts$/.exec(name)?.[1] ?? [])
    assert.ok(plugins.length > 0)
    assert.deepEqual({ untested: plugins.filter((name) => !tests.includes(name)), unsampled: plugins.filter((name) => !samples.includes(name)) }, { untested: [], unsampled: [] })
  })

  it('package-lock.json names no place to download from and every optional package, and every dependency is pinned', () => {
    assert.doesNotMatch(read('package-lock.json'), /"resolved": "https?:/)
    // npm writes none for packages that the registry at hand does not have, and `npm ci` then refuses the whole file.
    const locked: Record<string, { optionalDependencies?: object }> = JSON.parse(read('package-lock.json')).packages
    const missing = Object.values(locked).flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies).filter((name) => !locked[`node_modules/${name}`]))
    assert.deepEqual(missing, [])
    const { dependencies, devDependencies } = JSON.parse(read('package.json'))
    for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies })) assert.match(version as string, /^\d+\.\d+\.\d+$/, name)
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
  return [...code(text).matchAll(/(?:^|\s|\()(?:from|import)\s*\(?\s*(['"`])([^'"`\n]+)\1/gm)].map((match) => match[2] as string)
}

function allowed(name: string, room: string, from: string): boolean {
  if (/^(node|bun):/.test(from) || from === 'bun' || (/^cli\/(index|agent)\.ts$/.test(name) && from === '../package.json') || (name.startsWith('cli/demo/') && /^\.\.\/\.\.\/conf\/(bridge|flannel)\.conflist$/.test(from))) return true
  const { rooms, packages } = ROOMS[room] as { rooms: readonly string[]; packages: readonly string[] }
  if (!from.startsWith('.')) return packages.includes('*') || packages.includes(from)
  const to = normalize(join(name, '..', from)).split('/')[0] as string
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

function types(conf: { type?: string; ipam?: { type?: string }; plugins?: { type?: string; ipam?: { type?: string } }[] }): (string | undefined)[] {
  return [conf, ...(conf.plugins ?? [])].flatMap((one) => [one.type, one.ipam?.type])
}
