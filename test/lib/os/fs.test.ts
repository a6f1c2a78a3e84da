// lane: quick
// Tests lib/os/fs.ts and lib/os/files.ts.
import assert from 'node:assert/strict'
import * as native from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { requireRoom } from '../../../lib/os/files.ts'
import { fs } from '../../../lib/os/fs.ts'

type Fs = typeof fs
const LONG = 'n'.repeat(300)
const NAMES = [
  'file',
  'empty',
  'folder',
  'folder/inner',
  'hollow',
  'link',
  'dangling',
  'loop',
  'none',
  'none/below',
  'file/below',
  'folder/',
  'ünï',
  LONG,
  'a\0b',
] as const
const BIG = 'ä€𝄞 '.repeat(9000)

/** `node:fs` under the names and shapes of plumb's own. */
const theirs: Fs = {
  ...fs,
  openSync: (path, flag, mode) =>
    native.openSync(path, flag === 'w' ? native.constants.O_WRONLY | native.constants.O_CREAT : flag, mode),
  closeSync: native.closeSync,
  fsyncSync: native.fsyncSync,
  readSync: (fd, into, from) => native.readSync(fd, into, 0, into.length, from ?? null),
  writeSync: (fd, text, offset) => native.writeSync(fd, text, offset),
  writeAllSync: (fd, text) => native.writeSync(fd, Buffer.from(text)),
  readFileSync: (path) => native.readFileSync(path, 'utf8'),
  readAllSync(fd, from = 0) {
    const all = Buffer.alloc(1 << 20)
    return all.subarray(0, native.readSync(fd, all, 0, all.length, from)).toString('utf8')
  },
  writeFileSync: (path, text, mode) => native.writeFileSync(path, text, { mode }),
  existsSync: native.existsSync,
  statSync(path) {
    const found = native.statSync(path, { bigint: true, throwIfNoEntry: false })
    return (
      found && {
        kind: found.isFile() ? 'file' : found.isDirectory() ? 'folder' : 'other',
        dev: found.dev,
        ino: found.ino,
        size: found.size,
        mtimeNs: found.mtimeNs,
      }
    )
  },
  statfsSync: (path) => native.statfsSync(path).type,
  endSync: (fd) => native.fstatSync(fd).size,
  readdirSync: (path) => native.readdirSync(path),
  readlinkSync: (path) => native.readlinkSync(path),
  mkdirSync: (path, mode) => void native.mkdirSync(path, { recursive: true, mode }),
  rmdirSync: native.rmdirSync,
  unlinkSync: native.unlinkSync,
  linkSync: native.linkSync,
  symlinkSync: native.symlinkSync,
  renameSync: native.renameSync,
  utimesSync: (path, at) => native.utimesSync(path, at, at),
  realpathSync: (path) => native.realpathSync(path),
  dirname,
}

/** What each call does with a path below a folder; what it answers, without what differs by chance. */
const CALLS: Readonly<Record<string, (sys: Fs, path: string, dir: string) => unknown>> = {
  existsSync: (sys, path) => sys.existsSync(path),
  statSync: (sys, path) => sys.statSync(path)?.kind,
  readFileSync: (sys, path) => sys.readFileSync(path),
  writeFileSync: (sys, path) => sys.writeFileSync(path, 'short', 0o600),
  'openSync r': opened('r'),
  'openSync r+': opened('r+'),
  'openSync a': opened('a'),
  'openSync w': opened('w'),
  'openSync wx': opened('wx'),
  statfsSync: (sys, path) => sys.statfsSync(path),
  readdirSync: (sys, path) => sys.readdirSync(path).sort(),
  readlinkSync: (sys, path) => sys.readlinkSync(path),
  mkdirSync: (sys, path) => sys.mkdirSync(path, 0o750),
  rmdirSync: (sys, path) => sys.rmdirSync(path),
  unlinkSync: (sys, path) => sys.unlinkSync(path),
  'linkSync to': (sys, path, dir) => sys.linkSync(`${dir}/file`, path),
  'linkSync from': (sys, path, dir) => sys.linkSync(path, `${dir}/new`),
  'symlinkSync as': (sys, path) => sys.symlinkSync('some where', path),
  'symlinkSync to': (sys, path, dir) => sys.symlinkSync(path, `${dir}/new`),
  'renameSync to': (sys, path, dir) => sys.renameSync(`${dir}/file`, path),
  'renameSync from': (sys, path, dir) => sys.renameSync(path, `${dir}/new`),
  utimesSync: (sys, path) => sys.utimesSync(path, 1_700_000_000.123_456_7),
  realpathSync: (sys, path) => sys.realpathSync(path),
}

function opened(flag: Parameters<Fs['openSync']>[1]) {
  return (sys: Fs, path: string): unknown => {
    const fd = sys.openSync(path, flag, 0o640)
    try {
      if (flag !== 'r') sys.writeAllSync(fd, 'xy')
      return flag === 'wx' || flag === 'a' || flag === 'w' ? sys.endSync(fd) : sys.readAllSync(fd, 0)
    } finally {
      sys.closeSync(fd)
    }
  }
}

function scene(): string {
  const dir = native.mkdtempSync(join(tmpdir(), 'plumb-fs-'))
  for (const folder of ['folder', 'hollow']) native.mkdirSync(join(dir, folder))
  for (const [name, text] of Object.entries({
    file: BIG,
    empty: '',
    'folder/inner': '\uFEFFwith a mark',
    ünï: '\x80 is no utf-8'.repeat(9),
  }))
    native.writeFileSync(join(dir, name), text, name === 'ünï' ? 'latin1' : 'utf8')
  for (const [name, target] of Object.entries({ link: 'file', dangling: 'nowhere', loop: 'loop' }))
    native.symlinkSync(target, join(dir, name))
  return dir
}

// What is in a folder: for each name what it is, its mode, its time where that was set, and its text.
function tree(dir: string): unknown {
  const names = native.readdirSync(dir)
  return [
    ...names,
    ...names
      .filter((name) => native.lstatSync(join(dir, name)).isDirectory())
      .flatMap((name) => native.readdirSync(join(dir, name)).map((inner) => join(name, inner))),
  ]
    .sort()
    .map((name) => {
      const { mode, nlink, mtimeMs } = native.lstatSync(join(dir, name))
      const text = native.lstatSync(join(dir, name)).isFile() ? Bun.hash(native.readFileSync(join(dir, name))) : ''
      return { name, mode, nlink, time: mtimeMs < 1_750_000_000_000 ? mtimeMs : 'now', text }
    })
}

function outcome(dir: string, work: () => unknown): unknown {
  try {
    const answer = work()
    return { answer: typeof answer === 'string' ? Bun.hash(answer.replaceAll(dir, 'DIR')) : answer }
  } catch (cause) {
    const { errno, code, syscall, message } = cause as NodeJS.ErrnoException
    return code === 'ERR_INVALID_ARG_VALUE'
      ? { code }
      : { errno, code, syscall, message: message.replaceAll(dir, 'DIR') }
  }
}

function played(sys: Fs, call: (sys: Fs, path: string, dir: string) => unknown, name: string): unknown {
  const dir = scene()
  try {
    const got = outcome(dir, () => call(sys, `${dir}/${name}`, dir))
    return { got, tree: tree(dir) }
  } finally {
    native.rmSync(dir, { recursive: true })
  }
}

describe('fs', () => {
  for (const [title, call] of Object.entries(CALLS))
    it(`${title} does, answers and refuses what node:fs does`, () => {
      for (const name of NAMES) assert.deepEqual(played(fs, call, name), played(theirs, call, name), name)
    })

  it('lists a folder of 5,000 names, and one of 200 that fill more than one answer of the kernel', () => {
    for (const count of [200, 5000]) {
      const dir = scene()
      for (let i = 0; i < count; i++) native.writeFileSync(join(dir, `${'x'.repeat(i % 200)}-${i}`), '')
      assert.deepEqual(fs.readdirSync(dir).sort(), native.readdirSync(dir).sort())
      native.rmSync(dir, { recursive: true })
    }
  })

  it('tells files apart as stat(2) does', () => {
    for (const path of ['/dev/null', '/usr', import.meta.path])
      assert.deepEqual(fs.statSync(path), theirs.statSync(path), path)
    // The kernel makes those of /proc and /sys again when nobody holds them: their time is when.
    for (const path of ['/proc/self/ns/net', '/sys/class/net/lo'])
      assert.deepEqual({ ...fs.statSync(path), mtimeNs: 0n }, { ...theirs.statSync(path), mtimeNs: 0n }, path)
  })

  it('is refused what the kernel refuses: no space, a read-only file, a file that is not open', () => {
    for (const sys of [fs, theirs]) {
      const full = sys.openSync('/dev/full', 'a')
      assert.throws(() => sys.writeAllSync(full, 'x'), { code: 'ENOSPC' })
      sys.closeSync(full)
      assert.throws(() => sys.openSync('/proc/version', 'wx'), { code: 'EEXIST' })
      assert.throws(() => sys.mkdirSync('/proc/plumb', 0o755), { code: 'ENOENT' })
      assert.throws(() => sys.closeSync(9999), { code: 'EBADF' })
      assert.throws(() => sys.endSync(9999), { code: 'EBADF' })
      assert.throws(() => sys.fsyncSync(9999), { code: 'EBADF' })
      assert.throws(() => sys.readSync(9999, new Uint8Array(1)), { code: 'EBADF' })
    }
  })

  it('writes a pipe and reads it to its end, however large the text', async () => {
    const child = Bun.spawn(['cat'], { stdin: 'pipe', stdout: 'pipe' })
    child.stdin.write(BIG)
    child.stdin.end()
    const file = join(scene(), 'copy')
    native.writeFileSync(file, await new Response(child.stdout).text())
    assert.equal(fs.readFileSync(file), BIG)
  })

  it('dirname is that of node:path', () => {
    for (const path of ['/a/b', '/a', 'a', 'a/b', '/', './x']) assert.equal(fs.dirname(path), dirname(path), path)
  })
})

describe('requireRoom()', () => {
  it('passes a file system that has no files without a name', () => {
    // procfs answers EOPNOTSUPP to O_TMPFILE, as 9p and NFS do.
    requireRoom('/proc')
  })
  it('passes a folder that takes files, and one that does not exist yet', () => {
    requireRoom(tmpdir())
    requireRoom(`${tmpdir()}/none/at/all`)
  })
})
