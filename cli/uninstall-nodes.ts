import * as v from 'valibot'
import { accessOf } from '../agent/cluster/access.ts'
import { Api } from '../agent/cluster/api.ts'
import { UnavailableError } from '../agent/scheduler/follow.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { printable } from '../lib/text/printable.ts'

const STEP_MS = 1000
/** How long pods that are being deleted may take. The kubelet tries a refused node again meanwhile. */
const GRACE_MS = 15_000
const ROLES = '/apis/rbac.authorization.k8s.io/v1'
const NAME = /^([a-z0-9]([-a-z0-9]*[a-z0-9])?)\/([a-z0-9]([-.a-z0-9]*[a-z0-9])?)$/

const count = v.optional(v.number(), 0)
const daemonSet = v.object({
  metadata: v.object({ generation: count }),
  spec: v.object({ selector: v.object({ matchLabels: v.record(v.string(), v.string()) }) }),
  status: v.object({ observedGeneration: count, desiredNumberScheduled: count, numberReady: count }),
})
const ended = v.optional(v.object({ message: v.optional(v.string()) }))
const state = v.optional(v.object({ terminated: ended }))
const pod = v.object({
  spec: v.object({ nodeName: v.optional(v.string(), '?') }),
  status: v.object({
    conditions: v.optional(v.array(v.object({ type: v.string(), status: v.string() })), []),
    initContainerStatuses: v.optional(v.array(v.object({ state, lastState: state })), []),
  }),
})

/**
 * Waits until a DaemonSet, whose pods run `plumb uninstall`, is ready on every node. Uses the cluster of the pod that
 * this process runs in. `name` is `NAMESPACE/NAME`. Returns the number of nodes. Throws ValueError for another name,
 * CniError 11 after `seconds`, with what the pod of each other node printed last.
 */
export async function waitForNodes(name: string, seconds: number): Promise<number> {
  const [, namespace = '', , set = ''] = NAME.exec(name) ?? []
  if (namespace === '')
    throw new ValueError(
      `Cannot read --daemonset ${shown(name)}: want a namespace and a name, such as plumb/plumb-uninstall`,
    )
  const api = new Api(accessOf({}), 'plumb-uninstall')
  const path = `/apis/apps/v1/namespaces/${namespace}/daemonsets/${set}`
  const end = performance.now() + seconds * 1000
  let refusedAt: number | undefined
  for (let missing = ''; ; await Bun.sleep(STEP_MS)) {
    const signal = AbortSignal.timeout(Math.max(STEP_MS, end - performance.now()))
    try {
      const found = await api.get(path, signal)
      if (found === undefined)
        throw new CniError(CODE.config, `Cannot wait for DaemonSet ${name}: the cluster has none of this name`)
      const { metadata, spec, status } = v.parse(daemonSet, found)
      if (status.observedGeneration >= metadata.generation && status.numberReady >= status.desiredNumberScheduled)
        return status.numberReady
      missing = `${status.numberReady} of ${status.desiredNumberScheduled} nodes are clean`
      const others = await messages(api, namespace, spec.selector.matchLabels)
      // Every other node says that pods live there. More time changes nothing.
      const refused = others.filter((one) => one.isRefused).length
      const isRefused = others.length > 0 && status.numberReady + refused >= status.desiredNumberScheduled
      refusedAt = isRefused ? (refusedAt ?? performance.now()) : undefined
      const isOver = performance.now() >= end || (refusedAt !== undefined && performance.now() - refusedAt >= GRACE_MS)
      if (isOver)
        throw new CniError(
          CODE.tryLater,
          `Cannot clean every node: ${missing}`,
          [...others.map(({ text }) => text), AFTERWARDS, ...(await removeHook(api, namespace, set))].join('; '),
        )
    } catch (cause) {
      if (!(cause instanceof UnavailableError) || performance.now() >= end) throw cause
    }
  }
}

const FORCE = 'uninstall.force=true removes the network under living pods'
const AFTERWARDS = `delete the pods, then helm install and helm uninstall once more; ${FORCE}`

// Removes what Helm leaves of a failed hook: all but the Job. The objects become dependents of the ClusterRole, which
// goes. Gives what could not be removed.
async function removeHook(api: Api, namespace: string, name: string): Promise<string[]> {
  const signal = AbortSignal.timeout(10_000)
  const owner = `${ROLES}/clusterroles/${name}`
  const own = [
    `/apis/apps/v1/namespaces/${namespace}/daemonsets`,
    ...['configmaps', 'serviceaccounts'].map((kind) => `/api/v1/namespaces/${namespace}/${kind}`),
    ...['roles', 'rolebindings'].map((kind) => `${ROLES}/namespaces/${namespace}/${kind}`),
    `${ROLES}/clusterrolebindings`,
  ]
  try {
    const found = await api.get(owner, signal)
    if (found === undefined) return []
    const { metadata } = v.parse(v.object({ metadata: v.object({ uid: v.string() }) }), found)
    const ownerReferences = [
      { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', name, uid: metadata.uid },
    ]
    for (const path of own) await api.patch(`${path}/${name}`, { metadata: { ownerReferences } }, signal)
    await api.remove(owner, signal)
    return []
  } catch (cause) {
    return [`DaemonSet ${namespace}/${name} and its rights stay: ${(cause as Error).message}`]
  }
}

/** What the pod of a node said last. */
interface Said {
  readonly text: string
  /** Pods live there that plumb attached. */
  readonly isRefused: boolean
}

// The last words of the pods that are not ready, by node.
async function messages(api: Api, namespace: string, labels: Readonly<Record<string, string>>): Promise<Said[]> {
  const labelSelector = Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join()
  const said: Said[] = []
  for await (const { items } of api.list(
    `/api/v1/namespaces/${namespace}/pods`,
    { labelSelector },
    AbortSignal.timeout(10_000),
  ))
    for (const one of items) {
      const { spec, status } = v.parse(pod, one)
      if (status.conditions.some(({ type, status }) => type === 'Ready' && status === 'True')) continue
      const [init] = status.initContainerStatuses
      const message = init?.state?.terminated?.message ?? init?.lastState?.terminated?.message
      const words = (message?.trim() ?? 'has not started')
        .split(/\s*\n\s*/)
        .map(printable)
        .join(' ')
      said.push({ text: `${spec.nodeName}: ${words}`, isRefused: words.includes('of the pods that plumb attached') })
    }
  return said
}
