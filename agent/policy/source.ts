import { readFileSync } from 'node:fs'
import { parseAllDocuments } from 'yaml'
import { listFiles } from '../../lib/os/reading.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { accessOf, type Wish } from '../cluster/access.ts'
import { Api } from '../cluster/api.ts'
import { Collection, PATIENCE } from '../cluster/collection.ts'
import { type Namespace, namespaceOf, type Pod, type Policy, podOf, policyOf } from '../cluster/objects.ts'
import { watchFolders } from '../node/folder-watch.ts'
import { follow } from '../scheduler/follow.ts'
import type { Cluster } from './compile.ts'

/** Where the objects of the cluster come from: the Kubernetes API, or a folder of manifests. */
export type ObjectsWish = ({ readonly from: 'api' } & Wish) | { readonly from: 'folder'; readonly dir: string }

/** The objects that policies are about, kept up to date. */
export interface ObjectSource {
  readonly cluster: Cluster
  /** Whether everything was told once. Before that nothing is programmed: a pod would be open or closed by chance. */
  isComplete(): boolean
  /** Objects that cannot be read, one sentence each. The others count. */
  refused(): readonly string[]
  /** Keeps them up to date until the signal. Calls `changed` after each change. */
  run(changed: () => void, signal: AbortSignal): Promise<void>
}

/** Opens a source. Nothing is read before `run`. Throws ValueError for an API that cannot be reached by what is given. */
export function openObjects(wish: ObjectsWish, version: string): ObjectSource {
  return wish.from === 'folder' ? fromFolder(wish.dir) : fromApi(new Api(accessOf(wish), `plumb-agent/${version}`))
}

function fromApi(api: Api): ObjectSource {
  let told = () => {}
  const changed = () => told()
  const pods = new Collection<Pod>(api, { path: '/api/v1/pods', project: podOf }, changed)
  const namespaces = new Collection<Namespace>(api, { path: '/api/v1/namespaces', project: namespaceOf }, changed)
  const policies = new Collection<Policy>(api, { path: '/apis/networking.k8s.io/v1/networkpolicies', project: policyOf }, changed)
  const all = [pods, namespaces, policies] as const
  return {
    cluster: { pods: pods.items, namespaces: namespaces.items, policies: policies.items },
    isComplete: () => all.every(({ isListed }) => isListed),
    refused: () => all.flatMap(({ refused }) => [...refused.values()]),
    async run(change, signal) {
      told = change
      await Promise.all(
        all.map((one) => {
          // An empty list changes nothing, and has to be told all the same.
          const source = {
            known: () => one.known(),
            async list(until: AbortSignal) {
              await one.list(until)
              change()
            },
            watch: (after: string, until: AbortSignal) => one.watch(after, until),
            apply: (event: Parameters<typeof one.apply>[0]) => one.apply(event),
          }
          return follow(source, PATIENCE, signal)
        }),
      )
    },
  }
}

/** How often a folder is read though the kernel tells of no change: it may be another machine's. */
const POLL_MS = 10_000
const KINDS = { Pod: 'pods', Namespace: 'namespaces', NetworkPolicy: 'policies' } as const

function fromFolder(dir: string): ObjectSource {
  const cluster = { pods: new Map<string, Pod>(), namespaces: new Map<string, Namespace>(), policies: new Map<string, Policy>() }
  let [isComplete, refused]: [boolean, readonly string[]] = [false, []]
  function read(): void {
    const found = readManifests(dir)
    refused = found.refused
    for (const kind of ['pods', 'namespaces', 'policies'] as const) replace<unknown>(cluster[kind], found.cluster[kind])
    isComplete = true
  }
  return {
    cluster,
    isComplete: () => isComplete,
    refused: () => refused,
    async run(changed, signal) {
      const again = () => {
        read()
        changed()
      }
      await watchFolders([dir], again, again, POLL_MS, signal)
    },
  }
}

/** Reads the manifests of a folder: files .yaml, .yml and .json, with one or more documents each. What cannot be read is refused by name, and the rest counts. */
export function readManifests(dir: string): { readonly cluster: Cluster; readonly refused: readonly string[] } {
  const cluster = { pods: new Map<string, Pod>(), namespaces: new Map<string, Namespace>(), policies: new Map<string, Policy>() }
  const refused: string[] = []
  for (const name of listFiles(dir).filter((one) => /\.(ya?ml|json)$/.test(one) && !one.startsWith('.')))
    for (const raw of documentsOf(`${dir}/${name}`, refused)) {
      try {
        take(raw, cluster)
      } catch (cause) {
        if (!(cause instanceof ValueError)) throw cause
        refused.push(`${dir}/${name}: ${cause.message}`)
      }
    }
  // A namespace that only pods and policies name is there, too.
  for (const { namespace } of [...cluster.pods.values(), ...cluster.policies.values()]) if (!cluster.namespaces.has(namespace)) cluster.namespaces.set(namespace, namespaceOf({ metadata: { name: namespace } }))
  return { cluster, refused }
}

function take(raw: unknown, { pods, namespaces, policies }: { pods: Map<string, Pod>; namespaces: Map<string, Namespace>; policies: Map<string, Policy> }): void {
  const { kind, items } = (raw ?? {}) as { kind?: unknown; items?: unknown }
  if (kind === 'List' && Array.isArray(items)) for (const item of items) take(item, { pods, namespaces, policies })
  if (typeof kind !== 'string' || !Object.hasOwn(KINDS, kind)) return
  if (kind === 'Pod') {
    const pod = podOf(raw)
    if (pod) pods.set(`${pod.namespace}/${pod.name}`, pod)
  } else if (kind === 'Namespace') {
    const namespace = namespaceOf(raw)
    namespaces.set(namespace.name, namespace)
  } else {
    const policy = policyOf(raw)
    policies.set(`${policy.namespace}/${policy.name}`, policy)
  }
}

function documentsOf(path: string, refused: string[]): unknown[] {
  try {
    const documents = parseAllDocuments(readFileSync(path, 'utf8'))
    return (Array.isArray(documents) ? documents : []).flatMap((one) => {
      if (one.errors[0]) refused.push(`${path}: ${one.errors[0].message.split('\n', 1)[0]}`)
      return one.errors.length > 0 ? [] : [one.toJSON()]
    })
  } catch (cause) {
    refused.push(`${path}: ${(cause as Error).message}`)
    return []
  }
}

function replace<T>(now: Map<string, T>, wanted: ReadonlyMap<string, T>): void {
  for (const key of now.keys()) if (!wanted.has(key)) now.delete(key)
  for (const [key, value] of wanted) now.set(key, value)
}
