// This folder is the access to the system: files, locks, namespaces, links, netlink, nftables, and external tools such
// as ip, nft and tc. Begin with `run` in this file. Then read libc.ts and fs.ts for the calls without a subprocess.
import { CniError, CODE, ExecError } from '../text/errors.ts'
import type { Ip } from '../text/ip.ts'
import type { Netns } from '../text/values.ts'
import { announce, announceByKernel } from './announcement.ts'
import { remaining } from './deadline.ts'
import { executable, libc, sleep } from './door.ts'
import { fs } from './fs.ts'
import { type Child, spawn, wait } from './libc.ts'
import { addressesNow } from './link-addresses.ts'
import { type Ending, endingOf, listenerOf } from './link-removal.ts'
import { isLink } from './link-state.ts'
import { forwards, linkIn } from './links.ts'
import { inside } from './netns.ts'
import { chainUses, isThere, ruleCounts, setNames } from './nftables.ts'
import type { Output, Run } from './run.ts'
import { type Listener, linkState } from './sockets.ts'
import { span } from './spans.ts'
import { busyFile } from './turns.ts'

// Fixed directories, the most likely first. A tool never comes from the caller's PATH.
const TOOLS = ['/usr/sbin', '/sbin', '/usr/bin', '/bin', '/usr/local/sbin', '/usr/local/bin']
const ENV = [`PATH=${TOOLS.join(':')}`, 'LC_ALL=C']
const PACKAGE: Readonly<Record<string, string>> = {
  ip: 'iproute2',
  bridge: 'iproute2',
  tc: 'iproute2',
  nft: 'nftables',
  wg: 'wireguard-tools',
  'dbus-send': 'dbus-bin',
}
/** The limit in ms for a tool that hung before. The undo must not wait for it the full time again. */
const AGAIN_MS = 2000
const SIGKILL = 9

/** A tool that was started. `listener` is the socket that listens to the kernel from the tool's start. */
interface Started extends Child {
  /** Ends the span of the tool. */
  readonly ended: () => void
  readonly listener?: Listener | undefined
}
/** A tool that has its input. `ending` tells that its work is done before the tool ends. */
interface Working extends Child {
  readonly ended: () => void
  readonly ending?: Ending | undefined
}

// Tools that were started early. `ready`: tools that wait for their input and do nothing without it. `working`: tools
// that have their input.
const ready = new Map<string, Started>()
const working = new Map<string, Working>()
const hung = new Set<string>()

/**
 * Starts a tool in a namespace and waits for its end. Uses no shell, the C locale and a fixed PATH, and passes no other
 * environment. `prepare` starts a tool early. `feed` also gives it its input. Both let the tool run beside other work.
 * Throws CniError 5 when the tool is not installed, and 11 when the time of the call is over (lib/os/deadline.ts).
 */
export const run: Run = Object.assign(
  async (argv: readonly string[], stdin: string, ns: Netns = 'host'): Promise<Output> => {
    const key = `${ns} ${argv.join(' ')}`
    return collect(taken(working, `${key} ${stdin}`) ?? put(key, argv, stdin, ns), argv)
  },
  {
    prepare(argv: readonly string[], ns: Netns = 'host') {
      const key = `${ns} ${argv.join(' ')}`
      if (!ready.has(key)) ready.set(key, begin(argv, ns))
    },
    feed(argv: readonly string[], stdin: string, ns: Netns = 'host') {
      const key = `${ns} ${argv.join(' ')}`
      if (!working.has(`${key} ${stdin}`)) working.set(`${key} ${stdin}`, put(key, argv, stdin, ns))
    },
    running: (name: string, limitMs: number) => linkState(name, limitMs) === 'running',
    forwards,
    announce: (link: string, addresses: readonly Ip[], ns: Netns) => inside(ns, () => announce(link, addresses)),
    announceByKernel: (link: string, ns: Netns) => inside(ns, () => announceByKernel(link)),
    link: isLink,
    seen: linkIn,
    held: addressesNow,
    rules: () => ruleCounts('inet', 'plumb'),
    uses: () => chainUses('inet', 'plumb'),
    hasTable: () => isThere('inet', 'plumb'),
    sets: () => setNames('inet', 'plumb'),
  },
)

/** Starts another CNI plugin. The plugin shares this process's stderr (CNI spec "Section 4: Plugin Delegation"). */
export async function runPlugin(file: string, env: Readonly<Record<string, string>>, stdin: string): Promise<Output> {
  const vars = Object.entries(env).map(([key, value]) => `${key}=${value}`)
  const ended = span(file.slice(file.lastIndexOf('/') + 1), [file])
  // It may leave a process behind that must not hold the lock of the call (lib/os/turns.ts).
  return collect({ ...fed(start(file, [file], vars, true, []), stdin, [file]), ended }, [file])
}

/** Whether a tool is installed, for work that is not needed without the tool. */
export function has(name: string): boolean {
  return TOOLS.some((dir) => fs.existsSync(`${dir}/${name}`)) || ownTool(name) !== undefined
}

/**
 * Finds a tool on the node, else in the folder that `plumb install --tools` made. Returns the words that start it. The
 * first word is the path of an executable file. Throws CniError 5 when the tool is not installed.
 */
export function locate(name: string): readonly string[] {
  const dir = TOOLS.find((one) => fs.existsSync(`${one}/${name}`))
  if (dir !== undefined) return [`${dir}/${name}`]
  const own = ownTool(name)
  if (!own)
    throw new CniError(
      CODE.io,
      `Cannot run ${name}: it is not installed`,
      `looked in ${TOOLS.join(', ')}; install the package ${PACKAGE[name] ?? name}, or use plumb install --tools`,
    )
  return own
}

function put(key: string, argv: readonly string[], stdin: string, ns: Netns): Working {
  const child = taken(ready, key) ?? begin(argv, ns)
  const ending = endingOf(argv, stdin, ns, child)
  const { ended } = child
  return { ...fed(child, stdin, argv), ending, ended }
}

function begin(argv: readonly string[], ns: Netns): Started {
  const [name = '', ...rest] = argv
  const words = locate(name)
  return inside(ns, () => {
    const [listener, ended] = [listenerOf(argv), span(name, argv)]
    return {
      ...start(words[0] as string, [...words, ...rest], ENV, false, [busyFile(), listener?.fd ?? -1]),
      listener,
      ended,
    }
  })
}

function start(
  file: string,
  argv: readonly string[],
  env: readonly string[],
  ownStderr: boolean,
  inherited: readonly number[],
): Child {
  try {
    return spawn(file, argv, env, ownStderr, inherited)
  } catch (cause) {
    throw new ExecError(argv, undefined, `cannot be started: ${(cause as Error).message}`, { cause })
  }
}

function taken<T>(from: Map<string, T>, key: string): T | undefined {
  const child = from.get(key)
  from.delete(key)
  return child
}

function collect({ pid, stdout, stderr, ending, ended }: Working, argv: readonly string[]): Output {
  try {
    const started = performance.now()
    const status = wait(pid, limitOf(argv), ending)
    if (status === undefined) throw killed(pid, argv, started)
    return { status, stdout: contentOf(stdout), stderr: stderr < 0 ? '' : contentOf(stderr) }
  } finally {
    ended()
    ending?.close()
    fs.closeSync(stdout)
    if (stderr >= 0) fs.closeSync(stderr)
  }
}

function killed(pid: number, argv: readonly string[], since: number): CniError {
  hung.add(argv[0] ?? '')
  libc().kill(pid, SIGKILL)
  wait(pid, AGAIN_MS)
  return new CniError(
    CODE.tryLater,
    `Cannot wait for ${argv.join(' ')}: it was killed after ${Math.round((performance.now() - since) / 1000)} s`,
  )
}

function limitOf([tool = '']: readonly string[]): number {
  return hung.has(tool) ? Math.min(AGAIN_MS, remaining()) : remaining()
}

// A pipe holds 64 kB, and a tool that hangs reads nothing. So the writes have a time limit.
function fed(child: Child, input: string, argv: readonly string[]): Child {
  try {
    const bytes = new TextEncoder().encode(input)
    const started = performance.now()
    const until = started + limitOf(argv)
    for (let done = 0; done < bytes.length; ) {
      const more = written(child.stdin, bytes, done)
      if (more === 0 && performance.now() >= until) throw killed(child.pid, argv, started)
      if (more === 0) sleep(1)
      done += more
    }
  } catch (cause) {
    // A tool may end without reading all its input. Its exit status tells the reason.
    if ((cause as NodeJS.ErrnoException).code !== 'EPIPE') throw cause
  } finally {
    fs.closeSync(child.stdin)
  }
  return child
}

function written(fd: number, bytes: Uint8Array, from: number): number {
  try {
    return fs.writeSync(fd, bytes, from)
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EAGAIN') return 0
    throw cause
  }
}

/** The whole content of a file, whatever its current offset is. */
export function contentOf(fd: number): string {
  return fs.readAllSync(fd, 0, fs.endSync(fd) + 1)
}

/**
 * The folder of the tools that `plumb install --tools` brings, beside the plugins. It has the tools below `bin`, the
 * libraries that they load below `lib`, and `ld.so`, the loader that starts them. Nodes without iproute2 or nftables
 * use them.
 */
export const OWN_TOOLS = '.plumb-tools'

// Finds a tool in that folder, and returns the words that start it: the loader, and what it loads. Undefined when the
// tool is not there.
function ownTool(name: string): readonly string[] | undefined {
  const dir = `${executable().replace(/\/[^/]*$/, '')}/${OWN_TOOLS}`
  const file = `${dir}/bin/${name}`
  return fs.existsSync(file) ? [`${dir}/ld.so`, '--library-path', `${dir}/lib`, file] : undefined
}
