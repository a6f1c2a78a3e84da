import { hostname } from 'node:os'
import { type Api, ApiError } from '../../agent/cluster/api.ts'
import { serviceOf } from '../../agent/cluster/services.ts'
import { remove, takeLock } from '../../lib/os/files.ts'
import { isSix } from '../../lib/text/cidr.ts'
import type { Ip } from '../../lib/text/ip.ts'
import type { EchoAddress } from './echo-server.ts'
import type { EndFacts } from './end.ts'
import { ECHO_PORT, type PodNames } from './test-pods.ts'

/** What leads to the first pod of a node: the addresses of its Service by family, and its ports on all nodes. */
export interface TestService {
  readonly v4?: EchoAddress
  readonly v6?: EchoAddress
  readonly nodePorts: Pick<EchoAddress, 'tcp' | 'udp'>
}
/** The name server of the cluster, and a name that it has to know with its addresses. */
export interface ClusterDns {
  readonly servers: readonly Ip[]
  readonly name: string
  readonly ips: readonly Ip[]
}
/** What the Kubernetes API has for a run, in a namespace of its own. */
export interface TestObjects {
  /** The names of the two Pod objects of each node, in the order of the nodes. */
  readonly pods: readonly PodNames[]
  /** Gives the Pod objects the addresses of the test pods. Throws UnavailableError. */
  tellAddresses(facts: readonly EndFacts[]): Promise<void>
  /** Makes a Service of two protocols for the first pod of each node. Throws UnavailableError. */
  makeServices(facts: readonly EndFacts[]): Promise<readonly TestService[]>
  /** Undefined when the cluster has no Service for DNS. Throws UnavailableError. */
  findDns(domain: string): Promise<ClusterDns | undefined>
  /** Isolates the second pods: only first pods reach them, at ECHO_PORT. Throws UnavailableError. */
  makePolicy(): Promise<void>
  /** Removes the namespace with all that is in it. Throws UnavailableError. */
  close(): Promise<void>
}

const NAMESPACES = '/api/v1/namespaces'
const DNS_SERVICES = `${NAMESPACES}/kube-system/services`
/** The label of the Service for DNS. CoreDNS and kube-dns have it. */
const DNS_LABEL = 'k8s-app=kube-dns'
const LOCKS = '/run/plumb/connectivity'
const [NAME, RUN_HOST] = ['plumb-connectivity', 'plumb-connectivity/host']
const OURS = `app.kubernetes.io/name=${NAME}`
/** A namespace of another machine that is older than this was left by a run that was killed. Milliseconds. */
const OLD_MS = 3_600_000
/** The service account of a namespace comes a moment after it, and no pod can be made before that. Milliseconds. */
const [ACCOUNT_MS, ACCOUNT_PAUSE_MS] = [15_000, 200]
/** The limit for all requests of one step, in milliseconds. */
const STEP_MS = 60_000
/** How the API server says that the service account is not there yet. A user may be one, too, so more than its name counts. */
const NO_ACCOUNT = /error looking up service account/
const CLIENT = 'client'
const SERVER = 'server'

/** Makes a namespace with two Pod objects for each of `count` nodes, after removing what killed runs left. */
export async function makeTestObjects(api: Api, count: number): Promise<TestObjects> {
  const signal = () => AbortSignal.timeout(STEP_MS)
  await sweep(api, signal())
  const id = Math.floor(Math.random() * 2 ** 32)
    .toString(16)
    .padStart(8, '0')
  const lock = `${LOCKS}/${id}-objects.lock`
  const release = takeLock(lock)
  const namespace = `${NAME}-${id}`
  const home = `${NAMESPACES}/${namespace}`
  const close = async () => {
    await removeNamespace(api, namespace, signal())
    release?.()
    remove(lock)
  }
  const pods = Array.from(
    { length: count },
    (_, i): PodNames => ({
      namespace,
      pods: [`node-${i + 1}-${CLIENT}`, `node-${i + 1}-${SERVER}`],
    }),
  )
  try {
    await api.create(NAMESPACES, namespaceObject(namespace), signal())
    await inTurn(
      pods.flatMap((one) => one.pods),
      (name) => createPod(api, `${home}/pods`, name),
    )
  } catch (cause) {
    await close().catch(() => undefined)
    throw cause
  }
  return {
    pods,
    close,
    tellAddresses: (facts) =>
      inTurn(
        facts.flatMap(({ places }, i) => [
          [pods[i]?.pods[0], places['pod 1']] as const,
          [pods[i]?.pods[1], places['pod 2']] as const,
        ]),
        async ([name, { v4, v6 }]) => {
          const podIPs = [v4, v6].flatMap((one) => (one ? [{ ip: one.ip }] : []))
          await api.patch(`${home}/pods/${name}/status`, { status: { podIP: podIPs[0]?.ip, podIPs } }, signal())
        },
      ),
    async makeServices(facts) {
      const made: TestService[] = []
      await inTurn([...facts.entries()], async ([i, { node, places }]) => {
        const { v4, v6 } = places['pod 1']
        const name = `echo-${i + 1}`
        const service = serviceOf(await api.create(`${home}/services`, serviceObject(name), signal()))
        for (const one of [v4, v6])
          if (one)
            await api.create(
              `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`,
              sliceObject(name, one.ip, node),
              signal(),
            )
        const portOf = (protocol: string) => service?.ports.find((one) => one.protocol === protocol)?.nodePort ?? 0
        const at = (wantSix: boolean) => {
          const ip = service?.clusterIPs.find((one) => isSix(one) === wantSix)
          return ip && { ip, tcp: ECHO_PORT, udp: ECHO_PORT }
        }
        const [four, six] = [at(false), at(true)]
        made[i] = {
          ...(four && { v4: four }),
          ...(six && { v6: six }),
          nodePorts: { tcp: portOf('TCP'), udp: portOf('UDP') },
        }
      })
      return made
    },
    async findDns(domain) {
      const servers: Ip[] = []
      for await (const { items } of api.list(DNS_SERVICES, { labelSelector: DNS_LABEL }, signal()))
        for (const one of items) servers.push(...(serviceOf(one)?.clusterIPs ?? []))
      const kubernetes = await api.get(`${NAMESPACES}/default/services/kubernetes`, signal())
      const ips = kubernetes === undefined ? [] : (serviceOf(kubernetes)?.clusterIPs ?? [])
      return servers.length === 0 || ips.length === 0
        ? undefined
        : { servers, name: `kubernetes.default.svc.${domain}`, ips }
    },
    makePolicy: async () =>
      void (await api.create(`/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`, POLICY, signal())),
  }
}

// A run of this machine that was killed holds no lock any more. One of another machine is known by its age.
async function sweep(api: Api, signal: AbortSignal): Promise<void> {
  for await (const { items } of api.list(NAMESPACES, { labelSelector: OURS }, signal))
    for (const one of items) {
      const { metadata } = one as { readonly metadata: Metadata }
      const [, id] = new RegExp(`^${NAME}-([\\da-f]{8})$`).exec(metadata.name) ?? []
      if (id === undefined || metadata.deletionTimestamp !== undefined) continue
      const lock = `${LOCKS}/${id}-objects.lock`
      const isOwn = metadata.labels?.[RUN_HOST] === hostLabel()
      const release = isOwn ? takeLock(lock) : undefined
      if (release || Date.now() - Date.parse(metadata.creationTimestamp ?? '') > OLD_MS)
        await removeNamespace(api, metadata.name, signal)
      release?.()
      if (release) remove(lock)
    }
}

interface Metadata {
  readonly name: string
  readonly labels?: Readonly<Record<string, string>>
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
}

async function removeNamespace(api: Api, name: string, signal: AbortSignal): Promise<void> {
  try {
    await api.remove(`${NAMESPACES}/${name}`, signal)
  } catch (cause) {
    if (!(cause instanceof ApiError && (cause.status === 404 || cause.status === 409))) throw cause
  }
}

async function createPod(api: Api, path: string, name: string): Promise<void> {
  const start = performance.now()
  for (;;) {
    try {
      await api.create(path, podObject(name), AbortSignal.timeout(STEP_MS))
      return
    } catch (cause) {
      const isEarly = cause instanceof ApiError && cause.status === 403 && NO_ACCOUNT.test(cause.message)
      if (!isEarly || performance.now() > start + ACCOUNT_MS) throw cause
      await Bun.sleep(ACCOUNT_PAUSE_MS)
    }
  }
}

// One after another: a run over many nodes must not be a burst for the API server.
async function inTurn<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  for (const one of all) await work(one)
}

// A value of a label has at most 63 letters.
function hostLabel(): string {
  return (
    hostname()
      .slice(0, 63)
      .replace(/[^\w.-]/g, '-')
      .replace(/^[^A-Za-z\d]+|[^A-Za-z\d]+$/g, '') || 'unknown'
  )
}

function namespaceObject(name: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name, labels: { 'app.kubernetes.io/name': NAME, [RUN_HOST]: hostLabel() } },
  }
}

// No scheduler takes the pod, so no kubelet runs it. Its namespace is on its node already. The security context is what
// the strictest Pod Security Standard wants.
function podObject(name: string): object {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { role: name.endsWith(CLIENT) ? CLIENT : SERVER } },
    spec: {
      schedulerName: NAME,
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, runAsUser: 65_534, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'none',
          image: 'registry.k8s.io/pause:3.10',
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
          resources: { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '1m', memory: '1Mi' } },
        },
      ],
    },
  }
}

function serviceObject(name: string): object {
  const ports = PROTOCOLS.map((protocol) => ({
    name: protocol.toLowerCase(),
    protocol,
    port: ECHO_PORT,
    targetPort: ECHO_PORT,
  }))
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name },
    spec: { type: 'NodePort', ipFamilyPolicy: 'PreferDualStack', ports },
  }
}

// The Service has no selector, so its endpoints are what is written here.
function sliceObject(service: string, ip: Ip, nodeName: string): object {
  const family = isSix(ip) ? 'IPv6' : 'IPv4'
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${service}-${family.toLowerCase()}`,
      labels: { 'kubernetes.io/service-name': service, 'endpointslice.kubernetes.io/managed-by': NAME },
    },
    addressType: family,
    ports: PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: ECHO_PORT })),
    endpoints: [{ addresses: [ip], nodeName, conditions: { ready: true } }],
  }
}
const PROTOCOLS = ['TCP', 'UDP'] as const

const POLICY = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { name: 'only-clients' },
  spec: {
    podSelector: { matchLabels: { role: SERVER } },
    policyTypes: ['Ingress'],
    ingress: [
      {
        from: [{ podSelector: { matchLabels: { role: CLIENT } } }],
        ports: PROTOCOLS.map((protocol) => ({ protocol, port: ECHO_PORT })),
      },
    ],
  },
} as const
