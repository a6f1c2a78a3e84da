import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'

/** What lies below some folders: by path the text of a file, `-> TARGET` of a symbolic link, `/` of a folder. */
export type Files = ReadonlyMap<string, string>

/** What power losses may leave. */
export interface Losses {
  readonly states: readonly Loss[]
  /** The texts that an fsync has made safe: a file that holds one of them is whole. */
  readonly whole: ReadonlySet<string>
}
/** What a disk holds after a power loss, and when that was. */
export interface Loss {
  readonly files: Files
  /** The call before which the power went, and what was lost. */
  readonly when: string
}

/** A file's data, and the part of it that is on the disk whatever happens. */
interface Inode {
  data: string
  safe: string
}
type Names = Map<string, Inode | string>
/** One change of names: a file system may keep it in memory for seconds. */
type Change = (names: Names) => void

/** Reads what lies there. */
export function readFiles(dirs: readonly string[]): Files {
  return new Map(dirs.flatMap((dir) => [[dir, '/'] as const, ...below(dir)]))
}

/** Puts that instead of all that lies there. */
export function writeFiles(dirs: readonly string[], files: Files): void {
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true })
  // Folders come before what is in them.
  for (const [path, what] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (what === '/') mkdirSync(path, { recursive: true })
    else if (what.startsWith('-> ')) symlinkSync(what.slice(3), path)
    else writeFileSync(path, what, 'latin1')
  }
}

/**
 * Every state that a power loss before, between and after these calls may leave, each once. Names: in order, up to the
 * call; or only those that an fsync has made safe; or all but one of the others. Data: what an fsync has made safe, and
 * the rest missing or as many zeros. `lines` is what strace printed, with paths for file descriptors.
 */
export function losses(before: Files, lines: readonly string[], dirs: readonly string[]): Losses {
  const found = new Map<string, Loss>()
  const disk = new Disk(before)
  const seen = (when: string) => {
    for (const [how, files] of disk.left()) {
      const key = JSON.stringify([...files].sort())
      if (!found.has(key)) found.set(key, { files, when: `${when}: ${how}` })
    }
  }
  for (const line of lines) {
    if (!dirs.some((dir) => line.includes(`${dir}/`) || line.includes(`"${dir}"`)) || / = -1 /.test(line)) continue
    seen(`before ${line}`)
    disk.take(line)
  }
  seen('at the end')
  return { states: [...found.values()], whole: disk.whole }
}

// A small file system with a journal: names come and go in order, data reaches the disk with its file's fsync, and no
// sooner; that commits all names.
class Disk {
  #safe: Names
  #now: Names
  #pending: Change[] = []
  readonly #offsets = new Map<string, number>()
  readonly whole = new Set<string>()

  constructor(files: Files) {
    this.#safe = new Map(
      [...files].map(([path, what]) => [
        path,
        what === '/' || what.startsWith('-> ') ? what : { data: what, safe: what },
      ]),
    )
    this.#now = new Map(this.#safe)
  }

  /** What may be left, each with a word for it. */
  left(): [string, Files][] {
    const some = this.#pending.map((_, i): [string, Names] => [
      `the change of a name, ${i + 1} of ${this.#pending.length}, is lost`,
      this.#with(this.#pending.filter((_, k) => k !== i)),
    ])
    const all: [string, Names][] = [['names are there', this.#now], ['names are lost', this.#safe], ...some]
    return all.flatMap(([how, names]): [string, Files][] => [
      [`${how}, data is not`, texts(names, ({ safe }) => safe)],
      [`${how}, data is zeros`, texts(names, ({ data, safe }) => (data === safe ? safe : '\0'.repeat(data.length)))],
    ])
  }

  take(line: string): void {
    const [, name = '', args = ''] = /^(\w+)\((.*)\) += \d+/.exec(line) ?? []
    const paths = [...args.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => plain(text as string))
    const [one = '', two = ''] = paths
    const file = /^\d+<([^>]*)>/.exec(args)?.[1] ?? ''
    const inode = this.#now.get(file)
    if (/^(open|openat|creat)$/.test(name)) this.#open(line, one)
    else if (/^p?write/.test(name) && typeof inode === 'object') this.#write(file, inode, one, args)
    else if (name === 'ftruncate' && typeof inode === 'object')
      inode.data = inode.data.slice(0, Number(/(\d+)$/.exec(args)?.[1]))
    else if (/^fd?a?t?a?sync$/.test(name)) this.#sync(inode)
    else if (/^symlink/.test(name)) this.#change((names) => void names.set(two, `-> ${one}`))
    else if (/^link/.test(name)) this.#change((names) => copy(names, one, two))
    else if (/^rename/.test(name)) this.#change((names) => copy(names, one, two) && names.delete(one))
    else if (/^(unlink|rmdir)/.test(name)) this.#change((names) => void names.delete(one))
    else if (/^mkdir/.test(name)) this.#change((names) => void names.set(one, '/'))
  }

  #open(line: string, path: string): void {
    if (!this.#now.has(path) && /O_CREAT/.test(line)) {
      const made = { data: '', safe: '' }
      this.#change((names) => void names.set(path, made))
    }
    const inode = this.#now.get(path)
    if (typeof inode === 'object' && /O_TRUNC/.test(line)) inode.data = ''
    this.#offsets.set(path, 0)
  }

  #write(path: string, inode: Inode, text: string, args: string): void {
    const at = Number(/^.*", \d+, (\d+)$/.exec(args)?.[1] ?? this.#offsets.get(path) ?? 0)
    inode.data = inode.data.slice(0, at) + text + inode.data.slice(at + text.length)
    this.#offsets.set(path, at + text.length)
  }

  #sync(inode: Inode | string | undefined): void {
    if (typeof inode === 'object') {
      inode.safe = inode.data
      this.whole.add(inode.data)
    }
    this.#safe = new Map(this.#now)
    this.#pending = []
  }

  #change(change: Change): void {
    change(this.#now)
    this.#pending.push(change)
  }

  #with(changes: readonly Change[]): Names {
    const names = new Map(this.#safe)
    for (const change of changes) change(names)
    return names
  }
}

// Of a name that was lost there is nothing to copy.
function copy(names: Names, from: string, to: string): boolean {
  const what = names.get(from)
  if (what !== undefined) names.set(to, what)
  return what !== undefined
}

function texts(names: Names, of: (inode: Inode) => string): Files {
  // What lies in a folder that is lost is lost, too.
  const all = new Map([...names].map(([path, what]) => [path, typeof what === 'string' ? what : of(what)]))
  const top = new Set([...all.keys()].filter((path) => !all.has(dirname(path)) && all.get(path) === '/'))
  return new Map([...all].filter(([path]) => top.has(path) || all.has(dirname(path))))
}

function plain(text: string): string {
  const named: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', v: '\v', f: '\f' }
  return text.replace(/\\([0-7]{1,3}|.)/g, (_, what: string) =>
    /^\d/.test(what) ? String.fromCharCode(Number.parseInt(what, 8)) : (named[what] ?? what),
  )
}

function below(dir: string): [string, string][] {
  return readdirSync(dir).flatMap((name): [string, string][] => {
    const path = join(dir, name)
    const stat = lstatSync(path)
    if (stat.isSymbolicLink()) return [[path, `-> ${readlinkSync(path)}`]]
    if (stat.isDirectory()) return [[path, '/'], ...below(path)]
    return stat.isFile() ? [[path, readFileSync(path, 'latin1')]] : []
  })
}
