// Documents of manifests, made as the API server would hand them out. It drops blank values and unknown keys before an
// object is stored. Nobody does that for a file.
import { distance } from '../../lib/text/distance.ts'
import { shown, ValueError } from '../../lib/text/errors.ts'
import { objectAt, quoted } from './reading.ts'

/** The keys of an object, with the keys below them. A list has the shape of its items. `any`: not looked at. */
type Shape = 'any' | readonly [Shape] | { readonly [key: string]: Shape }

const ANY = 'any'
const SELECTOR: Shape = { matchLabels: ANY, matchExpressions: [{ key: ANY, operator: ANY, values: ANY }] }
const META: Shape = {
  name: ANY,
  generateName: ANY,
  namespace: ANY,
  labels: ANY,
  annotations: ANY,
  uid: ANY,
  resourceVersion: ANY,
  generation: ANY,
  creationTimestamp: ANY,
  deletionTimestamp: ANY,
  deletionGracePeriodSeconds: ANY,
  ownerReferences: ANY,
  finalizers: ANY,
  managedFields: ANY,
  selfLink: ANY,
}
const PEER: Shape = {
  podSelector: SELECTOR,
  namespaceSelector: SELECTOR,
  ipBlock: { cidr: ANY, except: ANY },
}
const PORTS: Shape = [{ protocol: ANY, port: ANY, endPort: ANY }]
const PODS: Shape = { namespaces: SELECTOR, pods: { namespaceSelector: SELECTOR, podSelector: SELECTOR } }
const NUMBERED: Shape = { destinationPort: { number: ANY, range: { start: ANY, end: ANY } } }
// What `from` and `to` may hold is for the reader to say: a peer of an unknown type closes its rule alone.
const TIER_RULE = {
  name: ANY,
  action: ANY,
  protocols: [{ tcp: NUMBERED, udp: NUMBERED, sctp: NUMBERED, destinationNamedPort: ANY }],
} as const satisfies Shape

/** What may stand in the `spec` of a kind. Of other kinds it is not looked at. */
const SPECS: Readonly<Record<string, Shape>> = {
  NetworkPolicy: {
    podSelector: SELECTOR,
    policyTypes: ANY,
    ingress: [{ from: [PEER], ports: PORTS }],
    egress: [{ to: [PEER], ports: PORTS }],
  },
  ClusterNetworkPolicy: {
    tier: ANY,
    priority: ANY,
    subject: PODS,
    ingress: [{ ...TIER_RULE, from: [ANY] }],
    egress: [{ ...TIER_RULE, to: [ANY] }],
  },
}
/** Maps of texts. A blank value there is the empty text. */
const TEXT_MAPS = ['labels', 'matchLabels', 'annotations']

/**
 * A document without its blank values, as the API server reads it. A blank key is absent, a blank text in a map or in the
 * values of a selector is empty. A kind of a CustomResourceDefinition has no empty texts: they are absent, too, outside of
 * its metadata. A blank item of a list stays.
 */
export function withoutBlanks(raw: unknown, isCustom: boolean): unknown {
  if (Array.isArray(raw)) return raw.map((one) => withoutBlanks(one, isCustom))
  if (typeof raw !== 'object' || raw === null) return raw
  const entries = Object.entries(raw).flatMap(([key, value]): [string, unknown][] => {
    const isTyped = !isCustom || key === 'metadata'
    if (value === null) return []
    if (isTyped && TEXT_MAPS.includes(key)) return [[key, withTexts(value)]]
    if (isTyped && key === 'values' && Array.isArray(value)) return [[key, value.map((one) => one ?? '')]]
    return [[key, withoutBlanks(value, !isTyped)]]
  })
  return Object.fromEntries(entries)
}

function withTexts(map: unknown): unknown {
  if (typeof map !== 'object' || map === null || Array.isArray(map)) return map
  return Object.fromEntries(Object.entries(map).map(([key, value]) => [key, value ?? '']))
}

/**
 * Throws ValueError for a key that the kind does not have, or that has a value of another form: without it the object may
 * mean something else. `versions` are the values of `apiVersion` that plumb reads. Absent, it may be any of them.
 */
export function checkDocument(raw: unknown, kind: string, versions: readonly string[]): void {
  const { apiVersion, ...rest } = raw as Readonly<Record<string, unknown>>
  const { namespace, name } = objectAt(raw, 'metadata')
  const what = [kind, [namespace, name].filter((one) => typeof one === 'string').join('/')].filter(Boolean).join(' ')
  if (apiVersion !== undefined && !versions.includes(String(apiVersion)))
    throw new ValueError(`${what}: apiVersion ${quoted(apiVersion)}: want ${versions.join(' or ')}`)
  check(rest['metadata'], META, `${what}: metadata`)
  const spec = SPECS[kind]
  if (spec === undefined) return
  check(rest, { kind: ANY, metadata: ANY, spec: ANY, status: ANY }, what)
  check(rest['spec'], spec, `${what}: spec`)
}

/** Whether `spec` of a ClusterNetworkPolicy has a key that plumb does not know. */
export function hasUnknownKey(kind: string, spec: Readonly<Record<string, unknown>>): boolean {
  const known = Object.keys(SPECS[kind] ?? {})
  return Object.keys(spec).some((key) => !known.includes(key))
}

/** The known kind that is meant by another word. Undefined when none is near. */
export function nearKind(given: string, kinds: readonly string[]): string | undefined {
  const far = (kind: string) => distance(given.toLowerCase(), kind.toLowerCase())
  // `Role` is no wrong `Node`.
  return kinds.find((kind) => far(kind) <= Math.max(1, Math.floor(kind.length / 5)))
}

function check(value: unknown, shape: Shape, what: string): void {
  if (shape === ANY || value === undefined) return
  if (isList(shape)) {
    // What is no list is refused where it is read. A blank item is an empty object there.
    for (const [i, one] of (Array.isArray(value) ? value : []).entries())
      if (one !== null) check(one, shape[0], `${what}[${i}]`)
    return
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ValueError(`${what} ${quoted(value)}: want an object`)
  for (const [key, one] of Object.entries(value)) {
    const below = Object.hasOwn(shape, key) ? shape[key] : undefined
    if (below === undefined)
      throw new ValueError(`${what}: there is no key ${shown(key)}; want ${Object.keys(shape).join(', ')}`)
    check(one, below, `${what}.${key}`)
  }
}

function isList(shape: Shape): shape is readonly [Shape] {
  return Array.isArray(shape)
}
