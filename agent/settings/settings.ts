import { hostname } from 'node:os'
import { shown, ValueError } from '../../lib/text/errors.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { printable } from '../../lib/text/printable.ts'
import { suggestion } from '../../lib/text/shape.ts'
import type { Both } from '../lease/lease.ts'
import { isNodeName } from '../lease/node-name.ts'
import { FLAGS, type Flag, type FlagName } from './flags.ts'
import { readersOf } from './readers.ts'
import { filesOf, pathOf, statusOf, storeOf, uplinkOf } from './sections.ts'
import { fromArguments, fromEnvironment, fromFile, type Given, type SettingsFile, variableOf } from './sources.ts'

/** What the agent is told, all of it judged: what is here can be used. Times in milliseconds. */
export interface Settings {
  /** Print the version, or check the settings, and end. */
  readonly only?: 'version' | 'check-config'
  readonly node: string
  readonly store: FileStoreSettings | EtcdSettings
  readonly uplink: UplinkSettings
  readonly network: NetworkSettings
  readonly firewall: FirewallSettings
  readonly files: FileSettings
  /** Where the status server listens; absent for nowhere. */
  readonly status?: { readonly host: string; readonly port: number /** Only what probes and metrics ask for, not the page. */; readonly probesOnly?: true }
  /** What the person who wrote the settings should be told, one sentence each. */
  readonly notes: readonly string[]
  /** What was said, for the log: `etcd-prefix=/net`. Secrets are left out. */
  readonly said: readonly string[]
}
/** Leases in a folder. */
export interface FileStoreSettings {
  readonly kind: 'file'
  readonly dir: string
  /** net-conf.json, for a folder that has none yet. */
  readonly netConf: string
}
/** Leases in etcd. */
export interface EtcdSettings {
  readonly kind: 'etcd'
  /** URLs, http or https. */
  readonly endpoints: readonly string[]
  /** Without a slash at its end. */
  readonly prefix: string
  /** Files in PEM; key and certificate come together. */
  readonly tls: { readonly key?: string; readonly certificate?: string; readonly authority?: string }
  readonly user?: { readonly name: string; readonly password: string }
  /** How long before its end a lease is renewed. */
  readonly renewMarginMs: number
}
/** Which link leads to the other nodes, and which addresses count. */
export interface UplinkSettings {
  /** Names or addresses, tried in order. */
  readonly interfaces: readonly string[]
  /** Then patterns for addresses, else names. */
  readonly patterns: readonly RegExp[]
  /** Then the link of the route to this address. */
  readonly canReach?: Ip
  /** flanneld's public-ip: the link that has it when nothing else names one; advertised unless `advertise` says otherwise. */
  readonly public: Both<Ip>
  readonly tunnel: Both<Ip>
  readonly advertise: Both<Ip>
}
/** How the data path is kept. */
export interface NetworkSettings {
  readonly txChecksumOffload: 'auto' | 'on' | 'off'
  readonly blackhole: boolean
  readonly allowOverlap: boolean
  /** 0: never without a reason. */
  readonly resyncMs: number
  readonly quietMs: number
  /** How often each peer is asked whether it answers; 0: never. */
  readonly probeMs: number
}
/** What is masqueraded and forwarded. */
export interface FirewallSettings {
  readonly masquerade: boolean
  readonly randomFully: boolean
  readonly forward: boolean
  readonly nonMasquerade: readonly Cidr[]
  readonly replaceFlannel: boolean
}
/** Where files of the node are. */
export interface FileSettings {
  readonly subnetEnv: string
  readonly stateDir: string
  readonly install: boolean
  readonly confDir: string
  readonly binDir: string
  /** Where the agent answers `plumb status`. */
  readonly socket: string
}

/** The settings of a command line, an environment and a file: a flag counts before the environment, that before the file, that before the default. Pure but for the host's name. Throws ValueError naming the place and the value. */
export function readSettings(argv: readonly string[], env: Readonly<Record<string, string | undefined>>, file?: SettingsFile, host = hostname()): Settings {
  const flags = fromArguments(argv)
  const { given: variables, unknown } = fromEnvironment(env)
  const given: Given = new Map([...(file ? fromFile(file) : []), ...variables, ...flags])
  const read = readersOf(given)
  if (read.flag('kube-subnet-mgr')) read.refuse('kube-subnet-mgr', 'true: plumb keeps no leases in the Kubernetes API; want --store=etcd or --store=file (docs/migrate-from-flannel.md)')
  const only = read.flag('version') ? 'version' : read.flag('check-config') ? 'check-config' : undefined
  const [store, status] = [storeOf(read, given), statusOf(read, given)]
  return {
    ...(only && { only }),
    node: read.one('node-name', nodeName) ?? nodeName(host),
    store,
    uplink: uplinkOf(read),
    ...pathOf(read),
    files: filesOf(read),
    ...(status && { status }),
    notes: notesOf(given, unknown, store),
    said: [...given].map(([name, { values }]) => `${name}=${(FLAGS[name] as Flag).secret ? '(secret)' : printed(values.join(','))}`),
  }
}

/** The file that a command line or an environment names, to be read before the rest. Throws ValueError as readSettings does. */
export function settingsPath(argv: readonly string[], env: Readonly<Record<string, string | undefined>>): string | undefined {
  return readersOf(new Map([...fromEnvironment(env).given, ...fromArguments(argv)])).one('config', (path) => path)
}

/** The settings as one line of the log: whose they are, what was said, where leases are. No secret is in it. */
export function describe({ node, store, said }: Settings): string {
  return [`node=${node}`, `store=${store.kind}`, ...said.filter((one) => !/^(node-name|store)=/.test(one))].join(' ')
}

/** Name, value and meaning of every setting, for help. */
export function settingRows(): string[][] {
  return Object.entries<Flag>(FLAGS).map(([name, { kind, value, about, fallback }]) => [`  --${name}${kind === 'flag' ? '' : ` ${value}`}`, fallback === '' || (kind === 'flag' && fallback === 'false') ? about : `${about} (${fallback})`])
}

// What works, but not as whoever wrote it may think.
function notesOf(given: Given, unknown: readonly string[], store: Settings['store']): string[] {
  const notes = [...given].flatMap(([name, { at }]) => {
    const { idle }: Flag = FLAGS[name]
    const unused = idle ?? (isForOther(name, store.kind) ? `the store is ${store.kind}` : undefined)
    return unused === undefined ? [] : [`${at} has no effect: ${unused}`]
  })
  if (given.get('etcd-password')?.from === 'flag') notes.push('--etcd-password shows the password to everybody who runs ps: want FLANNELD_ETCD_PASSWORD or the file')
  if (given.has('healthz-port') && given.has('status-address')) notes.push('healthz-port has no effect: status-address says where the status server listens')
  if (given.has('healthz-ip') && !given.has('healthz-port')) notes.push('healthz-ip has no effect without healthz-port')
  if (store.kind === 'etcd' && Object.keys(store.tls).length > 0) for (const url of store.endpoints) if (url.startsWith('http:')) notes.push(`${url} is not encrypted: the certificates are for https`)
  const names = new Map(
    Object.keys(FLAGS)
      .map((name) => variableOf(name as FlagName))
      .map((name) => [name.toLowerCase(), name]),
  )
  // In Kubernetes a Service of that name puts these into every container.
  for (const name of unknown) if (!/^FLANNELD_(SERVICE|PORT)(_|$)/.test(name)) notes.push(`${printable(name)} has no effect: there is no such setting${suggestion(name, names)}`)
  return notes
}

function printed(text: string): string {
  return /[^!-~]/.test(text) ? printable(JSON.stringify(text)) : text
}

function isForOther(name: FlagName, kind: Settings['store']['kind']): boolean {
  return kind === 'file' ? name.startsWith('etcd-') || name === 'subnet-lease-renew-margin' : name === 'file-store-dir' || name === 'net-config-path'
}

function nodeName(text: string): string {
  if (!isNodeName(text)) throw new ValueError(`${shown(text)}: want a node's name: a letter or digit, then letters, digits, ".", "_" or "-"`)
  return text
}
