import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Server } from 'bun'
import { certificates } from './certificates.ts'
import { kubeconfigOf } from './kubeconfig.ts'
import { type Destination, type Forwarded, forwardOf, kubelet, upgrade } from './port-forward.ts'
import type { KubeCluster } from './suites/testKube.ts'

/** An object of the API, as JSON. */
export interface Raw {
  metadata: {
    name: string
    namespace?: string
    annotations?: Record<string, string | null>
    labels?: Record<string, string | null>
    resourceVersion?: string
    creationTimestamp?: string
    [key: string]: unknown
  }
  spec?: Record<string, unknown>
  status?: { conditions?: { type: string; [key: string]: unknown }[]; [key: string]: unknown }
}

/** What a request is answered with instead of the truth; undefined for the truth. */
export type Fault = (asked: {
  readonly method: string
  readonly url: URL
  readonly headers: Headers
  readonly body: string
}) => Response | Promise<Response | undefined> | undefined

/**
 * An API server in this process: objects by path, lists in pages, watches, patches. It stands in for kube-apiserver
 * where a test has to make it lie, hang or cut; `suites/testKube.ts` passes on both.
 */
export interface KubeServer {
  readonly url: string
  readonly kubeconfig: string
  readonly caFile: string
  /** Answers with this instead, until it is set back. */
  fault: Fault | undefined
  /**
   * Where the port of a pod leads to, for port-forward. No such pod when it gives undefined. `no kubelet`: nobody listens
   * where the kubelet of its node should be.
   */
  forward: ((pod: string, port: number) => Destination | 'no kubelet' | undefined) | undefined
  /** The objects at a path. */
  list(path: string): readonly Raw[]
  /** Adds or replaces an object of a list, without a request. */
  put(list: string, object: Raw): void
  /** Removes the object with this key, `namespace/name` or `name`, without a request. */
  drop(list: string, key: string): void
  /** How far its clock is ahead of this machine's, in milliseconds. */
  aheadMs: number
  /** What was asked, `GET /api/v1/nodes?watch=true`, since the last call. */
  asked(): string[]
  /** Ends every watch: `how` is what is still sent, in bytes. */
  cut(how?: string | Uint8Array): void
  /** Sends a line to every watch. */
  tell(line: string): void
  /** Forgets all changes: a client that watches from before them is told 410. */
  compact(): void
  /**
   * Closes the port, and opens it again with other certificates: of another authority, good for so many days. They are
   * in the same files, also that of the authority; `unknown` leaves the authority's file as it was.
   */
  renew(days?: number | 'early', isUnknown?: 'unknown'): Promise<void>
  /**
   * Sends nothing more to the watches that are there, and keeps their connections: what a load balancer does that has
   * forgotten them.
   */
  hush(): void
  /** Closes the port; `open` opens it again. */
  close(): void
  open(): void
  readonly isOpen: boolean
}

const TOKEN = 'secret-of-the-test'
const NODES = '/api/v1/nodes'
const dirs: string[] = []
const servers: { stop(force: boolean): unknown }[] = []
// The bench takes kubeconfigs from here, without mocha.
if (typeof afterEach === 'function')
  afterEach(() => {
    for (const one of servers.splice(0)) one.stop(true)
    for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true })
  })

interface Watcher {
  readonly path: string
  readonly send: (text: string | Uint8Array) => void
  readonly end: () => void
}

/**
 * Starts one on an address of this machine, until the test ends: with a certificate of an authority of its own, for
 * clients with the token.
 */
export async function kubeServer(ip = '127.0.0.1'): Promise<KubeServer> {
  const dir = mkdtempSync('/tmp/kube-')
  dirs.push(dir)
  const { caFile = '' } = await certificates(dir, [{ name: 'api', ip }])
  const objects = new Map<string, Map<string, Raw>>()
  const watchers = new Set<Watcher>()
  const history: { readonly version: number; readonly path: string; readonly line: string }[] = []
  let [version, oldest, port, serial] = [1, 0, 0, 0]
  const asked: string[] = []
  const places = customPlaces(() => [...(objects.get(DEFINITIONS)?.values() ?? [])])
  let server: Server<Forwarded> | undefined
  const made: KubeServer = {
    get url() {
      return `https://${ip.includes(':') ? `[${ip}]` : ip}:${port}`
    },
    kubeconfig: join(dir, 'kubeconfig'),
    caFile,
    fault: undefined,
    forward: undefined,
    list: (path) => [...(objects.get(path)?.values() ?? [])],
    put(list, object) {
      const kept = objects.get(list) ?? new Map<string, Raw>()
      objects.set(list, kept)
      put(list, kept, object, kept.has(keyOf(list, object)) ? 'MODIFIED' : 'ADDED')
      if (list === DEFINITIONS) endWatches(customList(object))
    },
    drop(list, key) {
      const found = objects.get(list)?.get(key)
      if (!found) return
      objects.get(list)?.delete(key)
      told(list, 'DELETED', { ...found, metadata: { ...found.metadata, resourceVersion: `${++version}` } })
    },
    aheadMs: 0,
    asked: () => asked.splice(0),
    cut(how) {
      for (const watcher of [...watchers]) {
        if (how !== undefined) watcher.send(how)
        watcher.end()
      }
    },
    tell(line) {
      for (const watcher of watchers) watcher.send(`${line}\n`)
    },
    hush() {
      watchers.clear()
    },
    compact() {
      oldest = ++version
    },
    async renew(days, isUnknown) {
      await server?.stop(true)
      const known = readFileSync(caFile)
      await certificates(dir, [{ name: 'api', ip }], days)
      if (isUnknown) writeFileSync(caFile, known)
      open()
    },
    close() {
      server?.stop(true)
      server = undefined
    },
    get isOpen() {
      return server !== undefined
    },
    open,
  }
  function open(): void {
    const tls = { cert: readFileSync(join(dir, 'api.pem')), key: readFileSync(join(dir, 'api.key')) }
    server = Bun.serve({
      hostname: ip,
      port,
      idleTimeout: 0,
      tls,
      websocket: kubelet,
      async fetch(request, here): Promise<Response> {
        const response = await answer(request, here)
        // The connection is a WebSocket now.
        if (!response) return new Response()
        if (made.aheadMs !== 0) response.headers.set('Date', new Date(Date.now() + made.aheadMs).toUTCString())
        return response
      },
    })
    servers.push(server)
    port = server.port ?? 0
  }
  async function answer(request: Request, here: Server<Forwarded>): Promise<Response | undefined> {
    const url = new URL(request.url)
    const { method, headers } = request
    asked.push(`${method} ${url.pathname}${url.search}`)
    const body = method === 'GET' ? '' : await request.text()
    const faulty = await made.fault?.({ method, url, headers, body })
    if (faulty) return faulty
    if (headers.get('Authorization') !== `Bearer ${TOKEN}`) return refusal(401, 'Unauthorized', 'Unauthorized')
    const forwarded = forwardOf(url)
    if (forwarded) {
      const to = made.forward?.(forwarded.pod, forwarded.port)
      if (!to) return refusal(404, 'NotFound', `pods "${forwarded.pod}" not found`)
      if (to === 'no kubelet' && headers.get('Upgrade') === 'websocket')
        return refusal(500, '', 'error dialing backend: dial tcp 127.0.0.1:10250: connect: connection refused')
      if (to !== 'no kubelet' && upgrade(here, request, { ...forwarded, to, waiting: [] })) return undefined
      return refusal(400, 'BadRequest', 'Upgrade request required')
    }
    const found = places.of(url.pathname.replace(/\/status$/, ''))
    if (found instanceof Response) return found
    const path = found
    if (url.searchParams.get('watch') === 'true') return watch(path, Number(url.searchParams.get('resourceVersion')))
    const { list, namespace, name } = placeOf(path)
    const kept = objects.get(list) ?? new Map<string, Raw>()
    objects.set(list, kept)
    if (method === 'POST') return create(list, namespace, kept, JSON.parse(body) as Raw)
    if (name === undefined) return page(selected(kept, namespace, url), url)
    const object = kept.get(name)
    if (!object) return refusal(404, 'NotFound', `nodes "${name}" not found`)
    if (method === 'GET') return Response.json(object)
    if (method === 'PATCH') {
      const answer = put(list, kept, merged(object, JSON.parse(body) as Raw), 'MODIFIED')
      // kube-apiserver ends the watches of a kind that changes.
      if (list === DEFINITIONS) endWatches(customList(object))
      return answer
    }
    if (list === DEFINITIONS) undefine(object)
    kept.delete(name)
    if (list === '/api/v1/namespaces') emptied(name)
    return told(list, 'DELETED', { ...object, metadata: { ...object.metadata, resourceVersion: `${++version}` } })
  }
  // A definition goes after all of its objects.
  function undefine(definition: Raw): void {
    const list = customList(definition)
    for (const one of objects.get(list)?.values() ?? [])
      told(list, 'DELETED', { ...one, metadata: { ...one.metadata, resourceVersion: `${++version}` } })
    objects.delete(list)
    endWatches(list)
  }
  function endWatches(list: string): void {
    for (const watcher of [...watchers]) if (watcher.path === list) watcher.end()
  }
  function create(list: string, namespace: string, kept: Map<string, Raw>, object: Raw): Response {
    const metadata = namespace === '' ? object.metadata : { ...object.metadata, namespace }
    if (kept.has(keyOf(list, { metadata }))) return refusal(409, 'AlreadyExists', `"${metadata.name}" already exists`)
    const made = { ...object, metadata }
    return put(list, kept, list === '/api/v1/services' ? allocated(made, ++serial) : made, 'ADDED')
  }
  // What the controller of namespaces does.
  function emptied(namespace: string): void {
    for (const [list, kept] of objects)
      for (const [key, one] of kept)
        if (one.metadata.namespace === namespace) {
          kept.delete(key)
          told(list, 'DELETED', { ...one, metadata: { ...one.metadata, resourceVersion: `${++version}` } })
        }
  }
  function put(list: string, kept: Map<string, Raw>, object: Raw, type: string): Response {
    const now = {
      ...object,
      metadata: { creationTimestamp: new Date().toISOString(), ...object.metadata, resourceVersion: `${++version}` },
    }
    kept.set(keyOf(list, now), now)
    return told(list, type, now)
  }
  function told(list: string, type: string, object: Raw): Response {
    const line = `${JSON.stringify({ type, object })}\n`
    history.push({ version, path: list, line })
    for (const watcher of watchers) if (watcher.path === list) watcher.send(line)
    return Response.json(object)
  }
  function page(kept: ReadonlyMap<string, Raw>, url: URL): Response {
    const [limit, from] = [
      Number(url.searchParams.get('limit') ?? 0) || kept.size,
      Number(url.searchParams.get('continue') ?? 0),
    ]
    const items = [...kept.values()].slice(from, from + limit)
    const next = from + limit < kept.size ? `${from + limit}` : undefined
    return Response.json({
      kind: 'List',
      metadata: {
        resourceVersion: `${version}`,
        ...(next && { continue: next, remainingItemCount: kept.size - from - limit }),
      },
      items,
    })
  }
  function watch(path: string, since: number): Response {
    if (since < oldest)
      return Response.json({
        type: 'ERROR',
        object: { kind: 'Status', code: 410, reason: 'Expired', message: 'too old resource version' },
      })
    let watcher: Watcher | undefined
    const stream = new ReadableStream<Uint8Array>({
      start(controller) {
        const encoder = new TextEncoder()
        watcher = {
          path,
          send: (text) => controller.enqueue(typeof text === 'string' ? encoder.encode(text) : text),
          end() {
            watchers.delete(watcher as Watcher)
            controller.close()
          },
        }
        watchers.add(watcher)
        // kube-apiserver sends the head of its answer at once; Bun waits for the first bytes.
        watcher.send('\n')
        for (const one of history) if (one.path === path && one.version > since) watcher.send(one.line)
      },
      cancel() {
        if (watcher) watchers.delete(watcher)
      },
    })
    return new Response(stream, { headers: { 'Content-Type': 'application/json' } })
  }
  open()
  writeFileSync(join(dir, 'token'), TOKEN)
  writeFileSync(made.kubeconfig, kubeconfigOf(made.url, caFile, `tokenFile: ${join(dir, 'token')}`))
  return made
}

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
const BUILT_IN = /^(networking|discovery|apiextensions)\.k8s\.io$/

interface Definition {
  readonly group: string
  readonly names: { readonly plural: string }
  readonly versions: readonly { readonly name: string; readonly served: boolean }[]
}

// Where the objects of a kind are kept, whatever the version is.
function customList({ spec }: Raw): string {
  const { group, names } = spec as unknown as Definition
  return `/apis/${group}/*/${names.plural}`
}

// The groups of CustomResourceDefinitions: their discovery, and their lists in the versions that are served.
function customPlaces(definitions: () => readonly Raw[]) {
  const missing = () => refusal(404, 'NotFound', 'the server could not find the requested resource')
  return {
    /** The path by which an object is kept, or an answer. */
    of(path: string): string | Response {
      const [, group = '', version, plural, rest = ''] =
        /^\/apis\/([^/]+)(?:\/([^/]+))?(?:\/([^/]+))?(\/.*)?$/.exec(path) ?? []
      if (group === '' || BUILT_IN.test(group)) return path
      const all = definitions().filter(({ spec }) => (spec as unknown as Definition).group === group)
      const served = all.flatMap((one) => {
        const { names, versions } = one.spec as unknown as Definition
        return versions.flatMap(({ name, served }) => (served ? [{ one, name, plural: names.plural }] : []))
      })
      if (version === undefined)
        return served.length === 0
          ? missing()
          : Response.json({
              kind: 'APIGroup',
              name: group,
              versions: [...new Set(served.map(({ name }) => name))].map((name) => ({
                groupVersion: `${group}/${name}`,
                version: name,
              })),
            })
      const those = served.filter(({ name }) => name === version)
      if (plural === undefined)
        return those.length === 0
          ? missing()
          : Response.json({ kind: 'APIResourceList', resources: those.map((one) => ({ name: one.plural })) })
      const found = those.find((one) => one.plural === plural)
      return found ? `${customList(found.one)}${rest}` : missing()
    },
  }
}

/** Asks as the administrator. `type` is the content type of `body`. Undefined when GET finds nothing. */
export type Asking = (
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: object,
  type?: string,
) => Promise<Raw | undefined>

/** The administrator's hands on a server of this process. */
export function administered(server: KubeServer): KubeCluster & { readonly ask: Asking } {
  const headers = { Authorization: `Bearer ${TOKEN}` }
  const ask: Asking = async (method, path, body) => {
    const response = await fetch(`${server.url}${path}`, {
      method,
      headers,
      tls: { ca: readFileSync(server.caFile) },
      ...(body && { body: JSON.stringify(body) }),
    } as RequestInit)
    return response.ok ? ((await response.json()) as Raw) : undefined
  }
  return {
    ask,
    kubeconfig: server.kubeconfig,
    create: async (name, podCIDRs, annotations = {}, status = {}) =>
      void (await ask('POST', NODES, {
        metadata: { name, annotations },
        spec: podCIDRs.length > 0 ? { podCIDR: podCIDRs[0], podCIDRs } : {},
        status,
      })),
    annotate: async (name, annotations) => void (await ask('PATCH', `${NODES}/${name}`, { metadata: { annotations } })),
    label: async (name, labels) => void (await ask('PATCH', `${NODES}/${name}`, { metadata: { labels } })),
    heartbeat: async (name, ready = 'True') =>
      void (await ask('PATCH', `${NODES}/${name}`, {
        status: { conditions: [{ type: 'Ready', status: ready, lastHeartbeatTime: new Date().toISOString() }] },
      })),
    remove: async (name) => void (await ask('DELETE', `${NODES}/${name}`)),
    get: (name) => ask('GET', `${NODES}/${name}`),
  }
}

// Objects of these kinds are kept for all namespaces together, with the namespace in their names.
const NAMESPACED = /^(\/.*?)(?:\/namespaces\/([^/]+))?\/(pods|services|endpointslices|networkpolicies)(?:\/([^/]+))?$/

function placeOf(path: string): { list: string; namespace: string; name: string | undefined } {
  const [, root, namespace, kind, one] = NAMESPACED.exec(path) ?? []
  if (root !== undefined && kind !== undefined) {
    const name = one === undefined ? undefined : namespace === undefined ? one : `${namespace}/${one}`
    return { list: `${root}/${kind}`, namespace: namespace ?? '', name }
  }
  const [, list = '', name] =
    /^(.*\/(?:nodes|namespaces|events|customresourcedefinitions|[a-z]*networkpolicies))(?:\/([^/]+))?$/.exec(path) ?? []
  return { list, namespace: '', name }
}

function keyOf(list: string, { metadata: { namespace, name } }: Pick<Raw, 'metadata'>): string {
  return namespace === undefined || list.endsWith('/events') ? name : `${namespace}/${name}`
}

function selected(kept: ReadonlyMap<string, Raw>, namespace: string, url: URL): ReadonlyMap<string, Raw> {
  const wanted = (url.searchParams.get('labelSelector') ?? '').split(',').filter((one) => /^[^!]*=/.test(one))
  const isWanted = ({ metadata }: Raw) =>
    (namespace === '' || metadata.namespace === namespace) &&
    wanted.every((one) => metadata.labels?.[one.split('=')[0] as string] === one.split('=')[1])
  return new Map([...kept].filter(([, one]) => isWanted(one)))
}

// The addresses and node ports that kube-apiserver gives to a Service.
function allocated(service: Raw, n: number): Raw {
  const { clusterIPs = [`10.96.1.${n}`, `fd00:96::1:${n}`], ports = [], ...spec } = service.spec ?? {}
  const withNodePorts = (ports as object[]).map((port, i) => ({
    ...port,
    ...(spec['type'] === 'NodePort' && { nodePort: 30_000 + n * 10 + i }),
  }))
  const [clusterIP] = clusterIPs as string[]
  return { ...service, spec: { ...spec, clusterIP, clusterIPs, ports: withNodePorts } }
}

/** Makes an object in a list, as an administrator. */
export async function administer(server: KubeServer, path: string, object: object): Promise<void> {
  const response = await fetch(`${server.url}${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${TOKEN}` },
    tls: { ca: readFileSync(server.caFile) },
    body: JSON.stringify(object),
  } as RequestInit)
  if (!response.ok) throw new Error(await response.text())
}

/** An answer that refuses, as kube-apiserver words it. */
export function refusal(code: number, reason: string, message: string, headers: Record<string, string> = {}): Response {
  return Response.json({ kind: 'Status', status: 'Failure', code, reason, message }, { status: code, headers })
}

// A strategic merge patch of a Node: maps by key, null removes, conditions by their type.
function merged(object: Raw, change: Raw): Raw {
  const mapOf = (key: 'annotations' | 'labels') =>
    Object.fromEntries(
      Object.entries({ ...object.metadata[key], ...change.metadata?.[key] }).filter(([, value]) => value !== null),
    )
  const changed = change.status?.conditions ?? []
  const conditions = [
    ...(object.status?.conditions ?? []).filter(({ type }) => !changed.some((one) => one.type === type)),
    ...changed,
  ]
  return {
    ...object,
    ...change,
    spec: { ...object.spec, ...change.spec },
    metadata: { ...object.metadata, annotations: mapOf('annotations'), labels: mapOf('labels') },
    status: { ...object.status, ...change.status, conditions },
  }
}

/** A rule of a ClusterRole. */
export interface Rule {
  readonly apiGroups: readonly string[]
  readonly resources: readonly string[]
  readonly verbs: readonly string[]
}

/** Answers as RBAC does for a user with these rules only. For `server.fault`. */
export function allowing(rules: readonly Rule[], user: string): Fault {
  return ({ method, url }) => {
    // Everybody who logs in may ask what the server has (system:discovery).
    if (/^\/apis\/[^/]+(\/[^/]+)?$/.test(url.pathname)) return undefined
    const [, subresource] = /\/pods\/[^/]+\/(portforward)$/.exec(url.pathname) ?? []
    const { list, name } = placeOf(url.pathname)
    const kind = list.slice(list.lastIndexOf('/') + 1)
    const resource = subresource === undefined ? kind : `pods/${subresource}`
    const reading = name === undefined && subresource === undefined ? 'list' : 'get'
    const verb = { GET: reading, POST: 'create', PATCH: 'patch', DELETE: 'delete' }[method] ?? method
    // Since Kubernetes 1.35, a WebSocket for port-forward needs both.
    const wanted = subresource === undefined ? [verb] : ['get', 'create']
    const missing = wanted.find(
      (one) => !rules.some(({ resources, verbs }) => resources.includes(resource) && verbs.includes(one)),
    )
    const [pod] = /[^/]+(?=\/portforward$)/.exec(url.pathname) ?? []
    const what = pod === undefined ? resource : `pods "${pod}"`
    const where = pod === undefined ? 'at the cluster scope' : 'in the namespace "plumb"'
    const who = `User "${user}" cannot ${missing} resource "${resource}" in API group "" ${where}`
    // kube-apiserver's second check of a port-forward does not say who misses the verb.
    const why = pod !== undefined && missing === 'create' ? '' : who
    return missing === undefined ? undefined : refusal(403, 'Forbidden', `${what} is forbidden: ${why}`)
  }
}
