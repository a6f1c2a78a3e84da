import { readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { patient } from './patience.ts'

const DIST = join(import.meta.dir, '../../dist')
/** What a CNI call inherits: nothing but a PATH, as a careful runtime would have it. */
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin'
/** What a kubelet says of a pod. The plugin policy does not work without. */
const POD_ARGS = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=a'
let serial = 0
/** Programs that are called instead of those of dist/, by type and verb: `bridge ADD`. */
export const standIns = new Map<string, string>()

/** A network namespace of a test. `path` is its file; the rest runs inside it, in the test's mount namespace. */
export interface Namespace {
  /** The name the test gave it: `node`, `pod`. */
  readonly name: string
  readonly path: string
  /** `ip ARGS` in it: what it printed. Rejects when ip fails. */
  ip(...args: string[]): Promise<string>
  /** `ip -json -details ARGS` in it, parsed. */
  json(...args: string[]): Promise<Row[]>
  /** Any program in it, waited for; never rejects for a status other than 0. */
  exec(
    argv: readonly string[],
    options?: { stdin?: string | Uint8Array; env?: Readonly<Record<string, string>>; cwd?: string },
  ): Promise<Finished>
}
// biome-ignore lint/suspicious/noExplicitAny: rows of iproute2, looked at key by key in assertions
export type Row = Record<string, any>
export interface Finished {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * One CNI call: the environment of the spec by its parts; what is left out has the usual value, `null` leaves the
 * variable unset.
 */
export interface Call {
  readonly command: 'ADD' | 'DEL' | 'CHECK' | 'GC' | 'STATUS' | 'VERSION' | (string & {})
  /** Goes to standard input: an object as JSON, text as it is. */
  readonly conf?: object | string
  readonly containerId?: string | null
  readonly ifname?: string | null
  /** A namespace, a path, or `''`. */
  readonly netns?: Namespace | string | null
  readonly args?: string
  /** CNI_PATH; dist/ when left out. */
  readonly path?: string | null
  /** More variables. */
  readonly env?: Readonly<Record<string, string>>
  /** The program, when it is not dist/<type>: a peer's. */
  readonly file?: string
}
/** What a call answered: `result` when it exited 0, `error` when not, both parsed from stdout. */
export interface Answer extends Finished {
  readonly result: Row
  readonly error: { readonly code: number; readonly msg: string; readonly details: string }
}

/**
 * Wraps a test: makes a fresh network namespace per name (as the kernel makes it: lo is down), hands them over, and
 * removes them whatever happened. Mocha's context comes second, for `skip`.
 */
export function inNamespaces<N extends string>(
  names: readonly N[],
  work: (ns: Record<N, Namespace>, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return async function inside() {
    refuseHost()
    const made: Namespace[] = []
    try {
      for (const name of names) made.push(await make(name))
      await work(Object.fromEntries(made.map((ns) => [ns.name, ns])) as Record<N, Namespace>, this)
    } finally {
      await Promise.all(
        made.map(({ path }) =>
          execa('ip', ['netns', 'delete', path.slice(path.lastIndexOf('/') + 1)], { reject: false }),
        ),
      )
    }
  }
}

/** Calls a plugin of dist/ as a runtime does, inside a namespace that stands for the node. */
export async function plugin(type: string, call: Call, node: Namespace): Promise<Answer> {
  const {
    command,
    conf = '',
    containerId = 'c1',
    ifname = 'eth0',
    netns = null,
    args = type === 'policy' ? POD_ARGS : undefined,
    path = DIST,
    env = {},
    file = standIns.get(`${type} ${command}`) ?? join(DIST, type),
  } = call
  const given = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: containerId,
    CNI_IFNAME: ifname,
    CNI_NETNS: netns !== null && typeof netns === 'object' ? netns.path : netns,
    CNI_ARGS: args,
    CNI_PATH: path,
  }
  const set = Object.fromEntries(
    Object.entries(given).filter((one): one is [string, string] => typeof one[1] === 'string'),
  )
  const done = await node.exec([file], {
    stdin: typeof conf === 'string' ? conf : JSON.stringify(conf),
    env: { ...set, ...env },
  })
  const parsed = done.stdout === '' ? {} : JSON.parse(done.stdout)
  return { ...done, result: done.status === 0 ? parsed : {}, error: done.status === 0 ? {} : parsed }
}

/**
 * All that a plugin can change in a namespace, as text to compare: links, addresses, routes, rules, fixed neighbours,
 * fdb, nft ruleset, sysctls. Without indexes, counters and times.
 */
export async function snapshot({ exec, json }: Namespace): Promise<string> {
  const rows = await json('address')
  const links = rows.map(({ ifname, address, mtu, master, ifalias, promiscuity, flags, linkinfo }) => ({
    ifname,
    address,
    mtu,
    master,
    ifalias,
    promiscuity,
    up: flags.includes('UP'),
    kind: linkinfo?.info_kind,
    port: Object.entries(linkinfo?.info_slave_data ?? {}).filter(([key]) => !key.endsWith('_timer')),
  }))
  const addresses = rows.flatMap(({ ifname, addr_info }) =>
    addr_info.map(({ local, prefixlen }: Row) => `${ifname} ${local}/${prefixlen}`),
  )
  const asked = [
    'ip -4 route show table all',
    'ip -6 route show table all',
    'ip -4 rule',
    'ip -6 rule',
    'ip neighbour show nud permanent',
    // What a bridge learned comes and goes with the packets.
    "bridge fdb | grep -E 'permanent|static|extern_learn'",
    'nft --stateless list ruleset',
    'grep -rs . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf --include=forwarding --include=ip_forward --include=route_localnet --include=rp_filter --include=accept_ra --include=accept_dad --include=disable_ipv6 --include=arp_notify',
  ]
  const { stdout } = await exec(['sh', '-c', asked.map((line) => `echo '=== ${line}'\n${line}`).join('\n')])
  const texts = stdout.split(/^=== /m).map((text) => (text.startsWith('nft') ? text : sorted(text)))
  // What the kernel forgets by itself is nothing that is left.
  return [...links.map((link) => JSON.stringify(link)), ...addresses, ...texts]
    .join('\n')
    .replace(/\n\t\telements = \{[^}]* (timeout|expires) [^}]*\}/g, '')
}

/**
 * Polls until `check` gives something truthy, and gives that; rejects after `ms`, on a slow machine later, with what the
 * last try threw or gave.
 */
export async function until<T>(check: () => T | Promise<T>, ms = 5000): Promise<T> {
  for (const end = Date.now() + patient(ms); ; await Bun.sleep(20)) {
    const late = Date.now() >= end
    try {
      const found = await check()
      if (found) return found
      if (late) throw new Error(`Waited ${patient(ms)} ms, last seen: ${JSON.stringify(found)}`)
    } catch (cause) {
      if (late) throw cause
    }
  }
}

/** Whether an address answers echo requests from a namespace, one a second, within three seconds. */
export async function ping(from: Namespace, address: string): Promise<boolean> {
  return (await from.exec(['ping', '-n', '-q', '-c', '1', '-w', '3', address])).status === 0
}

/** Whether an address leaves an echo request from a namespace without an answer for a second. */
export async function isSilent(from: Namespace, address: string): Promise<boolean> {
  return (await from.exec(['ping', '-n', '-q', '-c', '1', '-w', '1', address])).status !== 0
}

async function make(name: string): Promise<Namespace> {
  const unique = `${name}-${++serial}`
  await execa('ip', ['netns', 'add', unique])
  return namespaceAt(unique, name)
}

/** A namespace by the name of its file below /run/netns, which somebody else may have made: a runtime, for a pod. */
export function namespaceAt(unique: string, name: string): Namespace {
  const path = `/run/netns/${unique}`
  async function exec(
    argv: readonly string[],
    {
      stdin = '',
      env = {},
      cwd = '/',
    }: { stdin?: string | Uint8Array; env?: Readonly<Record<string, string>>; cwd?: string } = {},
  ): Promise<Finished> {
    const done = await execa('nsenter', [`--net=${path}`, '--', ...argv], {
      input: stdin,
      env: { PATH, LC_ALL: 'C', ...env },
      extendEnv: false,
      cwd,
      reject: false,
      stripFinalNewline: false,
    })
    if (done.exitCode === undefined && !done.isTerminated) throw done
    return { status: done.exitCode ?? -1, stdout: done.stdout, stderr: done.stderr }
  }
  async function ip(...args: string[]): Promise<string> {
    return (await execa('ip', ['-n', unique, ...args])).stdout
  }
  // iproute2 prints nothing at all for an empty list of some objects.
  const json = async (...args: string[]) => JSON.parse((await ip('-json', '-details', ...args)) || '[]') as Row[]
  return { name, path, ip, json, exec }
}

// A test that ran on the machine's own network would leave its traces there.
function refuseHost(): void {
  const sandboxed =
    process.env['PLUMB_SANDBOX'] === '1' || readlinkSync('/proc/self/ns/net') !== readlinkSync('/proc/1/ns/net')
  if (!sandboxed)
    throw new Error(
      'This test changes the network: run it with `bun test/run.ts FILE`, which gives it private namespaces',
    )
}

// The kernel lists some of these in the order of a hash.
function sorted(text: string): string {
  const [line = '', ...rest] = text.split('\n')
  return [line, ...rest.filter(Boolean).sort()].join('\n')
}
