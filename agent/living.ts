import { existsSync } from 'node:fs'
import { type Entry, entries, isThere, partsOf } from '../lib/journal/journal.ts'
import { linksNow } from '../lib/os/links.ts'
import { listCached } from '../lib/runtime/cache.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import { hostVeth } from '../lib/text/link-names.ts'
import { firstOf } from '../lib/text/listing.ts'
import type { Owner } from '../lib/text/owner.ts'
import { brief } from '../lib/text/values.ts'
import { orphaned } from '../lib/verbs/orphans.ts'
import { run } from './kernel/run.ts'
import { PLUGINS } from './node/plugins.ts'

const CACHE = '/var/lib/cni'
/** Pods that a refusal names. Kubernetes keeps 2 kB of what a container printed last. */
const NAMED = 20

/** Throws CniError 11 while pods live that plumb attached. `what` names the deed that would cut them off. */
export function requireNoPods(what: string): void {
  const pods = living()
  if (pods.length > 0)
    throw new CniError(
      CODE.tryLater,
      `Cannot ${what}: ${alive(pods)}`,
      'delete them first (kubectl drain, plumb cni del), or use --force',
    )
}

/** The pods that live, in a part of a sentence. */
export function alive(pods: readonly string[]): string {
  const live = pods.length === 1 ? 'lives' : 'live'
  return `${pods.length} of the pods that plumb attached ${live}: ${firstOf(pods, NAMED)}`
}

/**
 * Returns the attachments of plumb's plugins whose pods live, as `NAMESPACE/POD`. One whose pod nobody has named is
 * `NETWORK CONTAINER:INTERFACE`. Looks at the links on the node, at the journal, and at the cache that runtimes keep.
 */
export function living(): string[] {
  const pods = podNames()
  const gone = new Set(orphaned(run).map(nameOf))
  const byLink = linksNow().flatMap(({ alias }) =>
    isAttachment(alias) ? [alias.replace(/^plumb\/([^/]*)\/([^/]*)\//, '$1 $2:')] : [],
  )
  const byEntry = entries().flatMap((entry) =>
    isIn(entry) && !gone.has(nameOf(entry.owner)) ? [nameOf(entry.owner)] : [],
  )
  const byRuntime = cachedLiving().flatMap((one) => (isOurs(one.config) ? [nameOf(one)] : []))
  const named = (one: string) => pods.get(one.slice(one.indexOf(' ') + 1, one.lastIndexOf(':'))) ?? one
  return [...new Set([...byLink, ...byEntry, ...byRuntime].map(named))].sort()
}

// The pods of Kubernetes by container id, shortened as in `nameOf`: from the plugin policy's part of the journal, and
// from the arguments that the kubelet gives with each ADD.
function podNames(): ReadonlyMap<string, string> {
  const recorded = entries().flatMap(({ owner, parts }) => {
    const admissions = (parts['policy']?.own ?? []).filter((one) => one.kind === 'admission')
    return admissions.map((one) => [brief(owner.containerId), `${one.endpoint.namespace}/${one.endpoint.pod}`] as const)
  })
  const given = listCached(CACHE).entries.flatMap(({ containerId, args }) => {
    const [namespace, pod] = ['K8S_POD_NAMESPACE', 'K8S_POD_NAME'].map(
      (key) => args.find(([name]) => name === key)?.[1],
    )
    return namespace && pod ? [[brief(containerId), `${namespace}/${pod}`] as const] : []
  })
  return new Map([...recorded, ...given])
}

function isIn(entry: Entry): boolean {
  return partsOf(entry).some(([, part]) => isThere(part)) || run.link?.(hostVeth(entry.owner), 'host') === true
}

/** What runtimes keep of attachments whose network namespace is there. */
export function cachedLiving() {
  return listCached(CACHE).entries.filter(({ netns }) => netns !== '' && existsSync(netns))
}

/** Tells whether one of plumb's plugins makes the interface. The first plugin of the configuration makes it. */
export function isOurs(config: string): boolean {
  const [main] = pluginsOf(config)
  return main?.type !== undefined && PLUGINS.includes(main.type)
}

interface Configured {
  readonly type?: string
  readonly ipam?: { readonly type?: string; readonly dataDir?: string }
}

/** The plugins of a configuration. One that cannot be parsed counts as one without plugins. */
export function pluginsOf(config: string): readonly Configured[] {
  try {
    const { plugins, ...single } = JSON.parse(config)
    return Array.isArray(plugins) ? plugins : [single]
  } catch {
    return []
  }
}

/** Whether the alias of a link says that it belongs to an attachment of plumb. */
export function isAttachment(alias: string): boolean {
  return alias.startsWith('plumb/')
}

/** An attachment as messages name it: `NETWORK CONTAINER:INTERFACE`, shortened. */
export function nameOf({ network, containerId, ifname }: Owner): string {
  return `${brief(network)} ${brief(containerId)}:${ifname}`
}
