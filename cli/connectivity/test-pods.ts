import { run } from '../../lib/os/exec.ts'
import { remove, takeLock, writeAtomic } from '../../lib/os/files.ts'
import { inodeOf, netnsState } from '../../lib/os/netns.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { type Host, warn } from '../../lib/runtime/invoke.ts'
import { type Json, type NetworkList, parseNetwork } from '../../lib/runtime/network-list.ts'
import { addNetwork, delNetwork } from '../../lib/runtime/runtime.ts'
import { ExecError } from '../../lib/text/errors.ts'
import { type NetnsPath, parse } from '../../lib/text/values.ts'

/** The network namespaces of the test pods, and what removes them. */
export interface TestPods {
  readonly spaces: readonly [NetnsPath, NetnsPath]
  /** The port of the node that leads to ECHO_PORT of the first pod, for TCP and UDP. */
  readonly hostPort?: number
  /** Detaches and removes the pods. Throws CniError when a plugin fails; the next run tries again. */
  close(): Promise<void>
}
/** The names of the objects of two test pods in the Kubernetes API. */
export interface PodNames {
  readonly namespace: string
  readonly pods: readonly [string, string]
}
/** What a later run needs to remove the pods of one that was killed. */
interface Left {
  /** The inode of the node's namespace. Another namespace stands for another node. */
  readonly node: number
  readonly plugins: readonly string[]
  /** The configuration of the network. */
  readonly network: string
}

// Who is at work: pods of a run that was killed are removed by the next one. The lock ends with the process.
const DIR = '/run/plumb/connectivity'
/** Where the attachments of test pods are remembered. */
export const CACHE = `${DIR}/cache`
const OWN = '/proc/self/ns/net' as NetnsPath
const NAMES = '/run/netns'
const IFNAME = parse.ifname('eth0')
/** The port of a test pod at which it echoes. The pod is new, so nobody else listens there. */
export const ECHO_PORT = 7070
/** Another port of a test pod. The policy of the test allows ECHO_PORT only. */
export const DENIED_PORT = 7071
/** The capability of plugins that map ports (CNI conventions, "portMappings"). */
const CAPABILITY = 'portMappings'
/** So many ports of the node are tried. */
const TRIES = 20

/**
 * Makes two test pods on this node: namespaces that the network attaches as it attaches every pod. The plugins get
 * `names` as the kubelet gives them the name of a pod. Their container ids
 * begin with `plumb-connectivity-`. Removes first what a killed run left. Throws CniError when a plugin fails, and
 * ExecError when no namespace can be made. Nothing is left then.
 */
export async function makeTestPods(
  network: NetworkList,
  plugins: readonly string[],
  names?: PodNames,
): Promise<TestPods> {
  await sweep()
  // A process id would not do: programs in containers may have the same one.
  const id = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0')
  const release = takeLock(`${DIR}/${id}.lock`)
  const left: Left = { node: inodeOf(OWN) ?? 0, plugins, network: network.text }
  writeAtomic(`${DIR}/${id}`, JSON.stringify(left), { durable: false })
  const close = async () => {
    try {
      await removePods(id, network, hostOf(plugins))
      remove(`${DIR}/${id}`)
    } finally {
      release?.()
    }
    remove(`${DIR}/${id}.lock`)
  }
  const hostPort = network.plugins.some(({ capabilities }) => capabilities.includes(CAPABILITY))
    ? await freePort()
    : undefined
  try {
    for (const [i, name] of namesOf(id).entries()) {
      await ip('netns', 'add', name)
      const pod = names?.pods[i]
      const args = names && pod ? argsOf(names.namespace, pod, name) : []
      const at = { containerId: parse.containerId(name), ifname: IFNAME, netns: spaceOf(name), args }
      const capabilityArgs = i === 0 && hostPort !== undefined ? portMappings(hostPort) : {}
      await addNetwork(network, { ...at, capabilityArgs }, hostOf(plugins))
    }
  } catch (cause) {
    await close()
    throw cause
  }
  const [one, other] = namesOf(id)
  return { spaces: [spaceOf(one), spaceOf(other)], ...(hostPort !== undefined && { hostPort }), close }
}

// The arguments of the kubelet (containerd, pkg/cri).
function argsOf(namespace: string, pod: string, container: string): (readonly [string, string])[] {
  return [
    ['IgnoreUnknown', '1'],
    ['K8S_POD_NAMESPACE', namespace],
    ['K8S_POD_NAME', pod],
    ['K8S_POD_INFRA_CONTAINER_ID', container],
  ]
}

function portMappings(hostPort: number): Json {
  const of = (protocol: string) => ({ hostPort, containerPort: ECHO_PORT, protocol })
  return { [CAPABILITY]: [of('tcp'), of('udp')] }
}

// A port at which no program of the node listens, for TCP and UDP. Undefined when none is found.
async function freePort(): Promise<number | undefined> {
  for (let i = 0; i < TRIES; i++) {
    const tcp = Bun.listen({ hostname: '0.0.0.0', port: 0, socket: { data: () => undefined } })
    const { port } = tcp
    try {
      const udp = await Bun.udpSocket({ hostname: '0.0.0.0', port })
      udp.close()
      return port
    } catch {
      // Another program listens there for UDP.
    } finally {
      tcp.stop(true)
    }
  }
  return undefined
}

// A network that cannot be detached must not stop this run. Its record stays.
async function sweep(): Promise<void> {
  for (const id of listFiles(DIR)) {
    // The records of another node are not locked, or its own run could not remove them.
    if (!/^[\da-f]{8}$/.test(id) || leftBy(id)?.node !== inodeOf(OWN)) continue
    const release = takeLock(`${DIR}/${id}.lock`)
    if (!release) continue
    try {
      // Another run may have removed it before the lock was taken.
      const left = leftBy(id)
      if (left) await removePods(id, parseNetwork(left.network, `${DIR}/${id}`), hostOf(left.plugins))
      remove(`${DIR}/${id}`)
      remove(`${DIR}/${id}.lock`)
    } catch (cause) {
      warn({ path: [] }, `Cannot remove the test pods of an earlier run: ${(cause as Error).message}`)
    } finally {
      release()
    }
  }
}

function leftBy(id: string): Left | undefined {
  const text = readText(`${DIR}/${id}`)
  return text === undefined ? undefined : (JSON.parse(text) as Left)
}

async function removePods(id: string, network: NetworkList, host: Host): Promise<void> {
  for (const name of namesOf(id)) {
    const netns = netnsState(spaceOf(name)) === 'pod' ? spaceOf(name) : ''
    await delNetwork(network, { containerId: parse.containerId(name), ifname: IFNAME, netns }, host)
    if (netnsState(spaceOf(name)) !== 'gone') await ip('netns', 'del', name)
  }
}

function namesOf(id: string): readonly [string, string] {
  return [`plumb-connectivity-${id}-1`, `plumb-connectivity-${id}-2`]
}

function spaceOf(name: string): NetnsPath {
  return parse.netns(`${NAMES}/${name}`)
}

function hostOf(plugins: readonly string[]): Host {
  return { path: plugins, cacheDir: CACHE }
}

async function ip(...words: string[]): Promise<void> {
  const argv = ['ip', ...words]
  const { status, stderr } = await run(argv, '')
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `it ended with status ${status}`)
}
