// The agents of a cluster: a target for each Node. The API server leads to the agent of a node by port-forward.
import { type Api, ApiError } from '../../agent/cluster/api.ts'
import { isNodeName } from '../../agent/lease/node-name.ts'
import { askByPortForward, type PodPort } from './port-forward.ts'
import type { Reply, Target, Targets } from './target.ts'

/** The label of the agent's pods in the chart and in conf/kubernetes.yaml. */
const LABEL = 'app=plumb-agent'
const ZONE = 'topology.kubernetes.io/zone'
/** The port of `--status-address` when the pod has no probe that names another one. */
const PORT = 9469
const WANTED = 'get and create of pods/portforward'

/** A Node, as far as it matters here. */
interface Node {
  readonly name: string
  readonly zone?: string
  readonly isLinux: boolean
}
/** The pod of an agent. */
interface AgentPod extends PodPort {
  readonly node: string
  /** Why it cannot be asked. */
  readonly problem?: string
}

/**
 * Lists the Nodes of Linux and the agents' pods, of all namespaces or of one. A list that the role does not allow is a
 * note: without Nodes the nodes of the pods count, and without pods no node can be asked. Throws UnavailableError when the
 * API does not answer.
 */
export async function clusterTargets(api: Api, signal: AbortSignal, namespace?: string): Promise<Targets> {
  const podsPath = namespace === undefined ? '/api/v1/pods' : `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`
  const [nodes, pods] = await Promise.all([
    listed(api, '/api/v1/nodes', {}, nodeOf, signal),
    listed(api, podsPath, { labelSelector: LABEL }, podOf, signal),
  ])
  const known = new Map(nodes.items.filter(({ isLinux }) => isLinux).map((node) => [node.name, node]))
  const byNode = new Map(pods.items.map((pod) => [pod.node, pod]))
  if (nodes.refusal !== undefined) for (const { node: name } of pods.items) known.set(name, { name, isLinux: true })
  const all = [...known.values()].map(({ name, zone }) => targetOf(api, name, zone, byNode.get(name), pods.refusal))
  const isEmpty = pods.refusal === undefined && pods.items.length === 0
  const note = [
    ...(nodes.refusal === undefined ? [] : [nodes.refusal]),
    ...(pods.refusal === undefined ? [] : [pods.refusal]),
    ...(isEmpty ? [`the cluster has no pod with the label ${LABEL}: is plumb installed there?`] : []),
  ].join('; ')
  return { all, ...(note !== '' && { note }) }
}

function targetOf(
  api: Api,
  name: string,
  zone: string | undefined,
  pod: AgentPod | undefined,
  refusal: string | undefined,
): Target {
  const missing = refusal === undefined ? 'no pod of the agent runs there' : 'its agent is not known'
  const problem = pod === undefined ? missing : pod.problem
  return {
    name,
    ...(zone !== undefined && { zone }),
    ...(problem !== undefined && { problem }),
    async ask(path, signal): Promise<Reply> {
      if (pod === undefined || problem !== undefined) throw new Error(problem)
      try {
        return await askByPortForward(api, pod, path, signal)
      } catch (cause) {
        throw cause instanceof ApiError ? new Error(wordsOf(cause), { cause }) : cause
      }
    },
  }
}

/** What a refusal of the API comes to, the same for all nodes. */
function wordsOf({ status, message }: ApiError): string {
  if (status === 404) return 'the pod of the agent is gone'
  const [, dialled] = /error dialing backend: (?:dial \w+(?: \S+)?: )?(?:lookup \S+ on \S+: )?(.+)$/.exec(message) ?? []
  if (dialled !== undefined) return `the API server does not reach the kubelet: ${dialled}`
  if (/: \d+ no preferred addresses found/.test(message)) return 'the Node tells no address of its kubelet'
  if (status !== 403) return message
  const [, who = ''] = /is forbidden: (User "[^"]*") /.exec(message.replaceAll('\\"', '"')) ?? []
  return `the Kubernetes API does not allow ${who === '' ? 'it' : `it to ${who}`}: want a role with ${WANTED}`
}

async function listed<T>(
  api: Api,
  path: string,
  query: Readonly<Record<string, string>>,
  read: (item: unknown) => T | undefined,
  signal: AbortSignal,
): Promise<{ readonly items: readonly T[]; readonly refusal?: string }> {
  const items: T[] = []
  try {
    for await (const page of api.list(path, query, signal)) for (const item of page.items) push(items, read(item))
    return { items }
  } catch (cause) {
    if (!(cause instanceof ApiError) || cause.status !== 403) throw cause
    return { items, refusal: cause.message }
  }
}

function push<T>(items: T[], item: T | undefined): void {
  if (item !== undefined) items.push(item)
}

function nodeOf(item: unknown): Node | undefined {
  const { metadata } = item as { metadata?: { name?: unknown; labels?: Record<string, unknown> | null } }
  const { name, labels } = metadata ?? {}
  if (typeof name !== 'string' || !isNodeName(name)) return undefined
  const [zone, os] = [labels?.[ZONE], labels?.['kubernetes.io/os']]
  return {
    name,
    ...(typeof zone === 'string' && zone !== '' && { zone }),
    isLinux: os === undefined || os === null || os === 'linux',
  }
}

// Pods that are over stay in the list for a while, beside the one that has taken their place.
function podOf(item: unknown): AgentPod | undefined {
  const { metadata, spec, status } = item as {
    metadata?: { name?: unknown; namespace?: unknown }
    spec?: { nodeName?: unknown; containers?: readonly { livenessProbe?: { httpGet?: { port?: unknown } } }[] }
    status?: { phase?: unknown }
  }
  const [name, namespace, node, phase] = [metadata?.name, metadata?.namespace, spec?.nodeName, status?.phase]
  if (typeof name !== 'string' || typeof node !== 'string' || phase === 'Succeeded' || phase === 'Failed')
    return undefined
  const ports = (spec?.containers ?? []).map((one) => one.livenessProbe?.httpGet?.port)
  const isRunning = phase === undefined || phase === 'Running'
  return {
    namespace: typeof namespace === 'string' ? namespace : 'default',
    pod: name,
    node,
    port: ports.find((port): port is number => typeof port === 'number') ?? PORT,
    ...(!isRunning && { problem: `the pod of the agent is ${String(phase)}` }),
  }
}
