import { hostname } from 'node:os'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { printable } from '../../lib/text/printable.ts'
import { suggestion } from '../../lib/text/shape.ts'
import { isNodeName } from '../lease/node-name.ts'
import { FLAGS, type Flag, type FlagName } from './flags.ts'
import { readersOf } from './readers.ts'
import {
  bgpOf,
  enforcementOf,
  filesOf,
  logFormatOf,
  pathOf,
  policyOf,
  servicesOf,
  spansOf,
  statusOf,
  storeOf,
  uplinkOf,
} from './sections.ts'
import type { Settings } from './settings.ts'
import { fromArguments, fromEnvironment, fromFile, type Given, type SettingsFile, variableOf } from './sources.ts'

/**
 * Reads the settings from a command line, an environment and a file. A flag has priority over the environment, the
 * environment over the file, and the file over the default. The function is pure except for the host name. Throws
 * ValueError that names the place and the value.
 */
export function readSettings(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  file?: SettingsFile,
  host = hostname(),
): Settings {
  const flags = fromArguments(argv)
  const { given: variables, unknown } = fromEnvironment(env)
  const given: Given = new Map([...(file ? fromFile(file) : []), ...variables, ...flags])
  const read = readersOf(given)
  const only = read.flag('version') ? 'version' : read.flag('check-config') ? 'check-config' : undefined
  const [store, status, policy] = [storeOf(read, given, podOf(given, env)), statusOf(read, given), policyOf(read)]
  const services = servicesOf(read, policy)
  const usesApi = [policy, services?.objects].some((one) => one?.from === 'api')
  return {
    ...(only && { only }),
    node: read.one('node-name', nodeName) ?? nodeName(host),
    store,
    uplink: uplinkOf(read),
    ...pathOf(read),
    files: filesOf(read),
    ...(status && { status }),
    ...(policy && { policy }),
    enforcement: enforcementOf(read),
    ...bgpOf(read),
    ...spansOf(read),
    metricsPerPeer: read.flag('metrics-per-peer'),
    logFormat: logFormatOf(read),
    ...(services && { services }),
    notes: notesOf(given, unknown, usesApi ? [store.kind, 'kube'] : [store.kind], store),
    said: [...given].map(([name, { values }]) => `${name}=${isSecret(name) ? '(secret)' : printed(values.join(','))}`),
  }
}

function isSecret(name: FlagName): boolean {
  return (FLAGS[name] as Flag).secret === true
}

/**
 * The path of the settings file from the command line or the environment. The caller reads this file first. Throws
 * ValueError as readSettings does.
 */
export function settingsPath(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  const given = new Map([...fromEnvironment(env).given, ...fromArguments(argv)])
  return readersOf(given).one('config', (path) => path)
}

/** The settings as one line for the log, without secrets: the node, the store, and the values that the user set. */
export function describe({ node, store, said }: Settings): string {
  return [`node=${node}`, `store=${store.kind}`, ...said.filter((one) => !/^(node-name|store)=/.test(one))].join(' ')
}

/** Name, value and meaning of every setting, for the help output. */
export function settingRows(): string[][] {
  return Object.entries<Flag>(FLAGS).map(([name, { kind, value, about, fallback }]) => {
    const isFlag = kind === 'flag'
    const hasDefault = fallback !== '' && !(isFlag && fallback === 'false')
    return [`  --${name}${isFlag ? '' : ` ${value}`}`, hasDefault ? `${about} (${fallback})` : about]
  })
}

// Notes about settings that are valid but may surprise the user.
function notesOf(
  given: Given,
  unknown: readonly string[],
  kinds: readonly Settings['store']['kind'][],
  store: Settings['store'],
): string[] {
  const notes = [...given].flatMap(([name, { at }]) => {
    const { idle }: Flag = FLAGS[name]
    const unused = idle ?? (kinds.every((kind) => isForOther(name, kind)) ? `the store is ${store.kind}` : undefined)
    return unused === undefined ? [] : [`${at} has no effect: ${unused}`]
  })
  if (given.get('etcd-password')?.from === 'flag')
    notes.push('--etcd-password shows the password to everybody who runs ps: want FLANNELD_ETCD_PASSWORD or the file')
  for (const name of SERVICES_ALONE)
    if (given.has(name) && !given.has('service-proxy')) notes.push(`${name} has no effect without service-proxy`)
  if (given.has('pods') && !given.has('install-cni'))
    notes.push('pods has no effect without install-cni: the network of the container runtime is not the agent’s')
  if (given.has('healthz-port') && given.has('status-address'))
    notes.push('healthz-port has no effect: status-address says where the status server listens')
  if (given.has('healthz-ip') && !given.has('healthz-port')) notes.push('healthz-ip has no effect without healthz-port')
  if (store.kind === 'etcd' && Object.keys(store.tls).length > 0)
    for (const url of store.endpoints)
      if (url.startsWith('http:')) notes.push(`${url} is not encrypted: the certificates are for https`)
  const variables = Object.keys(FLAGS).map((name) => variableOf(name as FlagName))
  const names = new Map(variables.map((name) => [name.toLowerCase(), name]))
  // In Kubernetes, a Service named flanneld puts these variables into every container.
  for (const name of unknown)
    if (!/^FLANNELD_(SERVICE|PORT)(_|$)/.test(name))
      notes.push(`${printable(name)} has no effect: there is no such setting${suggestion(name, names)}`)
  return notes
}

const SERVICES_ALONE: readonly FlagName[] = [
  'node-port-addresses',
  'service-cidr',
  'conntrack-max-per-core',
  'conntrack-min',
  'conntrack-tcp-timeout-established',
  'conntrack-tcp-timeout-close-wait',
  'conntrack-udp-timeout',
  'conntrack-udp-timeout-stream',
  'conntrack-tcp-be-liberal',
  'cluster-cidr',
  'masquerade-all',
  'replace-kube-proxy',
  'service-health-address',
  'service-proxy-force',
]

function printed(text: string): string {
  return /[^!-~]/.test(text) ? printable(JSON.stringify(text)) : text
}

function isForOther(name: FlagName, kind: Settings['store']['kind']): boolean {
  const stores = STORES.find(([names]) => names.test(name))?.[1]
  return stores !== undefined && !stores.includes(kind)
}

/** Which stores a setting is for; all others are for every store. */
const STORES: readonly (readonly [RegExp, readonly Settings['store']['kind'][]])[] = [
  [/^(etcd-|subnet-lease-renew-margin$)/, ['etcd']],
  [/^file-store-dir$/, ['file']],
  [/^net-config-path$/, ['file', 'kube']],
  [/^(kube-api-url|kube-annotation-prefix|kubeconfig-file|set-node-network-unavailable)$/, ['kube']],
]

// flannel's way when nobody names the node: the API says where the pod is.
function podOf(
  given: Given,
  env: Readonly<Record<string, string | undefined>>,
): { name: string; namespace: string } | undefined {
  const [name, namespace] = [env['POD_NAME'], env['POD_NAMESPACE']]
  return given.has('node-name') || !name || !namespace ? undefined : { name, namespace }
}

function nodeName(text: string): string {
  if (!isNodeName(text))
    throw new ValueError(`${shown(text)}: want a node's name: a letter or digit, then letters, digits, ".", "_" or "-"`)
  return text
}
