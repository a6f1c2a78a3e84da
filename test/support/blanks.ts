// Policies with a blank value at each place where one can stand, and what the API server makes of them.

/** A document with one blank value. */
export interface Blank {
  readonly kind: 'NetworkPolicy' | 'ClusterNetworkPolicy'
  /** Where the blank is: `spec.ingress[0].from`. */
  readonly path: string
  readonly blank: object
  /** The document that it is for the API server. Undefined: the server refuses it. */
  readonly meant: object | undefined
}

const SELECTOR = {
  matchLabels: { app: 'a', tier: 'b' },
  matchExpressions: [{ key: 'env', operator: 'In', values: ['p', 'q'] }],
}
const PORTS = [
  { protocol: 'TCP', port: 80, endPort: 90 },
  { protocol: 'UDP', port: 'dns' },
]
const peers = [
  { podSelector: SELECTOR, namespaceSelector: SELECTOR },
  { ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16', '10.2.0.0/16'] } },
]
const NETWORK_POLICY = {
  apiVersion: 'networking.k8s.io/v1',
  kind: 'NetworkPolicy',
  metadata: { namespace: 'x', name: 'a', labels: { app: 'a' }, annotations: { note: 'b' } },
  spec: {
    podSelector: SELECTOR,
    policyTypes: ['Ingress', 'Egress'],
    ingress: [{ from: peers, ports: PORTS }],
    egress: [{ to: peers, ports: PORTS }],
  },
}
const pods = { pods: { namespaceSelector: SELECTOR, podSelector: SELECTOR } }
const PROTOCOLS = [
  { tcp: { destinationPort: { number: 80 } } },
  { udp: { destinationPort: { range: { start: 1, end: 9 } } } },
  { destinationNamedPort: 'web' },
]
const CLUSTER_POLICY = {
  apiVersion: 'policy.networking.k8s.io/v1beta1',
  kind: 'ClusterNetworkPolicy',
  metadata: { name: 'a', labels: { app: 'a' } },
  spec: {
    tier: 'Admin',
    priority: 7,
    subject: pods,
    ingress: [{ name: 'one', action: 'Deny', from: [{ namespaces: SELECTOR }, pods], protocols: PROTOCOLS }],
    egress: [{ action: 'Accept', to: [{ nodes: SELECTOR }, { networks: ['10.0.0.0/8', 'fd00::/8'] }] }],
  },
}

/** All places, with one blank each. */
export function blankDocuments(): Blank[] {
  return [
    ...placesOf(NETWORK_POLICY).flatMap((place) => blankAt('NetworkPolicy', NETWORK_POLICY, place)),
    ...placesOf(CLUSTER_POLICY).flatMap((place) => blankAt('ClusterNetworkPolicy', CLUSTER_POLICY, place)),
  ]
}

type Place = readonly (string | number)[]

// Without what tells which object it is.
function placesOf(value: unknown, place: Place = []): Place[] {
  const below = Array.isArray(value)
    ? value.flatMap((one, i) => placesOf(one, [...place, i]))
    : typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, one]) => placesOf(one, [...place, key]))
      : []
  const isNamed = place.length === 0 || /^(kind|apiVersion|metadata|metadata\.name(space)?)$/.test(place.join('.'))
  return isNamed ? below : [place, ...below]
}

function blankAt(kind: Blank['kind'], document: object, place: Place): Blank[] {
  const [last, key] = [place.at(-1) as string | number, place.at(-2)]
  const path = place.join('.').replace(/\.(\d+)/g, '[$1]')
  const isTyped = kind === 'NetworkPolicy' || place[0] === 'metadata'
  const isText = key === 'matchLabels' || key === 'labels' || key === 'annotations' || key === 'values'
  const meant = () => {
    if (typeof last === 'number') {
      if (!isTyped) return undefined
      // A blank item is one without any key, and an empty text in a list of texts.
      return withValue(document, place, key === 'values' || key === 'policyTypes' || key === 'except' ? '' : {})
    }
    return withValue(document, place, isTyped && isText ? '' : undefined)
  }
  return [{ kind, path, blank: withValue(document, place, null), meant: meant() }]
}

function withValue(value: unknown, [first, ...rest]: Place, now: unknown): object {
  const below = (one: unknown) => (rest.length === 0 ? now : withValue(one, rest, now))
  if (Array.isArray(value)) return value.map((one, i) => (i === first ? below(one) : one))
  const entries = Object.entries(value as object).map(([key, one]) => [key, key === first ? below(one) : one])
  return Object.fromEntries(entries.filter(([, one]) => one !== undefined))
}
