import { entries, isThere, LINK } from '../../lib/journal/journal.ts'
import { addressesNow, RT_SCOPE_LINK } from '../../lib/os/link-addresses.ts'
import { NoAnswer } from '../../lib/os/netlink-answer.ts'
import { inside, netnsState } from '../../lib/os/netns.ts'
import { listFiles, readRegular } from '../../lib/os/reading.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { type Cidr, type Ip, parseCidr, parseIp, split } from '../../lib/text/ip.ts'
import { type NetnsPath, parse } from '../../lib/text/values.ts'

// Who is meant by the words of `plumb trace`, and where the namespace of a pod is.

/** An end of a trace. */
export interface End {
  /** As the user wrote it. */
  readonly name: string
  readonly ips: readonly Ip[]
  /** The namespace of a pod of this node. Absent for the node itself, for other nodes and for strangers. */
  readonly netns?: NetnsPath
  readonly isNode?: true
}
/** A pod of this node, as one of the records has it. */
interface Attached {
  readonly container: string
  readonly ips: readonly Ip[]
  readonly netns: NetnsPath
  /** `namespace/name`, where the runtime said it. */
  readonly name?: string
  /** Its own subnets and where its routes lead, where the runtime has the result of its ADD. */
  readonly reach?: readonly Cidr[]
}

/** The folder in which most runtimes have the namespaces of pods. */
const SPACES = '/run/netns'
/** The shortest part of a container's id that is taken for one. */
const SHORTEST_ID = 6

/** The pods of this node: of plumb's journal, and of the cache of libcni in a folder. */
export function attachedPods(cacheDir: string): Attached[] {
  const ours = entries().flatMap(({ owner, ips, parts }): Attached[] => {
    const part = parts[LINK]
    if (part?.netns === undefined || !isThere(part)) return []
    return [{ container: owner.containerId, ips: ips as Ip[], netns: part.netns }]
  })
  const cached = listFiles(`${cacheDir}/results`).flatMap((file) => cachedIn(`${cacheDir}/results/${file}`))
  return [...cached, ...ours]
}

/** The pod of a namespace that the user names by its path. Throws ValueError for another file. */
export function namedPod(path: string): Attached {
  const netns = parse.netns(path)
  if (!isNamespace(netns)) throw new ValueError(`${shown(path)} is no network namespace: want the path of one`)
  return { container: '', ips: addressesOf(netns), netns }
}

function isNamespace(path: NetnsPath): boolean {
  try {
    return ['pod', 'own'].includes(netnsState(path))
  } catch {
    // Another user's.
    return false
  }
}

// The runtime's record of an attachment, kind cniCacheV1 (libcni). Its arguments name the pod.
function cachedIn(path: string): Attached[] {
  try {
    const { kind, containerId, netns, cniArgs, result } = JSON.parse(readRegular(path) ?? '') as {
      kind?: string
      containerId: string
      netns: string
      cniArgs?: readonly (readonly [string, string])[]
      result?: { ips?: readonly { address: string }[]; routes?: readonly { dst: string }[] }
    }
    if (kind !== 'cniCacheV1' || netnsState(parse.netns(netns)) !== 'pod') return []
    const args = new Map(cniArgs)
    const [space, pod] = [args.get('K8S_POD_NAMESPACE'), args.get('K8S_POD_NAME')]
    const ips = (result?.ips ?? []).map(({ address }) => parseIp(address.replace(/\/.*/, '')))
    const name = space === undefined || pod === undefined ? {} : { name: `${space}/${pod}` }
    const subnets = (result?.ips ?? []).map(({ address }) => address)
    const reach = [...subnets, ...(result?.routes ?? []).map(({ dst }) => dst)].map((one) => parseCidr(one))
    return [{ container: containerId, ips, netns: parse.netns(netns), reach, ...name }]
  } catch {
    // A file of another program, or one that is being written.
    return []
  }
}

/** The global addresses of a namespace. Empty when it cannot be entered. Throws NoAnswer. */
export function addressesOf(ns: NetnsPath | 'host'): Ip[] {
  try {
    const held = inside(ns, () => addressesNow())
    return held.flatMap(({ cidr, scope }) => (scope >= RT_SCOPE_LINK ? [] : [split(cidr).ip]))
  } catch (cause) {
    if (cause instanceof NoAnswer) throw cause
    return []
  }
}

/** The namespace on this node that holds an address: that of an attachment, else a named one. Undefined for none. */
export function namespaceOf(ip: Ip, pods: readonly Attached[]): NetnsPath | undefined {
  const attached = pods.find(({ ips }) => ips.includes(ip))
  if (attached) return attached.netns
  for (const name of listFiles(SPACES)) {
    const path = parse.netns(`${SPACES}/${name}`)
    if (netnsState(path) === 'pod' && addressesOf(path).includes(ip)) return path
  }
  return undefined
}

/**
 * Finds an end by the records of this node: `node`, the path of a namespace, an address, a container's id or its
 * beginning, or `namespace/name`. Undefined for a name that the records do not have.
 */
export function endOf(word: string, pods: readonly Attached[]): End | undefined {
  if (word === 'node') return { name: word, ips: addressesOf('host'), isNode: true }
  if (word.startsWith('/')) {
    const netns = parse.netns(word)
    const ips = addressesOf(netns)
    return netnsState(netns) === 'own' ? { name: word, ips, isNode: true } : { name: word, netns, ips }
  }
  const ip = addressIn(word)
  if (ip !== undefined) {
    if (addressesOf('host').includes(ip)) return { name: word, ips: [ip], isNode: true }
    const netns = namespaceOf(ip, pods)
    return { name: word, ips: [ip], ...(netns !== undefined && { netns }) }
  }
  const isOne = ({ container, name }: Attached) =>
    name === word || container === word || (word.length >= SHORTEST_ID && container.startsWith(word))
  const found = pods.find(isOne)
  return found && { name: word, ips: found.ips, netns: found.netns }
}

function addressIn(word: string): Ip | undefined {
  try {
    return parseIp(word)
  } catch {
    return undefined
  }
}
