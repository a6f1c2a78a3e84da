// The files that the agent writes on the node. Begin to read here: this file writes subnet.env and the agent's own
// state. `install.ts` installs plugins and the network's configuration. `instance-lock.ts` holds the lock that keeps a
// second agent out. `systemd.ts` reports to systemd.
import * as v from 'valibot'
import { draftOf, remove, writeAtomic } from '../../lib/os/files.ts'
import { warn } from '../../lib/os/log.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { isSix, networkOf } from '../../lib/text/cidr.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, format, parseCidr, split } from '../../lib/text/ip.ts'
import { field, read } from '../../lib/text/shape.ts'
import { subnetEntries } from '../../lib/text/subnet-env.ts'
import { type NetworkName, parse } from '../../lib/text/values.ts'
import type { Both } from '../lease/lease.ts'
import { lockPath } from './instance-lock.ts'
import { wireguardKeyPaths } from './wireguard-keys.ts'

const DEFAULT = parse.network('default')

/** The network settings of the node for the pods that start on it. */
export interface NodeSubnet {
  readonly network: Both<Cidr>
  /** As network addresses, like the lease. */
  readonly subnet: Both<Cidr>
  /** The MTU of the pods' links, in bytes. */
  readonly mtu: number
  /** Whether the agent masquerades. Then the delegate does not masquerade. */
  readonly ipMasq: boolean
}

/**
 * Writes subnet.env in one step, for the CNI plugin flannel and for scripts that source it. The bytes are those of
 * flanneld (flannel pkg/subnet, WriteSubnetFile). Returns false when the file has these bytes already.
 */
export function writeSubnetEnv(path: string, node: NodeSubnet): boolean {
  return writeChanged(path, subnetEnv(node))
}

/**
 * The networks and subnets in a subnet.env, also in flanneld's. A family is undefined when the file names no value for
 * it, or several. Unreadable values are skipped, as in flanneld (main.go, ReadCIDRsFromSubnetFile).
 */
export function readSubnetEnv(path: string): Pick<NodeSubnet, 'network' | 'subnet'> {
  const entries = subnetEntries(readText(path) ?? '')
  const only = (key: string, six: boolean): Cidr | undefined => {
    const found = (entries.get(key)?.value ?? '').split(',').flatMap((text) => parsed(text.trim()) ?? [])
    const own = found.filter((cidr) => isSix(cidr) === six)
    return own.length === 1 ? own[0] : undefined
  }
  const both = (name: string) => bare({ v4: only(`FLANNEL_${name}`, false), v6: only(`FLANNEL_IPV6_${name}`, true) })
  return { network: both('NETWORK'), subnet: both('SUBNET') }
}

/**
 * The path of an agent's state file. Each agent has its own files, because two agents of a node, for two networks,
 * share one state directory.
 */
export function statePath(stateDir: string, what: 'lease' | 'network' | 'commands', instance: NetworkName): string {
  return `${stateDir}/${what}${instance === DEFAULT ? '' : `-${instance}`}.json`
}

/**
 * Saves the node's subnet, so that subnet.env can be written at boot before the store answers. Returns false when the
 * file has it already. The previous subnet is kept as `before`, as subnet.env may still show it. `forget` needs it.
 */
export function remember(stateDir: string, node: string, subnet: NodeSubnet, instance = DEFAULT): boolean {
  const path = statePath(stateDir, 'lease', instance)
  const was = saved(path, node)
  const before = was && (subnetEnv(was) === subnetEnv(subnet) ? was.before : { ...was, before: undefined })
  return writeChanged(path, `${JSON.stringify({ node, ...subnet, before }, null, 2)}\n`)
}

/**
 * The saved subnet of the node of this name. The state of another node counts as absent, because the disk may be a copy
 * of that node's disk.
 */
export function remembered(stateDir: string, node: string, instance = DEFAULT): NodeSubnet | undefined {
  const found = saved(statePath(stateDir, 'lease', instance), node)
  if (!found) return undefined
  const { before: _, ...subnet } = found
  return subnet
}

/**
 * A random value that tells this node apart from another node of the same name. It lasts as long as the state
 * directory. Undefined when there is none yet.
 */
export function identity(stateDir: string): string | undefined {
  const text = readText(identityPath(stateDir))?.trim()
  return text !== undefined && /^[\da-f-]{36}$/.test(text) ? text : undefined
}

/**
 * The same value, made when there is none. Undefined when the state directory cannot be written. That alone is no
 * reason to refuse a node.
 */
export function makeIdentity(stateDir: string): string | undefined {
  const known = identity(stateDir)
  if (known !== undefined) return known
  const made = crypto.randomUUID()
  try {
    writeChanged(identityPath(stateDir), `${made}\n`)
    return made
  } catch {
    // `remember` reports the disk error later.
    return undefined
  }
}

function identityPath(stateDir: string): string {
  return `${stateDir}/identity`
}

/**
 * Removes the saved subnet, the node's identity, its WireGuard keys of all names, the lock file and the drafts that a
 * kill left. Also removes subnet.env, if its text comes from the saved subnet or from the one before it. Returns the
 * removed paths. With `dryRun` only returns the paths.
 */
export function forget(
  stateDir: string,
  node: string,
  path: string,
  { instance = DEFAULT, dryRun = false } = {},
): string[] {
  const lease = statePath(stateDir, 'lease', instance)
  const subnet = saved(lease, node)
  const own = [subnet, subnet?.before].map((one) => one && subnetEnv(one))
  // The identity and the key belong to the node, and so to its other agents, too.
  const isLast = !listFiles(stateDir).some((name) => name.startsWith('lease') && `${stateDir}/${name}` !== lease)
  const kept = isLast ? [lease, identityPath(stateDir), ...wireguardKeyPaths(stateDir)] : [lease]
  const gone = [...(own.includes(readText(path) ?? '') ? [path] : []), ...kept].filter(
    (one) => readText(one) !== undefined,
  )
  if (dryRun) return gone
  for (const one of [...gone, lockPath(path), ...[path, ...kept].map(draftOf)]) remove(one)
  return gone
}

interface Saved extends NodeSubnet {
  readonly before?: NodeSubnet | undefined
}

function saved(path: string, node: string): Saved | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  try {
    const { node: whose, before, ...subnet } = read(shape, JSON.parse(text)).value
    return whose === node ? { ...plain(subnet), ...(before && { before: plain(before) }) } : undefined
  } catch (cause) {
    warn(`agent: Cannot use ${path}, going on without: ${(cause as Error).message}`)
    return undefined
  }
}

const both = (least: 1 | 2) =>
  v.object({
    v4: v.exactOptional(field.by((value) => own(value, false, least))),
    v6: v.exactOptional(field.by((value) => own(value, true, least))),
  })
const parts = { network: both(1), subnet: both(2), mtu: field.int(0, 65535), ipMasq: field.flag }
const shape = v.object({ node: field.text, ...parts, before: v.exactOptional(v.object(parts)) })

// The node's own address is the address after the first address of the subnet. So a subnet needs two addresses.
function own(value: unknown, six: boolean, least: 1 | 2): Cidr {
  const cidr = parseCidr(value)
  const { first, last } = split(cidr)
  if (isSix(cidr) !== six || (least === 2 && first === last))
    throw new ValueError(
      `${shown(value)}: want an IPv${six ? 6 : 4} network${least === 2 ? ' of two addresses or more' : ''}`,
    )
  return cidr
}

// Each family has the network, then the node's first address with the subnet's length. That is the address of a bridge.
function subnetEnv({ network, subnet, mtu, ipMasq }: NodeSubnet): string {
  const family = (prefix: string, net: Cidr | undefined, own: Cidr | undefined) =>
    net && own ? [`${prefix}NETWORK=${net}`, `${prefix}SUBNET=${first(own)}`] : []
  const lines = [
    ...family('FLANNEL_', network.v4, subnet.v4),
    ...family('FLANNEL_IPV6_', network.v6, subnet.v6),
    `FLANNEL_MTU=${mtu}`,
    `FLANNEL_IPMASQ=${ipMasq}`,
  ]
  return lines.map((line) => `${line}\n`).join('')
}

function first(subnet: Cidr): string {
  const { family, first: bits, length } = split(subnet)
  return `${format({ family, bits: bits + 1n })}/${length}`
}

function writeChanged(path: string, text: string): boolean {
  if (readText(path) === text) return false
  try {
    writeAtomic(path, text, { mode: 0o644, by: draftOf(path) })
  } catch (cause) {
    throw new Error(`Cannot write ${path}: ${(cause as Error).message}`, { cause })
  }
  return true
}

function parsed(text: string): Cidr | undefined {
  try {
    return networkOf(parseCidr(text))
  } catch {
    return undefined
  }
}

function bare<T>({ v4, v6 }: { readonly v4?: T | undefined; readonly v6?: T | undefined }): Both<T> {
  return { ...(v4 !== undefined && { v4 }), ...(v6 !== undefined && { v6 }) }
}

function plain({ network, subnet, ...rest }: v.InferOutput<typeof shape>['before'] & object): NodeSubnet {
  return { ...rest, network: bare(network), subnet: bare(subnet) }
}
